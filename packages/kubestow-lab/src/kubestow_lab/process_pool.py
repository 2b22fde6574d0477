"""A pool of processes in which simulations run, one per core unless there should be fewer.

Workers are started by a server that has imported what they need and has no threads, since a process with threads, such
as a notebook's, cannot be forked safely. What they are sent must be importable there.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread


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


def _end_with_parent() -> None:
    """Have this worker end when the process that has the pool does: one that is killed cannot tell its workers."""
    Thread(target=_await_parent, name="await-parent", daemon=True).start()


def _await_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
