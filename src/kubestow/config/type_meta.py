"""The ``apiVersion`` and ``kind`` that say what an object is: the configuration, or the arguments of a plugin.

Arguments of a plugin need not say: they are of the kind named after the plugin. Anything else is refused, as the
reference refuses what its scheme does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kubestow.config.configuration import API_VERSION, GROUP, KIND
from kubestow.config.decoding import described
from kubestow.config.field_problems import Problem, child
from kubestow.config.plugin_args import ARGS_TYPES, PluginArgs

__all__ = ["ARGS_KINDS", "Typed", "read_typed"]

ARGS_KINDS: Mapping[str, type[PluginArgs]] = MappingProxyType({kind.__name__: kind for kind in ARGS_TYPES.values()})
"""The arguments of plugins by kind."""


class Typed(NamedTuple):
    """An object's kind (empty where there are problems), what it holds beside kind and version, the problems."""

    kind: str
    body: dict[str, Any]
    problems: list[Problem]


def read_typed(data: Any, *, default_kind: str = "", path: str = "") -> Typed:
    """Take an object apart. ``default_kind`` is the kind of an object that does not say; empty if it must say."""
    expected = default_kind or KIND
    if not isinstance(data, Mapping):
        return Typed("", {}, [Problem(path, f"expected an object ({expected}), got {described(data)}")])
    given = {name: data.get(name) for name in ("apiVersion", "kind")}
    wrong = [name for name, value in given.items() if not isinstance(value, str | None)]
    if wrong:
        return Typed("", {}, [Problem(child(path, n), f"expected a string, got {described(given[n])}") for n in wrong])
    kind, version = given["kind"] or default_kind, given["apiVersion"] or ""
    problem = _unknown_type(kind, version, path, default_kind)
    if problem:
        return Typed("", {}, [problem])
    return Typed(kind, {name: value for name, value in data.items() if name not in given}, [])


def _unknown_type(kind: str, version: str, path: str, default_kind: str) -> Problem | None:
    expected = default_kind or KIND
    if version.count("/") > 1:
        return Problem(child(path, "apiVersion"), f"unexpected GroupVersion string: {version}")
    if not kind:
        return Problem(path, f"Object 'Kind' is missing, expected {expected}")
    group, _, bare_version = version.rpartition("/")
    if not bare_version and (not default_kind or group not in ("", GROUP)):
        return Problem(path, f"Object 'apiVersion' is missing, expected {API_VERSION}")
    if (bare_version and version != API_VERSION) or kind not in (KIND, *ARGS_KINDS):
        text = f'no kind "{kind}" is registered for version "{version or API_VERSION}"'
        return Problem(path, f"{text}, expected {expected} of {API_VERSION}")
    return None
