"""Reading a scheduler configuration for the plugins of a registry: a KubeSchedulerConfiguration, or a foreign format.

A package that knows the configuration format of another scheduler registers a module under the entry point group
``kubestow.configuration_formats``. The module has the two functions of :class:`ConfigurationFormat`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from kubestow import config
from kubestow.files import read_file
from kubestow.framework.profile import Registry, implements

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
    return config.load(document, subject=str(source), gates=gates, implements=implements(registry))


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
