"""Defaulting and validation of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.api.formats.names import dns1035_label_errors
from kubestow_devcluster.apiserver.field_errors import (
    FieldError,
    invalid_value,
    invalid_values,
    required_value,
    unsupported_value,
)
from kubestow_devcluster.apiserver.resources.custom_resources.naming import CLEANUP_FINALIZER
from kubestow_devcluster.apiserver.resources.custom_resources.validation_rules import rule_errors, unenforced_rules
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.schema.validation import pattern_error, subschemas

__all__ = ["DefinitionStrategy"]

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
        accepted_names = {"kind": "", "plural": ""}
        new["status"] = {
            "acceptedNames": accepted_names,
            "conditions": [],
            "storedVersions": _storage_versions(new["spec"]),
        }
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
        if spec.get("scope") not in _SCOPES:
            errors.append(unsupported_value("spec.scope", spec.get("scope", ""), _SCOPES))
        for field in ("plural", "singular", "kind", "listKind"):
            name = spec["names"].get(field, "")
            if not name:
                errors.append(required_value(f"spec.names.{field}"))
            else:
                errors += invalid_values(f"spec.names.{field}", name, dns1035_label_errors(name.lower()))
        errors += _validate_versions(spec.get("versions") or [])
        errors += _validate_patterns(spec.get("versions") or [])
        return errors + list(_validate_rules(spec.get("versions") or []))

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
        yield from invalid_values(f"{path}.name", names[index], dns1035_label_errors(names[index]))
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
