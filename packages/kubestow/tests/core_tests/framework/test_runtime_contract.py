"""Only the runtimes of the framework call plugins: no other module of kubestow calls a method of an extension point.

The source is searched for expressions that use such a method. An expression counts when its object is a plugin (by its
name, by its annotation, or because it iterates over plugins), or when no class but plugins has a method of that name.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import kubestow
from kubestow.framework import gang, interface
from kubestow.framework.interface import Plugin
from kubestow.framework.runtime.plugin_caller import ProfilePlugins

SOURCE = Path(kubestow.__file__).parent
RUNTIMES = sorted((SOURCE / "framework" / "runtime").glob("*.py"))

BASES = {
    name: kind
    for module in (interface, gang)
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and issubclass(kind, Plugin)
}
#: The methods that extension points consist of. What a plugin declares or reports about itself is none of them.
METHODS = {
    name
    for kind in BASES.values()
    for name, member in vars(kind).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in ("watched_kinds", "report")
}
#: What an event registration holds of a plugin.
CALLBACKS = {"hint", "event_filter"}
SEQUENCES = {field.name for field in fields(ProfilePlugins)}


def modules() -> list[Path]:
    """Every module but the runtimes, the plugins themselves, and the descheduler, whose plugins are others."""
    apart = {"plugins", "descheduling"}
    return [p for p in SOURCE.rglob("*.py") if p not in RUNTIMES and p.relative_to(SOURCE).parts[0] not in apart]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def ambiguous_names() -> frozenset[str]:
    """The names of methods and fields that other classes have, too."""
    nodes = (node for path in (*modules(), *RUNTIMES) for node in ast.walk(parsed(path)))
    classes = (node for node in nodes if isinstance(node, ast.ClassDef) and not is_plugin_class(node))
    return frozenset(name for node in classes for member in node.body for name in _names(member))


def _names(member: ast.stmt) -> Iterator[str]:
    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
        yield member.name
    elif isinstance(member, ast.AnnAssign):
        yield terminal(member.target)


def is_plugin_class(node: ast.ClassDef) -> bool:
    return any(terminal(base) in BASES for base in node.bases) or node.name in BASES


def terminal(node: ast.AST | None) -> str:
    """The last name of a dotted expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def violations(tree: ast.Module) -> Iterator[str]:
    """Each use of an extension point's method of a plugin."""
    yield from _violations(tree, plugins=frozenset(), in_plugin=False)


def _violations(node: ast.AST, *, plugins: frozenset[str], in_plugin: bool) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        in_plugin = is_plugin_class(node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        plugins = plugins | set(_plugin_names(node))
    if isinstance(node, ast.Compare):
        return  # whether a class overrides a method
    if isinstance(node, ast.Call) and terminal(node.func) in CALLBACKS:
        yield ast.unparse(node.func)
    if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.ctx, ast.Load):
        receiver = terminal(node.value)
        is_own = (in_plugin and receiver == "self") or receiver == "inspect"
        is_plugin = ("plugin" in receiver.lower() and not receiver.endswith("plugins")) or receiver in plugins
        if not is_own and (is_plugin or (node.attr not in ambiguous_names() and not _is_sequence(node))):
            yield ast.unparse(node)
    for child in ast.iter_child_nodes(node):
        yield from _violations(child, plugins=plugins, in_plugin=in_plugin)


def _is_sequence(node: ast.Attribute) -> bool:
    """Whether an expression is the plugins of an extension point: ``profile.permit``, ``runtime.plugins.permit``."""
    return node.attr in SEQUENCES and terminal(node.value) in ("profile", "plugins", "_profile")


def _plugin_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[str]:
    """The arguments and variables of a function that are plugins."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and _names_a_plugin_class(node.annotation):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and _names_a_plugin_class(node.annotation):
            yield terminal(node.target)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and _has_plugins(node.iter):
            yield from (name.id for name in ast.walk(node.target) if isinstance(name, ast.Name))


def _names_a_plugin_class(annotation: ast.expr | None) -> bool:
    return annotation is not None and any(terminal(part) in BASES for part in ast.walk(annotation))


def _has_plugins(iterable: ast.expr) -> bool:
    return any(
        terminal(part).endswith("plugins") or (isinstance(part, ast.Attribute) and _is_sequence(part))
        for part in ast.walk(iterable)
    )


def test_only_the_runtime_calls_plugins() -> None:
    found = {str(path.relative_to(SOURCE)): list(violations(parsed(path))) for path in modules()}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_every_extension_point_is_searched_for() -> None:
    assert {"pre_enqueue", "sort_key", "filter", "permit", "bind", "gang_of", "placements", "signature"} <= METHODS


@pytest.mark.parametrize(
    "source",
    [
        "def gate(profile, pod):\n    return [p.pre_enqueue(pod) for p in profile.pre_enqueue]",
        "def check(plugin, nodes):\n    return plugin.filter(nodes)",
        "def check(one: FilterPlugin, nodes):\n    return call(one.filter, nodes)",
        "def check(one: FilterPlugin | None, nodes):\n    return one and one.filter(nodes)",
        "def undo(anything, pod):\n    anything.unreserve(pod)",
        "def bind(profile):\n    for binding in reversed(profile.bind):\n        binding.bind()",
        "class Results:\n    def score(self):\n        return self._plugin.score()",
        "def requeues(registration, pod):\n    return registration.hint(pod, None, None)",
    ],
)
def test_a_call_of_a_plugin_is_found(source: str) -> None:
    assert len(list(violations(ast.parse(source)))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "async def place(extenders, pod):\n    await extenders.filter(pod)",
        "async def place(dispatcher, pod):\n    await dispatcher.bind(pod)",
        "def place(runtime, pod):\n    runtime.gang_of(pod)",
        "def names(profile):\n    return [plugin.name for plugin in profile.permit]",
        "def normalizes(plugin):\n    return type(plugin).normalize is not ScorePlugin.normalize",
        """
        class NodeFilterPlugin(FilterPlugin):
            def filter(self, nodes):
                return self.filter_node(nodes)
        """,
    ],
)
def test_other_calls_are_not(source: str) -> None:
    assert list(violations(ast.parse(textwrap.dedent(source)))) == []
