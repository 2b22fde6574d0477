"""What the objects of a kind look like: fields and their types, zero values, merge keys, and the OpenAPI made of them."""

from kubestow.apiserver.schema.types import Field, ListOf, MapOf, Mismatch, Struct, Type, struct_of

__all__ = ["Field", "ListOf", "MapOf", "Mismatch", "Struct", "Type", "struct_of"]
