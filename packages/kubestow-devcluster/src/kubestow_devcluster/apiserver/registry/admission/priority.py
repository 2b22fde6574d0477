"""Priority: the priority and preemption policy of pods and pod groups, from their priority class."""

from __future__ import annotations

from kubestow.rules.admission import default_priority_class
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission.rejection import forbidden
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.selectors import DecodedObjects
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["Priority"]


class Priority:
    def __init__(self, store: Store) -> None:
        self._classes = DecodedObjects(store, "priorityclasses.scheduling.k8s.io")

    def admit_pod(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for an unknown class, or a priority that differs from that of the class."""
        spec, priority_class = new["spec"], self._priority_class(kind, new)
        value = priority_class["value"] if priority_class is not None else 0
        _check_priority(kind, new, value)
        policy = priority_class["preemptionPolicy"] if priority_class is not None else "PreemptLowerPriority"
        if spec.get("preemptionPolicy", policy) != policy:
            problem = (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec;"
                f" priority admission controller computed {policy} from the given PriorityClass name"
            )
            raise forbidden(kind, new, problem)
        spec["priority"], spec["preemptionPolicy"] = value, policy

    def admit_pod_update(self, new: Object, old: Object) -> None:
        """Keep the priority and the preemption policy if the update leaves them out."""
        for field in ("priority", "preemptionPolicy"):
            if field not in new["spec"] and field in old["spec"]:
                new["spec"][field] = old["spec"][field]

    def admit_pod_group(self, kind: Kind, new: Object) -> None:
        """A group without a priority class has no priority, which counts as 0. Raises a 403 StatusError."""
        priority_class = self._priority_class(kind, new)
        _check_priority(kind, new, priority_class["value"] if priority_class is not None else 0)
        if priority_class is not None:
            new["spec"]["priority"] = priority_class["value"]

    def validate_class(self, kind: Kind, new: Object) -> None:
        """Only one class can be the default. Raises a 403 StatusError."""
        default = self._default_class() if new.get("globalDefault") else None
        if default is not None and default["metadata"]["name"] != new["metadata"].get("name"):
            problem = (
                f"PriorityClass {default['metadata']['name']} is already marked as default. Only one default can exist"
            )
            raise forbidden(kind, new, problem)

    def _priority_class(self, kind: Kind, new: Object) -> Object | None:
        """The priority class of an object, by its name or the default one, whose name is set in the spec."""
        spec = new["spec"]
        if name := spec.get("priorityClassName", ""):
            priority_class = self._classes.by_key().get(name)
            if priority_class is None:
                raise forbidden(kind, new, f"no PriorityClass with name {name} was found")
            return priority_class
        priority_class = self._default_class()
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        return priority_class

    def _default_class(self) -> Object | None:
        return default_priority_class(self._classes.by_key().values())


def _check_priority(kind: Kind, new: Object, value: int) -> None:
    requested = new["spec"].get("priority")
    if requested is not None and requested != value:
        subject = "pod group" if kind.name == "PodGroup" else "pod"
        problem = (
            f"the integer value of priority ({requested}) must not be provided in {subject} spec; priority admission"
            f" controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(kind, new, problem)
