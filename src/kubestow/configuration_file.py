"""Reading a scheduler configuration for the plugins of a registry: a KubeSchedulerConfiguration, or one of Volcano."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubestow import config
from kubestow.errors import InputError
from kubestow.framework.profile import Registry, implements

__all__ = ["read_configuration"]

#: What a configuration of Volcano has; only then is the code that reads it imported.
_VOLCANO = re.compile(rb"""^\s*["']?(actions|tiers)["']?\s*:""", re.MULTILINE)


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
    document: bytes | Mapping[str, Any] = text
    if _VOLCANO.search(text):
        from kubestow.contrib.volcano.conversion import converted

        document = converted(text, str(source)) or text
    return config.load(document, subject=str(source), gates=gates, implements=implements(registry))
