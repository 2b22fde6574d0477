"""Loading: from text to a complete, valid :class:`KubeSchedulerConfiguration`, or to a list of errors.

The stages are parsing, kind and version, value types, field names, and validation. As in kube-scheduler, a stage runs
only if the previous one found no errors; within a stage all errors are reported. Errors of a text have positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from kubestow.config.configuration import API_VERSION, GROUP, KIND, KubeSchedulerConfiguration, PluginConfig, Plugins
from kubestow.config.decoding import Decoder
from kubestow.config.defaults import set_data_defaults, set_defaults
from kubestow.config.document import Document, DocumentError
from kubestow.config.expansion import Implements, construction_errors
from kubestow.config.feature_gates import FeatureGates
from kubestow.config.field_errors import FieldError, configuration_error
from kubestow.config.managed_services import read_document
from kubestow.config.plugin_args import DynamicResourcesArgs, args_types
from kubestow.config.type_meta import args_kinds, split_type_meta
from kubestow.config.validation import validate
from kubestow.rules.minors import Behaviour, Minor

Source = str | bytes | Mapping[str, Any]
"""YAML or JSON text, or the parsed data: a configuration, a ConfigMap with one, or that of a managed service."""


def load(
    source: Source,
    *,
    subject: str = "configuration",
    gates: FeatureGates | None = None,
    implements: Implements | None = None,
) -> KubeSchedulerConfiguration:
    """Parse, default and validate a configuration. Raises ConfigurationError with all errors.

    ``subject`` names the configuration in the error, for example its file. ``implements`` adds the errors of building a
    scheduler from the registered plugins.
    """
    configuration, errors = _load(source, gates or FeatureGates())
    if configuration is not None and implements is not None:
        errors = construction_errors(configuration, implements, minor=(gates or FeatureGates()).minor)
    if configuration is None or errors:
        raise configuration_error(subject, errors)
    return configuration


def default_configuration(gates: FeatureGates | None = None) -> KubeSchedulerConfiguration:
    """The default configuration: one profile, "default-scheduler", with the default plugins."""
    return load({"apiVersion": API_VERSION, "kind": KIND}, gates=gates)


def check(
    source: Source, *, gates: FeatureGates | None = None, implements: Implements | None = None
) -> list[FieldError]:
    """The errors of a configuration that kube-scheduler reports at once; empty if it is valid.

    ``implements`` adds the errors of building a scheduler from the registered plugins.
    """
    configuration, errors = _load(source, gates or FeatureGates())
    if configuration is not None and implements is not None:
        return construction_errors(configuration, implements, minor=(gates or FeatureGates()).minor)
    return errors


def _load(source: Source, gates: FeatureGates) -> tuple[KubeSchedulerConfiguration | None, list[FieldError]]:
    """The configuration, or None and the errors."""
    try:
        document = read_document(source)
    except DocumentError as failure:
        return None, [failure.error]
    try:
        configuration = set_defaults(_decode(document, gates.minor), gates)
        _raise_if(validate(configuration, gates))
    except _StageFailed as failed:
        return None, [document.located(error) for error in failed.errors]
    return configuration, []


class _StageFailed(Exception):
    """A stage found errors; the next stages do not run."""

    def __init__(self, errors: list[FieldError]) -> None:
        self.errors = errors


def _raise_if(errors: list[FieldError]) -> None:
    if errors:
        raise _StageFailed(errors)


_ADDED: Mapping[tuple[type[Struct], str], Behaviour] = {
    (Plugins, "placementGenerate"): Behaviour.PLACEMENT_EXTENSION_POINTS,
    (Plugins, "placementScore"): Behaviour.PLACEMENT_EXTENSION_POINTS,
    (Plugins, "podGroupPostFilter"): Behaviour.POD_GROUP_POST_FILTER,
    (DynamicResourcesArgs, "bindingTimeout"): Behaviour.DYNAMIC_RESOURCES_TAKES_A_BINDING_TIMEOUT,
}
"""The fields that not all minor versions know."""


def decoder_of(minor: Minor) -> Decoder:
    """A decoder for the fields of a minor version."""
    return Decoder(minor, _ADDED)


def _decode(document: Document, minor: Minor) -> KubeSchedulerConfiguration:
    typed = split_type_meta(document.data, minor=minor)
    _raise_if(typed.errors)
    decoder = decoder_of(minor)
    if typed.kind != KIND:
        decoder.decode(args_kinds(minor)[typed.kind], typed.body)
        _raise_if(decoder.type_errors or decoder.strict_errors)
        raise _StageFailed([FieldError("", f"couldn't decode as {KIND}, got {API_VERSION}, Kind={typed.kind}")])
    decoded = decoder.decode(KubeSchedulerConfiguration, set_data_defaults(typed.body))
    _raise_if(decoder.type_errors)
    with_args = decode_args(decoded, decoder, minor)
    _raise_if(decoder.type_errors)
    _raise_if([*document.duplicates, *decoder.strict_errors, *document.refused])
    return with_args


def decode_args(decoded: KubeSchedulerConfiguration, decoder: Decoder, minor: Minor) -> KubeSchedulerConfiguration:
    """The configuration with the arguments of in-tree plugins decoded; their errors are added to the decoder's.

    Which plugins take arguments depends on the minor version.
    """
    profiles = []
    for number, profile in enumerate(decoded.profiles):
        configs = tuple(
            structs.replace(
                config, args=_typed_args(config, decoder, minor, f"profiles[{number}].pluginConfig[{index}].args")
            )
            for index, config in enumerate(profile.plugin_config)
        )
        profiles.append(structs.replace(profile, plugin_config=configs))
    return structs.replace(decoded, profiles=tuple(profiles))


def _typed_args(config: PluginConfig, decoder: Decoder, minor: Minor, path: str) -> Any:
    """The arguments of an in-tree plugin as its args type; those of other plugins unchanged."""
    types = args_types(minor)
    if config.name not in types:
        return config.args
    expected = f"{config.name}Args"
    typed = split_type_meta({} if config.args is None else config.args, default_kind=expected, path=path, minor=minor)
    if typed.kind not in ("", expected):
        text = f"args for plugin {config.name} were not of type {expected}.{GROUP}, got {typed.kind}.{GROUP}"
        typed.errors.append(FieldError(path, text))
    decoder.type_errors += typed.errors
    return None if typed.errors else decoder.decode(types[config.name], typed.body, path)
