"""Pages whose commands are run again, to see whether they still print what the page shows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.first_steps.transcript import Session, environment, rewritten


def replayed(
    page: str, root: Path, *, links: Mapping[str, Path] | None = None, variables: Mapping[str, str] | None = None
) -> str:
    """The page with what its commands print now, in an empty folder below ``root`` but for ``links``.

    ``kubestow`` is that of this environment, and nothing is installed.
    """
    home, programs, folder = (root / name for name in ("home", "bin", "work"))
    for each in (home, programs, folder):
        each.mkdir()
    kubestow = programs / "kubestow"
    kubestow.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubestow "$@"\n')
    kubestow.chmod(0o755)
    for name, target in (links or {}).items():
        (folder / name).symlink_to(target)
    with Session(folder, {**environment(home, programs), **(variables or {})}) as session:
        return rewritten(page, session, installs=False)
