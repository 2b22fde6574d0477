"""Tuning of Python's cyclic garbage collector.

Almost all objects are freed by reference counting; cycles are rare (an exception with its traceback). With the default
thresholds the collector runs after every few hundred allocations and takes a tenth of the CPU time of a busy scheduler.
:func:`raise_thresholds` makes it run less often, in every command, :func:`paused` turns it off while a large list is
decoded.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Allocations between two collections of the youngest generation; at most a few megabytes of garbage accumulate.
_YOUNGEST_THRESHOLD = 20_000

#: The pauses in effect. The collector is global to the process, so the set is as well.
_pauses: set[object] = set()


def raise_thresholds() -> None:
    """Make the collector of this process run less often; a threshold that is higher already, or 0 (off), is kept."""
    youngest, *older = gc.get_threshold()
    if 0 < youngest < _YOUNGEST_THRESHOLD:
        gc.set_threshold(_YOUNGEST_THRESHOLD, *older)


@contextmanager
def paused() -> Iterator[None]:
    """Turn the collector off while many long-lived objects are allocated; decoding a list takes half the time then.

    Pauses may overlap: the collector is turned on again when the last one ends. If it was off, it stays off. Objects of
    the pause count as old afterwards, so they are not collected as one huge young generation.
    """
    if not _pauses and not gc.isenabled():
        yield
        return
    pause = object()
    _pauses.add(pause)
    gc.disable()
    try:
        yield
    finally:
        _pauses.discard(pause)
        if not _pauses:
            _make_all_old()
            gc.enable()


def _make_all_old() -> None:
    """Move all objects to the oldest generation, without a look at any of them."""
    if not gc.get_freeze_count():  # what the application has frozen stays so
        gc.freeze()
        gc.unfreeze()
