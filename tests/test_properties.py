"""Properties files, as Java reads them, and those that hold secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.errors import ConfigError
from kappa.properties import parsed, read_secret, written


@given(st.dictionaries(st.from_regex(r"[a-z.]{1,9}", fullmatch=True), st.text(st.characters(codec="ascii"))))
def test_written_properties_are_read_back(settings: dict[str, str]) -> None:
    printable = {name: "".join(c for c in value if c.isprintable()) for name, value in settings.items()}
    assert parsed(written(printable)) == printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = b", {"a": "b"}),
        ("a:b=c", {"a": "b=c"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("! no\n  # no\n\na=1", {"a": "1"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (r"a\:b=\u0041\=", {"a:b": "A="}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parsed(text) == expected


def test_a_secret_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("a=ö\n")
    for mode in (0o600, 0o640):
        file.chmod(mode)
        assert read_secret(str(file), "KAPPA_SECRETS", "keys", ["a"]) == {"a": "ö"}
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=rf"^{file} has mode 0644: .* it contains keys\. Run: chmod 600 {file}$"):
        read_secret(str(file), "KAPPA_SECRETS", "keys", ["a"])


def test_a_secret_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    for path, reason in ((tmp_path / "missing", "No such file"), (tmp_path, "Is a directory"), (binary, "not text")):
        with pytest.raises(ConfigError, match=rf"^KAPPA_SECRETS names {path}, .* host: .*{reason}.*: ls -l {path}$"):
            read_secret(str(path), "KAPPA_SECRETS", "keys", ["a"])


def test_a_secret_on_the_line_after_its_name_is_in_no_message(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("# keys\npassword=\\\n  one\nuser\ntop/secret:of=me\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=rf"^{file} has something in line 5 that is not a setting\. Known are: ") as e:
        read_secret(str(file), "KAPPA_SECRETS", "keys", ["password", "user"])
    assert "secret:" not in str(e.value) and "top" not in str((e.value, e.value.data))
