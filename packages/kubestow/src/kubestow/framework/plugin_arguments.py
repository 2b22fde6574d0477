"""Decodes the ``pluginConfig`` arguments of plugins that are not in-tree.

The configuration decodes the arguments of in-tree plugins itself. It does not know the classes of other plugins, so
their arguments are plain data; a plugin that declares ``Args`` gets them decoded into that struct. An error names the
profile, the plugin, the path, and what was expected there.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from kubestow import config
from kubestow.errors import ConfigurationError
from kubestow.framework.interface import Plugin

__all__ = ["argument_errors", "decode_arguments"]

#: Separates the problem and the path in messages of msgspec.
_PATH = " - at `$"
_TYPE_META = frozenset({"apiVersion", "kind"})


def decode_arguments(profile: config.KubeSchedulerProfile, kind: type[Plugin]) -> Any:
    """The ``args`` for a plugin of a profile. Raises ConfigurationError when they do not fit the plugin's ``Args``."""
    given = profile.args.get(kind.name)
    declared = kind.Args
    if declared is None or isinstance(given, declared):
        return given
    given = {} if given is None else given
    described = inspect.type_info(declared)
    problems = list(_unknown_fields(given, described, "", top=True))
    if not problems:
        try:
            return msgspec.convert(given, declared)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(_PATH)
            problems = [(path.rstrip("`"), f"{text[:1].lower()}{text[1:]}")]
    args = _path(profile, kind.name)
    raise ConfigurationError(
        f'profile "{profile.scheduler_name}"', [(args + path, f"plugin {kind.name}: {text}") for path, text in problems]
    )


def argument_errors(
    configuration: config.KubeSchedulerConfiguration, registry: Mapping[str, type[Plugin]]
) -> Iterator[config.FieldError]:
    """The errors of :func:`decode_arguments` for all plugins with ``args`` that are registered."""
    for index, profile in enumerate(configuration.profiles):
        for entry in profile.plugin_config:
            if entry.name not in registry:
                continue
            try:
                decode_arguments(profile, registry[entry.name])
            except ConfigurationError as error:
                for path, text in error.problems:
                    yield config.FieldError(f"profiles[{index}].{path}", text)


def _path(profile: config.KubeSchedulerProfile, plugin: str) -> str:
    names = [entry.name for entry in profile.plugin_config]
    return f"pluginConfig[{names.index(plugin)}].args" if plugin in names else "args"


def _unknown_fields(data: Any, kind: inspect.Type, path: str, *, top: bool = False) -> Iterator[tuple[str, str]]:
    """The path and the problem of every field that is not declared, at any depth; types are checked by msgspec."""
    match kind, data:
        case inspect.UnionType(types=types), _:
            structs = [member for member in types if isinstance(member, inspect.StructType)]
            if len(structs) == 1:
                yield from _unknown_fields(data, structs[0], path)
        case inspect.StructType(fields=fields, tag=None), Mapping():
            known = {field.encode_name: field for field in fields}
            for name, item in data.items():
                if name in known:
                    yield from _unknown_fields(item, known[name].type, f"{path}.{name}")
                elif not (top and name in _TYPE_META):
                    near = difflib.get_close_matches(str(name), known, n=1)
                    yield f"{path}.{name}", "unknown field" + (f', did you mean "{near[0]}"?' if near else "")
        case (inspect.ListType() | inspect.VarTupleType() | inspect.SetType()) as items, list():
            for index, item in enumerate(data):
                yield from _unknown_fields(item, items.item_type, f"{path}[{index}]")
        case inspect.DictType(value_type=value_type), Mapping():
            for name, item in data.items():
                yield from _unknown_fields(item, value_type, f"{path}.{name}")
