"""Finding plugins: the in-tree ones, those that installed packages offer, and those named or handed over.

A package offers plugins by entry points of the group ``kubestow.plugins``; on the command line one is named as
``module:Class``; a program hands over the classes themselves. Either way a plugin joins the registry under its ``name``
and is enabled and configured like any other.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from kubestow.errors import InputError
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import EXTENSION_POINTS
from kubestow.plugins import in_tree_registry

__all__ = ["find_plugins"]

_GROUP = "kubestow.plugins"


def find_plugins(named: Iterable[str] = (), given: Mapping[str, type[Plugin]] | None = None) -> dict[str, type[Plugin]]:
    """Every plugin there is, by name; ``named`` are further ones as ``module:Class``, ``given`` are classes by name.

    Raises InputError, naming the plugin, for one that cannot be imported, is no plugin, or whose name is taken.
    """
    registry = in_tree_registry()
    for entry_point in entry_points(group=_GROUP):
        _register(registry, _entry(entry_point), f"entry point {entry_point.name}")
    for spelling in named:
        _register(registry, _import(spelling), f"--plugin {spelling}")
    for name, plugin in (given or {}).items():
        _register(registry, plugin, f"plugins[{name!r}]", name)
    return registry


def _entry(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:
        problem = f"cannot be loaded: {type(error).__name__}: {error}"
        raise InputError(f"entry point {entry_point.name} ({entry_point.value})", problem) from error


def _import(spelling: str) -> object:
    module_name, colon, class_name = spelling.partition(":")
    subject = f"--plugin {spelling}"
    if not (module_name and colon and class_name):
        raise InputError(subject, "expected module:Class")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(subject, f"cannot be imported: {type(error).__name__}: {error}") from error
    try:
        return getattr(module, class_name)
    except AttributeError:
        raise InputError(subject, f"module {module_name} has no {class_name}") from None


def _register(registry: dict[str, type[Plugin]], found: object, subject: str, expected: str = "") -> None:
    if not (inspect.isclass(found) and issubclass(found, Plugin)):
        raise InputError(subject, "is not a class derived from kubestow.framework.interface.Plugin")
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not name:
        raise InputError(subject, f"class {found.__name__} has no name; give it one: name = {found.__name__!r}")
    if expected and name != expected:
        raise InputError(subject, f"class {found.__name__} has the name {name!r}; give it under that name")
    if name in registry:
        raise InputError(
            subject, f"the name {name!r} is taken by {registry[name].__module__}.{registry[name].__name__}"
        )
    if not issubclass(found, tuple(EXTENSION_POINTS.values())):
        raise InputError(subject, f"class {found.__name__} extends nothing; derive from a base such as ScorePlugin")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise InputError(subject, f"class {found.__name__} lacks {', '.join(missing)}")
    registry[name] = found
