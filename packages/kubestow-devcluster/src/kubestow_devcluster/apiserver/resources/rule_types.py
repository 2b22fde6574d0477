"""The types of a structural schema in CEL, for checking the rules of a definition when it is written.

Each object with properties is a message type, so that a wrong field name and an operation on the wrong type are errors
of the definition. Rules are evaluated without these types (:mod:`validation_rules`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kubestow_devcluster.apiserver.schema.structural import Schema

#: Functions and variables of Kubernetes' CEL environment that the library lacks.
_KUBERNETES_FUNCTIONS = {
    "add", "addr", "all_equal", "asApproximateFloat", "asInteger", "authorizer", "cidr", "compareTo",
    "contains", "containsCIDR", "containsIP", "equivalent", "family", "find", "findAll", "flatten", "format",
    "getEscapedPath", "getHost", "getHostname", "getPort", "getQuery", "getScheme", "indexOf", "intersects",
    "ip", "isCIDR", "isCanonical", "isGlobalUnicast", "isGreaterThan", "isIP", "isInteger", "isLessThan",
    "isLinkLocalMulticast", "isLinkLocalUnicast", "isLoopback", "isQuantity", "isSemver", "isSorted", "isURL",
    "isUnspecified", "lastIndexOf", "major", "masked", "max", "min", "minor", "named", "patch", "prefixLength",
    "quantity", "semver", "sets", "sign", "sub", "sum", "url", "validate",
}  # fmt: skip
_UNDECLARED = re.compile(r"undeclared reference to '([\w.]+)'")
#: Kubernetes compares numbers of different types.
_COMPARES_NUMBERS = re.compile(
    r"no matching overload for '_[<>]=?_' applied to '\((int|uint|double), (int|uint|double)\)'"
)
_PACKAGE = "schema"
_SCALARS = {"string": "STRING", "integer": "INT", "number": "DOUBLE", "boolean": "BOOL"}
_TIMES = {"date": "Timestamp", "date-time": "Timestamp", "datetime": "Timestamp", "duration": "Duration"}


def type_error(rule: str, schema: Schema, *, optional_old_self: bool, escaped: Callable[[str], str]) -> str:
    """Why a rule about values of ``schema`` does not compile, as a cluster says it; empty if it does.

    ``escaped`` is the name of a property in expressions, empty for properties that expressions cannot name. A rule that
    uses a function of Kubernetes that the CEL library lacks cannot be checked, and has no error.
    """
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    types = _Types(escaped)
    self_type = types.of(schema)
    variables = {"self": self_type, "_previousSelf": self_type, "_hasOldSelf": cel.Type.BOOL}
    if optional_old_self:
        rule = f"cel.bind(oldSelf, _hasOldSelf ? optional.of(_previousSelf) : optional.none(), {rule}\n)"
    else:
        variables["oldSelf"] = self_type
    extensions = (ext_optional.ExtOptional, ext_bindings.ExtBindings, ext_strings.ExtStrings, ext_math.ExtMath)
    environment = cel.NewEnv(
        descriptor_pool=types.pool(), variables=variables, extensions=[extension() for extension in extensions]
    )
    try:
        environment.compile(rule)
    except RuntimeError as error:
        # Without the errors that a cluster would not have.
        text = re.sub(r"^[A-Z_]+: (?=ERROR: )| \[[A-Z_]+\]$", "", str(error))
        if any(name.rpartition(".")[2] in _KUBERNETES_FUNCTIONS for name in _UNDECLARED.findall(text)):
            return ""
        errors = [one for one in re.split(r"\n(?=ERROR: )", text) if not _COMPARES_NUMBERS.search(one)]
        return re.sub(r"(undefined field '[^']*') not found in struct '[^']*'", r"\1", "\n".join(errors))
    return ""


class _Types:
    """Message types for the objects of a schema."""

    def __init__(self, escaped: Callable[[str], str]) -> None:
        from google.protobuf import descriptor_pb2

        self._escaped = escaped
        self._field = descriptor_pb2.FieldDescriptorProto
        self._file = descriptor_pb2.FileDescriptorProto(name="schema.proto", package=_PACKAGE, syntax="proto3")

    def pool(self) -> Any:
        """A pool with the message types so far."""
        from google.protobuf import any_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

        pool = descriptor_pool.DescriptorPool()
        for known in (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
            pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
            self._file.dependency.append(known.DESCRIPTOR.name)
        pool.AddSerializedFile(self._file.SerializeToString())
        return pool

    def of(self, schema: Schema) -> Any:
        """The CEL type of the values of a schema."""
        from cel_expr_python import cel

        kind = _kind(schema)
        match kind:
            case "any":
                return cel.Type.DYN
            case "list":
                return cel.Type.List(self.of(schema.get("items") or {}))
            case "map":
                return cel.Type.Map(cel.Type.STRING, self.of(schema["additionalProperties"]))
            case "object":
                return cel.Type(self._message(schema))
            case "Timestamp":
                return cel.Type.TIMESTAMP
            case "Duration":
                return cel.Type.DURATION
        return getattr(cel.Type, kind)

    def _message(self, schema: Schema) -> str:
        name = f"Object{len(self._file.message_type)}"
        message = self._file.message_type.add(name=name)
        for number, (key, child) in enumerate((schema.get("properties") or {}).items(), 1):
            if field_name := self._escaped(key):
                self._add_field(message, field_name, number, child)
        return f"{_PACKAGE}.{name}"

    def _add_field(self, message: Any, name: str, number: int, schema: Schema) -> None:
        kind, label = _kind(schema), self._field.LABEL_OPTIONAL
        if kind == "list":
            items = schema.get("items") or {}
            if _kind(items) in ("list", "map"):  # no repeated field has these as items
                self._set_type(self._new_field(message, name, number, label), {}, "google.protobuf.ListValue")
                return
            schema, label = items, self._field.LABEL_REPEATED
        elif kind == "map":
            values = schema["additionalProperties"]
            names = {nested.name for nested in message.nested_type}
            if _kind(values) in ("list", "map") or _entry_name(name) in names:  # nor has a map as values
                self._set_type(self._new_field(message, name, number, label), {}, "google.protobuf.Struct")
                return
            entry = message.nested_type.add(name=_entry_name(name))
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=self._field.TYPE_STRING, label=label)
            self._set_type(entry.field.add(name="value", number=2, label=label), values)
            entry_type = f"{_PACKAGE}.{message.name}.{entry.name}"
            field = self._new_field(message, name, number, self._field.LABEL_REPEATED)
            self._set_type(field, {}, entry_type)
            return
        self._set_type(self._new_field(message, name, number, label), schema)

    @staticmethod
    def _new_field(message: Any, name: str, number: int, label: int) -> Any:
        # Names in JSON are not used; by default those of a_b and aB would be equal, which is an error.
        return message.field.add(name=name, number=number, label=label, json_name=f"field{number}")

    def _set_type(self, field: Any, schema: Schema, message: str = "") -> None:
        """Set the type of a field to that of a schema, which is neither a list nor a map, or to ``message``."""
        if not message:
            kind = _kind(schema)
            if kind == "any":
                message = "google.protobuf.Value"
            elif kind == "object":
                message = self._message(schema)
            elif kind in ("Timestamp", "Duration"):
                message = f"google.protobuf.{kind}"
            else:
                field.type = getattr(self._field, f"TYPE_{'INT64' if kind == 'INT' else kind}")
                return
        field.type = self._field.TYPE_MESSAGE
        field.type_name = f".{message}"


def _entry_name(field: str) -> str:
    """The name that the entries of a map in this field must have."""
    return "".join(word[:1].upper() + word[1:] for word in field.split("_")) + "Entry"


def _kind(schema: Schema) -> str:
    """``list``, ``map``, ``object``, ``any``, ``Timestamp``, ``Duration``, or the name of a scalar type in CEL."""
    type_ = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return "any"
    if type_ == "array":
        return "list"
    if type_ == "object":
        if schema.get("properties"):
            return "object"
        if isinstance(schema.get("additionalProperties"), dict):
            return "map"
        names = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "additionalProperties")
        return "any" if any(schema.get(name) for name in names) else "object"
    if type_ == "string" and (format_ := schema.get("format")) is not None:
        return _TIMES.get(format_, "BYTES" if format_ == "byte" else "STRING")
    return _SCALARS.get(type_ or "", "any")
