"""Pod groups: the gangs of scheduling.k8s.io, and those that co-scheduling plugins brought along as custom resources.

The first have a schema, an immutable spec and templates (workloads) that controllers make them from. The others are
stored as they are sent; of their fields only ``spec.minMember`` is looked at.
"""

from __future__ import annotations

from kubestow.api.names import dns1123_label_errors, qualified_name_errors
from kubestow.devcluster.apiserver.field_errors import (
    Cause,
    duplicate_value,
    invalid_value,
    invalid_values,
    required_value,
    too_many,
    unsupported_value,
)
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy

__all__ = ["CustomPodGroupStrategy", "PodGroupStrategy", "WorkloadStrategy"]

_MAX_TEMPLATES = 8
_MAX_TOPOLOGIES = 1
_DISRUPTION_MODES = ("Pod", "PodGroup")


class PodGroupStrategy(Strategy):
    """``scheduling.k8s.io``: nothing of the spec changes once it is stored."""

    def prepare_create(self, new: Object, now: str) -> None:
        new.pop("status", None)

    def validate(self, new: Object) -> list[Cause]:
        causes = _group_causes(new["spec"], "spec")
        reference = new["spec"].get("podGroupTemplateRef", {}).get("workload")
        if reference is not None:
            place = "spec.podGroupTemplateRef.workload"
            causes += [
                required_value(f"{place}.{field}")
                for field in ("podGroupTemplateName", "workloadName")
                if not reference.get(field)
            ]
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return _frozen(new["spec"], old["spec"])


class WorkloadStrategy(Strategy):
    def validate(self, new: Object) -> list[Cause]:
        templates = new["spec"].get("podGroupTemplates") or []
        place = "spec.podGroupTemplates"
        if not templates:
            return [required_value(place, "must have at least one item")]
        if len(templates) > _MAX_TEMPLATES:
            return [too_many(place, len(templates), _MAX_TEMPLATES)]
        causes: list[Cause] = []
        names: set[str] = set()
        for index, template in enumerate(templates):
            name = template.get("name", "")
            if faults := dns1123_label_errors(name):
                causes += invalid_values(f"{place}[{index}].name", name, faults)
            elif name in names:
                causes.append(duplicate_value(f"{place}[{index}].name", name))
            names.add(name)
            causes += _group_causes(template, f"{place}[{index}]")
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return _frozen(new["spec"], old["spec"])


class CustomPodGroupStrategy(Strategy):
    has_generation = True

    def prepare_create(self, new: Object, now: str) -> None:
        new.pop("status", None)

    def validate(self, new: Object) -> list[Cause]:
        spec = new.get("spec", {})
        least = spec.get("minMember", 1) if isinstance(spec, dict) else spec
        if type(least) is not int:
            place = "spec.minMember" if isinstance(spec, dict) else "spec"
            return [invalid_value(place, least, f"must be {'an integer' if isinstance(spec, dict) else 'an object'}")]
        if least < 1:
            return [invalid_value("spec.minMember", least, "should be greater than or equal to 1")]
        return []

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return self.validate(new)


def _group_causes(spec: Object, place: str) -> list[Cause]:
    """What groups and templates of groups have in common."""
    causes = _policy_causes(spec.get("schedulingPolicy"), f"{place}.schedulingPolicy")
    if (constraints := spec.get("schedulingConstraints")) is not None:
        causes += _topology_causes(constraints.get("topology") or [], f"{place}.schedulingConstraints.topology")
    mode = spec.get("disruptionMode")
    if mode is not None and mode not in _DISRUPTION_MODES:
        causes.append(unsupported_value(f"{place}.disruptionMode", mode, _DISRUPTION_MODES))
    return causes


def _topology_causes(topologies: list[Object], place: str) -> list[Cause]:
    """A constraint names the key of a node label; there is one at most."""
    if len(topologies) > _MAX_TOPOLOGIES:
        return [too_many(place, len(topologies), _MAX_TOPOLOGIES)]
    causes: list[Cause] = []
    for index, topology in enumerate(topologies):
        key = topology.get("key", "")
        if not key:
            causes.append(required_value(f"{place}[{index}].key"))
        else:
            causes += invalid_values(f"{place}[{index}].key", key, qualified_name_errors(key))
    return causes


def _policy_causes(policy: Object | None, place: str) -> list[Cause]:
    """A scheduling policy is either ``basic`` or ``gang``; a gang has a least number of pods."""
    given = [name for name in ("basic", "gang") if (policy or {}).get(name) is not None]
    if not given:
        return [invalid_value(place, "", "must specify one of: `basic`, `gang`")]
    assert policy is not None
    if len(given) > 1:
        return [invalid_value(place, f"{{{', '.join(given)}}}", "must specify exactly one of: `basic`, `gang`")]
    least = policy["gang"].get("minCount") if "gang" in policy else 1
    if least is None:
        return [required_value(f"{place}.gang.minCount")]
    if least < 1:
        return [invalid_value(f"{place}.gang.minCount", least, "must be greater than or equal to 1")]
    return []


def _frozen(new: Object, old: Object) -> list[Cause]:
    return [
        invalid_value(f"spec.{field}", new.get(field), "field is immutable")
        for field in sorted(new.keys() | old.keys())
        if new.get(field) != old.get(field)
    ]
