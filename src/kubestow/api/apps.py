"""Workload controllers (apps/v1), as scheduling reads them.

Only their selectors matter: they say which pods belong together, which gives pods without topology spread constraints
of their own a default spread.
"""

from __future__ import annotations

from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta

__all__ = ["ReplicaSet", "StatefulSet"]


class ControllerSpec(APIObject, frozen=True):
    """``spec`` of a controller."""

    selector: LabelSelector | None = None


class ReplicaSet(APIObject, frozen=True):
    """A replica set."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()


class StatefulSet(APIObject, frozen=True):
    """A stateful set."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ControllerSpec = ControllerSpec()
