"""The strategies of priority classes, pod groups, workloads, queues and resource claims.

Groups of scheduling.k8s.io have a schema and an immutable spec; controllers create them from the templates in a
workload. The groups of scheduling.x-k8s.io (coscheduling) and scheduling.volcano.sh and the queues of the latter are
custom resources whose definitions are built in; they are stored without a schema, and only ``spec.minMember`` and
``spec.weight`` are validated.
"""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.formats.names import dns1123_label_errors, qualified_name_errors
from kubestow.rules.admission import SYSTEM_PRIORITIES
from kubestow.rules.defaults import default_resource_claim_spec
from kubestow_devcluster.apiserver.kinds.kind import ALL_CLIENT_METADATA, RESTStrategy
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    invalid_values,
    required_value,
    too_many,
    validate_choice,
    validate_name,
)

#: The highest value of a class that is not a system class.
HIGHEST_USER_DEFINABLE_PRIORITY = 1_000_000_000

#: Name -> value, description.
SYSTEM_PRIORITY_CLASSES: dict[str, tuple[int, str]] = {
    "system-cluster-critical": (
        SYSTEM_PRIORITIES["system-cluster-critical"],
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        SYSTEM_PRIORITIES["system-node-critical"],
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
_RESERVED = "priority class names with 'system-' prefix are reserved for system use only. error: "


class PriorityClassStrategy(RESTStrategy):
    has_generation = True
    defaults: ClassVar = {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}

    def validate(self, new: Object) -> list[FieldError]:
        name = new["metadata"].get("name", "")
        if name in SYSTEM_PRIORITY_CLASSES:
            is_known = new["value"] == SYSTEM_PRIORITY_CLASSES[name][0]
            return [] if is_known else [forbidden_value("metadata.name", _RESERVED)]
        if name.startswith("system-"):
            return [forbidden_value("metadata.name", _RESERVED)]
        if new["value"] > HIGHEST_USER_DEFINABLE_PRIORITY:
            problem = f"maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE_PRIORITY}"
            return [forbidden_value("value", problem)]
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return [
            forbidden_value(field, "may not be changed in an update.")
            if field == "value"
            else invalid_value(field, new[field], "field is immutable")
            for field in ("value", "preemptionPolicy")
            if new.get(field) != old.get(field)
        ]


_MAX_TEMPLATES = 8
_MAX_TOPOLOGY_CONSTRAINTS = 1
_MAX_QUEUE_WEIGHT = 65535
_DISRUPTION_MODES = ("Pod", "PodGroup")


class PodGroupStrategy(RESTStrategy):
    """Pod groups of scheduling.k8s.io."""

    kept_by_status_writes = ALL_CLIENT_METADATA

    def prepare_for_create(self, new: Object, now: str) -> None:
        new.pop("status", None)

    def validate(self, new: Object) -> list[FieldError]:
        errors = _validate_group(new["spec"], "spec")
        workload = new["spec"].get("podGroupTemplateRef", {}).get("workload")
        if workload is not None:
            errors += [
                required_value(f"spec.podGroupTemplateRef.workload.{field}")
                for field in ("podGroupTemplateName", "workloadName")
                if not workload.get(field)
            ]
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return _validate_immutable_spec(new["spec"], old["spec"])


class WorkloadStrategy(RESTStrategy):
    """Workloads of scheduling.k8s.io."""

    def validate(self, new: Object) -> list[FieldError]:
        templates = new["spec"].get("podGroupTemplates") or []
        path = "spec.podGroupTemplates"
        if not templates:
            return [required_value(path, "must have at least one item")]
        if len(templates) > _MAX_TEMPLATES:
            return [too_many(path, len(templates), _MAX_TEMPLATES)]
        errors: list[FieldError] = []
        names: set[str] = set()
        for index, template in enumerate(templates):
            name = template.get("name", "")
            if name_errors := dns1123_label_errors(name):
                errors += invalid_values(f"{path}[{index}].name", name, name_errors)
            elif name in names:
                errors.append(duplicate_value(f"{path}[{index}].name", name))
            names.add(name)
            errors += _validate_group(template, f"{path}[{index}]")
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return _validate_immutable_spec(new["spec"], old["spec"])


class _SchemalessStrategy(RESTStrategy):
    """Custom resources of which one number in the spec is validated."""

    has_generation = True
    kept_by_status_writes = ALL_CLIENT_METADATA
    validates_updates_as_new = True
    #: The field, the least and the greatest number, and the error beyond them.
    field: ClassVar[str]
    bounds: ClassVar[tuple[int, float]]
    problem: ClassVar[str]

    def prepare_for_create(self, new: Object, now: str) -> None:
        new.pop("status", None)

    def validate(self, new: Object) -> list[FieldError]:
        spec = new.get("spec", {})
        if not isinstance(spec, dict):
            return [invalid_value("spec", spec, "must be an object")]
        path, number = f"spec.{self.field}", spec.get(self.field, 1)
        if type(number) is not int:
            return [invalid_value(path, number, "must be an integer")]
        least, greatest = self.bounds
        return [] if least <= number <= greatest else [invalid_value(path, number, self.problem)]


class CustomPodGroupStrategy(_SchemalessStrategy):
    """Pod groups of scheduling.x-k8s.io and scheduling.volcano.sh."""

    field, bounds, problem = "minMember", (1, float("inf")), "should be greater than or equal to 1"


class QueueStrategy(_SchemalessStrategy):
    """Queues of scheduling.volcano.sh."""

    field, bounds, problem = "weight", (1, _MAX_QUEUE_WEIGHT), f"should be from 1 to {_MAX_QUEUE_WEIGHT}"


def _validate_group(spec: Object, path: str) -> list[FieldError]:
    errors = _validate_policy(spec.get("schedulingPolicy"), f"{path}.schedulingPolicy")
    if (constraints := spec.get("schedulingConstraints")) is not None:
        errors += _validate_topology(constraints.get("topology") or [], f"{path}.schedulingConstraints.topology")
    if (mode := spec.get("disruptionMode")) is not None:
        errors += validate_choice(f"{path}.disruptionMode", mode, _DISRUPTION_MODES)
    return errors


def _validate_topology(constraints: list[Object], path: str) -> list[FieldError]:
    """A topology constraint names the key of a node label."""
    if len(constraints) > _MAX_TOPOLOGY_CONSTRAINTS:
        return [too_many(path, len(constraints), _MAX_TOPOLOGY_CONSTRAINTS)]
    errors: list[FieldError] = []
    for index, constraint in enumerate(constraints):
        key = constraint.get("key", "")
        key_path = f"{path}[{index}].key"
        errors += validate_name(key_path, key, qualified_name_errors) if key else [required_value(key_path)]
    return errors


def _validate_policy(policy: Object | None, path: str) -> list[FieldError]:
    """A scheduling policy is ``basic``, or ``gang`` with a minCount."""
    members = [name for name in ("basic", "gang") if (policy or {}).get(name) is not None]
    if not members:
        return [invalid_value(path, "", "must specify one of: `basic`, `gang`")]
    assert policy is not None
    if len(members) > 1:
        return [invalid_value(path, f"{{{', '.join(members)}}}", "must specify exactly one of: `basic`, `gang`")]
    minimum = policy["gang"].get("minCount") if "gang" in policy else 1
    if minimum is None:
        return [required_value(f"{path}.gang.minCount")]
    if minimum < 1:
        return [invalid_value(f"{path}.gang.minCount", minimum, "must be greater than or equal to 1")]
    return []


def _validate_immutable_spec(new: Object, old: Object) -> list[FieldError]:
    return [
        invalid_value(f"spec.{field}", new.get(field), "field is immutable")
        for field in sorted(new.keys() | old.keys())
        if new.get(field) != old.get(field)
    ]


class ResourceClaimStrategy(RESTStrategy):
    kept_by_status_writes = ALL_CLIENT_METADATA
    initial_status: ClassVar = {}

    def set_defaults(self, new: Object) -> None:
        default_resource_claim_spec(new["spec"])

    def validate(self, new: Object) -> list[FieldError]:
        return [
            required_value(f"spec.devices.requests[{index}].name")
            for index, request in enumerate(new["spec"].get("devices", {}).get("requests") or ())
            if not request.get("name")
        ]

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return [] if new["spec"] == old["spec"] else [invalid_value("spec", new["spec"], "field is immutable")]
