"""The registry of descheduling plugins: DefaultEvictor, the strategies, and classes of third parties."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from importlib.metadata import entry_points

from kubestow.descheduling import strategies
from kubestow.descheduling.default_evictor import DefaultEvictor
from kubestow.descheduling.interface import DeschedulingPlugin
from kubestow.errors import InputError

_ENTRY_POINT_GROUP = "kubestow.descheduling_plugins"


def find_plugins(
    references: Iterable[str] = (), classes: Iterable[type[DeschedulingPlugin]] = ()
) -> dict[str, type[DeschedulingPlugin]]:
    """All plugin classes by name: in-tree ones, entry points, ``module:Class`` references, and classes.

    Raises InputError, naming the plugin, for one that cannot be imported, is not a plugin, or has the name of another.
    """
    registry: dict[str, type[DeschedulingPlugin]] = {DefaultEvictor.name: DefaultEvictor}
    for name in strategies.__all__:
        _register(registry, getattr(strategies, name), name)
    for entry_point in entry_points(group=_ENTRY_POINT_GROUP):
        subject = f"entry point {entry_point.name} ({entry_point.value})"
        _register(registry, _imported(entry_point.value, subject), subject)
    for reference in references:
        subject = f"--plugin {reference}"
        _register(registry, _imported(reference, subject), subject)
    for plugin in classes:
        _register(registry, plugin, f"plugin {plugin.__name__}")
    return registry


def _imported(reference: str, subject: str) -> object:
    module_name, colon, class_name = reference.partition(":")
    if not (module_name and colon and class_name):
        raise InputError(subject, "expected module:Class")
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except Exception as error:
        raise InputError(subject, f"cannot be imported: {type(error).__name__}: {error}") from error


def _register(registry: dict[str, type[DeschedulingPlugin]], candidate: object, subject: str) -> None:
    if not (inspect.isclass(candidate) and issubclass(candidate, DeschedulingPlugin)):
        raise InputError(subject, "is not a class derived from kubestow.descheduling.interface.DeschedulingPlugin")
    name = getattr(candidate, "name", "")
    if not name or not isinstance(name, str):
        raise InputError(subject, f"class {candidate.__name__} has no name; set name = {candidate.__name__!r}")
    if name in registry:
        owner = registry[name]
        raise InputError(subject, f"the name {name!r} is taken by {owner.__module__}.{owner.__name__}")
    missing = sorted(getattr(candidate, "__abstractmethods__", ()))
    if missing:
        raise InputError(subject, f"class {candidate.__name__} does not implement {', '.join(missing)}")
    registry[name] = candidate
