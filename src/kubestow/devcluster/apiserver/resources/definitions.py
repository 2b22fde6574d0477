"""CustomResourceDefinitions: what is refused of them, and the status that says which names they have.

What controllers inside the real server do a moment later is done in the same write: names are accepted and the
definition is established, unless another kind of its group has these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kubestow.api.names import dns1035_label_errors
from kubestow.devcluster.apiserver.field_errors import (
    Cause,
    invalid_value,
    invalid_values,
    required_value,
    unsupported_value,
)
from kubestow.devcluster.apiserver.resources.kind import Kind, Object, Strategy

__all__ = ["CLEANUP", "DefinitionStrategy", "accept_names", "is_terminating", "mark_terminating", "priority_of"]

#: The finalizer that keeps a definition until its instances are gone.
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_APPROVAL = "api-approved.kubernetes.io"
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def priority_of(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as discovery lists them: v2 before v1 before v1beta1 before v1alpha1 before any other name."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[parsed[2]]
    return (stage, -int(parsed[1]), -int(parsed[3] or 0), version)


class DefinitionStrategy(Strategy):
    has_generation = True
    delete_returns_object = True

    def default(self, new: Object) -> None:
        spec = new["spec"]
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("listKind", f"{names['kind']}List")
            names.setdefault("singular", names["kind"].lower())
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, new: Object, now: str) -> None:
        stored = [version["name"] for version in new["spec"].get("versions") or () if version.get("storage")]
        new["status"] = {"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": stored}
        new["metadata"]["finalizers"] = sorted({*(new["metadata"].get("finalizers") or ()), CLEANUP})

    def prepare_update(self, new: Object, old: Object, now: str) -> None:
        known: list[str] = new.get("status", {}).get("storedVersions") or []
        stored = [version["name"] for version in new["spec"].get("versions") or () if version.get("storage")]
        new["status"] = {**new.get("status", {}), "storedVersions": [*known, *(v for v in stored if v not in known)]}

    def validate(self, new: Object) -> list[Cause]:
        spec = new["spec"]
        causes = list(_name_causes(new))
        if not spec.get("group"):
            causes.append(required_value("spec.group"))
        if spec.get("scope") not in ("Cluster", "Namespaced"):
            causes.append(unsupported_value("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced")))
        for field in ("plural", "singular", "kind", "listKind"):
            name = spec["names"].get(field, "")
            if not name:
                causes.append(required_value(f"spec.names.{field}"))
            else:
                causes += invalid_values(f"spec.names.{field}", name, dns1035_label_errors(name.lower()))
        return causes + list(_version_causes(spec.get("versions") or []))

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = self.validate(new)
        frozen = [("group",), ("scope",), ("names", "plural"), ("names", "kind")]
        for path in frozen:
            now, before = new["spec"], old["spec"]
            for step in path:
                now, before = now.get(step), before.get(step)
            if now != before:
                causes.append(invalid_value(f"spec.{'.'.join(path)}", now, "field is immutable"))
        return causes


def _name_causes(new: Object) -> Iterator[Cause]:
    spec, identity = new["spec"], new["metadata"]
    group = spec.get("group", "")
    if identity.get("name") != f"{spec['names'].get('plural', '')}.{group}":
        yield invalid_value("metadata.name", identity.get("name"), 'must be spec.names.plural+"."+spec.group')
    if f".{group}".endswith((".k8s.io", ".kubernetes.io")) and _APPROVAL not in (identity.get("annotations") or {}):
        problem = (
            f'protected groups must have approval annotation "{_APPROVAL}",'
            " see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required_value(f"metadata.annotations[{_APPROVAL}]", problem)


def _version_causes(versions: list[Object]) -> Iterator[Cause]:
    names = [version.get("name", "") for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value("spec.versions", names, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        place = f"spec.versions[{index}]"
        yield from invalid_values(f"{place}.name", names[index], dns1035_label_errors(names[index]))
        if names[index] in names[:index]:
            yield invalid_value(f"{place}.name", names[index], "must be unique")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required_value(f"{place}.schema.openAPIV3Schema", "schemas are required")
        elif schema.get("type") != "object":
            where = f"{place}.schema.openAPIV3Schema.type"
            yield (
                required_value(where, "must not be empty at the root")
                if not schema.get("type")
                else invalid_value(where, schema["type"], "must be object at the root")
            )


def accept_names(definition: Object, others: Iterable[Kind], now: str) -> None:
    """Write into the status which names the definition has, and whether it is served. ``others`` are of its group."""
    spec, status = definition["spec"], definition["status"]
    taken = _conflict(spec["names"], list(others))
    if taken is None:
        status["acceptedNames"] = spec["names"]
        accepted = _condition("NamesAccepted", True, "NoConflicts", "no conflicts found")
        established = _condition("Established", True, "InitialNamesAccepted", "the initial names have been accepted")
    else:
        accepted = _condition("NamesAccepted", False, *taken)
        established = _condition("Established", False, "NotAccepted", "not all names are accepted")
    known = {one["type"]: one for one in status.get("conditions") or ()}
    for made in (accepted, established):
        before = known.get(made["type"])
        if made["type"] == "Established" and before is not None and before["status"] == "True":
            continue  # Once established, always established.
        same = before is not None and before["status"] == made["status"]
        made["lastTransitionTime"] = before["lastTransitionTime"] if before is not None and same else now
        known[made["type"]] = made
    status["conditions"] = [known[name] for name in ("NamesAccepted", "Established", "Terminating") if name in known]


def _condition(type_: str, holds: bool, reason: str, message: str) -> Object:
    status = "True" if holds else "False"
    return {"type": type_, "status": status, "lastTransitionTime": "", "reason": reason, "message": message}


def _conflict(names: Object, others: list[Kind]) -> tuple[str, str] | None:
    """Which name another kind of the group has already: reason and message."""
    for other in others:
        words = {other.plural, other.singular, *other.short_names}
        for field, reason in (("plural", "PluralConflict"), ("singular", "SingularConflict")):
            if names.get(field) in words:
                return reason, f'"{names[field]}" is already in use'
        for short in names.get("shortNames") or ():
            if short in words:
                return "ShortNamesConflict", f'"{short}" is already in use'
        if names["kind"] in (other.name, other.list_kind):
            return "KindConflict", f'"{names["kind"]}" is already in use'
    return None


def mark_terminating(definition: Object, now: str) -> None:
    message = "CustomResource deletion is in progress"
    made = {**_condition("Terminating", True, "InstanceDeletionInProgress", message), "lastTransitionTime": now}
    kept = [one for one in definition["status"]["conditions"] if one["type"] != "Terminating"]
    definition["status"]["conditions"] = [*kept, made]


def is_terminating(definition: Object) -> bool:
    return "deletionTimestamp" in definition["metadata"]
