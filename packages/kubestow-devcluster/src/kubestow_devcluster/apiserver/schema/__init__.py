"""The schemas of objects: their fields, the types and zero values of these, and how patches merge lists.

``type_table`` reads the built-in types, ``types`` decodes values by them, ``structural`` does the same for the OpenAPI
schema of a custom resource, and ``validation`` applies its defaults and validates against it. ``descriptors`` makes
protobuf messages of the built-in types.
"""

from kubestow_devcluster.apiserver.schema.types import (
    ListMerge,
    ListOf,
    MapOf,
    Object,
    Quantity,
    Scalar,
    Struct,
    StructField,
    Time,
    Type,
    UnmarshalTypeError,
    struct_of,
)

__all__ = [
    "ListMerge",
    "ListOf",
    "MapOf",
    "Object",
    "Quantity",
    "Scalar",
    "Struct",
    "StructField",
    "Time",
    "Type",
    "UnmarshalTypeError",
    "struct_of",
]
