"""TypeMeta: the ``apiVersion`` and ``kind`` of the configuration and of plugin arguments.

Plugin arguments may omit both; their kind then follows from the name of the plugin. Unknown kinds are rejected, as
kube-scheduler rejects what is not registered in its scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kubestow.config.configuration import API_VERSION, GROUP, KIND
from kubestow.config.decoding import describe_value
from kubestow.config.field_errors import FieldError, child
from kubestow.config.plugin_args import PluginArgs, args_types
from kubestow.rules.minors import DEFAULT_MINOR, Minor

#: The versions that kube-scheduler no longer reads, oldest first; :mod:`kubestow.config.legacy` converts them.
LEGACY_VERSIONS = (
    "componentconfig/v1alpha1",
    *(f"{GROUP}/{version}" for version in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")),
)


@cache
def args_kinds(minor: Minor) -> Mapping[str, type[PluginArgs]]:
    """The types of plugin arguments of a minor version by kind."""
    return {kind.__name__: kind for kind in args_types(minor).values()}


class TypedObject(NamedTuple):
    """An object's kind (empty if there are errors), its fields without the TypeMeta, and the errors."""

    kind: str
    body: dict[str, Any]
    errors: list[FieldError]


def split_type_meta(data: Any, *, default_kind: str = "", path: str = "", minor: Minor = DEFAULT_MINOR) -> TypedObject:
    """Split an object into TypeMeta and fields. ``default_kind`` applies to an absent kind; empty: it is required.

    Kinds that the ``minor`` version does not have are unknown.
    """
    expected = default_kind or KIND
    if not isinstance(data, Mapping):
        return TypedObject("", {}, [FieldError(path, f"expected an object ({expected}), got {describe_value(data)}")])
    given = {name: data.get(name) for name in ("apiVersion", "kind")}
    wrong = [name for name, value in given.items() if not isinstance(value, str | None)]
    if wrong:
        texts = {name: f"expected a string, got {describe_value(given[name])}" for name in wrong}
        return TypedObject("", {}, [FieldError(child(path, name), text) for name, text in texts.items()])
    kind, version = given["kind"] or default_kind, given["apiVersion"] or ""
    error = _unknown_type(kind, version, path, default_kind, minor)
    if error:
        return TypedObject("", {}, [error])
    return TypedObject(kind, {name: value for name, value in data.items() if name not in given}, [])


def _unknown_type(kind: str, version: str, path: str, default_kind: str, minor: Minor) -> FieldError | None:
    expected = default_kind or KIND
    if version.count("/") > 1:
        return FieldError(child(path, "apiVersion"), f"unexpected GroupVersion string: {version}")
    if not kind:
        return FieldError(path, f"Object 'Kind' is missing, expected {expected}")
    group, _, bare_version = version.rpartition("/")
    if not bare_version and (not default_kind or group not in ("", GROUP)):
        return FieldError(path, f"Object 'apiVersion' is missing, expected {API_VERSION}")
    if (bare_version and version != API_VERSION) or kind not in (KIND, *args_kinds(minor)):
        text = f'no kind "{kind}" is registered for version "{version or API_VERSION}"'
        return FieldError(path, f"{text}, expected {expected} of {API_VERSION}")
    return None
