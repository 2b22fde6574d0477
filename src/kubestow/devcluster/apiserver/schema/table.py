"""The table of Kubernetes' types: the fields of each, as its OpenAPI and its Go types describe them.

``make schema`` writes ``kubernetes-1.36.json`` from two installed packages (``tools/schema/generate.py``); the top of
the file names them and their licence. A server reads the file when it meets the first type, and decodes of it only the
types that its clients use.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

__all__ = ["FieldEntry", "TypeEntry", "entry", "model_of", "models"]

_FILE = Path(__file__).with_name("kubernetes-1.36.json")


class FieldEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One field of a type.

    ``type`` is in Go's notation: ``string``, ``int64``, ``[]V1Container``, ``map[string]Quantity``, ``any``. ``number``
    is the field's number in protobuf, after those of the embedded structs that hold it; it is empty where a field is in
    JSON only. ``pointer`` and ``omit`` are those of the Go field: a zero value is written unless it is omitted as
    ``empty`` (all but structs) or as ``zero``.
    """

    name: str
    type: str
    number: tuple[int, ...] = ()
    pointer: bool = False
    omit: Literal["", "empty", "zero"] = ""
    required: bool = False
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    patch_merge_key: str = ""
    patch_strategy: str = ""
    map_type: str = ""
    description: str = ""


class TypeEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One type. ``definition`` is its name in OpenAPI; ``api_versions`` those of a kind, ``*`` for all of them."""

    definition: str
    fields: tuple[FieldEntry, ...]
    description: str = ""
    map_type: str = ""
    api_versions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The Go name: ``PodSpec``."""
        return self.definition.rpartition(".")[2]


class _Table(msgspec.Struct):
    types: dict[str, msgspec.Raw]


@cache
def entry(model: str) -> TypeEntry:
    """The type that generated clients call ``model`` (``V1PodSpec``). Raises KeyError when the table has none."""
    return msgspec.json.decode(_types()[model], type=TypeEntry)


def models() -> list[str]:
    """The names of all types."""
    return list(_types())


@cache
def model_of(api_version: str, kind: str) -> str:
    """The model of a kind; the first with that name when ``api_version`` has none of them. Raises KeyError."""
    named = {model: entry(model) for model in _types() if model.endswith(kind)}
    found = {version: model for model, one in named.items() if one.name == kind for version in one.api_versions}
    if not found:
        raise KeyError(kind)
    return found.get(api_version) or next(iter(found.values()))


@cache
def _types() -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(_FILE.read_bytes(), type=_Table).types
