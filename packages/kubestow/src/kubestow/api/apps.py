"""ReplicaSets and StatefulSets (apps/v1), as scheduling reads them.

Only their selectors matter: PodTopologySpread applies its default constraints to the pods that a controller selects.
"""

from __future__ import annotations

from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta


class WorkloadSpec(APIObject, frozen=True):
    """``spec`` of a ReplicaSet or StatefulSet."""

    selector: LabelSelector | None = None


class ReplicaSet(APIObject, frozen=True):
    """A ReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(APIObject, frozen=True):
    """A StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
