"""Which tests run a line of the core, and how long they take: measured once by pytest-cov, kept in ``build/mutants``.

When a file of tests or of the core has changed since, its tests, or all that ran it, are measured again. What a changed
helper of tests newly runs is not noticed; without ``build/mutants`` everything is measured anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from coverage import CoverageData
from tools.mutants import durations
from tools.mutants.mutations import Mutant

FOLDER = durations.FILE.parent
_COVERAGE = FOLDER / "coverage"
_DIGESTS = FOLDER / "digests.json"
_CONFIGURATION = Path(__file__).with_name("coverage.ini")
#: So many cases of a parametrized test are as likely to notice as the cases of another test.
_FIRST_CASES = 2


class CoveringTests:
    """The tests that run each line."""

    def __init__(self) -> None:
        """Read what was measured: see :func:`measure`."""
        self._data = CoverageData(str(_COVERAGE))
        self._data.read()
        self._seconds = durations.read()
        self._of_file = lru_cache(maxsize=4)(self._read_file)  # mutants come by file

    def of(self, mutant: Mutant, budget: float, likely: Sequence[str] = ()) -> dict[str, float]:
        """The tests that run a line of a mutant, up to so many seconds altogether: how long each takes.

        Likely ones come first. Of the others, those in the folder that is named as the mutant's package, which are the
        most likely to notice, come before those of the package around it, these before all others, and quick ones
        before slow ones; but further cases of a parametrized test come after all other tests.
        """
        lines = self._of_file(mutant.file)
        tests = {test for line in mutant.lines for test in lines.get(line, ()) if test in self._seconds}
        ranked = sorted(tests, key=lambda test: (-_nearness(test, mutant.module), self._seconds[test], test))
        cases: Counter[str] = Counter()
        first: list[str] = []
        further: list[str] = []
        for test in ranked:
            function = test.partition("[")[0]
            (further if cases[function] >= _FIRST_CASES else first).append(test)
            cases[function] += 1
        chosen: dict[str, float] = {}
        for test in [*first, *further]:
            seconds = self._seconds[test]
            if seconds <= budget or not chosen:
                chosen[test] = seconds
                budget -= seconds
        return {test: chosen[test] for test in dict.fromkeys([*likely, *chosen]) if test in chosen}

    def of_file(self, file: Path) -> set[str]:
        """The tests that run any line of a file."""
        return {test for tests in self._of_file(file).values() for test in tests}

    def _read_file(self, file: Path) -> dict[int, list[str]]:
        contexts = self._data.contexts_by_lineno(str(file.resolve().relative_to(Path.cwd())))
        return {line: [_test(context) for context in found if context] for line, found in contexts.items()}


def measure(sources: Sequence[Path], tests: Sequence[str]) -> None:
    """Measure what is not known yet, or no longer true. Raises CalledProcessError if pytest cannot run the tests.

    ``tests`` are folders; what an interrupted run has measured of earlier ones is kept.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    digests: dict[str, str] = json.loads(_DIGESTS.read_text()) if _DIGESTS.exists() else {}
    for folder in tests:
        files = sorted(Path(folder).rglob("test_*.py"))
        _run([str(file) for file in files if digests.get(str(file)) != _digest(file)])
        _keep(digests, files)
    changed = [file for file in sources if str(file) in digests and digests[str(file)] != _digest(file)]
    if changed:
        covering = CoveringTests()
        affected = {test.partition("::")[0] for file in changed for test in covering.of_file(file)}
        _run(sorted(file for file in affected if Path(file).exists()))
    _keep(digests, sources)


def _keep(digests: dict[str, str], files: Iterable[Path]) -> None:
    digests |= {str(file): _digest(file) for file in files}
    _DIGESTS.write_text(json.dumps(digests))


def _run(tests: Sequence[str]) -> None:
    if not tests:
        return
    chosen = FOLDER / "tests.txt"
    chosen.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.mutants.durations", "-p", "no:cacheprovider"]
    command += ["--cov", f"--cov-config={_CONFIGURATION}", "--cov-context=test", "--cov-append", "--cov-report="]
    finished = subprocess.run([*command, f"@{chosen}"], env={**os.environ, "PYTHONHASHSEED": "0"})
    if finished.returncode not in (0, 1):  # tests that fail kill no mutants, and are left out
        raise subprocess.CalledProcessError(finished.returncode, command)


def _nearness(test: str, module: str) -> int:
    """How many of the packages around a module are folders around a test, from the outermost one on."""
    packages = module.split(".")[1:-1]
    return sum(f"/{'/'.join(packages[:depth])}/" in test for depth in range(1, len(packages) + 1))


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()[:16]


def _test(context: str) -> str:
    """``test_file.py::test|run`` is the context of a test while it runs, as pytest-cov names it."""
    return context.rpartition("|")[0]
