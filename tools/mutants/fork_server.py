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
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import CodeType, FunctionType
from typing import NoReturn

import pytest
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
    #: The change makes no sense there, or the function no longer exists when tests run, as one that only ran at import.
    NOT_APPLIED = "not applied"


KILLED = (Outcome.KILLED, Outcome.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant and the tests to run against it, in this order."""

    mutant: Mutant
    #: How long each test takes without the mutant, in seconds.
    tests: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """What the tests said about one mutant."""

    mutant: Mutant
    outcome: Outcome
    #: The test that killed it, or nothing.
    killer: str
    #: How many tests were to be run.
    tests: int


def run(trials: Iterator[Trial], paths: Sequence[str], report: Callable[[Result], None], *, jobs: int) -> None:
    """Make trials, of which so many run at once, and report each result as it comes.

    Each trial is taken when there is room for it, so that it may depend on earlier results. Tests that pytest does not
    find in the paths are left out. Raises RuntimeError if pytest cannot collect them.
    """
    os.environ["HYPOTHESIS_PROFILE"] = "first-failure"
    options = ["-qq", "--capture=no", "-p", "no:cacheprovider", "-p", "tools.mutants.few_examples"]
    server = ForkServer(trials, report, jobs)
    if (status := pytest.main([*options, *paths], plugins=[server])) != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest cannot collect {' '.join(paths)}: {status!r}")


_Steps = Generator["_Copy", int, Result]
"""A trial under way: yields each copy that it starts, is sent the status with which that ended, ends with a result."""


class ForkServer:
    """A plugin of pytest that, instead of running all tests once, runs some of them against each mutant."""

    def __init__(self, trials: Iterator[Trial], report: Callable[[Result], None], jobs: int) -> None:
        self._trials = trials
        self._report = report
        self._jobs = jobs
        self._items: dict[str, pytest.Item] = {}
        self._functions: _Functions = {}
        #: Whether a test passes in a process of its own without a mutant, once that was tried.
        self._passes: dict[str, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _all_functions()
        gc.freeze()
        running: dict[int, _Steps] = {}
        for trial in self._trials:
            self._advance(self._try(trial), None, running)
            while len(running) >= self._jobs:
                self._await_one(running)
        while running:
            self._await_one(running)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        # In a copy: that a test failed is known here, before its traceback is formatted, which takes longer than most.
        if call.excinfo is not None and not call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)):
            os._exit(_FAILED)

    def _await_one(self, running: dict[int, _Steps]) -> None:
        process, status = os.wait()
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what its tests have started
        self._advance(running.pop(process), os.waitstatus_to_exitcode(status), running)

    def _advance(self, steps: _Steps, status: int | None, running: dict[int, _Steps]) -> None:
        try:
            copy = next(steps) if status is None else steps.send(status)
        except StopIteration as end:
            self._report(end.value)
        else:
            running[copy.process] = steps

    def _try(self, trial: Trial) -> _Steps:
        tests = {test: seconds for test, seconds in trial.tests.items() if test in self._items}
        while tests := {test: seconds for test, seconds in tests.items() if self._passes.get(test, True)}:
            copy = self._start_copy(tests, trial.mutant)
            status = yield copy
            if status == _PASSED:
                return Result(trial.mutant, Outcome.SURVIVED, "", len(tests))
            if status == _NOT_APPLIED:
                return Result(trial.mutant, Outcome.NOT_APPLIED, "", 0)
            killer = list(tests)[copy.position]
            if killer not in self._passes:
                self._passes[killer] = (yield self._start_copy({killer: tests[killer]}, None)) == _PASSED
            if self._passes[killer]:
                outcome = Outcome.KILLED if status == _FAILED else Outcome.TIMED_OUT
                return Result(trial.mutant, outcome, killer, len(tests))
        return Result(trial.mutant, Outcome.NOT_COVERED, "", 0)

    def _start_copy(self, tests: dict[str, float], mutant: Mutant | None) -> _Copy:
        """Run tests in a copy of this process, up to the first that fails. Its status says which, or is a signal."""
        position = mmap.mmap(-1, 8)
        process = os.fork()
        if not process:
            self._be_copy(tests, mutant, position)
        return _Copy(process, position)

    def _be_copy(self, tests: dict[str, float], mutant: Mutant | None, position: mmap.mmap) -> NoReturn:
        status = _NOT_APPLIED
        try:
            os.setpgid(0, 0)
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            if mutant is not None and not _exchange(self._functions, mutated(mutant)):
                os._exit(status)
            status = _FAILED
            items = [self._items[test] for test in tests]
            for index, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
                position[:] = index.to_bytes(8, "little")
                _limit(tests[item.nodeid])
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            status = _PASSED
        finally:
            os._exit(status)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A process that runs tests."""

    process: int
    #: Shared with it: the position of the test that runs.
    shared: mmap.mmap

    @property
    def position(self) -> int:
        return int.from_bytes(self.shared[:], "little")


def _limit(seconds: float) -> None:
    """End this process, by a signal, if a test that takes so many seconds takes much longer."""
    processor = math.ceil(time.process_time() + 1 + 5 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (processor, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, 30 + 20 * seconds)  # one that waits for ever uses no processor


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
