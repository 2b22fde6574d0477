"""Encoding of the effective configuration as a v1 object.

:func:`render` returns a plain dictionary that can be printed as YAML or JSON and loaded again to an equal
configuration. Empty fields that decode to the same empty value are omitted.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import structs

from kubestow.api.formats.duration import Duration
from kubestow.config.configuration import API_VERSION, KIND, KubeSchedulerConfiguration, PluginConfig
from kubestow.config.plugin_args import PluginArgs


def render(configuration: KubeSchedulerConfiguration) -> dict[str, Any]:
    """A configuration as a v1 object with every default written out."""
    return {"apiVersion": API_VERSION, "kind": KIND, **rendered(configuration)}


def rendered(value: Any) -> Any:
    """A value of the configuration as plain data with the field names of the API."""
    match value:
        case Duration():
            return str(value)
        case PluginConfig(args=PluginArgs() as args):
            type_meta = {"apiVersion": API_VERSION, "kind": type(args).__name__}
            return {"name": value.name, "args": {**type_meta, **rendered(args)}}
        case msgspec.Struct():
            fields = {}
            for field in structs.fields(value):
                given = getattr(value, field.name)
                default = field.default if field.default is not msgspec.NODEFAULT else []
                item = rendered(given)
                if given != default or item not in (None, "", [], {}):
                    fields[field.encode_name] = item
            return fields
        case bytes():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return [rendered(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value
