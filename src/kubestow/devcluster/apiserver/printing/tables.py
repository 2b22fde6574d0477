"""Objects as rows for people: what ``kubectl get`` prints.

The columns and cells of each kind are in :mod:`kubestow.devcluster.apiserver.printing`; here they become the Table object.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from kubestow.devcluster.apiserver import printing as columns
from kubestow.devcluster.apiserver.resources import Kind
from kubestow.devcluster.apiserver.storage.store import StoredObject

__all__ = ["table"]

Object = dict[str, Any]


def table(
    kind: Kind, objects: Sequence[StoredObject], metadata: Object, *, include: str, now: datetime, columns: bool = True
) -> Object:
    """``include`` is the request's includeObject: Object, Metadata or None."""
    layout = _layout(kind)
    rows = []
    for stored in objects:
        whole = kind.decode(stored)
        row: Object = {"cells": layout.cells(whole, now)}
        if include == "Metadata":
            about = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]}
            row["object"] = about
        else:
            row["object"] = msgspec.Raw(kind.encode(stored)) if include == "Object" else None
        rows.append(row)
    definitions = [_definition(column) for column in layout.columns] if columns else None
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _layout(kind: Kind) -> columns.Layout:
    return kind.layout or columns.LAYOUTS.get(kind.storage, columns.DEFAULT)


def _definition(column: columns.Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": column.description,
        "priority": column.priority,
    }
