"""The columns of each kind, and the cells of one object: the server's half of ``kubectl get``.

A layout is a list of columns and a function from an object to its cells, in the same order. Priority 1 columns are
shown with ``-o wide`` only. Kinds without a layout of their own show name and creation time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow.devcluster.apiserver.printing import core, scheduling, storage, workloads
from kubestow.devcluster.apiserver.printing import other_groups as surroundings
from kubestow.devcluster.apiserver.printing.layout import Column, Layout, Object, columns, name_of, selector_text

__all__ = ["DEFAULT", "LAYOUTS", "Column", "Layout", "selector_text"]


def _created_at(new: Object, now: datetime) -> list[Any]:
    return [name_of(new), new["metadata"].get("creationTimestamp", "")]


DEFAULT = Layout(columns("Name", ("Created At", "date")), _created_at)
#: By the resource under which the objects are stored.
LAYOUTS: dict[str, Layout] = (
    core.LAYOUTS | workloads.LAYOUTS | storage.LAYOUTS | scheduling.LAYOUTS | surroundings.LAYOUTS
)
