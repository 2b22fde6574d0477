"""Compare the cost of scheduling with that of another commit: ``make benchmark-guard``.

    python -m tools.performance.guard [--base origin/main] [--pairs 5] [--fail-above 10]

Both versions run the same workloads with the engine alone, in turn, each in a process of its own. What is compared is
the CPU time per pod: the median over the pairs of the ratio of the two. Ratios within a pair are hardly affected by a
machine whose speed changes, and the median not by single outliers. The other version is the merge base with ``--base``,
in a git worktree in a temporary folder. The exit status is 1 if a workload costs more than the limit.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.performance.checkouts import ROOT, git, worktree
from tools.performance.measures import Costs, measure_engine, median_ratios


def _pair(base: Path, current: Path, *, base_first: bool) -> tuple[Costs, Costs]:
    """Measure both; the order alternates, so that what favours the first or the second run does not add up."""
    if base_first:
        before = measure_engine(base)
        return before, measure_engine(current)
    now = measure_engine(current)
    return measure_engine(base), now


def excesses(ratios: Mapping[str, float], limit: float) -> list[str]:
    """The workloads whose cost has risen by more than the fraction ``limit``."""
    return [name for name, ratio in ratios.items() if ratio - 1 > limit]


def main() -> None:
    """Compare, print the ratios, and exit."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--base", default="origin/main")
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--fail-above", type=float, default=10.0, metavar="PERCENT")
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worktree is removed
    try:
        commit = git("merge-base", options.base, "HEAD")
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
