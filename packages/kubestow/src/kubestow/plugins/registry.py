"""The registry of plugins: in-tree, contributed, entry points of packages, ``module:Class`` references, and classes.

A package provides plugins through entry points of the group ``kubestow.plugins``; the command line names them as
``--plugin module:Class`` or ``--plugin file.py:Class``; a program passes the classes themselves. Every plugin is
registered under its ``name`` and is enabled and configured in the same way. A package with many plugins, such as
kubestow-contrib, uses the group ``kubestow.contributed_plugins``: its modules are imported when a configuration
enables their plugins.

A package that knows the pod groups of another project registers a
:class:`~kubestow.cluster.pods.pod_groups.PodGroupAPI` under the group ``kubestow.pod_group_apis``. One that
knows what another project's controller creates for a workload registers a :data:`WorkloadObjects` under the group
``kubestow.workload_kinds``, by the name ``<kind>.<version>.<group>``. One that has some plugins of another project and
not others says under the group ``kubestow.absent_plugins``, by the name of the project, what comes nearest to those: a
mapping of their names to a text. Errors about a configuration that enables one have it.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupAPI
from kubestow.errors import InputError
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import EXTENSION_POINTS, Registry
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import DEFAULT_MINOR, Minor

_ENTRY_POINT_GROUP = "kubestow.plugins"

#: Plugins that are imported when a configuration enables them; the name of the entry point is that of the plugin.
_CONTRIBUTED_GROUP = "kubestow.contributed_plugins"

_POD_GROUP_API_GROUP = "kubestow.pod_group_apis"
_WORKLOAD_KIND_GROUP = "kubestow.workload_kinds"
_ABSENT_GROUP = "kubestow.absent_plugins"

References = Callable[[str, str, str], dict[str, Any] | None]
"""A custom resource of the input by kind, namespace ("" for one of the cluster) and name; None if there is none."""

WorkloadObjects = Callable[[dict[str, Any], References], Iterable[dict[str, Any]]]
"""The pods and other objects, as plain data, that a controller creates for a workload with its namespace set.

