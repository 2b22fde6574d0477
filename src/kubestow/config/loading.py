"""From a configuration's text to a complete, valid :class:`KubeSchedulerConfiguration`, or to everything wrong with it.

The text passes through stages: reading, kind and version, types of values, names of fields, rules. As in the reference
a stage begins only when the one before found nothing, because what it would say about the debris would not help;
within a stage all mistakes are told at once. Each problem then gets the number of its line, where the text was YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from kubestow.config.configuration import (
    API_VERSION,
    GROUP,
    KIND,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    PluginConfig,
)
from kubestow.config.decoding import Decoder
from kubestow.config.defaults import complete, complete_data
from kubestow.config.document import Document, Unreadable, read_document
from kubestow.config.expansion import Implements, construct_problems
from kubestow.config.feature_gates import FeatureGates
from kubestow.config.field_problems import Problem, refusal
from kubestow.config.plugin_args import ARGS_TYPES
from kubestow.config.type_meta import ARGS_KINDS, read_typed
from kubestow.config.validation.configuration import validate

__all__ = ["Source", "check", "default_configuration", "load"]

Source = str | bytes | Mapping[str, Any]
"""YAML or JSON text, or what such a text was parsed into."""


def load(
    source: Source,
    *,
    subject: str = "configuration",
    gates: FeatureGates | None = None,
    implements: Implements | None = None,
) -> KubeSchedulerConfiguration:
    """Read a configuration, fill in its defaults, check it. Raises ConfigurationError with all problems found.

    ``subject`` is what the error calls the configuration, such as the name of the file. With ``implements`` it is also
    made sure that a scheduler can be built of the configuration and the plugins that exist.
    """
    configuration, problems = _read(source, gates or FeatureGates())
    if configuration is not None and implements is not None:
        problems = construct_problems(configuration, implements)
    if configuration is None or problems:
        raise refusal(subject, problems)
    return configuration


def default_configuration(gates: FeatureGates | None = None) -> KubeSchedulerConfiguration:
    """The configuration of somebody who gives none: one profile, "default-scheduler", with the default plugins."""
    return load({"apiVersion": API_VERSION, "kind": KIND}, gates=gates)


def check(source: Source, *, gates: FeatureGates | None = None, implements: Implements | None = None) -> list[Problem]:
    """Everything wrong with a configuration; empty if a scheduler could be started with it.

    With ``implements`` the answer includes what only shows when the profiles are built of the plugins that exist.
    """
    configuration, problems = _read(source, gates or FeatureGates())
    if configuration is not None and implements is not None:
        return construct_problems(configuration, implements)
    return problems


def _read(source: Source, gates: FeatureGates) -> tuple[KubeSchedulerConfiguration | None, list[Problem]]:
    """The configuration, or None and why there is none."""
    try:
        document = read_document(source)
    except Unreadable as unreadable:
        return None, [unreadable.problem]
    try:
        decoded = _decode(document)
        configuration = complete(decoded, gates)
        _stop_if(validate(configuration, gates))
    except _Refused as refused:
        return None, [document.located(problem) for problem in refused.problems]
    return configuration, []


class _Refused(Exception):
    """A stage found problems; the next ones do not begin."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems


def _stop_if(problems: list[Problem]) -> None:
    if problems:
        raise _Refused(problems)


def _decode(document: Document) -> KubeSchedulerConfiguration:
    typed = read_typed(document.data)
    _stop_if(typed.problems)
    decoder = Decoder()
    if typed.kind != KIND:
        decoder.decode(ARGS_KINDS[typed.kind], typed.body)
        _stop_if(decoder.mismatches or decoder.strict)
        raise _Refused([Problem("", f"couldn't decode as {KIND}, got {API_VERSION}, Kind={typed.kind}")])
    decoded = decoder.decode(KubeSchedulerConfiguration, complete_data(typed.body))
    _stop_if(decoder.mismatches)
    profiles = tuple(
        _decode_args(profile, decoder, f"profiles[{index}].pluginConfig")
        for index, profile in enumerate(decoded.profiles)
    )
    _stop_if(decoder.mismatches)
    _stop_if([*document.duplicates, *decoder.strict])
    return structs.replace(decoded, profiles=profiles)


def _decode_args(profile: KubeSchedulerProfile, decoder: Decoder, path: str) -> KubeSchedulerProfile:
    configs = tuple(
        structs.replace(config, args=_known_args(config, decoder, f"{path}[{index}].args"))
        for index, config in enumerate(profile.plugin_config)
    )
    return structs.replace(profile, plugin_config=configs)


def _known_args(config: PluginConfig, decoder: Decoder, path: str) -> Any:
    """The arguments of an in-tree plugin in their type; those of other plugins as they are."""
    if config.name not in ARGS_TYPES:
        return config.args
    expected = f"{config.name}Args"
    typed = read_typed({} if config.args is None else config.args, default_kind=expected, path=path)
    if typed.kind not in ("", expected):
        text = f"args for plugin {config.name} were not of type {expected}.{GROUP}, got {typed.kind}.{GROUP}"
        typed.problems.append(Problem(path, text))
    decoder.mismatches += typed.problems
    return None if typed.problems else decoder.decode(ARGS_TYPES[config.name], typed.body, path)
