"""The error with which admission plugins reject an object."""

from __future__ import annotations

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.schema.types import Object

__all__ = ["forbidden"]


def forbidden(kind: Kind, new: Object, problem: str) -> statuses.StatusError:
    """The 403 error of an object that a plugin rejects."""
    return statuses.forbidden(kind.group_resource, new["metadata"].get("name", ""), problem)
