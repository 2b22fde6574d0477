"""Custom resources: the kinds that a CustomResourceDefinition defines, one for each version that is served.

All versions share their storage and differ only in what their schemas keep: conversion is by changing apiVersion.
"""

from __future__ import annotations

from typing import Any

from kubestow.devcluster.apiserver.field_errors import Cause
from kubestow.devcluster.apiserver.printing.custom import custom_layout
from kubestow.devcluster.apiserver.resources.kind import Kind, Object, Strategy
from kubestow.devcluster.apiserver.schema.structural import CustomStruct, Schema
from kubestow.devcluster.apiserver.schema.validation import fill_in, problems

__all__ = ["kinds_of"]


class CustomStrategy(Strategy):
    """Instances of one version of a definition."""

    has_generation = True
    unconditional_update = False

    def __init__(self, schema: Schema, *, status: bool) -> None:
        # The metadata has rules of its own.
        properties = {key: item for key, item in (schema.get("properties") or {}).items() if key != "metadata"}
        self._schema = {**schema, "properties": properties}
        self._status = status

    def default(self, new: Object) -> None:
        fill_in(new, self._schema)

    def prepare_create(self, new: Object, now: str) -> None:
        if self._status:
            new.pop("status", None)

    def validate(self, new: Object) -> list[Cause]:
        return problems({"apiVersion": "", "kind": "", **new}, self._schema)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return self.validate(new)


def kinds_of(definition: Object) -> list[Kind]:
    """The kinds a definition serves, by the names it was accepted with; none until it was."""
    spec, status = definition["spec"], definition.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    if conditions.get("Established") != "True":
        return []
    return [_kind(spec, version) for version in spec["versions"] if version.get("served")]


def _kind(spec: Object, version: Object) -> Kind:
    names, below = spec["names"], version.get("subresources") or {}
    schema: dict[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    if spec.get("preserveUnknownFields"):
        schema = {**schema, "x-kubernetes-preserve-unknown-fields": True}
    scale = below.get("scale")
    return Kind(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in below,
        scale=None if scale is None else _scale_paths(scale),
        selectable=tuple(one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()),
        strategy=CustomStrategy(schema, status="status" in below),
        singular_name=names.get("singular", ""),
        list_name=names.get("listKind", ""),
        custom=CustomStruct(schema, root=True),
        layout=custom_layout(version.get("additionalPrinterColumns") or []),
        warning=_deprecation(spec, version),
    )


def _scale_paths(scale: Object) -> tuple[str, str, str]:
    wanted, running, selector = (
        scale.get(f"{name}Path", "").lstrip(".") for name in ("specReplicas", "statusReplicas", "labelSelector")
    )
    return wanted, running, selector


def _deprecation(spec: Object, version: Object) -> str:
    if not version.get("deprecated"):
        return ""
    said: str = version.get("deprecationWarning", "")
    return said or f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated"
