"""Reading a scheduler configuration for the plugins of a registry: a KubeSchedulerConfiguration, or a foreign format.

A package that knows the configuration format of another scheduler registers a module under the entry point group
``kubestow.configuration_formats``. The module has the two functions of :class:`ConfigurationFormat`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from kubestow import config
from kubestow.config.managed_services import read_document
from kubestow.config.plugin_args import NODE_SAMPLING, args_types
from kubestow.files import read_file
from kubestow.framework.profile import Registry, argument_errors, implements
from kubestow.log_fields import fields
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import Minor

_log = logging.getLogger(__name__)

_ENTRY_POINT_GROUP = "kubestow.configuration_formats"
#: In every version of a KubeSchedulerConfiguration; with it, no foreign format is looked for and imported.
_OWN_GROUP = b"kubescheduler.config.k8s.io"


class ConfigurationFormat(Protocol):
    """The configuration format of another scheduler."""

    def converted(self, source: bytes, subject: str) -> dict[str, Any] | None:
        """The KubeSchedulerConfiguration as plain data; None for a file of another format. Raises InputError."""

    def check(self, source: bytes) -> list[config.FieldError] | None:
        """The mistakes in a file, empty if there are none; None for a file of another format."""


def read_configuration(
    source: Path | str | Mapping[str, Any] | None, gates: config.FeatureGates, registry: Registry
) -> config.KubeSchedulerConfiguration:
    """Load a configuration from a file or from plain data; None stands for the defaults. Raises InputError."""
    if source is None:
        return config.default_configuration(gates)
    if isinstance(source, Mapping):
        return config.load(source, gates=gates, implements=implements(registry))
    text = read_file(Path(source))
    document = convert_foreign(text, str(source)) or text
    configuration = config.load(document, subject=str(source), gates=gates, implements=implements(registry))
    for remark in remarks(text, configuration, registry, minor=gates.minor) if document is text else ():
        place = f"{source}:{remark.line}:{remark.column}" if remark.line else str(source)
        said = f"{remark.path}: {remark.message}" if remark.path else remark.message
        _log.warning("%s: %s", place, said, extra=fields(file=str(source), field=remark.path))
    return configuration


def diagnose_configuration(source: bytes, gates: config.FeatureGates, registry: Registry) -> list[config.FieldError]:
    """All independent mistakes in a file, in the order of its text; empty if a scheduler can be built of it.

    Those in the ``args`` of plugins that are not in-tree are found if there are no others.
    """
    foreign = diagnose_foreign(source)
    if foreign is not None:
        return foreign
    errors = config.diagnose(source, gates=gates, implements=implements(registry))
    if errors:
        return errors
    document = read_document(source)
    return [document.located(error) for error in argument_errors(config.load(source, gates=gates), registry)]


def remarks(
    source: bytes, configuration: config.KubeSchedulerConfiguration, registry: Registry, *, minor: Minor
) -> Iterator[config.FieldError]:
    """What a valid KubeSchedulerConfiguration says without effect, which kube-scheduler accepts without a word.

    These are the args of plugins that are not registered, that their profile does not enable, or that take no args. Of
    a managed service's configuration, also what its conversion assumes.
    """
    document = read_document(source)
    yield from document.remarks
    profiles = document.data.get("profiles") or ()
    for index, (given, profile) in enumerate(zip(profiles, configuration.profiles, strict=False)):
        enabled = enabled_plugins(profile, registry)
        for number, entry in enumerate(given.get("pluginConfig") or ()):
            problem = _args_problem(entry["name"], enabled, registry, minor)
            if problem and entry.get("args") is not None:
                path = f"profiles[{index}].pluginConfig[{number}]"
                yield document.located(config.FieldError(path, f"the args have no effect: {problem}"))


def enabled_plugins(profile: config.KubeSchedulerProfile, registry: Registry) -> frozenset[str]:
    """The names of the plugins that a profile enables at any extension point that they implement."""
    expanded = config.expand(profile, implements(registry))
    return frozenset(plugin.name for at_point in expanded.values() for plugin in at_point)


def never_enabled(
    names: Iterable[str], configuration: config.KubeSchedulerConfiguration, registry: Registry
) -> list[str]:
    """Those of some plugins that no profile enables."""
    enabled = frozenset[str]().union(*(enabled_plugins(profile, registry) for profile in configuration.profiles))
    return [name for name in names if name not in enabled]


def _args_problem(name: str, enabled: Collection[str], registry: Registry, minor: Minor) -> str:
    if name == NODE_SAMPLING:
        return ""
    if name not in registry:
        near = difflib.get_close_matches(name, list(registry), n=1)
        return f"no plugin {name} is registered" + (f', did you mean "{near[0]}"?' if near else "")
    if name not in enabled:
        return f"the profile does not enable plugin {name}"
    if registry[name] is in_tree_registry(minor).get(name) and name not in args_types(minor):
        return f"plugin {name} takes no args"
    return ""


def convert_foreign(source: bytes, subject: str) -> dict[str, Any] | None:
    """The KubeSchedulerConfiguration for a file in a foreign format; None for any other file. Raises InputError."""
    converted = (foreign.converted(source, subject) for foreign in _formats(source))
    return next((data for data in converted if data is not None), None)


def diagnose_foreign(source: bytes) -> list[config.FieldError] | None:
    """The mistakes in a file in a foreign format, empty if there are none; None for any other file."""
    checked = (foreign.check(source) for foreign in _formats(source))
    return next((errors for errors in checked if errors is not None), None)


def _formats(source: bytes) -> Iterator[ConfigurationFormat]:
    if _OWN_GROUP not in source:
        for entry_point in entry_points(group=_ENTRY_POINT_GROUP):
            yield entry_point.load()
