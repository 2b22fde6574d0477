"""The path of one pod through the code: which functions run from the queue's pop to the binding.

    python -m tools.call_path [--tree] [--accessors]

A scheduler with the default configuration runs on a cluster in memory, in virtual time. It has scheduled pods of the
same shape before, so that caches are filled. Two paths are recorded: that of a pod from the pop to the request that
binds it, and that of a pod that fits on no node from the pop to its place among the unschedulable pods.

Printed are the counts of calls, distinct functions and files, with and without accessors, and how often the clock is
read. An accessor is a function of at most three lines that calls no other function of kubestow on the path. A call of a
coroutine or a generator counts once, however often it is resumed. Comprehensions and generator expressions belong to
the function that they are written in. The cluster in memory and its clock are not part of the path, and neither is what
the scheduling loop does after the cycle of the pod. ``--tree`` prints the calls themselves.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import kubestow
from kubestow.testing import MemoryCluster, SchedulerHarness, in_virtual_time, node, pod

_PACKAGE = Path(kubestow.__file__).parent
#: Parts of the package that stand for the scheduler's environment here.
_ENVIRONMENT = tuple(str(_PACKAGE / part) for part in ("testing", "simulation", "engine"))
_ACCESSOR_LINES = 3

_LOOP, _POP = "Scheduler._schedule_pods", "SchedulingQueue.pop"
_BIND, _ENQUEUED = "MemoryCluster.bind", "Observer.pod_enqueued"
_CLOCK = "VirtualTimeLoop.time"


@dataclass
class Call:
    """A call on the path, with the calls made in it."""

    code: CodeType
    calls: list[Call] = field(default_factory=list)

    @property
    def is_accessor(self) -> bool:
        """Whether the function is short and has called no other."""
        return not self.calls and _body_lines(self.code) <= _ACCESSOR_LINES

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Call]]:
        """This call and all calls in it, with their depths, in the order in which they began."""
        yield depth, self
        for call in self.calls:
            yield from call.walk(depth + 1)


class CallPath:
    """Records the calls from the next pop of a pod to the call of a function named ``end``."""

    def __init__(self, end: str) -> None:
        self.roots: list[Call] = []
        self.clock_reads = 0
        self._end = end
        self._calls: dict[FrameType, Call] = {}
        self._pops = 0
        self._ended = False

    def __enter__(self) -> CallPath:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(None)

    def walk(self) -> Iterator[tuple[int, Call]]:
        """Every call on the path with its depth."""
        for root in self.roots:
            yield from root.walk()

    def counts(self, *, accessors: bool) -> tuple[int, int, int]:
        """How many calls, distinct functions and files are on the path."""
        codes = [call.code for _, call in self.walk() if accessors or not call.is_accessor]
        return len(codes), len(set(codes)), len({code.co_filename for code in codes})

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or self._ended:
            return
        code, caller = frame.f_code, frame.f_back
        if code.co_qualname == _POP and caller is not None and caller.f_code.co_qualname == _LOOP:
            self._pops += 1
        if not self._pops or (self._pops > 1 and _is_called_by_loop(frame)):
            return
        if code.co_qualname == self._end:
            self._ended = True
        elif code.co_qualname == _CLOCK:
            self.clock_reads += caller is not None and _is_counted(caller.f_code)
        elif _is_counted(code) and frame not in self._calls:
            while caller is not None and caller not in self._calls:
                caller = caller.f_back
            call = self._calls[frame] = Call(code)
            (self.roots if caller is None else self._calls[caller].calls).append(call)


def _is_called_by_loop(frame: FrameType) -> bool:
    caller: FrameType | None = frame
    while caller is not None:
        if caller.f_code.co_qualname == _LOOP:
            return True
        caller = caller.f_back
    return False


@cache
def _is_counted(code: CodeType) -> bool:
    if code.co_name.startswith("<") and code.co_name != "<lambda>":
        return False
    name = code.co_filename
    return name.startswith(str(_PACKAGE)) and not name.startswith(_ENVIRONMENT) and code.co_qualname != _LOOP


@cache
def _body_lengths(filename: str) -> dict[int, int]:
    """The lines of each function's body without its docstring, by the function's first line."""
    lengths: dict[int, int] = {}
    for function in ast.walk(ast.parse(Path(filename).read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            body = function.body[ast.get_docstring(function, clean=False) is not None :]
            first = min((function, *function.decorator_list), key=lambda part: part.lineno).lineno
            lengths[first] = (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1 if body else 0
    return lengths


def _body_lines(code: CodeType) -> int:
    return _body_lengths(code.co_filename).get(code.co_firstlineno, 1)


def bound_pod() -> CallPath:
    """The path of a pod that is bound."""
    path = CallPath(_BIND)

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(5):
            harness.cluster.put(pod(f"earlier-{number}", cpu="100m", labels={"app": "a"}))
            await harness.settle()
        harness.cluster.put(pod("pod", cpu="100m", labels={"app": "a"}))
        with path:
            await harness.settle()
        assert harness.node_of("pod")

    _run(scenario)
    return path


def rejected_pod() -> CallPath:
    """The path of a pod that fits on no node."""
    path = CallPath(_ENQUEUED)

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(5):
            harness.cluster.put(pod(f"earlier-{number}", cpu="64", labels={"app": "a"}))
            await harness.settle()
        harness.cluster.put(pod("pod", cpu="64", labels={"app": "a"}))
        with path:
            await harness.settle()
        assert not harness.node_of("pod")

    _run(scenario)
    return path


def _run(scenario: Any) -> None:
    nodes = [node(f"node-{number}") for number in range(10)]
    in_virtual_time(scenario, *nodes, cluster=MemoryCluster())


def _report(path: CallPath, *, tree: bool, accessors: bool) -> Iterator[str]:
    """The lines about one path."""
    if tree:
        for depth, call in path.walk():
            if accessors or not call.is_accessor:
                place = Path(call.code.co_filename).relative_to(_PACKAGE)
                yield f"{'  ' * depth}{call.code.co_qualname}  {place}:{call.code.co_firstlineno}"
    for label, included in (("all", True), ("without accessors", False)):
        calls, functions, files = path.counts(accessors=included)
        yield f"{label}: {calls} calls, {functions} functions, {files} files"
    yield f"{path.clock_reads} reads of the clock"


def main() -> None:
    """Print both paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="store_true", help="print the calls")
    parser.add_argument("--accessors", action="store_true", help="with --tree: print accessors, too")
    options = parser.parse_args()
    for title, record in (
        ("A pod that is bound, from the pop to the binding", bound_pod),
        ("A pod that is rejected, from the pop to its place in the queue", rejected_pod),
    ):
        sys.stdout.write(f"{title}\n")
        sys.stdout.writelines(f"  {line}\n" for line in _report(record(), **vars(options)))


if __name__ == "__main__":
    main()
