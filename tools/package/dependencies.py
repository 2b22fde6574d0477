"""Print what distributions depend on, apart from each other. ``python -m tools.package.dependencies PYPROJECT…``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path


def dependencies(files: Iterable[Path]) -> list[str]:
    """The requirements in pyproject.toml files that are not for one of these distributions."""
    projects = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files]
    own = tuple(f"{project['name']}==" for project in projects)
    return sorted({each for project in projects for each in project["dependencies"] if not each.startswith(own)})


if __name__ == "__main__":
    print(*dependencies(map(Path, sys.argv[1:])), sep="\n")  # noqa: T201
