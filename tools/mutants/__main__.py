"""Test the tests: ``make mutants``.

    nice python -m tools.mutants [--packages PACKAGE,...] [--sample 200] [--seed 1] [--seconds 20] [--jobs 2]
        [--minutes 60] [--tests FOLDER,...]

A package is one of the core (``scheduling``), a part of it (``scheduling.queue``), or a function of a module
(``cluster.cache:ClusterCache.assume``). The sample has equally many mutants of each package; 0 stands for all. A larger
sample contains the smaller one, and a change of the code changes a sample no more than it has to. Mutants that survive
are printed as they are found; the table at the end says how many were killed, survived and are equivalent, by package.
The exit status is 1 if fewer are killed than the goals say, which do not count equivalent ones.

Every verdict is kept at once, so a run that was interrupted, or ended by ``--minutes``, goes on where it ended. It is
cheapest to run a sample with few seconds first: with more, only the survivors are tried again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import inf
from pathlib import Path

from tools.mutants.covering import FOLDER, CoveringTests, measure
from tools.mutants.fork_server import KILLED, Outcome, Result, Trial, run
from tools.mutants.known import Verdicts, equivalents
from tools.mutants.mutations import Mutant, mutants

_CORE = Path("packages/kubestow/src/kubestow")
PACKAGES = ("api", "cluster", "config", "engine", "framework", "plugins", "rules", "scheduling")
#: What decides where pods run, where more mutants have to be killed than elsewhere in the core.
DECISIONS = ("cluster", "framework", "plugins", "scheduling")
#: Percent of the mutants to be killed, in decisions and elsewhere.
GOALS = {"decisions": 95.0, "elsewhere": 90.0}
_CORE_TESTS = "packages/kubestow/tests/core_tests"
#: The tests of the core, alone and together.
TESTS = (
    *(f"{_CORE_TESTS}/{package}" for package in (*PACKAGES, "thirdparty")),
    *(
        "packages/kubestow-lab/tests/lab_tests/oracle",
        "tests/conformance",
        "tests/fault_simulation",
        "tests/integration",
    ),
)
_EQUIVALENT = "equivalent"


def main(arguments: Sequence[str]) -> int:
    """Run a sample of the mutants, and print what the tests noticed. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", default=",".join(PACKAGES), help="of the core, with commas between them")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants, of all packages together; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--seconds", type=float, default=20, help="of tests that a mutant is tried with")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that are tried at once")
    parser.add_argument("--minutes", type=float, default=inf, help="after which no mutant is tried any more")
    parser.add_argument("--tests", default=",".join(TESTS), help="folders of tests, with commas between them")
    options = parser.parse_args(arguments)
    tests = options.tests.split(",")
    try:
        everything = [list(mutants_of(package)) for package in options.packages.split(",")]
        measure(tests)
        sample = sampled(everything, options.sample, options.seed)
        end = time.monotonic() + 60 * options.minutes
        counts = _run(sample, tests, budget=options.seconds, jobs=options.jobs, end=end)
    except (ValueError, RuntimeError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    _say("\n".join(table(counts)))
    if untried := len(sample) - sum(row.total() for row in counts.values()):
        _say(f"\n{untried} of {len(sample)} mutants were not tried.")
    return 0 if all(reached(counts, group) for group in GOALS) else 1


def mutants_of(package: str) -> Iterator[Mutant]:
    """The mutants of a package, a module or a function of the core. Raises ValueError if there is no such thing."""
    name, _, function = package.partition(":")
    path = _CORE.joinpath(*name.split("."))
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    for file in files:
        if not file.exists():
            raise ValueError(f"{package}: not a package, module or module:function of the core: no {file}")
        module = ".".join(("kubestow", *file.relative_to(_CORE).with_suffix("").parts)).removesuffix(".__init__")
        yield from (one for one in mutants(module, file.resolve()) if not function or one.function == function)


def sampled(packages: Sequence[Sequence[Mutant]], size: int, seed: int) -> list[Mutant]:
    """So many mutants, equally many of each package, in the order of the source; all of them for 0."""
    shares = [size // len(packages) + (index < size % len(packages)) for index in range(len(packages))]
    chosen = []
    for package, share in zip(packages, shares, strict=True):
        ranks = sorted((sha256(f"{seed} {one.name}".encode()).digest(), at) for at, one in enumerate(package))
        chosen += [package[at] for at in sorted(at for _, at in (ranks[:share] if size else ranks))]
    return chosen


Counts = Mapping[str, Counter[str]]
"""How many mutants had each outcome, by package and group: ``rules (elsewhere)``."""


def _run(chosen: Iterable[Mutant], tests: Sequence[str], *, budget: float, jobs: int, end: float) -> Counts:
    counts: dict[str, Counter[str]] = {}
    verdicts = Verdicts(FOLDER / "verdicts.jsonl")
    covering = CoveringTests(tests)
    declared = equivalents()

    def count(mutant: Mutant, outcome: str) -> None:
        counts.setdefault(_row(mutant), Counter())[outcome] += 1

    def report(mutant: Mutant, outcome: Outcome, tests: int = 0) -> None:
        count(mutant, outcome.value)
        if outcome not in KILLED:
            _say(f"{outcome.value} {mutant}" + (f" ({tests} tests)" if tests else ""))

    def keep(result: Result) -> None:
        verdicts.add(result.mutant, result.outcome, result.killer, covering.of(result.mutant, budget))
        report(result.mutant, verdicts.of(result.mutant) or result.outcome, result.tests)

    def trials() -> Iterator[Trial]:
        while waiting and time.monotonic() < end:
            mutant = waiting.popleft()
            choice = covering.of(mutant, budget, verdicts.killers(mutant))
            yield Trial(mutant, {test: choice[test] for test in verdicts.untried(mutant, choice)})

    waiting: deque[Mutant] = deque()
    for mutant in chosen:
        outcome = verdicts.of(mutant)
        if any(one.describes(mutant) for one in declared):
            count(mutant, _EQUIVALENT)
        elif outcome is None or (outcome not in KILLED and verdicts.untried(mutant, covering.of(mutant, budget))):
            waiting.append(mutant)
        else:
            report(mutant, outcome)
    if waiting and time.monotonic() < end:
        run(trials(), tests, keep, jobs=jobs)
    for mutant in waiting:
        if outcome := verdicts.of(mutant):
            report(mutant, outcome)
    return counts


def _row(mutant: Mutant) -> str:
    package = mutant.module.removeprefix("kubestow.").partition(".")[0]
    return f"{package} ({'decisions' if package in DECISIONS else 'elsewhere'})"


def table(counts: Counts) -> list[str]:
    """The outcomes by package, as a table in Markdown."""
    lines = [
        "| package | mutants | killed | timed out | survived | not covered | equivalent | killed in percent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in [*sorted(counts.items()), *((f"**{group}**", _sum(counts, group)) for group in GOALS)]:
        if row:
            cells = [row[outcome] for outcome in ("killed", "timed out", "survived", "not covered", _EQUIVALENT)]
            lines.append(f"| {name} | {' | '.join(map(str, [row.total(), *cells]))} | {_percent(row):.1f} |")
    return lines


def reached(counts: Counts, group: str) -> bool:
    """Whether as many mutants of a group are killed as the goal says."""
    return _percent(_sum(counts, group)) >= GOALS[group]


def _sum(counts: Counts, group: str) -> Counter[str]:
    return sum((row for name, row in counts.items() if name.endswith(f"({group})")), Counter())


def _percent(row: Counter[str]) -> float:
    possible = row.total() - row[_EQUIVALENT] - row[Outcome.NOT_APPLIED.value]
    return 100 * sum(row[outcome.value] for outcome in KILLED) / possible if possible else 100.0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
