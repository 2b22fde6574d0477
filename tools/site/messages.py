"""The messages of plugins, read from their source: the texts of the statuses that they return.

A message in the source is a string, a string with expressions in it, or a constant of the module. What stands for
values is shown in braces. The texts of errors and problems that a plugin turns into a status are those of its ``raise``
statements, and what its functions return.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from kubestow import framework, scheduling
from kubestow.framework.interface import Plugin
from kubestow.framework.status import Code

#: The constructors of statuses with their codes.
_CODES = {
    "unschedulable": Code.UNSCHEDULABLE,
    "unresolvable": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    "error": Code.ERROR,
}
#: The modules with functions that find the problems of a pod's volumes.
_OF_VOLUMES = ("kubestow.cluster.storage.", "kubestow.rules.claims")
#: Errors that no pod sees: of the configuration, and of callers.
_NOT_OF_PODS = {"InputError", "ConfigurationError", "NotImplementedError", "AssertionError", "StopIteration"}


def plugin_messages(plugins: Collection[type[Plugin]]) -> dict[type[Plugin], dict[str, str]]:
    """The messages of each plugin, with the names of their codes.

    A message has no code if that depends on the node, or on where an error is handled.
    """
    paths = {plugin: _path(plugin.__module__) for plugin in plugins}
    return {plugin: _of(_of_plugin(path, {*paths.values()} - {path})) for plugin, path in paths.items()}


def scheduler_messages() -> dict[str, str]:
    """The messages of the scheduler itself, with the names of their codes."""
    folders = (Path(str(package.__file__)).parent for package in (framework, scheduling))
    found = _of(_parsed(path) for folder in folders for path in sorted(folder.rglob("*.py")))
    return {text: code for text, code in found.items() if code}


def _of(modules: Iterable[ast.Module]) -> dict[str, str]:
    found: dict[str, str] = {}
    for module in modules:
        for text, code in _messages(module):
            if re.search(r"[a-z]", re.sub(r"\{[^}]*\}", "", text)):
                found[text] = found.get(text) or code
    return dict(sorted(found.items()))


def _of_plugin(path: Path, other_plugins: Collection[Path]) -> Iterator[ast.Module]:
    """A plugin's module; of a plugin that is a package, its modules except those of other plugins.

    The problems of a pod's volumes are found by functions of the rules and of the cluster's storage, so those that are
    imported count.
    """
    for source in sorted({*path.parent.rglob("*.py")} - {*other_plugins}) if path.stem == path.parent.name else [path]:
        module = _parsed(source)
        yield module
        for statement in module.body:
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(_OF_VOLUMES):
                names = {alias.name for alias in statement.names}
                functions = _parsed(_path(str(statement.module))).body
                yield ast.Module([f for f in functions if isinstance(f, ast.FunctionDef) and f.name in names], [])


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _path(module_name: str) -> Path:
    return Path(str(importlib.import_module(module_name).__file__))


def _messages(module: ast.Module) -> Iterator[tuple[str, str]]:
    constants = {
        target.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    named: set[str] = set()  # in a status, or in another text
    for value in constants.values():
        if isinstance(value, ast.BinOp | ast.JoinedStr):
            named |= {name.id for name in ast.walk(value) if isinstance(name, ast.Name)}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and (code := _code(node.func)) is not None:
            for argument in node.args:
                named |= {name.id for name in ast.walk(argument) if isinstance(name, ast.Name)}
                if text := _text(argument, constants):
                    yield text, code.value
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            arguments = node.exc.args
            if node.exc.func.id not in _NOT_OF_PODS and arguments and (text := _text(arguments[-1], constants)):
                yield text, ""
    returns = (node for function in module.body if isinstance(function, ast.FunctionDef) for node in ast.walk(function))
    for node in returns:
        if isinstance(node, ast.Return) and node.value is not None and " " in (text := _text(node.value, constants)):
            yield text, ""
    # What a status gets from elsewhere than its call, such as one reason for each bit of a key.
    for name, value in constants.items():
        text = _text(value, constants)
        if name not in named and " " in text.strip(" :"):
            yield text.replace("{}", "{…}"), ""


def _code(function: ast.expr) -> Code | None:
    match function:
        case ast.Attribute(value=ast.Name(id="Status"), attr=name) if name in _CODES:
            return _CODES[name]
    return None


def _text(node: ast.expr, constants: Mapping[str, ast.expr]) -> str:
    """The text of an expression, with what is only known at run time in braces; empty if all of it is."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            texts = [_text(part, constants) or "{…}" for part in parts]
            return "" if all(text.startswith("{") for text in texts) else "".join(texts)
        case ast.FormattedValue(value=ast.Name(id=name)) if name in constants:
            return _text(constants[name], constants)
        case ast.FormattedValue(value=value):
            return "{" + _placeholder(value) + "}"
        case ast.Name(id=name) if name in constants:
            return _text(constants[name], constants)
        case ast.Call(func=ast.Attribute(value=text_of, attr="format"), args=values):
            text = _text(text_of, constants)
            for value in values:
                text = text.replace("{}", "{" + _placeholder(value) + "}", 1)
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = [_text(left, constants), _text(right, constants)]
            return "".join(texts) if all(texts) else ""
    return ""


def _placeholder(value: ast.expr) -> str:
    """A name for a value: the last one of ``claim.key``, or that of the call or the argument."""
    match value:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return name if name == owner or owner == "self" else f"{owner} {name}"
        case ast.Attribute(attr=name):
            return name
        case ast.Call(args=[argument, *_]):
            return _placeholder(argument)
    return "…"
