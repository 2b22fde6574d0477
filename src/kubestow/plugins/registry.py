"""The registry of plugins: those in-tree, entry points of packages, ``module:Class`` references, and classes.

A package provides plugins through entry points of the group ``kubestow.plugins``; the command line names them as
``--plugin module:Class``; a program passes the classes themselves. Every plugin is registered under its ``name`` and is
enabled and configured in the same way.
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

_ENTRY_POINT_GROUP = "kubestow.plugins"


def find_plugins(
    references: Iterable[str] = (), classes: Mapping[str, type[Plugin]] | None = None
) -> dict[str, type[Plugin]]:
    """All plugin classes by name; ``references`` are written as ``module:Class``, ``classes`` are by plugin name.

    Raises InputError, naming the plugin, for one that cannot be imported, is not a plugin, or has the name of another.
    """
    registry = in_tree_registry()
    for entry_point in entry_points(group=_ENTRY_POINT_GROUP):
        _register(registry, _load(entry_point), f"entry point {entry_point.name}")
    for reference in references:
        _register(registry, _import(reference), f"--plugin {reference}")
    for name, plugin in (classes or {}).items():
        _register(registry, plugin, f"plugins[{name!r}]", name)
    return registry


def _load(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:
        problem = f"cannot be loaded: {type(error).__name__}: {error}"
        raise InputError(f"entry point {entry_point.name} ({entry_point.value})", problem) from error


def _import(reference: str) -> object:
    module_name, colon, class_name = reference.partition(":")
    subject = f"--plugin {reference}"
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


def _register(registry: dict[str, type[Plugin]], candidate: object, subject: str, expected_name: str = "") -> None:
    """Adds a plugin class to the registry. Raises InputError unless it is a complete plugin with a new name."""
    if not (inspect.isclass(candidate) and issubclass(candidate, Plugin)):
        raise InputError(subject, "is not a class derived from kubestow.framework.interface.Plugin")
    name = getattr(candidate, "name", None)
    if not isinstance(name, str) or not name:
        raise InputError(subject, f"class {candidate.__name__} has no name; set name = {candidate.__name__!r}")
    if expected_name and name != expected_name:
        raise InputError(subject, f"class {candidate.__name__} has the name {name!r}; give it under that name")
    if name in registry:
        owner = registry[name]
        raise InputError(subject, f"the name {name!r} is taken by {owner.__module__}.{owner.__name__}")
    if not issubclass(candidate, tuple(EXTENSION_POINTS.values())):
        raise InputError(
            subject, f"class {candidate.__name__} implements no extension point; derive from a base such as ScorePlugin"
        )
    missing = sorted(getattr(candidate, "__abstractmethods__", ()))
    if missing:
        raise InputError(subject, f"class {candidate.__name__} does not implement {', '.join(missing)}")
    registry[name] = candidate
