"""Test the tests: ``make mutants``.

    nice python -m tools.mutants [--packages PACKAGE,...] [--sample 200] [--seed 1] [--seconds 20] [--tests FOLDER,...]

A package is one of the core (``scheduling``), a part of it (``scheduling.queue``), or a function of a module
(``cluster.cache:ClusterCache.assume``). The sample is drawn from all mutants of the packages; 0 stands for all. Mutants
that survive are printed as they are found; the table at the end says how many were killed, survived and are equivalent,
by package. The exit status is 1 if fewer are killed than the goals say, which do not count equivalent ones.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.mutants.covering import FOLDER, CoveringTests, measure
from tools.mutants.fork_server import Outcome, Result, run
from tools.mutants.known import Kills, equivalents
from tools.mutants.mutations import Mutant, mutants

_CORE = Path("packages/kubestow/src/kubestow")
PACKAGES = ("api", "cluster", "config", "engine", "framework", "plugins", "rules", "scheduling")
#: What decides where pods run, where more mutants have to be killed than elsewhere in the core.
DECISIONS = (
    *("cluster", "engine", "framework", "plugins", "scheduling"),
    *("rules.claims", "rules.disruption", "rules.matching", "rules.minors", "rules.pods", "rules.requests"),
    *("rules.resource_lists", "rules.volumes"),
)
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
_KILLED = ("killed", "timed out")
_EQUIVALENT = "equivalent"


def main(arguments: Sequence[str]) -> int:
    """Run a sample of the mutants, and print what the tests noticed. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", default=",".join(PACKAGES), help="of the core, with commas between them")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--seconds", type=float, default=20, help="of tests that a mutant is tried with")
    parser.add_argument("--tests", default=",".join(TESTS), help="folders of tests, with commas between them")
    options = parser.parse_args(arguments)
    tests = options.tests.split(",")
    try:
        everything = [mutant for package in options.packages.split(",") for mutant in mutants_of(package)]
        measure(sorted(_CORE.rglob("*.py")), tests)
        counts = _run(sampled(everything, options.sample, options.seed), tests, budget=options.seconds)
    except (ValueError, RuntimeError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    _say("\n".join(table(counts)))
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


def sampled(everything: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """So many of the mutants, in the order of the source; all of them if there are fewer, or for 0."""
    if not 0 < size < len(everything):
        return list(everything)
    chosen = random.Random(seed).sample(range(len(everything)), size)
    return [everything[index] for index in sorted(chosen)]


Counts = Mapping[str, Counter[str]]
"""How many mutants had each outcome, by package and group: ``rules (decisions)``."""


def _run(chosen: Iterable[Mutant], tests: Sequence[str], *, budget: float) -> Counts:
    counts: dict[str, Counter[str]] = {}
    kills = Kills(FOLDER / "kills.jsonl")
    declared = equivalents()

    def count(mutant: Mutant, outcome: str) -> None:
        counts.setdefault(_row(mutant), Counter())[outcome] += 1

    def report(result: Result) -> None:
        count(result.mutant, result.outcome.value)
        if result.killer:
            kills.add(result.mutant, result.killer)
        else:
            _say(f"{result.outcome.value} {result.mutant} ({result.tests} tests)")

    unknown = []
    for mutant in chosen:
        if any(one.describes(mutant) for one in declared):
            count(mutant, _EQUIVALENT)
        elif mutant in kills:
            count(mutant, Outcome.KILLED.value)
        else:
            unknown.append(mutant)
    if unknown:
        run(unknown, tests, CoveringTests(), report, budget=budget)
    return counts


def _row(mutant: Mutant) -> str:
    inside = mutant.module.removeprefix("kubestow.")
    decides = any(inside == name or inside.startswith(f"{name}.") for name in DECISIONS)
    return f"{inside.partition('.')[0]} ({'decisions' if decides else 'elsewhere'})"


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
    return 100 * sum(row[outcome] for outcome in _KILLED) / possible if possible else 100.0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
