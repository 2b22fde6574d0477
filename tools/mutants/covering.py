"""Which tests run a line of the core, and how long they take: measured once by pytest-cov, kept in ``build/mutants``.

When a test has changed since, it is measured again. Lines are those of functions: of a function that has changed since,
all tests count that ran a line of it, and of a new one all that ran its module. What a changed helper of tests newly
runs is not noticed; without ``build/mutants`` everything is measured anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log
from pathlib import Path

from coverage import CoverageData
from tools.mutants import durations
from tools.mutants.definitions import definitions
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
        self._words = {test: _words(test.partition("[")[0].rpartition("/")[2]) for test in self._seconds}
        counts = Counter(word for words in self._words.values() for word in words)
        self._weights = {word: log(len(self._words) / count) for word, count in counts.items()}
        self._of_file = lru_cache(maxsize=4)(_read)  # mutants come by file

    def of(self, mutant: Mutant, budget: float, likely: Sequence[str] = ()) -> dict[str, float]:
        """The tests to try a mutant with, up to so many seconds altogether: how long each takes.

        Likely ones come first. Then come those that run a line of the mutant, at last those that run another line of
        its module and belong to its package: what is computed once for all tests is only seen to run in the first.
        Among these, tests in the folder that is named as the mutant's package come before those of the package around
        it, and these before all others; those whose names have rare words of the mutant's line and function, which are
        the most likely to notice, before others; and quick ones before slow ones. Further cases of a parametrized test
        come after all other tests.
        """
        lines = self._of_file(mutant.file)
        running = _running(mutant, lines)
        around = {test for test in _all_tests(lines.values()) - running if _nearness(test, mutant.module)}
        chosen: dict[str, float] = {}
        for test in (*self._ranked(running, mutant), *self._ranked(around, mutant)):
            seconds = self._seconds[test]
            if seconds <= budget or not chosen:
                chosen[test] = seconds
                budget -= seconds
        return {test: chosen[test] for test in dict.fromkeys([*likely, *chosen]) if test in chosen}

    def _ranked(self, tests: Iterable[str], mutant: Mutant) -> list[str]:
        wanted = _words(f"{mutant.module.rpartition('.')[2]} {mutant.function} {mutant.source}")

        def rank(test: str) -> tuple[int, int, float, str]:
            shared = sum(self._weights[word] for word in wanted & self._words[test])
            return -_nearness(test, mutant.module), -round(shared), self._seconds[test], test

        first: list[str] = []
        further: list[str] = []
        cases: Counter[str] = Counter()
        for test in sorted((test for test in tests if test in self._seconds), key=rank):
            function = test.partition("[")[0]
            (further if cases[function] >= _FIRST_CASES else first).append(test)
            cases[function] += 1
        return first + further


def _running(mutant: Mutant, lines: _Lines) -> set[str]:
    """The tests that run a line of a mutant, or its function if that has changed, or its module if it is new."""
    version = (mutant.function, mutant.digest)
    others = [of for (name, digest), of in lines.items() if name == mutant.function and digest != mutant.digest]
    if version not in lines and not others:
        others = list(lines.values())
    of_line = lines.get(version, {})
    return _all_tests(others).union(*(of_line.get(line - mutant.start, ()) for line in mutant.lines))


def _all_tests(functions: Iterable[dict[int, set[str]]]) -> set[str]:
    return {test for of_line in functions for ran in of_line.values() for test in ran}


def measure(tests: Sequence[str]) -> None:
    """Measure what is not known yet. Raises CalledProcessError if pytest cannot run the tests.

    ``tests`` are folders; what an interrupted run has measured of earlier ones is kept.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    digests: dict[str, Mapping[str, str]] = json.loads(_DIGESTS.read_text()) if _DIGESTS.exists() else {}
    for folder in tests:
        files = {str(file): definitions(file) for file in sorted(Path(folder).rglob("test_*.py"))}
        unknown = [test for file, current in files.items() for test in _unknown(file, current, digests.get(file))]
        if unknown:
            _run(unknown)
            keep(_COVERAGE, unknown)
        digests |= files
        _DIGESTS.write_text(json.dumps(digests))


def _unknown(file: str, current: Mapping[str, str], former: Mapping[str, str] | None) -> Iterator[str]:
    """The tests of a file that have changed, or the file if it is new."""
    if former is None:
        yield file
        return
    for name, digest in current.items():
        if former.get(name) != digest and name.rpartition("::")[2].startswith("test"):
            yield f"{file}::{name}"


def keep(measured: Path, tests: Collection[str]) -> None:
    """Keep which lines some tests run, by a data file of coverage.py, and forget what they ran before.

    ``tests`` are files, or tests without the parameters of their cases.
    """
    data = CoverageData(str(measured))
    data.read()
    for name in data.measured_files():
        source, contexts = Path(name).resolve(), data.contexts_by_lineno(name)
        if not any(map(any, contexts.values())) and _lines_of(source).exists():
            continue  # no test ran it; one that did so before and does no longer is tried in vain
        lines: _Lines = {}
        for version, of_line in _read(source).items():
            others = {line: {test for test in ran if not _is_of(test, tests)} for line, ran in of_line.items()}
            if any(others.values()):
                lines[version] = others
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


def _run(tests: Sequence[str]) -> None:
    _COVERAGE.unlink(missing_ok=True)
    chosen = FOLDER / "tests.txt"
    chosen.write_text("\n".join(tests))
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


def _words(text: str) -> set[str]:
    """The words of identifiers in a text, without the endings of plurals."""
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]{2,}", text)}


def _test(context: str) -> str:
    """``test_file.py::test|run`` is the context of a test while it runs, as pytest-cov names it."""
    return context.rpartition("|")[0]


def _is_of(test: str, tests: Collection[str]) -> bool:
    return test.partition("::")[0] in tests or test.partition("[")[0] in tests
