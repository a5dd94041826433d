"""What a disk holds after a power cut: what was there before, and since then only what was brought to it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kappa.delta import log_entries
from kappa.store import local


class PowerCutError(SystemExit):
    """The machine is off: nothing that a driver would do about an error is done."""


@dataclass(kw_only=True)
class Disk:
    """A folder on a disk that forgets what nobody brought to it.

    A file is there after the cut if its bytes were brought to the disk, and its name in its folder, and that folder's
    in its own.
    """

    root: Path
    files: dict[Path, bytes] = field(default_factory=dict)
    names: dict[Path, set[str]] = field(default_factory=dict)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take note of every fsync; what is there now is on the disk."""
        self.settle()

        def fsync(path: Path) -> None:
            if path.is_dir():
                self.names[path] = {item.name for item in path.iterdir()}
            else:
                self.files[path] = path.read_bytes()

        for module in (local, log_entries):
            monkeypatch.setattr(module, "fsync", fsync)

    def settle(self) -> None:
        """All that is there now is on the disk, as after some quiet seconds."""
        self.files = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        folders = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        self.names = {path: {item.name for item in path.iterdir()} for path in folders}

    def image(self) -> dict[Path, bytes]:
        """The files that would be there if the power went now."""
        return {path: content for path, content in self.files.items() if self._is_named(path)}

    def restore(self, image: dict[Path, bytes]) -> int:
        """Make the folder what the image says; how many files it had that are gone, or have other bytes."""
        lost = sum(image.get(path) != path.read_bytes() for path in self.root.rglob("*") if path.is_file())
        shutil.rmtree(self.root)
        for path, content in image.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.settle()
        return lost

    def _is_named(self, path: Path) -> bool:
        if path == self.root:
            return True
        return path.name in self.names.get(path.parent, set()) and self._is_named(path.parent)
