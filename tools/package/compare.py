"""Compare two wheels: the same files with the same contents. ``python -m tools.package.compare WHEEL WHEEL``."""

from __future__ import annotations

import sys
import zipfile


def differences(first: str, second: str) -> list[str]:
    """The names of files that only one wheel has, or that differ."""
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        names = {*one.namelist()} ^ {*other.namelist()}
        common = {*one.namelist()} & {*other.namelist()}
        return sorted(names | {name for name in common if one.read(name) != other.read(name)})


if __name__ == "__main__":
    found = differences(*sys.argv[1:3])
    sys.exit("\n".join(f"differs: {name}" for name in found) if found else 0)
