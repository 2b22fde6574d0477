"""The kinds that a CustomResourceDefinition serves, one per served version.

All versions share storage and differ in their schemas: the only conversion is a change of apiVersion.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from kubestow_devcluster.apiserver.field_errors import FieldError
from kubestow_devcluster.apiserver.printers.additional_columns import additional_columns_printer
from kubestow_devcluster.apiserver.resources.custom_resources.validation_rules import ValidationRules, has_rules
from kubestow_devcluster.apiserver.resources.kind import (
    CustomResource,
    Kind,
    KindNames,
    RESTOptions,
    ScalePaths,
    Subresources,
)
from kubestow_devcluster.apiserver.resources.strategy import ALL_CLIENT_METADATA, RESTStrategy
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.schema.group_version import GroupVersion
from kubestow_devcluster.apiserver.schema.structural import Schema, StructuralType
from kubestow_devcluster.apiserver.schema.validation import apply_defaults, has_defaults, validate

__all__ = ["kinds_of"]


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

    def validate_status_update(self, new: Object, old: Object) -> list[FieldError]:
        return self._errors(new, old)

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
    subresources, group_version = (
        _subresources(version.get("subresources") or {}),
        GroupVersion(spec["group"], version["name"]),
    )
    type_meta = {"apiVersion": str(group_version), "kind": spec["names"]["kind"]}
    return Kind(
        group_version,
        _names(spec["names"]),
        namespaced=spec["scope"] == "Namespaced",
        subresources=subresources,
        rest=RESTOptions(
            CustomResourceStrategy(schema, type_meta, has_status=subresources.status),
            selectable_fields=tuple(one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()),
            storage_version_hash=_storage_version_hash(spec),
            deprecation_warning=_deprecation_warning(spec, version),
        ),
        custom=CustomResource(
            StructuralType(schema, root=True),
            additional_columns_printer(version.get("additionalPrinterColumns") or []),
        ),
    )


def _storage_version_hash(spec: Object) -> str:
    """The hash in discovery documents, which changes when another version is stored."""
    storage = next((version["name"] for version in spec["versions"] if version.get("storage")), "")
    digest = hashlib.sha256(f"{spec['group']}/{storage}/{spec['names']['kind']}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _names(names: Object) -> KindNames:
    return KindNames(
        names["kind"],
        names["plural"],
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        names.get("singular", ""),
        names.get("listKind", ""),
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
