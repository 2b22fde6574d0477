"""Run the commands of docs/first-steps.md, and write what they print, or with ``--check`` compare it.

``python -m tools.first_steps DIST [--python PYTHON] [--check]``, with the folder of all wheels and source
distributions; the status is 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.first_steps.transcript import Session, environment, rewritten, same

from kubestow.version import VERSION

PAGE = Path(__file__).parents[2] / "docs" / "first-steps.md"


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="tools.first_steps", description="Run the commands of docs/first-steps.md.")
    parser.add_argument("dist", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="Stands for python3.")
    parser.add_argument("--check", action="store_true", help="Compare, do not write.")
    arguments = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    with TemporaryDirectory(prefix="first-steps-") as temporary:
        folder, home, programs = (Path(temporary, name) for name in ("work", "home", "bin"))
        for each in (folder, home, programs):
            each.mkdir()
        for file in (*arguments.dist.glob("*.whl"), *arguments.dist.glob(f"kubestow-{VERSION}.tar.gz")):
            shutil.copy(file, folder)
        (programs / "python3").symlink_to(arguments.python.absolute())
        with Session(folder, environment(home, programs)) as session:
            after = rewritten(before, session)
    if not arguments.check:
        PAGE.write_text(after, encoding="utf-8")
        return 0
    if same(before, after):
        sys.stdout.write("docs/first-steps.md shows what its commands print\n")
        return 0
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "page", "now"))
    return 1


if __name__ == "__main__":
    sys.exit(main())
