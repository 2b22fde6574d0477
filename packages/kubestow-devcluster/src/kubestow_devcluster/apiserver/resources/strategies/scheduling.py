"""The strategies of priority classes, pod groups, workloads, queues, resource claims and device taint rules.

Groups of scheduling.k8s.io have a schema and a spec that is immutable, except for the minCount of a gang since v1beta1;
controllers create them from the templates in a workload, which may be a tree of composite groups. The groups of
scheduling.x-k8s.io (coscheduling) and scheduling.volcano.sh and the queues of the latter are custom resources whose
definitions are built in; they are stored without a schema, and only ``spec.minMember`` and ``spec.weight`` are
validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from kubestow.api.formats.names import dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors
from kubestow.rules.admission import SYSTEM_PRIORITIES
from kubestow.rules.defaults import default_resource_claim_spec
from kubestow_devcluster.apiserver.kinds.kind import ALL_CLIENT_METADATA, RESTStrategy, SpecStrategy
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    invalid_values,
    required_value,
    too_many,
    unsupported_value,
    validate_choice,
    validate_name,
)

_TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")

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
_MAX_RESOURCE_CLAIMS = 4
_MAX_TREE_DEPTH = 4
_DISRUPTION_MODES = ("Pod", "PodGroup")


class PodGroupAlphaStrategy(RESTStrategy):
    """Pod groups of scheduling.k8s.io/v1alpha2."""

    kept_by_status_writes = ALL_CLIENT_METADATA

    def prepare_for_create(self, new: Object, now: str) -> None:
        new.pop("status", None)

    def validate(self, new: Object) -> list[FieldError]:
        errors = _validate_group(new["spec"], "spec")
        workload = new["spec"].get("podGroupTemplateRef", {}).get("workload")
        if workload is not None:
            fields = ("podGroupTemplateName", "workloadName")
            errors += _validate_present(workload, fields, "spec.podGroupTemplateRef.workload")
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return _validate_immutable_spec(new["spec"], old["spec"])


class PodGroupStrategy(PodGroupAlphaStrategy):
    """Pod groups of scheduling.k8s.io/v1beta1."""

    def set_defaults(self, new: Object) -> None:
        new["spec"].setdefault("disruptionMode", {"single": {}})

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        errors = _validate_group(spec, "spec", is_disrupted=_validate_disruption)
        errors += _validate_workload_reference(spec)
        if spec.get("parentCompositePodGroupName") and not spec.get("workloadRef"):
            errors.append(required_value("spec.workloadRef", "when `parentCompositePodGroupName` is specified"))
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        immutable = _validate_immutable_spec(_without_min_count(new["spec"]), _without_min_count(old["spec"]))
        return immutable or self.validate(new)


class CompositePodGroupStrategy(PodGroupAlphaStrategy):
    """Composite pod groups of scheduling.k8s.io/v1alpha3."""

    def set_defaults(self, new: Object) -> None:
        new["spec"].setdefault("disruptionMode", {"single": {}})

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        errors = [] if spec.get("workloadRef") else [required_value("spec.workloadRef")]
        return [*errors, *_validate_composite(spec, "spec"), *_validate_workload_reference(spec)]


class WorkloadAlphaStrategy(RESTStrategy):
    """Workloads of scheduling.k8s.io/v1alpha2."""

    def validate(self, new: Object) -> list[FieldError]:
        path = "spec.podGroupTemplates"
        templates = new["spec"].get("podGroupTemplates") or []
        if not templates:
            return [required_value(path, "must have at least one item")]
        return _validate_templates(templates, path, _validate_group)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return _validate_immutable_spec(new["spec"], old["spec"])


class WorkloadOfPodsStrategy(RESTStrategy):
    """Workloads of scheduling.k8s.io/v1alpha1, which have their groups in themselves."""

    def validate(self, new: Object) -> list[FieldError]:
        spec, path = new["spec"], "spec.podGroups"
        errors = []
        if (controller := spec.get("controllerRef")) is not None:
            errors += _validate_controller(controller, "spec.controllerRef")
        groups = spec.get("podGroups") or []
        if not groups:
            return [*errors, required_value(path, "must have at least one item")]
        return [*errors, *_validate_templates(groups, path, _validate_group_of_pods)]

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        fields = ["podGroups"] if old["spec"].get("controllerRef") is None else ["controllerRef", "podGroups"]
        return [
            *self.validate(new),
            *(
                invalid_value(field, new["spec"].get(field), "field is immutable")
                for field in fields
                if new["spec"].get(field) != old["spec"].get(field)
            ),
        ]


class WorkloadStrategy(RESTStrategy):
    """Workloads of scheduling.k8s.io/v1beta1."""

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        fields = [field for field in _TEMPLATES if spec.get(field)]
        if len(fields) != 1:
            either = "`compositePodGroupTemplates`, `podGroupTemplates`"
            text = f"must specify exactly one of: {either}" if fields else f"must specify one of: {either}"
            return [invalid_value("spec", f"{{{', '.join(fields)}}}" if fields else "", text)]
        return _validate_template_fields(spec, "spec", depth=1)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        immutable = _validate_immutable_spec(_without_min_count(new["spec"]), _without_min_count(old["spec"]))
        return immutable or self.validate(new)


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


#: The fields of a workload, and of its composite templates, that hold templates.
_TEMPLATES = ("compositePodGroupTemplates", "podGroupTemplates")


def _validate_named_mode(mode: str, path: str) -> list[FieldError]:
    return validate_choice(path, mode, _DISRUPTION_MODES)


def _validate_disruption(mode: Object, path: str) -> list[FieldError]:
    members = [name for name in ("single", "all") if mode.get(name) is not None]
    return _validate_union(members, ("all", "single"), path)


def _validate_group(
    spec: Object, path: str, is_disrupted: Callable[[Any, str], list[FieldError]] = _validate_named_mode
) -> list[FieldError]:
    errors = _validate_policy(spec.get("schedulingPolicy"), f"{path}.schedulingPolicy")
    if (constraints := spec.get("schedulingConstraints")) is not None:
        errors += _validate_topology(constraints.get("topology") or [], f"{path}.schedulingConstraints.topology")
    if (mode := spec.get("disruptionMode")) is not None:
        errors += is_disrupted(mode, f"{path}.disruptionMode")
    if len(claims := spec.get("resourceClaims") or ()) > _MAX_RESOURCE_CLAIMS:
        errors.append(too_many(f"{path}.resourceClaims", len(claims), _MAX_RESOURCE_CLAIMS))
    return errors


def _validate_group_of_pods(group: Object, path: str) -> list[FieldError]:
    """The policy of a group in a workload of v1alpha1."""
    path = f"{path}.policy"
    policy, problem = group.get("policy") or {}, "exactly one of `basic`, `gang` is required"
    members = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if not members:
        return [required_value(path, problem)]
    if len(members) > 1:
        return [invalid_value(path, "{`basic`, `gang`}", f"{problem}, but multiple fields are set")]
    minimum = policy["gang"].get("minCount", 0) if "gang" in members else 1
    return [invalid_value(f"{path}.gang.minCount", minimum, "must be greater than 0")] if minimum < 1 else []


def _validate_controller(reference: Object, path: str) -> list[FieldError]:
    """The object that a workload of v1alpha1 belongs to."""
    errors = []
    if group := reference.get("apiGroup"):
        errors += invalid_values(f"{path}.apiGroup", group, dns1123_subdomain_errors(group))
    for field in ("kind", "name"):
        name = reference.get(field)
        if not name:
            errors.append(required_value(f"{path}.{field}"))
        elif name in (".", ".."):
            errors.append(invalid_value(f"{path}.{field}", name, f"may not be '{name}'"))
        else:
            problems = [f"may not contain '{character}'" for character in "/%" if character in name]
            errors += invalid_values(f"{path}.{field}", name, problems)
    return errors


def _validate_composite(spec: Object, path: str) -> list[FieldError]:
    """What a composite group and its template have in common."""
    errors = _validate_policy(spec.get("schedulingPolicy"), f"{path}.schedulingPolicy", "minGroupCount")
    if (constraints := spec.get("schedulingConstraints")) is not None:
        errors += _validate_topology(constraints.get("topology") or [], f"{path}.schedulingConstraints.topology")
    if (mode := spec.get("disruptionMode")) is not None:
        errors += _validate_disruption(mode, f"{path}.disruptionMode")
    return errors


def _validate_templates(
    templates: list[Object], path: str, validate: Callable[[Object, str], list[FieldError]]
) -> list[FieldError]:
    """At most eight templates with names of their own."""
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
        errors += validate(template, f"{path}[{index}]")
    return errors


def _validate_template_fields(owner: Object, path: str, *, depth: int) -> list[FieldError]:
    """The templates of a workload or of a composite template, which are at this ``depth`` of the tree."""
    if depth > _MAX_TREE_DEPTH:
        problem = f"the tree of templates is deeper than {_MAX_TREE_DEPTH}"
        return [invalid_value(f"{path}.{field}", "", problem) for field in _TEMPLATES if owner.get(field)]

    def validate_group(template: Object, template_path: str) -> list[FieldError]:
        return _validate_group(template, template_path, _validate_disruption)

    def validate_composite(template: Object, template_path: str) -> list[FieldError]:
        errors = _validate_composite(template, template_path)
        if not any(template.get(field) for field in _TEMPLATES):
            errors.append(required_value(template_path, "must have at least one template"))
        return errors + _validate_template_fields(template, template_path, depth=depth + 1)

    composite, groups = (owner.get(field) or [] for field in _TEMPLATES)
    return [
        *_validate_templates(composite, f"{path}.compositePodGroupTemplates", validate_composite),
        *_validate_templates(groups, f"{path}.podGroupTemplates", validate_group),
    ]


def _validate_present(reference: Object, fields: Iterable[str], path: str) -> list[FieldError]:
    return [required_value(f"{path}.{field}") for field in fields if not reference.get(field)]


def _validate_workload_reference(spec: Object) -> list[FieldError]:
    reference = spec.get("workloadRef")
    return (
        [] if reference is None else _validate_present(reference, ("templateName", "workloadName"), "spec.workloadRef")
    )


def _without_min_count(spec: Object) -> Object:
    """A spec, or that of a workload with its templates, without what may change in it: the minCount of gangs."""
    kept = dict(spec)
    policy = kept.get("schedulingPolicy")
    if policy and policy.get("gang") is not None:
        gang = {name: value for name, value in policy["gang"].items() if name != "minCount"}
        kept["schedulingPolicy"] = policy | {"gang": gang}
    for field in _TEMPLATES:
        if field in kept:
            kept[field] = [_without_min_count(template) for template in kept[field]]
    return kept


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


def _validate_policy(policy: Object | None, path: str, count: str = "minCount") -> list[FieldError]:
    """A scheduling policy is ``basic``, or ``gang`` with a minimum ``count``."""
    members = [name for name in ("basic", "gang") if (policy or {}).get(name) is not None]
    if errors := _validate_union(members, ("basic", "gang"), path):
        return errors
    assert policy is not None
    minimum = policy["gang"].get(count) if "gang" in policy else 1
    if minimum is None:
        return [required_value(f"{path}.gang.{count}")]
    if minimum < 1:
        return [invalid_value(f"{path}.gang.{count}", minimum, "must be greater than or equal to 1")]
    return []


def _validate_union(members: list[str], choices: Sequence[str], path: str) -> list[FieldError]:
    """Exactly one of the choices is set."""
    of = ", ".join(f"`{choice}`" for choice in choices)
    if not members:
        return [invalid_value(path, "", f"must specify one of: {of}")]
    if len(members) > 1:
        return [invalid_value(path, f"{{{', '.join(members)}}}", f"must specify exactly one of: {of}")]
    return []


def _validate_immutable_spec(new: Object, old: Object) -> list[FieldError]:
    return [
        invalid_value(f"spec.{field}", new.get(field), "field is immutable")
        for field in sorted(new.keys() | old.keys())
        if new.get(field) != old.get(field)
    ]


class DeviceTaintRuleStrategy(SpecStrategy):
    initial_status: ClassVar = {}

    def prepare_for_create(self, new: Object, now: str) -> None:
        super().prepare_for_create(new, now)
        new["spec"]["taint"].setdefault("timeAdded", now)

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        taint, former = new["spec"]["taint"], old["spec"]["taint"]
        if "timeAdded" not in taint or (
            taint.get("effect") != former.get("effect") and taint["timeAdded"] == former.get("timeAdded")
        ):
            taint["timeAdded"] = now

    def validate(self, new: Object) -> list[FieldError]:
        taint = new["spec"].get("taint", {})
        errors = [required_value(f"spec.taint.{name}") for name in ("key", "effect") if not taint.get(name)]
        if taint.get("effect", "") not in ("", *_TAINT_EFFECTS):
            errors.append(unsupported_value("spec.taint.effect", taint["effect"], _TAINT_EFFECTS))
        return errors


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
