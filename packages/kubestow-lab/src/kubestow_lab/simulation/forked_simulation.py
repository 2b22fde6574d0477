"""Simulations that can be forked: copies of a simulation in progress, each of which goes on by itself.

A forked simulation runs in a process of its own, with nothing else in it. A fork is a fork of that process, so it takes
milliseconds however large the cluster is: the copies share all memory until one of them writes to it, and the original
is not changed by what its forks do. They run at the same time where there are several cores.

    with ForkedSimulation(Simulation(cluster, arrivals)) as simulation:
        simulation.run_until(3600.0)
        with simulation.fork() as branch:
            branch.arrive(arrivals_of_a_trial)
            pending = branch.evaluate(count_pending)  # a function of the result, called in the branch

It works on systems with fork(), such as Linux and macOS, for simulations that :mod:`kubestow.engine.turns` can run.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from types import TracebackType
from typing import Any, TypeVar

from kubestow import gc_tuning
from kubestow.errors import KubestowError
from kubestow_lab.simulation.arrivals import Arrival
from kubestow_lab.simulation.plugin_failures import collect_failures
from kubestow_lab.simulation.simulation import RunInTurns, Simulation, SimulationProgress
from kubestow_lab.simulation.simulation_result import SimulationResult

T = TypeVar("T")


class NotForkable(KubestowError):
    """A simulation that needs an event loop, a system without fork(); the message says why."""


class ForkedSimulation:
    """A simulation in progress, in another process; at first at the time 0, before any pod has arrived.

    To be closed after use, or used as a context manager; a fork outlives the simulation that it was made of. All
    methods raise KubestowError for a simulation that is closed or that has ended with :meth:`result` or
    :meth:`evaluate`, and for a plugin that fails; NotForkable for a simulation that needs an event loop.
    """

    def __init__(self, simulation: Simulation) -> None:
        if not hasattr(os, "fork"):
            raise NotForkable("this system cannot fork processes")
        context = get_context("forkserver")  # a process without threads
        context.set_forkserver_preload([__name__])
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, simulation), daemon=True)
        self._process.start()
        theirs.close()
        self._answer("begin")

    def run_until(self, time: float) -> SimulationProgress:
        """Run until a time, in seconds since the start; everything that is due then has happened."""
        progress: SimulationProgress = self._ask("run_until", time)
        return progress

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        """Have more pods arrive, at their times, or now if these have passed."""
        self._ask("arrive", list(arrivals))

    def fork(self, *, seed: int | None = None) -> ForkedSimulation:
        """A copy that goes on by itself; with a ``seed``, its random choices from now on are those of this seed."""
        self._ask("fork", seed)
        copied = object.__new__(ForkedSimulation)
        copied._process = self._process
        copied._connection = Connection(recv_handle(self._connection))
        return copied

    def result(self) -> SimulationResult:
        """Run until nothing is left to happen. The result is copied from the other process: see :meth:`evaluate`."""
        result: SimulationResult = self._ask("result")
        return result

    def evaluate(self, function: Callable[[SimulationResult], T]) -> T:
        """Run until nothing is left to happen; what a function that can be imported returns for the result."""
        value: T = self._ask("evaluate", function)
        return value

    def close(self) -> None:
        """End the process of this simulation; its forks go on."""
        self._connection.close()

    def __enter__(self) -> ForkedSimulation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: str, *arguments: Any) -> Any:
        try:
            self._connection.send((request, arguments))
        except OSError:
            raise KubestowError(f"{request}: the simulation is closed or has ended") from None
        return self._answer(request)

    def _answer(self, request: str) -> Any:
        try:
            failure, answer = self._connection.recv()
        except (EOFError, OSError):
            raise KubestowError(f"{request}: the simulation is closed or has ended") from None
        if failure is not None:
            raise failure(answer)
        return answer


def _serve(connection: Connection, simulation: Simulation) -> None:
    """The process of a simulation: carries out what is asked until the connection is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for the forks
    with gc_tuning.paused(), collect_failures() as collected:
        try:
            branch = _Branch(RunInTurns(simulation))
            branch.require_turns()
        except Exception as error:
            connection.send(_failure(error))
            return
        connection.send((None, None))
        is_fork = False
        while True:
            try:
                request, arguments = connection.recv()
            except (EOFError, OSError):
                break
            if request == "fork":
                ours, theirs = Pipe()
                gc.freeze()  # what a collection looks at would be copied
                if os.fork():
                    theirs.close()
                    connection.send((None, None))
                    send_handle(connection, ours.fileno(), os.getppid())
                    ours.close()
                    continue
                connection.close()
                ours.close()
                connection, is_fork = theirs, True
                if arguments[0] is not None:
                    branch.run.seed(arguments[0])
                continue
            answer: tuple[type[KubestowError] | None, Any]
            try:
                answer = None, getattr(branch, request)(*arguments)
                if collected.failures:
                    answer = KubestowError, str(collected.failures[0])
            except Exception as error:
                answer = _failure(error)
            connection.send(answer)
    if is_fork:
        os._exit(0)  # what a process does at its end is up to the one that was forked


def _failure(error: Exception) -> tuple[type[KubestowError], str]:
    """The answer after an error: what to raise, since errors of plugins may not be known in the other process."""
    if isinstance(error, KubestowError):
        return (NotForkable if isinstance(error, NotForkable) else KubestowError), str(error)
    return KubestowError, f"{type(error).__name__}: {error}"


class _Branch:
    """What can be asked of the process of a simulation."""

    def __init__(self, run: RunInTurns) -> None:
        self.run = run
        self._has_ended = False

    def require_turns(self) -> None:
        """Raises NotForkable if the simulation needs an event loop."""
        if self.run.turns.refusal:
            raise NotForkable(self.run.turns.refusal)

    def run_until(self, time: float) -> SimulationProgress:
        progress = self.run.run_until(time)
        self.require_turns()
        return progress

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        self.run.arrive(arrivals)

    def result(self) -> SimulationResult:
        if self._has_ended:
            raise KubestowError("the simulation has ended")
        self._has_ended = True
        result = self.run.result()
        self.require_turns()
        assert result is not None  # without a refusal
        return replace(result, api=result.api.copy())

    def evaluate(self, function: Callable[[SimulationResult], Any]) -> Any:
        return function(self.result())
