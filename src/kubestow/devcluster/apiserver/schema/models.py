"""The field lists of Kubernetes objects, read from the source files of kubernetes_asyncio's generated models.

The models are read as text, one file when a type is first met, and never imported: importing all of them takes half a
second and fifty megabytes, more than the whole server. A test compares what is read here with what importing gives.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ModelField", "fields_of", "short_name"]

_IMPORT = re.compile(r"^from kubernetes_asyncio\.client\.models\.(\w+) import (\w+)", re.MULTILINE)
_TYPES = re.compile(r"openapi_types = (\{.*?\n    \})", re.DOTALL)
_NAMES = re.compile(r"attribute_map = (\{.*?\n    \})", re.DOTALL)
_REQUIRED = re.compile(r"Invalid value for `(\w+)`, must not be `None`")
_DESCRIPTION = re.compile(
    r'"""Gets the (\w+) of this \w+\.  # noqa: E501\n\n\s*((?:(?!:return:).)*?)\s*# noqa: E501\n\n\s*:return:',
    re.DOTALL,
)
_VERSION_PREFIX = re.compile(r"^(?:[A-Z][a-z]+)?V\d+(?:alpha\d+|beta\d+)?(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class ModelField:
    """One field: its JSON ``name`` and the generator's ``type``: ``str``, ``list[V1Container]``, ``dict(str, str)``."""

    name: str
    type: str
    required: bool
    description: str


def short_name(model: str) -> str:
    """The Go name of a model: ``PodSpec`` for ``V1PodSpec``, ``Event`` for ``CoreV1Event``."""
    return _VERSION_PREFIX.sub("", model)


@cache
def fields_of(model: str) -> tuple[ModelField, ...]:
    """The fields of one model, in the generator's (alphabetical) order. Raises KeyError for a name that is no model."""
    source = (_directory() / f"{_files()[model]}.py").read_text(encoding="utf-8")
    types, names = _literal(_TYPES, source), _literal(_NAMES, source)
    required = set(_REQUIRED.findall(source))
    descriptions = dict(_DESCRIPTION.findall(source))
    return tuple(
        ModelField(names[python], type_, python in required, descriptions.get(python, "").replace('\\"', '"'))
        for python, type_ in types.items()
    )


def _literal(pattern: re.Pattern[str], source: str) -> dict[str, str]:
    found = pattern.search(source)
    if found is None:
        return {}
    literal: dict[str, str] = ast.literal_eval(found[1])
    return literal


@cache
def _directory() -> Path:
    spec = importlib.util.find_spec("kubernetes_asyncio")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("kubernetes_asyncio is a dependency of kubestow and is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "client" / "models"


@cache
def _files() -> dict[str, str]:
    listing = (_directory() / "__init__.py").read_text(encoding="utf-8")
    return {model: file for file, model in _IMPORT.findall(listing)}
