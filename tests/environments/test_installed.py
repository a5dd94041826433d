"""What is installed in folders of an import path, from the names of metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kappa.environments.installed import installed


def metadata(folder: Path, name: str, direct_url: object = None, version: str = "") -> None:
    """A folder of metadata, as installers leave it."""
    place = folder / name
    place.mkdir(parents=True)
    if direct_url is not None:
        (place / "direct_url.json").write_text(json.dumps(direct_url))
    if version:
        (place / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: x\nVersion: {version}\n")


def test_names_are_normal_and_versions_those_of_the_folders(tmp_path: Path) -> None:
    for name in ("Zope.Interface-6.1.dist-info", "my_lib-2.0.post1.dist-info", "old_one-1.2-py3.11.egg-info"):
        metadata(tmp_path, name)
    (tmp_path / "my_lib").mkdir()
    assert installed([str(tmp_path)])["distributions"] == {
        "zope-interface": "6.1",
        "my-lib": "2.0.post1",
        "old-one": "1.2",
    }


def test_what_an_interrupted_uninstallation_left_is_not_installed(tmp_path: Path) -> None:
    for name in ("~umpy-1.26.4.dist-info", "numpy-2.0.0.dist-info"):
        metadata(tmp_path, name)
    assert installed([str(tmp_path)])["distributions"] == {"numpy": "2.0.0"}


def test_the_first_of_two_counts_as_in_an_import(tmp_path: Path) -> None:
    metadata(tmp_path / "one", "lib-1.0.dist-info")
    metadata(tmp_path / "two", "lib-2.0.dist-info")
    answer = installed([str(tmp_path / "one"), str(tmp_path / "gone"), str(tmp_path / "two"), str(tmp_path / "one")])
    assert answer["distributions"] == {"lib": "1.0"}
    assert list(answer["folders"]) == [str(tmp_path / "one"), str(tmp_path / "two")]


@pytest.mark.parametrize(
    ("origin", "is_unversioned"),
    [
        ({"url": "file:///srv/lib", "dir_info": {"editable": True}}, True),
        ({"url": "file:///srv/lib", "dir_info": {}}, True),
        ({"url": "file:///srv/lib-1.0-py3-none-any.whl", "archive_info": {}}, False),
        (["of no known form"], False),
        (None, False),
    ],
)
def test_a_distribution_from_a_folder_has_a_version_that_says_nothing(
    tmp_path: Path, origin: object, is_unversioned: bool
) -> None:
    metadata(tmp_path, "lib-1.0.dist-info", origin)
    answer = installed([str(tmp_path)])
    assert answer["distributions"] == {"lib": "1.0"}
    assert answer["unversioned"] == (["lib"] if is_unversioned else [])


def test_a_source_folder_on_the_path_has_a_version_that_says_nothing(tmp_path: Path) -> None:
    metadata(tmp_path, "lib.egg-info", version="0.3")
    answer = installed([str(tmp_path)])
    assert (answer["distributions"], answer["unversioned"]) == ({"lib": "0.3"}, ["lib"])


def test_a_commit_of_a_repository_is_part_of_the_version(tmp_path: Path) -> None:
    origin = {"url": "https://x/lib.git", "vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef"}}
    metadata(tmp_path, "lib-1.0.dist-info", origin)
    answer = installed([str(tmp_path)])
    assert (answer["distributions"], answer["unversioned"]) == ({"lib": "1.0 at 0123456789ab"}, [])
