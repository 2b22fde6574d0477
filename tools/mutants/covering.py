"""Which tests run a line of the core, and how long they take: measured once by pytest-cov, kept in ``build/mutants``.

When a file of tests or of the core has changed since, its tests, or all that ran it, are measured again. What a changed
helper of tests newly runs is not noticed; without ``build/mutants`` everything is measured anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


class CoveringTests:
    """The tests that run each line."""

    def __init__(self) -> None:
        """Read what was measured: see :func:`measure`."""
        self._data = CoverageData(str(_COVERAGE))
        self._data.read()
        self._seconds = durations.read()
        self._of_file = lru_cache(maxsize=4)(self._read_file)  # mutants come by file

    def seconds(self, test: str) -> float:
        """How long a test took."""
        return self._seconds[test]

    def of(self, mutant: Mutant, budget: float) -> list[str]:
        """The tests that run a line of a mutant, up to so many seconds altogether.

        Those of its package, which are the most likely to notice, come before those of others, quick before slow ones.
        """
        package = mutant.module.split(".")[1]
        lines = self._of_file(mutant.file)
        tests = {test for line in mutant.lines for test in lines.get(line, ()) if test in self._seconds}
        chosen: list[str] = []
        for test in sorted(tests, key=lambda test: (f"/{package}/" not in test, self._seconds[test], test)):
            if self._seconds[test] <= budget or not chosen:
                chosen.append(test)
                budget -= self._seconds[test]
        return chosen

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


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()[:16]


def _test(context: str) -> str:
    """``test_file.py::test|run`` is the context of a test while it runs, as pytest-cov names it."""
    return context.rpartition("|")[0]
