"""A pool of processes in which simulations run, one per core unless there should be fewer.

Workers are started by a server that has imported what they need and has no threads, since a process with threads, such
as a notebook's, cannot be forked safely. What they are sent must be importable there. What all tasks have in common,
such as a cluster, is not sent with each of them: it is encoded once, in a file whose pages in memory they share.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import Any

from kubestow.errors import InputError


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


@contextmanager
def shared_value(value: Any) -> Iterator[str]:
    """Write a value to a temporary file, for processes of this machine; its path, by which they read it.

    The file is removed at the end, so the pool whose tasks read it has to be shut down before. It is no shared memory,
    because containers have little of that, and a process that writes beyond the limit is killed.

    Raises InputError if it cannot be written.
    """
    with NamedTemporaryFile(prefix="kubestow-") as file:
        try:
            pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
        except OSError as error:
            raise InputError(file.name, f"cannot be written: {error.strerror}; TMPDIR names another folder") from None
        yield file.name


def read_shared(path: str) -> Any:
    """Decode a shared value. Raises FileNotFoundError if its file has been removed."""
    with Path(path).open("rb") as file:
        return pickle.load(file)


def _end_with_parent() -> None:
    """Have this worker end when the process that has the pool does: one that is killed cannot tell its workers."""
    Thread(target=_await_parent, name="await-parent", daemon=True).start()


def _await_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
