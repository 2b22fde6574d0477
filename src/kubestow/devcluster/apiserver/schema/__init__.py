"""What the objects of a kind look like: their fields, the types and zero values of these, and how lists merge."""

from kubestow.devcluster.apiserver.schema.types import (
    Field,
    ListOf,
    MapOf,
    Merge,
    QuantityText,
    Scalar,
    Struct,
    Time,
    Type,
    UnmarshalTypeError,
    struct_of,
)

__all__ = [
    "Field",
    "ListOf",
    "MapOf",
    "Merge",
    "QuantityText",
    "Scalar",
    "Struct",
    "Time",
    "Type",
    "UnmarshalTypeError",
    "struct_of",
]
