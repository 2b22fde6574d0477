"""Private files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kubestow.errors import InputError
from kubestow.files import write_private


def test_private_files_are_replaced_atomically_with_mode_0600(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_a_missing_directory_raises_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_private(tmp_path / "none" / "key", b"")


def test_a_file_that_waits_under_the_temporary_name_gets_no_content(tmp_path: Path) -> None:
    """Someone else may own it, in a directory that several users write to."""
    waiting, link = tmp_path / f".key.{os.getpid()}", tmp_path / "link"
    waiting.touch(mode=0o666)
    link.hardlink_to(waiting)
    path = tmp_path / "key"
    write_private(path, b"secret")
    assert link.read_bytes() == b""
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"secret", 0o600)
