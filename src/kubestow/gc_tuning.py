"""The cyclic garbage collector: when it runs, and how often.

Nearly everything here goes when the last reference to it does; what holds itself in a circle is rare (a failed request
with its traceback). The collector looks through all containers for such circles after every few hundred new ones, which
is a tenth of a busy scheduler's CPU time. So it is told to be patient, and to wait while much is loaded at once.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused", "raise_thresholds"]

#: New containers after which the collector looks through the youngest: some megabytes at most wait for it.
_PATIENCE = 20_000

#: Who keeps the collector from running; it is the process's, so are these.
_pauses: set[object] = set()


def raise_thresholds() -> None:
    """Have the collector run more rarely from now on; somebody's choice to have it run even less often stays.

    For whoever is the process's main job.
    """
    youngest, *older = gc.get_threshold()
    if 0 < youngest < _PATIENCE:  # 0 is never
        gc.set_threshold(_PATIENCE, *older)


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector from running while a collection is loaded, none of which is garbage.

    With it on, loading takes about twice as long. Pauses may overlap: the collector comes back when the last one ends.
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
            gc.enable()
