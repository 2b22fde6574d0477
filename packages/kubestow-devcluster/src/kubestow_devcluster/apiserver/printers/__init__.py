"""Printers: the columns of each kind and the cells of one object, as ``kubectl get`` shows them.

``table`` holds the printer type and the formats that printers share, the modules by API group the printers of built-in
kinds, and ``additional_columns`` makes the printer of a custom resource. Printers work on plain objects; the response
encoder makes Tables of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers import core, storage, workloads
from kubestow_devcluster.apiserver.printers.table import Printer, columns, name_of
from kubestow_devcluster.apiserver.schema.types import Object


def _created_at(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


#: The printer of kinds without one.
DEFAULT = Printer(columns("Name, Created At:date"), _created_at)
#: By the resource that the objects are stored under.
PRINTERS: dict[str, Printer] = {**core.PRINTERS, **workloads.PRINTERS, **storage.PRINTERS}
