"""Write requirements/: what each installation of this repository consists of, with the hashes of all its files.

    python -m tools.lock

The versions are those of constraints.txt; those of the packages that `make schema` reads are in pyproject.toml, which
has several of each. The hashes are those of every wheel and source distribution of a version, so the files serve every
platform and every supported Python. Each file is complete: it is installed with ``--no-deps --require-hashes``. Run
this after a change of constraints.txt or of a dependency. Needs uv and a package index.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.package.dependencies import dependencies

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
#: The packages of the container image, besides the faster event loop.
IMAGE = ("kubestow", "kubestow-contrib")
#: What builds the distributions, without build isolation.
BUILD = ("hatchling", "editables")
#: The packages of each minor version of Kubernetes that `make schema` reads.
SCHEMA = "schema-"
#: The oldest Python that all pinned versions support.
PYTHON = "3.11.2"


def installations() -> dict[str, list[str]]:
    """The requirements of each installation by its name; versions of their own are lower bounds."""
    groups = _toml(ROOT)["dependency-groups"]
    core, lab = (
        _toml(ROOT / "packages" / name)["project"]["optional-dependencies"] for name in ("kubestow", "kubestow-lab")
    )
    return {
        "development": [
            *dependencies(sorted(ROOT.glob("packages/*/pyproject.toml"))),
            *(*core["solvers"], *lab["experiment"], *lab["gym"], *lab["mcp"], *groups["dev"], *BUILD),
        ],
        "build": list(BUILD),
        "image": [*dependencies(ROOT / "packages" / name / "pyproject.toml" for name in IMAGE), *core["speed"]],
        **{name: group for name, group in groups.items() if name.startswith(SCHEMA)},
        "fuzz": groups["fuzz"],
    }


def lock(name: str, requirements: list[str], uv: str) -> None:
    """Write the file of one installation. Raises CalledProcessError if uv fails, which says why."""
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON, "--generate-hashes"]
    command += ["--no-config", "--no-annotate", "--no-header", "--constraint", "constraints.txt", "-"]
    if name.startswith(SCHEMA):  # only its data files are read
        command.append("--no-deps")
    compiled = subprocess.run(
        command, input="\n".join(requirements), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    ).stdout
    source = "pyproject.toml" if name.startswith(SCHEMA) else "constraints.txt"
    header = f"# {name.capitalize()}: written by `python -m tools.lock` from {source}. Do not edit.\n"
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text(header + compiled, encoding="utf-8")


def _toml(folder: Path) -> Mapping[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    for each, wanted in installations().items():
        lock(each, wanted, str(Path(sys.executable).with_name("uv")))
