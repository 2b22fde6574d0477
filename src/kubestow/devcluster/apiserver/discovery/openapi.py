"""OpenAPI v3 documents, one per group and version, made from the schemas when first asked for.

kubectl reads them for ``explain``, to validate what it sends, and to compute strategic merge patches. So they have
the schemas with descriptions, merge keys and kinds, and of the paths what kubectl looks for: the kind behind each and
the parameters it takes.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import msgspec

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.health import KUBERNETES_VERSION
from kubestow.devcluster.apiserver.requests import Answer, Request
from kubestow.devcluster.apiserver.resources import Kind, Scheme
from kubestow.devcluster.apiserver.schema import Field, ListOf, MapOf, Struct, Type, struct_of
from kubestow.devcluster.apiserver.schema.structural import CustomStruct
from kubestow.devcluster.apiserver.schema.types import ANYTHING, Bytes, IntOrString, QuantityText, Scalar, Time

__all__ = ["OpenAPI"]

Document = dict[str, Any]

_API_VERSION = "The version of this representation of an object."
_KIND = "The resource this object represents."
_REFERENCE = "#/components/schemas/"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean", float: "number"}
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_ACTIONS = {"get": "get", "post": "post", "put": "put", "patch": "patch", "delete": "delete"}


class OpenAPI:
    """The documents of one catalog."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._documents: dict[str, bytes] = {}
        self._revision = scheme.revision

    def answer(self, request: Request, path: str) -> Answer:
        """Raises a 404 Failure."""
        if self._revision != self._scheme.revision:
            self._forget()
        if path == "/openapi/v3":
            body = msgspec.json.encode({"paths": self._index}) + b"\n"
            return Answer(200, body, headers={"Vary": "Accept"})
        name = path.removeprefix("/openapi/v3/")
        if name not in self._index:
            raise statuses.no_such_resource()
        if request.accept and "json" not in request.accept and "*/*" not in request.accept:
            raise statuses.not_acceptable("406: Not Acceptable", with_details=True)
        headers = {"Cache-Control": "public, immutable", "Etag": f'"{self._hash}"', "Vary": "Accept"}
        return Answer(200, self._document(name), headers=headers)

    def _forget(self) -> None:
        """Kinds have come, gone or changed; everything is made anew when it is asked for."""
        self._revision = self._scheme.revision
        self._documents.clear()
        for made in ("_index", "_hash"):
            self.__dict__.pop(made, None)

    @cached_property
    def _index(self) -> dict[str, Document]:
        names = [
            _document_name(group, version) for group, versions in self._scheme.groups().items() for version in versions
        ]
        return {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={self._hash}"} for name in sorted(names)}

    @cached_property
    def _hash(self) -> str:
        """One for all documents, of what they are made from, so that the index needs none of them."""
        served = " ".join(f"{kind.api_version}/{kind.plural}" for kind in self._scheme)
        served += "".join(msgspec.json.encode(kind.custom.schema).decode() for kind in self._scheme if kind.custom)
        return hashlib.sha512(f"{KUBERNETES_VERSION} {served}".encode()).hexdigest().upper()

    def _document(self, name: str) -> bytes:
        made = self._documents.get(name)
        if made is None:
            kinds = [kind for kind in self._scheme if _document_name(kind.group, kind.version) == name]
            made = self._documents[name] = msgspec.json.encode(_Document(kinds).made())
        return made


def _document_name(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


class _Document:
    """One document in the making: schemas are added as references to them are met."""

    def __init__(self, kinds: list[Kind]) -> None:
        self._kinds = kinds
        self._schemas: dict[str, Document] = {}

    def made(self) -> Document:
        paths = {path: item for kind in self._kinds for path, item in self._paths(kind).items()}
        for kind in self._kinds:
            self._add_kind(kind)
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
            "paths": paths,
            "components": {"schemas": self._schemas},
        }

    def _add_kind(self, kind: Kind) -> None:
        name = _schema_name(kind.struct, kind)
        schema = self._schema(kind.struct, kind) if kind.custom is None else self._custom(kind.custom.schema)
        schema["x-kubernetes-group-version-kind"] = [_gvk(kind)]
        self._schemas[name] = schema

    def _custom(self, schema: Document) -> Document:
        """A definition's own schema, with the metadata that all objects have."""
        about = self._reference(struct_of("V1ObjectMeta"))
        known = {
            "apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND},
            "metadata": {"description": "Standard object metadata.", "allOf": [about]},
        }
        return {**schema, "properties": {**(schema.get("properties") or {}), **known}}

    def _schema(self, struct: Struct, kind: Kind | None = None) -> Document:
        properties: Document = {}
        if kind is not None:
            properties["apiVersion"] = {
                "type": "string",
                "description": _API_VERSION,
            }
            properties["kind"] = {"type": "string", "description": _KIND}
        for field in struct.fields.values():
            properties[field.name] = self._property(field)
        schema: Document = {"type": "object", "description": _described(struct), "properties": properties}
        if required := sorted(field.name for field in struct.fields.values() if field.required):
            schema["required"] = required
        if struct.open:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema

    def _property(self, field: Field) -> Document:
        made = self._reference(field.type_)
        if "$ref" in made:
            made = {"allOf": [made], **({} if isinstance(field.type_, IntOrString) else {"default": {}})}
        if field.description:
            made["description"] = field.description
        if isinstance(field.type_, ListOf):
            made |= _list_extensions(field)
        elif isinstance(field.type_, MapOf) and field.atomic:
            made["x-kubernetes-map-type"] = "atomic"
        return made

    def _reference(self, type_: Type) -> Document:
        if isinstance(type_, Struct):
            name = _schema_name(type_)
            if name not in self._schemas:
                self._schemas[name] = {}
                self._schemas[name] = self._schema(type_)
            return {"$ref": _REFERENCE + name}
        if isinstance(type_, ListOf):
            return {"type": "array", "items": self._reference(type_.item)}
        if isinstance(type_, MapOf):
            return {"type": "object", "additionalProperties": self._reference(type_.item)}
        if isinstance(type_, Scalar):
            made = {"type": _JSON_TYPES[type_.python]}
            if isinstance(type_, Bytes):
                made["format"] = "byte"
            elif type_.go_name in ("int32", "int64"):
                made["format"] = type_.go_name
            return made
        if isinstance(type_, Time):
            return {"type": "string", "format": "date-time"}
        if isinstance(type_, QuantityText):
            return {"oneOf": [{"type": "string"}, {"type": "number"}]}
        if isinstance(type_, IntOrString):
            either = [{"type": "integer"}, {"type": "string"}]
            self._schemas[_INT_OR_STRING] = {"format": "int-or-string", "oneOf": either}
            return {"$ref": _REFERENCE + _INT_OR_STRING}
        assert type_ is ANYTHING
        return {"x-kubernetes-preserve-unknown-fields": True}

    def _paths(self, kind: Kind) -> dict[str, Document]:
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        collection, one = f"{root}{scope}/{kind.plural}", f"{root}{scope}/{kind.plural}/{{name}}"
        on_collection = [action for action, verb in (("get", "list"), ("post", "create")) if verb in kind.verbs]
        on_one = [
            action
            for action, verb in (("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete"))
            if verb in kind.verbs
        ]
        paths = {collection: {action: self._operation(kind, action) for action in on_collection}}
        if on_one:
            paths[one] = {action: self._operation(kind, action) for action in on_one}
        return paths

    def _operation(self, kind: Kind, action: str) -> Document:
        schema = {"$ref": _REFERENCE + _schema_name(kind.struct, kind)}
        operation: Document = {
            "operationId": f"{action}{kind.group.title().replace('.', '')}{kind.version.title()}{kind.name}",
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
            "x-kubernetes-action": _ACTIONS[action],
            "x-kubernetes-group-version-kind": _gvk(kind),
        }
        if action in ("post", "put", "patch"):
            operation["parameters"] = [_parameter(name) for name in _WRITE_PARAMETERS]
            operation["requestBody"] = {"content": {"*/*": {"schema": schema}}}
        return operation


def _parameter(name: str) -> Document:
    return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def _gvk(kind: Kind) -> Document:
    return {"group": kind.group, "kind": kind.name, "version": kind.version}


def _schema_name(struct: Struct, kind: Kind | None = None) -> str:
    """``io.k8s.api.core.v1.Event``; clients show what follows the last dot."""
    if struct.open or isinstance(struct, CustomStruct):
        if kind is None:
            return "object"
        return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.name}"
    return struct.definition


def _described(struct: Struct) -> str:
    return struct.description or "A custom resource without a schema."


def _list_extensions(field: Field) -> Document:
    merge = field.merge
    if merge is None:
        return {"x-kubernetes-list-type": "atomic"}
    made: Document = {}
    if merge.is_set:
        made["x-kubernetes-list-type"] = "set"
    elif merge.keys:
        made |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(merge.keys)}
    else:
        made["x-kubernetes-list-type"] = "atomic"
    if merge.patch_key:
        strategy = "merge,retainKeys" if merge.retain_keys else "merge"
        made |= {"x-kubernetes-patch-merge-key": merge.patch_key, "x-kubernetes-patch-strategy": strategy}
    elif merge.patch_set:
        made["x-kubernetes-patch-strategy"] = "merge"
    return made
