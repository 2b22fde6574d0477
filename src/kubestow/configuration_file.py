"""Reading a scheduler configuration for the plugins of a registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubestow import config
from kubestow.errors import InputError
from kubestow.framework.profile import Registry, implements

__all__ = ["read_configuration"]


def read_configuration(
    source: Path | str | Mapping[str, Any] | None, gates: config.FeatureGates, registry: Registry
) -> config.KubeSchedulerConfiguration:
    """Load a configuration from a file or from plain data; None stands for the defaults. Raises InputError."""
    if source is None:
        return config.default_configuration(gates)
    if isinstance(source, Mapping):
        return config.load(source, gates=gates, implements=implements(registry))
    try:
        text = Path(source).read_bytes()
    except OSError as error:
        raise InputError(str(source), f"cannot be read: {error.strerror}") from None
    return config.load(text, subject=str(source), gates=gates, implements=implements(registry))