The second argument finds the objects that the workload refers to. Raises InvalidObject."""


def find_plugins(
    references: Iterable[str] = (), classes: Mapping[str, type[Plugin]] | None = None, *, minor: Minor = DEFAULT_MINOR
) -> Registry:
    """All plugin classes by name, the in-tree ones of a ``minor`` version.

    ``references`` are written as ``module:Class`` or ``file.py:Class``, ``classes`` are by plugin name. Files with the
    same name are modules of their own.

    Looking up a contributed plugin imports it. Other plugins may take its name and its place.

    Raises InputError, naming the plugin, for one that cannot be imported, is not a plugin, or has the name of another.
    """
    registry = _installed(references, minor)
    for name, plugin in (classes or {}).items():
        _register(registry, plugin, f"plugins[{name!r}]", name)
    contributed = {entry_point.name: entry_point for entry_point in _entry_points()[_CONTRIBUTED_GROUP]}
    return _LazyRegistry(registry, contributed)


def find_pod_group_apis() -> tuple[PodGroupAPI, ...]:
    """The APIs of other projects that define pod groups, in the order of the names of their entry points.

    Raises InputError, naming the entry point, for one that cannot be loaded or is not a new API.
    """
    apis: dict[str, PodGroupAPI] = {KUBERNETES.name: KUBERNETES}
    for entry_point in sorted(_entry_points()[_POD_GROUP_API_GROUP], key=lambda found: found.name):
        api, subject = _load(entry_point), f"entry point {entry_point.name}"
        if not isinstance(api, PodGroupAPI):
            raise InputError(subject, "is not a kubestow.cluster.pods.pod_groups.PodGroupAPI")
        if api.name in apis:
            raise InputError(subject, f"the pod groups of {api.name} are known already")
        apis[api.name] = api
    return tuple(apis.values())[1:]


@cache
def find_workload_kinds() -> Mapping[tuple[str, str], WorkloadObjects]:
    """The workloads of other projects by group version and kind. Each is imported when it is called.

    Raises InputError, naming the entry point, for a name of another form; a call for one that cannot be loaded.
    """
    found = {}
    for entry_point in _entry_points()[_WORKLOAD_KIND_GROUP]:
        kind, _, rest = entry_point.name.partition(".")
        version, _, group = rest.partition(".")
        if not group:
            raise InputError(f"entry point {entry_point.name}", "expected a name <kind>.<version>.<group>")
        found[f"{group}/{version}", kind] = partial(_workload_objects, entry_point)
    return found


def _workload_objects(
    entry_point: EntryPoint, workload: dict[str, Any], references: References
) -> Iterable[dict[str, Any]]:
    objects: Any = _load(entry_point)
    found: Iterable[dict[str, Any]] = objects(workload, references)
    return found


def referenced_plugins(references: Iterable[str]) -> list[type[Plugin]]:
    """The classes of references to a module or a file. Raises InputError as :func:`find_plugins`."""
    return list(_installed(references).values())[len(_installed()) :]


class _LazyRegistry(Mapping[str, type[Plugin]]):
    """Plugin classes by name, some of which are imported when they are looked up."""

    def __init__(self, classes: dict[str, type[Plugin]], contributed: Mapping[str, EntryPoint]) -> None:
        self._classes = classes
        self._contributed = {name: entry for name, entry in contributed.items() if name not in classes}

    def __getitem__(self, name: str) -> type[Plugin]:
        if name not in self._classes:
            imported: dict[str, type[Plugin]] = {}
            _register(imported, _import(self._contributed[name].value, f"plugin {name}"), f"plugin {name}", name)
            self._classes |= imported
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._contributed

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._classes, *self._contributed)))

    def __len__(self) -> int:
        return len(self._classes.keys() | self._contributed.keys())

    def absence(self, name: str) -> str:
        """What comes nearest to a plugin that is not registered: by a package that knows it, else by its name."""
        for project in _entry_points()[_ABSENT_GROUP]:
            nearest: Any = _load(project)
            if name in nearest:
                return f"{project.name}'s {name} is not there; nearest: {nearest[name]}"
        near = difflib.get_close_matches(name, list(self), n=1)
        return f'did you mean "{near[0]}"?' if near else ""


@cache
def _entry_points() -> Mapping[str, Sequence[EntryPoint]]:
    """The entry points of installed distributions by group: read once, which takes some ten milliseconds."""
    found = entry_points()
    groups = (_ENTRY_POINT_GROUP, _CONTRIBUTED_GROUP, _POD_GROUP_API_GROUP, _WORKLOAD_KIND_GROUP, _ABSENT_GROUP)
    return {group: tuple(found.select(group=group)) for group in groups}


def _installed(references: Iterable[str] = (), minor: Minor = DEFAULT_MINOR) -> dict[str, type[Plugin]]:
    """The in-tree plugins of a minor version, those of packages, and those of references."""
    registry = in_tree_registry(minor)
    for entry_point in _entry_points()[_ENTRY_POINT_GROUP]:
        _register(registry, _load(entry_point), f"entry point {entry_point.name}")
    for reference in references:
        _register(registry, _import(reference, f"--plugin {reference}"), f"--plugin {reference}")
    return registry


def _load(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except Exception as error:
        problem = f"cannot be loaded: {type(error).__name__}: {error}"
        raise InputError(f"entry point {entry_point.name} ({entry_point.value})", problem) from error


def _import(reference: str, subject: str) -> object:
    module_name, _, class_name = reference.rpartition(":")
    if not (module_name and class_name):
        raise InputError(subject, "expected module:Class or file.py:Class")
    try:
        module = _import_file(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
    except Exception as error:
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and (error.name or "") in (
            module_name,
            module_name.partition(".")[0],
        ):
            problem += f"; a class in a file is named as {module_name.rpartition('.')[2]}.py:{class_name}"
        raise InputError(subject, problem) from error
    try:
        return getattr(module, class_name)
    except AttributeError:
        raise InputError(subject, f"module {module_name} has no {class_name}") from None


def _import_file(path: str) -> ModuleType:
    """The module in a file, under a name of its own, so that two versions of a file can be loaded."""
    location = str(Path(path).resolve())
    name = f"kubestow_plugin_file_{location.encode().hex()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, location)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


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
