"""Which tests run a line of the core, and how long they take: measured once by pytest-cov, kept in ``build/mutants``.

When a file of tests has changed since, its tests are measured again. Lines are those of functions: of a function that
has changed since, all tests count that ran a line of it, and of a new one all that ran its module. What a changed
helper of tests newly runs is not noticed; without ``build/mutants`` everything is measured anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from coverage import CoverageData
from tools.mutants import durations
from tools.mutants.mutations import Mutant, functions

FOLDER = durations.FILE.parent
_COVERAGE = FOLDER / "coverage"
_LINES = FOLDER / "lines"
_DIGESTS = FOLDER / "digests.json"
_CONFIGURATION = Path(__file__).with_name("coverage.ini")
#: So many cases of a parametrized test are as likely to notice as the cases of another test.
_FIRST_CASES = 2

_Version = tuple[str, str]
"""The name of a function, and a digest of its text."""
_Lines = dict[_Version, dict[int, set[str]]]
"""The tests that ran each line of the functions of a module. Lines are counted from the function's first one, as 0."""


class CoveringTests:
    """The tests in some folders that run each line."""

    def __init__(self, folders: Sequence[str]) -> None:
        """Read what was measured: see :func:`measure`."""
        within = tuple(f"{folder.rstrip('/')}/" for folder in folders)
        self._seconds = {test: seconds for test, seconds in durations.read().items() if test.startswith(within)}
        self._of_file = lru_cache(maxsize=4)(_read)  # mutants come by file

    def of(self, mutant: Mutant, budget: float, likely: Sequence[str] = ()) -> dict[str, float]:
        """The tests that run a line of a mutant, up to so many seconds altogether: how long each takes.

        Likely ones come first. Of the others, those in the folder that is named as the mutant's package, which are the
        most likely to notice, come before those of the package around it, these before all others, and quick ones
        before slow ones; but further cases of a parametrized test come after all other tests.
        """
        tests = [test for test in _running(mutant, self._of_file(mutant.file)) if test in self._seconds]
        first: list[str] = []
        further: list[str] = []
        cases: Counter[str] = Counter()
        for test in sorted(tests, key=lambda test: (-_nearness(test, mutant.module), self._seconds[test], test)):
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


def _running(mutant: Mutant, lines: _Lines) -> set[str]:
    """The tests that run a line of a mutant, or its function if that has changed, or its module if it is new."""
    version = (mutant.function, mutant.digest)
    others = [of for (name, digest), of in lines.items() if name == mutant.function and digest != mutant.digest]
    if version not in lines and not others:
        others = list(lines.values())
    tests = {test for of in others for ran in of.values() for test in ran}
    of_line = lines.get(version, {})
    return tests.union(*(of_line.get(line - mutant.start, ()) for line in mutant.lines))


def measure(tests: Sequence[str]) -> None:
    """Measure what is not known yet. Raises CalledProcessError if pytest cannot run the tests.

    ``tests`` are folders; what an interrupted run has measured of earlier ones is kept.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    digests: dict[str, str] = json.loads(_DIGESTS.read_text()) if _DIGESTS.exists() else {}
    for folder in tests:
        files = {str(file): _digest(file) for file in sorted(Path(folder).rglob("test_*.py"))}
        changed = [file for file, digest in files.items() if digests.get(file) != digest]
        if changed:
            _run(changed)
            keep(_COVERAGE, changed)
            digests |= files
            _DIGESTS.write_text(json.dumps(digests))


def keep(measured: Path, files: Sequence[str]) -> None:
    """Keep which lines the tests of some files run, by a data file of coverage.py, and forget what they ran before."""
    data = CoverageData(str(measured))
    data.read()
    for name in data.measured_files():
        source = Path(name).resolve()
        lines: _Lines = {}
        for version, of_line in _read(source).items():
            others = {line: {test for test in ran if _file_of(test) not in files} for line, ran in of_line.items()}
            if any(others.values()):
                lines[version] = others
        contexts = data.contexts_by_lineno(name)
        for function in functions(source.read_text(encoding="utf-8")):
            of_line = lines.setdefault((function.name, function.digest), {})
            for line in function.lines:
                ran = {_test(context) for context in contexts.get(line, ()) if context}
                of_line.setdefault(line - function.lines.start, set()).update(ran)
        _write(source, lines)


def _read(source: Path) -> _Lines:
    file = _lines_of(source)
    if not file.exists():
        return {}
    kept = json.loads(file.read_text(encoding="utf-8"))
    tests = kept["tests"]
    return {
        (name, digest): {int(line): {tests[index] for index in ran} for line, ran in lines.items()}
        for name, digest, lines in kept["functions"]
    }


def _write(source: Path, lines: _Lines) -> None:
    tests = sorted({test for of_line in lines.values() for ran in of_line.values() for test in ran})
    number = {test: index for index, test in enumerate(tests)}
    kept = [
        (*version, {line: sorted(number[test] for test in ran) for line, ran in of_line.items() if ran})
        for version, of_line in lines.items()
    ]
    _LINES.mkdir(exist_ok=True)
    _lines_of(source).write_text(json.dumps({"tests": tests, "functions": kept}), encoding="utf-8")


def _lines_of(source: Path) -> Path:
    return _LINES / (".".join(source.resolve().relative_to(Path.cwd()).with_suffix("").parts) + ".json")


def _run(files: Sequence[str]) -> None:
    _COVERAGE.unlink(missing_ok=True)
    chosen = FOLDER / "tests.txt"
    chosen.write_text("\n".join(files))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.mutants.durations", "-p", "no:cacheprovider"]
    command += ["-p", "tools.mutants.few_examples"]
    command += ["--cov", f"--cov-config={_CONFIGURATION}", "--cov-context=test", "--cov-report="]
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


def _file_of(test: str) -> str:
    return test.partition("::")[0]
