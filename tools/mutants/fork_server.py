"""Runs tests against mutants: each in a copy of a process that has imported everything and collected all tests.

In the copy the code of the mutant's functions is exchanged, so neither is anything imported again nor does a mutant
outlive its process. What a module computes when it is imported is therefore that of the unchanged functions.
"""

from __future__ import annotations

import gc
import math
import mmap
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import CodeType, FunctionType
from typing import NoReturn

import pytest
from tools.mutants.covering import CoveringTests
from tools.mutants.mutations import Mutant, mutated

#: Bytes of address space: a mutant that needs more is killed by the MemoryError.
_MEMORY = 8 << 30

_PASSED, _FAILED, _NOT_APPLIED = 0, 17, 18
_Functions = dict[tuple[str, str, int], list[FunctionType]]
"""Functions by the file, the qualified name and the first line of their code."""


class Outcome(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    #: A test took much longer than without the mutant, or far too much memory. Counts as killed.
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    #: No test runs the line.
    NOT_COVERED = "not covered"
    #: The function does not exist any more when tests run, as one that only ran at import.
    NOT_APPLIED = "not applied"


@dataclass(frozen=True, slots=True)
class Result:
    """What the tests said about one mutant."""

    mutant: Mutant
    outcome: Outcome
    #: The test that killed it, or nothing.
    killer: str
    #: How many tests were to be run.
    tests: int


def run(
    mutants: Iterable[Mutant],
    paths: Sequence[str],
    covering: CoveringTests,
    report: Callable[[Result], None],
    *,
    budget: float,
) -> None:
    """Run the tests that cover each mutant, of those that pytest finds, and report each result as it comes.

    ``budget`` are the seconds of tests that a mutant is tried with. Raises RuntimeError if pytest cannot collect them.
    """
    os.environ["HYPOTHESIS_PROFILE"] = "first-failure"
    options = ["-qq", "--capture=no", "-p", "no:cacheprovider"]
    server = ForkServer(mutants, covering, report, budget)
    if (status := pytest.main([*options, *paths], plugins=[server])) != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest cannot collect {' '.join(paths)}: {status!r}")


class ForkServer:
    """A plugin of pytest that, instead of running all tests once, runs some of them against each mutant."""

    def __init__(
        self, mutants: Iterable[Mutant], covering: CoveringTests, report: Callable[[Result], None], budget: float
    ) -> None:
        self._mutants = mutants
        self._covering = covering
        self._report = report
        self._budget = budget
        self._items: dict[str, pytest.Item] = {}
        self._functions: _Functions = {}
        #: Whether a test passes in a process of its own without a mutant, once that was tried.
        self._passes: dict[str, bool] = {}
        #: Shared with the copies of this process: the position of the test that runs.
        self._position = mmap.mmap(-1, 8)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _all_functions()
        gc.freeze()
        for mutant in self._mutants:
            self._report(self._result(mutant))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:  # in a copy
            os._exit(_FAILED)

    def _result(self, mutant: Mutant) -> Result:
        tests = [test for test in self._covering.of(mutant, self._budget) if test in self._items]
        while tests := [test for test in tests if self._passes.get(test, True)]:
            status = self._run_copy(tests, mutant)
            if status == _PASSED:
                return Result(mutant, Outcome.SURVIVED, "", len(tests))
            if status == _NOT_APPLIED:
                return Result(mutant, Outcome.NOT_APPLIED, "", 0)
            killer = tests[int.from_bytes(self._position[:], "little")]
            if killer not in self._passes:
                self._passes[killer] = self._run_copy([killer], None) == _PASSED
            if self._passes[killer]:
                outcome = Outcome.KILLED if status == _FAILED else Outcome.TIMED_OUT
                return Result(mutant, outcome, killer, len(tests))
        return Result(mutant, Outcome.NOT_COVERED, "", 0)

    def _run_copy(self, tests: Sequence[str], mutant: Mutant | None) -> int:
        """Run tests in a copy of this process, up to the first that fails. Returns its status, or a negative signal."""
        process = os.fork()
        if not process:
            self._be_copy(tests, mutant)
        try:
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)  # what its tests have started

    def _be_copy(self, tests: Sequence[str], mutant: Mutant | None) -> NoReturn:
        status = _FAILED
        try:
            os.setpgid(0, 0)
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            if mutant is not None and not _exchange(self._functions, mutated(mutant)):
                os._exit(_NOT_APPLIED)
            items = [self._items[test] for test in tests]
            for position, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
                self._position[:] = position.to_bytes(8, "little")
                _limit(self._covering.seconds(item.nodeid))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            status = _PASSED
        finally:
            os._exit(status)


def _limit(seconds: float) -> None:
    """End this process, by a signal, if a test that takes so many seconds takes much longer."""
    processor = math.ceil(time.process_time() + 2 + 10 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (processor, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, 60 + 20 * seconds)


def _all_functions() -> _Functions:
    functions: _Functions = {}
    gc.unfreeze()
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            functions.setdefault(_key(one.__code__), []).append(one)
    return functions


def _exchange(functions: _Functions, module: CodeType) -> int:
    """Give functions the code that they have in a changed module. Returns how many have got another."""
    exchanged = 0
    for code in _codes(module):
        found = functions.get(_key(code), ())
        if code not in {function.__code__ for function in found}:
            for function in found:
                function.__code__ = code
                exchanged += 1
    return exchanged


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno
