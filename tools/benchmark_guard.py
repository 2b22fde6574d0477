"""Compare the cost of scheduling with that of another commit: ``make benchmark-guard``.

    python -m tools.benchmark_guard [--base origin/main] [--pairs 5] [--fail-above 10]

Both versions run the same workloads with the engine alone, in turn, each in a process of its own. What is compared is
the CPU time per pod: the median over the pairs of the ratio of the two. Ratios within a pair are hardly affected by a
machine whose speed changes, and the median not by single outliers. The other version is the merge base with ``--base``,
in a git worktree in a temporary folder. The exit status is 1 if a workload costs more than the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
_FILES = ROOT / "packages" / "kubestow-lab" / "src" / "kubestow_lab" / "scheduler_perf" / "workloads"

#: Workloads that together use the parts of the engine whose cost matters, with their parameters: seconds each.
WORKLOADS: Mapping[str, Sequence[str]] = {
    "SchedulingBasic/500Nodes": ("pods=5000",),
    "SchedulingPodAntiAffinity/500Nodes": ("nodes=4000", "pods=3000"),
    "SchedulingPreferredPodAffinity/500Nodes": ("pods=5000",),
    "TopologySpreading/500Nodes": ("pods=5000",),
    "SchedulingCSIPVs/500Nodes": ("pods=3000",),
    "PreemptionBasic/500Nodes": ("nodes=1500", "init=6000", "pods=1500"),
}

Costs = Mapping[str, float]
"""CPU seconds per pod, by workload."""


@cache
def metadata_of(checkout: Path) -> TemporaryDirectory[str]:
    """The metadata of a checkout's packages as if it were installed, in a folder that goes with this process.

    The entry points of the installed packages name modules that another version may lack, and lack commands that it
    has. Metadata that comes first on the path counts alone; packages that the checkout lacks have no entry points.
    """
    folder = TemporaryDirectory(prefix="kubestow-metadata-")
    for name in {_project(file)["name"] for file in ROOT.glob(_PROJECT_FILES)}:
        _write_metadata(Path(folder.name), {"name": name, "version": "0"})
    for file in checkout.glob(_PROJECT_FILES):
        _write_metadata(Path(folder.name), _project(file))
    return folder


_PROJECT_FILES = "packages/*/pyproject.toml"


def _project(file: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(file.read_text())["project"]
    return project


def _write_metadata(folder: Path, project: Mapping[str, Any]) -> None:
    """Write the name, version and entry points of a package, in place of those of another version."""
    info = folder / f"{project['name'].replace('-', '_')}.dist-info"
    info.mkdir(exist_ok=True)
    written = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(written)
    entry_points = ConfigParser(delimiters="=", interpolation=None)
    entry_points.optionxform = str  # type: ignore[assignment, method-assign]  # names are case-sensitive
    entry_points.read_dict(project.get("entry-points", {}))
    with (info / "entry_points.txt").open("w") as file:
        entry_points.write(file)


def environment_of(checkout: Path) -> dict[str, str]:
    """The environment of a process that runs the code of a checkout, with its entry points."""
    sources = map(str, sorted(checkout.glob("packages/*/src")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join((metadata_of(checkout).name, *sources))}


def measure(checkout: Path) -> Costs:
    """Run all workloads with the code of a checkout."""
    costs = {}
    for name, parameters in WORKLOADS.items():
        options = [f"--param={parameter}" for parameter in parameters]
        command = [sys.executable, "-m", "kubestow", "bench", str(_FILES), f"--filter=^{name}$", "--core", "-ojson"]
        done = subprocess.run([*command, *options], env=environment_of(checkout), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name} failed with the code in {checkout}: {done.stderr.strip() or done.stdout.strip()}")
        [workload] = json.loads(done.stdout)["workloads"]
        costs[name] = workload["phases"][0]["scheduler"]["cpuSecondsPerPod"]
    return costs


def _pair(base: Path, current: Path, *, base_first: bool) -> tuple[Costs, Costs]:
    """Measure both; the order alternates, so that what favours the first or the second run does not add up."""
    if base_first:
        before = measure(base)
        return before, measure(current)
    now = measure(current)
    return measure(base), now


def median_ratios(pairs: Sequence[tuple[Costs, Costs]]) -> dict[str, float]:
    """For each workload the median over the pairs of the cost now by the cost before."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for before, now in pairs:
        for name in now:
            ratios[name].append(now[name] / before[name])
    return {name: statistics.median(values) for name, values in ratios.items()}


def excesses(ratios: Mapping[str, float], limit: float) -> list[str]:
    """The workloads whose cost has risen by more than the fraction ``limit``."""
    return [name for name, ratio in ratios.items() if ratio - 1 > limit]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """A worktree of a commit in a temporary folder, removed on exit."""
    with TemporaryDirectory(prefix="kubestow-guard-") as folder:
        path = Path(folder) / "base"
        _git("worktree", "add", "--detach", str(path), commit)
        try:
            yield path
        finally:
            _git("worktree", "remove", "--force", str(path))


def main() -> None:
    """Compare, print the ratios, and exit."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--base", default="origin/main")
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--fail-above", type=float, default=10.0, metavar="PERCENT")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worktree is removed
    try:
        commit = _git("merge-base", options.base, "HEAD")
    except subprocess.CalledProcessError as error:
        sys.exit(f"no merge base with {options.base}: {error.stderr.strip()}")
    with worktree(commit) as base:
        if not (base / "packages").is_dir():
            sys.exit(f"the merge base {commit[:10]} has no kubestow bench, so nothing can be compared")
        pairs = []
        for number in range(options.pairs):
            print(f"pair {number + 1} of {options.pairs}", file=sys.stderr)  # noqa: T201
            pairs.append(_pair(base, ROOT, base_first=number % 2 == 0))
    ratios = median_ratios(pairs)
    too_much = excesses(ratios, options.fail_above / 100)
    for name, ratio in ratios.items():
        print(f"{name:45} {ratio:6.3f} {'too much' if name in too_much else ''}")  # noqa: T201
    sys.exit(int(bool(too_much)))


if __name__ == "__main__":
    main()
