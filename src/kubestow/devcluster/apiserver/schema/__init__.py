"""What the objects of a kind look like: their fields, the types, zero values and merge keys of these."""

from kubestow.devcluster.apiserver.schema.types import (
    Field,
    ListOf,
    MapOf,
    Mismatch,
    QuantityText,
    Scalar,
    Struct,
    Time,
    Type,
    struct_of,
)

__all__ = ["Field", "ListOf", "MapOf", "Mismatch", "QuantityText", "Scalar", "Struct", "Time", "Type", "struct_of"]
