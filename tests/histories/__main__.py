"""Record histories of server processes for a while, and check each.

    python -m tests.histories --minutes 10 [--seed 1] [--crashes 12]

Each history has its own directory and as many crashes as named, and takes some 15 seconds. The exit status is 1 if a
history breaks a rule. With ``--simulated`` histories are of simulated servers, of which a seed shows the same again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

from tests.histories.history import History, Violation
from tests.histories.server_process import draw_ends, record
from tests.histories.simulated_server import simulate


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first history (default: %(default)s)")
    parser.add_argument("--crashes", type=int, default=12, help="in each history (default: %(default)s)")
    parser.add_argument("--simulated", action="store_true", help="in virtual time, in this process")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    totals, found = Counter[str](), 0
    for seed in count(options.seed):
        with tempfile.TemporaryDirectory(prefix="histories-") as folder:
            history, violations = _history(Path(folder), seed, options)
        totals += _counts(history)
        for violation in violations:
            found += 1
            print(f"seed {seed}: {violation}", flush=True)  # noqa: T201
        if time.monotonic() >= end:
            break
    counted = ", ".join(f"{number:,} {name}" for name, number in totals.items())
    print(f"{seed + 1 - options.seed:,} histories: {counted}; {found or 'no'} violations")  # noqa: T201
    return int(found > 0)


def _history(directory: Path, seed: int, options: argparse.Namespace) -> tuple[History, list[Violation]]:
    if options.simulated:
        return simulate(directory, seed, crash_count=options.crashes)
    return asyncio.run(record(directory / "data", seed, draw_ends(seed, options.crashes)))


def _counts(history: History) -> Counter[str]:
    operations = history.operations
    answered = [operation for operation in operations if operation.answer is not None]
    return Counter(
        {
            "crashes": len(history.steps) - len(operations) - len(answered),
            "requests answered": len(answered),
            "without an answer": len(operations) - len(answered),
            "events watched": sum(len(span.events) for span in history.spans),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
