"""CustomResourceDefinitions: their strategy, their conditions, and the kinds they serve, one per served version.

kube-apiserver's naming, establishing and finalizing controllers set the conditions NamesAccepted, Established and
Terminating after the write. Here they are set in the write itself: the names are accepted and the definition is
established, unless another kind of the group has its names. All versions share storage and differ in their schemas: the
only conversion is a change of apiVersion.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from kubestow.api.formats.names import dns1035_label_errors
from kubestow_devcluster.apiserver.group_version import GroupVersion
from kubestow_devcluster.apiserver.kinds.kind import (
    ALL_CLIENT_METADATA,
    CustomResource,
    Kind,
    KindNames,
    RESTOptions,
    RESTStrategy,
    ScalePaths,
    Subresources,
)
from kubestow_devcluster.apiserver.printers.table import additional_columns_printer
from kubestow_devcluster.apiserver.resources.validation_rules import (
    ValidationRules,
    has_rules,
    rule_errors,
    unenforced_rules,
)
from kubestow_devcluster.apiserver.schema.structural import (
    Schema,
    StructuralType,
    apply_defaults,
    has_defaults,
    pattern_error,
    subschemas,
    validate,
)
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    invalid_value,
    invalid_values,
    required_value,
    validate_choice,
    validate_name,
)

#: The finalizer that keeps a definition until its instances are deleted.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def accept_names(definition: Object, others: Iterable[Kind], now: str) -> None:
    """Set the accepted names and the conditions NamesAccepted and Established.

    ``others`` are the kinds of the same group that other definitions or the server itself define.
    """
    spec, status = definition["spec"], definition["status"]
    conflict = _conflict(spec["names"], list(others))
    if conflict is None:
        status["acceptedNames"] = spec["names"]
        accepted = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
        established = _condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    else:
        accepted = _condition("NamesAccepted", "False", *conflict)
        established = _condition("Established", "False", "NotAccepted", "not all names are accepted")
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    for new in (accepted, established):
        old = conditions.get(new["type"])
        if new["type"] == "Established" and old is not None and old["status"] == "True":
            continue  # An established definition stays established.
        is_unchanged = old is not None and old["status"] == new["status"]
        new["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and is_unchanged else now
        conditions[new["type"]] = new
    order = ("NamesAccepted", "Established", "Terminating")
    # Conditions that a user has set are kept.
    ordered = [*order, *(type_ for type_ in conditions if type_ not in order)]
    status["conditions"] = [conditions[type_] for type_ in ordered if type_ in conditions]


def _condition(type_: str, status: str, reason: str, message: str) -> Object:
    return {"type": type_, "status": status, "lastTransitionTime": "", "reason": reason, "message": message}


def _conflict(names: Object, others: list[Kind]) -> tuple[str, str] | None:
    """Reason and message of the first name that another kind of the group has."""
    for other in others:
        taken = {other.names.plural, other.names.singular, *other.names.short_names}
        for field, reason in (("plural", "PluralConflict"), ("singular", "SingularConflict")):
            if names.get(field) in taken:
                return reason, f'"{names[field]}" is already in use'
        for short_name in names.get("shortNames") or ():
            if short_name in taken:
                return "ShortNamesConflict", f'"{short_name}" is already in use'
        if names["kind"] in (other.name, other.names.list_kind):
            return "KindConflict", f'"{names["kind"]}" is already in use'
    return None


def set_terminating(definition: Object, now: str) -> None:
    message = "CustomResource deletion is in progress"
    terminating = _condition("Terminating", "True", "InstanceDeletionInProgress", message)
    terminating["lastTransitionTime"] = now
    others = [one for one in definition["status"]["conditions"] if one["type"] != "Terminating"]
    definition["status"]["conditions"] = [*others, terminating]


def is_terminating(definition: Object) -> bool:
    return "deletionTimestamp" in definition["metadata"]


_APPROVAL = "api-approved.kubernetes.io"
_SCOPES = ("Cluster", "Namespaced")
_IMMUTABLE = (("group",), ("scope",), ("names", "plural"), ("names", "kind"))


class DefinitionStrategy(RESTStrategy):
    has_generation = True
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
        spec = new["spec"]
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("listKind", f"{names['kind']}List")
            names.setdefault("singular", names["kind"].lower())
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_for_create(self, new: Object, now: str) -> None:
        accepted_names, versions = {"kind": "", "plural": ""}, _storage_versions(new["spec"])
        new["status"] = {"acceptedNames": accepted_names, "conditions": [], "storedVersions": versions}
        new["metadata"]["finalizers"] = sorted({*(new["metadata"].get("finalizers") or ()), CLEANUP_FINALIZER})

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        stored: list[str] = new.get("status", {}).get("storedVersions") or []
        added = [version for version in _storage_versions(new["spec"]) if version not in stored]
        new["status"] = {**new.get("status", {}), "storedVersions": [*stored, *added]}

    def warnings(self, new: Object) -> list[str]:
        versions = (new.get("spec") or {}).get("versions") or []
        return [f"{path}.{problem}" for path, schema in _schemas(versions) for problem in unenforced_rules(schema)]

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        errors = list(_validate_name(new))
        if not spec.get("group"):
            errors.append(required_value("spec.group"))
        errors += validate_choice("spec.scope", spec.get("scope", ""), _SCOPES)
        for field in ("plural", "singular", "kind", "listKind"):
            name = spec["names"].get(field, "")
            if not name:
                errors.append(required_value(f"spec.names.{field}"))
            else:
                errors += invalid_values(f"spec.names.{field}", name, dns1035_label_errors(name.lower()))
        versions = spec.get("versions") or []
        return [*errors, *_validate_versions(versions), *_validate_patterns(versions), *_validate_rules(versions)]

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errors = self.validate(new)
        for path in _IMMUTABLE:
            after, before = new["spec"], old["spec"]
            for step in path:
                after, before = after.get(step), before.get(step)
            if after != before:
                errors.append(invalid_value(f"spec.{'.'.join(path)}", after, "field is immutable"))
        return errors


def _storage_versions(spec: Object) -> list[str]:
    return [version["name"] for version in spec.get("versions") or () if version.get("storage")]


def _validate_name(new: Object) -> Iterator[FieldError]:
    spec, metadata = new["spec"], new["metadata"]
    group = spec.get("group", "")
    if metadata.get("name") != f"{spec['names'].get('plural', '')}.{group}":
        yield invalid_value("metadata.name", metadata.get("name"), 'must be spec.names.plural+"."+spec.group')
    if f".{group}".endswith((".k8s.io", ".kubernetes.io")) and _APPROVAL not in (metadata.get("annotations") or {}):
        problem = (
            f'protected groups must have approval annotation "{_APPROVAL}",'
            " see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required_value(f"metadata.annotations[{_APPROVAL}]", problem)


def _validate_versions(versions: list[Object]) -> Iterator[FieldError]:
    names = [version.get("name", "") for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value("spec.versions", names, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        yield from validate_name(f"{path}.name", names[index], dns1035_label_errors)
        if names[index] in names[:index]:
            yield invalid_value(f"{path}.name", names[index], "must be unique")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required_value(f"{path}.schema.openAPIV3Schema", "schemas are required")
        elif schema.get("type") != "object":
            type_path = f"{path}.schema.openAPIV3Schema.type"
            yield (
                required_value(type_path, "must not be empty at the root")
                if not schema.get("type")
                else invalid_value(type_path, schema["type"], "must be object at the root")
            )


def _validate_patterns(versions: list[Object]) -> Iterator[FieldError]:
    for path, schema in _schemas(versions):
        pattern = schema.get("pattern") or ""
        if problem := pattern_error(pattern):
            problem = f"must be a valid regular expression, but isn't: error parsing regexp: {problem}"
            yield invalid_value(f"{path}.pattern", pattern, problem)


def _validate_rules(versions: list[Object]) -> Iterator[FieldError]:
    uncorrelated: list[str] = []
    for path, schema in _schemas(versions):
        # Only the items of lists of type map can be compared to their old values.
        if schema.get("items") and schema.get("x-kubernetes-list-type") != "map":
            uncorrelated.append(f"{path}.items")
        correlates, is_root = not path.startswith(tuple(uncorrelated)), path.endswith(".openAPIV3Schema")
        yield from rule_errors(schema, path, is_root=is_root, correlates=correlates)


def _schemas(versions: list[Object]) -> Iterator[tuple[str, Object]]:
    """The schemas of all versions, nested ones included, each with its path.

    A schema that all versions have in common is at ``spec.validation``, as in kube-apiserver's internal version.
    """
    roots = [(version.get("schema") or {}).get("openAPIV3Schema") or {} for version in versions]
    if roots and all(root == roots[0] for root in roots):
        yield from subschemas(roots[0], "spec.validation.openAPIV3Schema")
        return
    for index, root in enumerate(roots):
        yield from subschemas(root, f"spec.versions[{index}].schema.openAPIV3Schema")


class CustomResourceStrategy(RESTStrategy):
    """Defaulting and validation by the schema of one version. ``type_meta`` are kind and apiVersion of its objects."""

    has_generation = True
    allow_unconditional_update = False
    kept_by_status_writes = ALL_CLIENT_METADATA

    def __init__(self, schema: Schema, type_meta: Object, *, has_status: bool) -> None:
        # Metadata is validated by the rules of all kinds.
        properties = {key: item for key, item in (schema.get("properties") or {}).items() if key != "metadata"}
        self._schema = {**schema, "properties": properties}
        self._type_meta, self._has_status = type_meta, has_status
        self._rules = ValidationRules(schema, root=True) if has_rules(schema) else None
        # A default that was added to the schema later also applies to the objects that exist.
        self.needs_conversion = has_defaults(self._schema)

    def from_storage(self, stored: Object) -> Object:
        self.set_defaults(stored)
        return stored

    def set_defaults(self, new: Object) -> None:
        apply_defaults(new, self._schema)

    def prepare_for_create(self, new: Object, now: str) -> None:
        if self._has_status:
            new.pop("status", None)

    def validate(self, new: Object) -> list[FieldError]:
        return self._errors(new, None)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self._errors(new, old)

    validate_status_update = validate_update

    def _errors(self, new: Object, old: Object | None) -> list[FieldError]:
        whole = {**self._type_meta, **new}
        errors = validate(whole, self._schema)
        if self._rules is not None:
            errors += self._rules.validate(whole, None if old is None else {**self._type_meta, **old}, errors)
        return errors


def kinds_of(definition: Object) -> list[Kind]:
    """The kinds of the served versions of a definition; none until it is established."""
    spec, status = definition["spec"], definition.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    if conditions.get("Established") != "True":
        return []
    return [_kind(spec, version) for version in spec["versions"] if version.get("served")]


def _kind(spec: Object, version: Object) -> Kind:
    schema: dict[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    if spec.get("preserveUnknownFields"):
        schema = {**schema, "x-kubernetes-preserve-unknown-fields": True}
    subresources = _subresources(version.get("subresources") or {})
    group_version = GroupVersion(spec["group"], version["name"])
    type_meta = {"apiVersion": str(group_version), "kind": spec["names"]["kind"]}
    names = spec["names"]
    # The hash in discovery documents, which changes when another version is stored.
    storage = next((version["name"] for version in spec["versions"] if version.get("storage")), "")
    digest = hashlib.sha256(f"{spec['group']}/{storage}/{spec['names']['kind']}".encode()).digest()
    return Kind(
        group_version,
        KindNames(
            names["kind"],
            names["plural"],
            names.get("singular") or names["kind"].lower(),
            names.get("listKind") or f"{names['kind']}List",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
        ),
        namespaced=spec["scope"] == "Namespaced",
        subresources=subresources,
        rest=RESTOptions(
            CustomResourceStrategy(schema, type_meta, has_status=subresources.status),
            selectable_fields=tuple(one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()),
            storage_version_hash=base64.b64encode(digest[:8]).decode(),
            deprecation_warning=_deprecation_warning(spec, version),
        ),
        custom=CustomResource(
            StructuralType(schema, root=True), additional_columns_printer(version.get("additionalPrinterColumns") or [])
        ),
    )


def _subresources(subresources: Object) -> Subresources:
    scale = subresources.get("scale")
    if scale is None:
        return Subresources(status="status" in subresources)
    fields = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    spec_replicas, status_replicas, selector = (scale.get(field, "").lstrip(".") for field in fields)
    return Subresources(status="status" in subresources, scale=ScalePaths(spec_replicas, status_replicas, selector))


def _deprecation_warning(spec: Object, version: Object) -> str:
    if not version.get("deprecated"):
        return ""
    warning: str = version.get("deprecationWarning", "")
    return warning or f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated"
