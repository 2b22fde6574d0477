"""Table responses: stored objects as the rows that ``kubectl get`` prints, made by the printer of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kubestow_devcluster.apiserver.printers.printers import DEFAULT, PRINTERS
from kubestow_devcluster.apiserver.printers.table import ColumnDefinition, Printer
from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["table"]


def table(
    kind: Kind,
    objects: Sequence[StoredObject],
    metadata: Object,
    *,
    version: str,
    include_object: str,
    now: datetime,
    with_columns: bool = True,
) -> Object:
    """A Table of ``objects`` in a version of meta.k8s.io.

    ``include_object`` is the part of the object in each row: Object, Metadata or None.
    """
    printer = _printer(kind)
    rows = []
    for stored in objects:
        obj = kind.decode(stored)
        row: Object = {"cells": printer.cells(obj, now)}
        if include_object == "Metadata":
            type_meta = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}"}
            row["object"] = {**type_meta, "metadata": obj["metadata"]}
        else:
            row["object"] = msgspec.Raw(kind.encode(stored)) if include_object == "Object" else None
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in printer.columns] if with_columns else None,
        "rows": rows,
    }


def _printer(kind: Kind) -> Printer:
    return PRINTERS.get(kind.storage, DEFAULT) if kind.custom is None else kind.custom.printer


def _definition(column: ColumnDefinition) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": column.description,
        "priority": column.priority,
    }
