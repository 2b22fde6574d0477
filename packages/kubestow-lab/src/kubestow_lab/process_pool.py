"""Pools of processes in which simulations run, one per core unless there should be fewer.

Processes are started by a server that has imported what they need and has no threads, since a process with threads,
such as a notebook's, cannot be forked safely. What they are sent must be importable there.

Calls that have something large in common, such as a cluster, run in a :class:`ForkingPool`: it is made once, in one
process, and each call in a fork of it, which shares its memory.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import Pipe, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from threading import Lock, Thread
from typing import Any

from kubestow import gc_tuning


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_pool(count: int | None = None, *, preload: str) -> ProcessPoolExecutor | None:
    """A pool of ``count`` processes, None for one each core; the result is None if there should be only this one.

    ``preload`` is the module that every worker needs.
    """
    count = usable_cores() if count is None else count
    if count == 1:
        return None
    context = get_context("forkserver")
    context.set_forkserver_preload([preload])
    return ProcessPoolExecutor(count, context, initializer=_end_with_parent)


class ForkingPool(Executor):
    """Makes each call in a fork of a process that has made what all of them have in common; ``count`` at a time.

    That is what ``make`` returns for the ``arguments``, and the first argument of each call, with nothing of earlier
    calls in it. A call may change it or use it up. ``preload`` is the module that the process needs. ``make`` and what
    is called should start no threads before they are in a fork.

    Calls raise RuntimeError, with the traceback, for whatever the function raises, and BrokenProcessPool if its process
    ends in the middle, or if ``make`` has failed.
    """

    def __init__(self, count: int, make: Callable[..., Any], *arguments: Any, preload: str) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload([preload])
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve_forks, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="fork")
        self._forking = Lock()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Call a function, which can be imported, in a fork."""
        return self._threads.submit(self._call, function, arguments, named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Make no further call; those that run end."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self._connection.close()
            self._process.join()

    def _call(self, *call: Any) -> Any:
        try:
            with self._fork() as connection:
                connection.send(call)
                failure, result = connection.recv()
        except (EOFError, OSError):
            raise BrokenProcessPool("a process ended in the middle of a call") from None
        if failure:
            raise RuntimeError(failure)
        return result

    def _fork(self) -> Connection:
        with self._forking:
            self._connection.send(None)
            failure = self._connection.recv()
            if failure:
                raise BrokenProcessPool(failure)
            return Connection(recv_handle(self._connection))


def _serve_forks(connection: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The process of a forking pool: a fork for each request, until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a traceback
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for
    failure, made = "", None
    try:
        with gc_tuning.paused():
            made = make(*arguments)
    except Exception:
        failure = traceback.format_exc()
    del arguments
    gc.collect()
    gc.freeze()  # what a collection looks at would be copied
    while True:
        try:
            connection.recv()
        except (EOFError, OSError):
            return
        connection.send(failure)
        if failure:
            continue
        ours, theirs = Pipe()
        if os.fork():
            theirs.close()
            send_handle(connection, ours.fileno(), os.getppid())
            ours.close()
            continue
        connection.close()
        ours.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _end_with_parent()
        _answer_call(theirs, made)
        os._exit(0)  # what a process does at its end is up to the one that was forked


def _answer_call(connection: Connection, made: Any) -> None:
    """Make the call of a fork."""
    try:
        function, arguments, named = connection.recv()
        answer = "", function(made, *arguments, **named)
    except Exception:
        answer = traceback.format_exc(), None
    sys.stdout.flush()  # what plugins have printed
    try:
        connection.send(answer)
    except OSError:  # the result is not waited for any more
        return


def _end_with_parent() -> None:
    """Have this worker end when the process that has the pool does: one that is killed cannot tell its workers."""
    Thread(target=_await_parent, name="await-parent", daemon=True).start()


def _await_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
