"""Diagnosis: all independent mistakes of a configuration in one pass.

kube-scheduler stops at the first stage that finds errors (:mod:`kubestow.config.loading`), so a file with a wrong type,
an unknown field and an unknown plugin takes three runs to correct. :func:`diagnose` runs every stage. A field with an
error keeps its default for the later stages, and their errors about such a field, or about one that is compared with
it, are consequences and are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubestow.config.configuration import KIND, ExtensionPoint, KubeSchedulerConfiguration
from kubestow.config.defaults import set_data_defaults, set_defaults
from kubestow.config.document import Document, DocumentError
from kubestow.config.expansion import ConstructionError, Implements, plugin_errors
from kubestow.config.feature_gates import FeatureGates
from kubestow.config.field_errors import FieldError, child
from kubestow.config.loading import Source, check, decode_args, decoder_of
from kubestow.config.managed_services import read_document
from kubestow.config.type_meta import LEGACY_VERSIONS, split_type_meta
from kubestow.config.validation import validate

_COMPARED = (
    frozenset({"leaderElect", "leaseDuration", "renewDeadline", "retryPeriod"}),
    frozenset({"podInitialBackoffSeconds", "podMaxBackoffSeconds"}),
    frozenset({"defaultConstraints", "defaultingType"}),
    frozenset({"prioritizeVerb", "weight"}),
    frozenset({"type", "requestedToCapacityRatio"}),
)
"""Fields of one object that validation compares with each other."""


def diagnose(
    source: Source, *, gates: FeatureGates | None = None, implements: Implements | None = None
) -> list[FieldError]:
    """All independent errors of a configuration, in the order of the text; empty if and only if it loads.

    ``implements`` adds the errors of building a scheduler from the registered plugins.
    """
    gates = gates or FeatureGates()
    staged = check(source, gates=gates, implements=implements)
    if not staged:
        return []
    try:
        document = read_document(source)
    except DocumentError:
        return staged
    data = document.data
    if not isinstance(data, Mapping) or data.get("kind") not in (None, "", KIND):
        return staged
    if data.get("apiVersion") in LEGACY_VERSIONS:
        return staged
    errors = [document.located(error) for error in _errors(document, data, gates, implements)]
    return sorted(dict.fromkeys(errors), key=lambda error: (error.line or 0, error.column or 0)) or staged


def _errors(
    document: Document, data: Mapping[str, Any], gates: FeatureGates, implements: Implements | None
) -> Iterator[FieldError]:
    yield from split_type_meta(data, minor=gates.minor).errors
    if not data.get("kind"):
        yield from split_type_meta({**data, "kind": KIND}, minor=gates.minor).errors
    body = {name: value for name, value in data.items() if name not in ("apiVersion", "kind")}
    decoder = decoder_of(gates.minor)
    decoded = decode_args(decoder.decode(KubeSchedulerConfiguration, set_data_defaults(body)), decoder, gates.minor)
    yield from (*decoder.type_errors, *document.duplicates, *decoder.strict_errors, *document.refused)
    invalid_paths = {error.path for error in decoder.type_errors} | decoder.misspelt
    configuration = set_defaults(decoded, gates)
    field_errors = [error for error in validate(configuration, gates) if _is_independent(error.path, invalid_paths)]
    yield from field_errors
    if implements is not None:
        invalid_paths |= {error.path for error in field_errors}
        for error in plugin_errors(configuration, implements, gates.minor):
            for found in _located(decoded, error):
                if _is_independent(found.path or "profiles", invalid_paths):
                    yield found


def _located(decoded: KubeSchedulerConfiguration, error: ConstructionError) -> Iterator[FieldError]:
    """An error of building a scheduler, at what the text has of the plugin; one of several arguments, at each.

    ``decoded`` has no defaults. Of several arguments of a plugin the last ones count.
    """
    if error.profile is None:
        yield FieldError("", error.message)
        return
    configs = decoded.profiles[error.profile].plugin_config
    given = [index for index, one in enumerate(configs) if one.name == error.plugin and one.args is not None]
    arguments = f"profiles[{error.profile}].pluginConfig[{given[-1]}].args" if given else ""
    if not error.details or not arguments:
        yield FieldError(_entry(decoded, error.profile, error.plugin), error.message)
    for detail in error.details if arguments else ():
        yield FieldError(child(arguments, detail.path), detail.message)


def _entry(decoded: KubeSchedulerConfiguration, profile: int, plugin: str) -> str:
    """The path of the first entry of a plugin; of the profile's plugins without one, of its arguments by default."""
    path = f"profiles[{profile}]"
    if not plugin:
        return f"{path}.plugins"
    plugins = decoded.profiles[profile].plugins
    sets = [*((str(point), plugins.at(point)) for point in ExtensionPoint), ("multiPoint", plugins.multi_point)]
    for name, plugin_set in sets:
        for index, entry in enumerate(plugin_set.enabled):
            if entry.name == plugin:
                return f"{path}.plugins.{name}.enabled[{index}]"
    return f"{path}.pluginConfig"


def _is_independent(path: str, invalid_paths: set[str]) -> bool:
    """Whether an error at ``path`` cannot be a consequence of an error at one of the others."""
    for invalid in invalid_paths:
        parent, _, name = invalid.rpartition(".")
        compared = {child(parent, field) for fields in _COMPARED if name in fields for field in fields}
        if path in compared or _contains(path, invalid) or _contains(invalid, path):
            return False
    return True


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))
