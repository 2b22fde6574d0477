"""The Go types of 1.35 that no published kubectl contains: those of the Workloads of scheduling.k8s.io/v1alpha1.

The numbers are those of ``generated.proto`` in ``scheduling/v1alpha1`` and ``core/v1`` of k8s.io/api v1.35.6
(Apache-2.0). Each type lists its fields as in :mod:`.apiextensions`.
"""

from __future__ import annotations

from tools.schema.apiextensions import read_fields

_SCHEDULING, _CORE = "io.k8s.api.scheduling.v1alpha1.", "io.k8s.api.core.v1."
#: The kinds, and the fields that they brought to other types, by definition, without the prefix of all.
KINDS = ("api.scheduling.v1alpha1.Workload",)
FIELDS = {"api.core.v1.PodSpec": ("workloadRef",)}

_TYPES = {
    f"{_SCHEDULING}BasicSchedulingPolicy": "",
    f"{_SCHEDULING}GangSchedulingPolicy": "minCount=1",
    f"{_SCHEDULING}PodGroup": "name=1 policy=3",
    f"{_SCHEDULING}PodGroupPolicy": "basic=2* gang=3*",
    f"{_SCHEDULING}TypedLocalObjectReference": "apiGroup=1 kind=2 name=3",
    f"{_SCHEDULING}Workload": "metadata=1 spec=2",
    f"{_SCHEDULING}WorkloadSpec": "controllerRef=1* podGroups=2",
    f"{_CORE}WorkloadReference": "name=1 podGroup=2 podGroupReplicaKey=3",
    f"{_CORE}PodSpec": "workloadRef=42*",
}


def go_fields(definition: str) -> dict[str, tuple[int, bool]] | None:
    """The protobuf number of each field by its JSON name, and whether it is a pointer; None for other types."""
    return read_fields(_TYPES[definition]) if definition in _TYPES else None
