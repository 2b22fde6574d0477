"""Loading YAML as Kubernetes does, where speed matters more than the positions of fields.

Configurations are parsed by :mod:`kubestow.config.document`, which keeps the line of every field.
"""

from __future__ import annotations

from typing import ClassVar

import yaml


class YAMLLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loads YAML as Kubernetes does: timestamps are strings."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
