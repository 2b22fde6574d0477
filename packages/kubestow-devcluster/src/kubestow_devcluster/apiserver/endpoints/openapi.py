"""OpenAPI v3: the index under ``/openapi/v3`` and one document per group and version, built on first use.

``/openapi/v2`` has the same schemas in one document. In protobuf it has no schemas: kubectl falls back to it for a kind
that v3 does not have, and only needs to see that v2 does not have it either.

kubectl uses the v3 documents for ``explain``, for client-side validation and for strategic merge patches. They contain
the schemas with descriptions, list types and merge keys, and of each path only what kubectl needs: the kind and the
query parameters of writes.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.requests import Request
from kubestow_devcluster.apiserver.kinds.kind import Kind, Scheme
from kubestow_devcluster.apiserver.schema.structural import StructuralType
from kubestow_devcluster.apiserver.schema.type_table import type_entry, value_schema
from kubestow_devcluster.apiserver.schema.types import (
    ANY,
    Bytes,
    IntOrString,
    JSONSchemaOr,
    ListOf,
    MapOf,
    Object,
    Quantity,
    Scalar,
    Struct,
    StructField,
    Time,
    Type,
    struct_of,
)
from kubestow_devcluster.apiserver.serialization import protobuf

#: A built-in kind whose descriptions of the fields of all kinds custom resources have too.
_TYPICAL = "V1PodTemplate"
_REFERENCE = "#/components/schemas/"
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean", float: "number"}
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


class OpenAPI:
    """The documents of the kinds in ``scheme``, rebuilt when its revision changes."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._info = {"title": "Kubernetes", "version": scheme.minor.release}
        self._documents: dict[str, bytes] = {}
        self._revision = scheme.revision

    def serve(self, request: Request, path: str) -> HTTPResponse:
        """The index or a document. Raises a 404 or 406 StatusError."""
        if self._revision != self._scheme.revision:
            self._revision = self._scheme.revision
            self._documents.clear()
            for cached in ("_index", "_hash"):
                self.__dict__.pop(cached, None)
        if path == "/openapi/v2":
            return self._serve_v2(request)
        if path == "/openapi/v3":
            body = msgspec.json.encode({"paths": self._index}) + b"\n"
            return HTTPResponse(200, body, headers={"Vary": "Accept"})
        name = path.removeprefix("/openapi/v3/")
        if name not in self._index:
            raise statuses.no_such_resource()
        accept = request.headers.accept
        if accept and "json" not in accept and "*/*" not in accept:
            raise statuses.not_acceptable("406: Not Acceptable", with_details=True)
        headers = {"Cache-Control": "public, immutable", "Etag": f'"{self._hash}"', "Vary": "Accept"}
        document = self._documents.get(name)
        if document is None:
            kinds = [kind for kind in self._scheme if _document_name(kind.group, kind.version) == name]
            document = self._documents[name] = msgspec.json.encode(_DocumentBuilder(kinds, self._info).build())
        return HTTPResponse(200, document, headers=headers)

    def _serve_v2(self, request: Request) -> HTTPResponse:
        accept = request.headers.accept
        headers = {"Etag": f'"{self._hash}"', "Vary": "Accept"}
        if _V2_PROTOBUF in accept:
            # The media type as it is requested is not a valid Content-Type, because of the "@".
            return HTTPResponse(200, _v2_without_schemas(self._info), _V2_PROTOBUF.replace("@", "."), headers)
        if accept and "json" not in accept and "*/*" not in accept:
            raise statuses.not_acceptable("406: Not Acceptable", with_details=True)
        if "v2" not in self._documents:
            definitions = _DocumentBuilder(list(self._scheme), self._info).build()["components"]["schemas"]
            # In v2 an object with any fields is an object without a schema.
            for schema in definitions.values():
                schema.pop("x-kubernetes-preserve-unknown-fields", None)
            document = {"swagger": "2.0", "info": self._info, "paths": {}, "definitions": _in_v2(definitions)}
            self._documents["v2"] = msgspec.json.encode(document)
        return HTTPResponse(200, self._documents["v2"], headers=headers)

    @cached_property
    def _index(self) -> dict[str, Object]:
        groups = self._scheme.groups()
        names = [_document_name(group, version) for group, versions in groups.items() for version in versions]
        return {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={self._hash}"} for name in sorted(names)}

    @cached_property
    def _hash(self) -> str:
        """One hash for all documents, of what they are built from, so that the index needs no documents."""
        inputs = " ".join(f"{kind.api_version}/{kind.names.plural}" for kind in self._scheme)
        schemas = [kind.custom.schema.schema for kind in self._scheme if kind.custom]
        inputs += "".join(msgspec.json.encode(schema).decode() for schema in schemas)
        return hashlib.sha512(f"{self._info['version']} {inputs}".encode()).hexdigest().upper()


def _document_name(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


class _DocumentBuilder:
    """Builds the document of one group and version. A schema is added when it is first referenced."""

    def __init__(self, kinds: list[Kind], info: dict[str, str]) -> None:
        self._kinds, self._info = kinds, info
        self._schemas: dict[str, Object] = {}

    def build(self) -> Object:
        paths = {path: item for kind in self._kinds for path, item in self._paths(kind).items()}
        for kind in self._kinds:
            name = _kind_schema_name(kind)
            if kind.custom is None:
                schema = self._schema(kind.struct, {name: _typical_field(name) for name in ("apiVersion", "kind")})
            else:
                schema = self._custom_schema(kind.custom.schema.schema)
            schema["x-kubernetes-group-version-kind"] = [_group_version_kind(kind)]
            self._schemas[name] = schema
        return {"openapi": "3.0.0", "info": self._info, "paths": paths, "components": {"schemas": self._schemas}}

    def _custom_schema(self, schema: Object) -> Object:
        common = {name: _typical_field(name) for name in ("apiVersion", "kind", "metadata")}
        common["metadata"] |= {"allOf": [self._reference(struct_of("V1ObjectMeta"))]}
        return {**schema, "properties": {**(schema.get("properties") or {}), **common}}

    def _schema(self, struct: Struct, type_meta: Object | None = None) -> Object:
        properties: Object = {**(type_meta or {})}
        for name, field in struct.fields.items():
            properties[name] = self._property(field)
        description = struct.description or "A custom resource without a schema."
        schema: Object = {"type": "object", "description": description, "properties": properties}
        if required := sorted(name for name, field in struct.fields.items() if field.required):
            schema["required"] = required
        if struct.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if struct.preserves_unknown_fields:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema

    def _property(self, field: StructField) -> Object:
        schema = self._value(field.definition) if field.definition else self._reference(field.type_)
        if "$ref" in schema:
            schema = {"allOf": [schema], **({"default": {}} if isinstance(field.type_, Struct) else {})}
        if field.description:
            schema["description"] = field.description
        if isinstance(field.type_, ListOf):
            schema |= _list_extensions(field)
        elif isinstance(field.type_, MapOf) and field.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        elif isinstance(field.type_, Struct) and field.type_.atomic and not field.atomic:
            schema["x-kubernetes-map-type"] = "granular"
        if field.patch_strategy:
            schema["x-kubernetes-patch-strategy"] = field.patch_strategy
        return schema

    def _reference(self, type_: Type) -> Object:
        """The schema of a type: a reference for structs and values with a definition, inline for all others."""
        if isinstance(type_, Struct):
            name = _schema_name(type_)
            if name not in self._schemas:
                # A recursive type references itself while its schema is being built.
                self._schemas[name] = {}
                self._schemas[name] = self._schema(type_)
            return {"$ref": _REFERENCE + name}
        if isinstance(type_, ListOf):
            return {"type": "array", "items": self._reference(type_.item)}
        if isinstance(type_, MapOf):
            return {"type": "object", "additionalProperties": self._reference(type_.item)}
        if isinstance(type_, Scalar):
            schema = {"type": _JSON_TYPES[type_.python]}
            if isinstance(type_, Bytes):
                schema["format"] = "byte"
            elif type_.go_name in ("int32", "int64"):
                schema["format"] = type_.go_name
            return schema
        if isinstance(type_, IntOrString | Quantity | Time):
            return self._value(type_.definition)
        assert type_ is ANY or isinstance(type_, JSONSchemaOr)
        return {"x-kubernetes-preserve-unknown-fields": True}

    def _value(self, definition: str) -> Object:
        """A reference to the schema of a type without fields."""
        self._schemas[definition] = value_schema(definition)
        return {"$ref": _REFERENCE + definition}

    def _paths(self, kind: Kind) -> dict[str, Object]:
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        collection = f"{root}{'/namespaces/{namespace}' if kind.namespaced else ''}/{kind.names.plural}"
        of_collection, verbs = (("get", "list"), ("post", "create")), kind.rest.verbs
        of_object = (("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete"))
        collection_methods = [method for method, verb in of_collection if verb in verbs]
        object_methods = [method for method, verb in of_object if verb in verbs]
        paths = {collection: {method: self._operation(kind, method) for method in collection_methods}}
        if object_methods:
            paths[f"{collection}/{{name}}"] = {method: self._operation(kind, method) for method in object_methods}
        return paths

    def _operation(self, kind: Kind, method: str) -> Object:
        schema = {"$ref": _REFERENCE + _kind_schema_name(kind)}
        operation: Object = {
            "operationId": f"{method}{kind.group.title().replace('.', '')}{kind.version.title()}{kind.name}",
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
            "x-kubernetes-action": method,
            "x-kubernetes-group-version-kind": _group_version_kind(kind),
        }
        if method in ("post", "put", "patch"):
            operation["parameters"] = [
                {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                for name in _WRITE_PARAMETERS
            ]
            operation["requestBody"] = {"content": {"*/*": {"schema": schema}}}
        return operation


def _group_version_kind(kind: Kind) -> Object:
    return {"group": kind.group, "kind": kind.name, "version": kind.version}


def _kind_schema_name(kind: Kind) -> str:
    if kind.struct.preserves_unknown_fields or isinstance(kind.struct, StructuralType):
        return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.name}"
    return kind.struct.definition


def _schema_name(struct: Struct) -> str:
    """``io.k8s.api.core.v1.PodSpec``. Clients show the part after the last dot."""
    if struct.preserves_unknown_fields or isinstance(struct, StructuralType):
        return "object"
    return struct.definition


def _in_v2(schema: Any) -> Any:
    """A schema of OpenAPI v3 in v2, which has no ``oneOf``: quantities, ints or strings are strings."""
    if isinstance(schema, list):
        return [_in_v2(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "oneOf" in schema:
        return {"type": "string", **{key: value for key, value in schema.items() if key != "oneOf"}}
    if isinstance(reference := schema.get("$ref"), str):
        return {"$ref": reference.replace(_REFERENCE, "#/definitions/")}
    converted = {key: _in_v2(value) for key, value in schema.items()}
    if isinstance(references := converted.get("allOf"), list) and len(references) == 1 and "$ref" in references[0]:
        del converted["allOf"]
        return {**references[0], **converted}
    return converted


def _v2_without_schemas(info: dict[str, str]) -> bytes:
    """A ``Document`` message with its fields ``swagger`` (1) and ``info`` (2: ``title`` is 1, ``version`` 2)."""
    encoded = protobuf.delimited(1, info["title"].encode()) + protobuf.delimited(2, info["version"].encode())
    return protobuf.delimited(1, b"2.0") + protobuf.delimited(2, encoded)


def _list_extensions(field: StructField) -> Object:
    merge = field.merge
    if merge is None:
        return {"x-kubernetes-list-type": "atomic"}
    extensions: Object = {}
    if merge.is_set:
        extensions["x-kubernetes-list-type"] = "set"
    elif merge.map_keys:
        extensions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(merge.map_keys)}
    else:
        extensions["x-kubernetes-list-type"] = "atomic"
    if merge.patch_key:
        strategy = "merge,retainKeys" if merge.retain_keys else "merge"
        extensions |= {"x-kubernetes-patch-merge-key": merge.patch_key, "x-kubernetes-patch-strategy": strategy}
    elif merge.patch_by_value:
        extensions["x-kubernetes-patch-strategy"] = "merge"
    return extensions


def _typical_field(name: str) -> Object:
    """The schema of a field that all kinds have; that of metadata without its type."""
    field = next(field for field in type_entry(_TYPICAL).fields if field.name == name)
    return {"description": field.description} | ({"type": "string"} if field.type == "string" else {})
