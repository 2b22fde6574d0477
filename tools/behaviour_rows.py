"""Proves that each row of the table of behaviours is tested: without the row, a test that names it fails.

    nice python -m tools.behaviour_rows [NAME ...]

Each behaviour (:class:`kubestow.rules.minors.Behaviour`) is removed twice: it then holds in no minor version, or in all
of them. Both times the tests that name it, or that use what names it in their file, have to fail. What survives is
listed, and the exit status is 1. All rows take about 15 minutes, so this is not a part of ``make test``.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from kubestow.rules.minors import Behaviour, Minor

_ROOT = Path(__file__).parents[1]
_HOLDS = {"never": False, "always": True}
_TESTS = ("packages/*/tests/**/test_*.py", "tests/**/test_*.py")
#: What pytest returns if a test failed; other failures, as to collect the tests, prove nothing.
_TESTS_FAILED = 1
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line")
#: The name of this variable tells a fresh process what to remove: ``NAME=never``.
_REMOVED = "KUBESTOW_REMOVED_ROW"


def main(names: list[str]) -> int:
    """Remove the rows of these names, or all rows, and print what survives. Returns the exit status."""
    _import_what_tests_import()
    survivors = []
    for behaviour in Behaviour:
        if names and behaviour.name not in names:
            continue
        tests = list(_tests_of(behaviour))
        for how in _HOLDS:
            if not tests or not (_fails_in_fork(behaviour, how, tests) or _fails_afresh(behaviour, how, tests)):
                survivors.append(f"{behaviour.name} ({how}): {', '.join(tests) or 'no test names it'}")
                _say(f"survives: {survivors[-1]}")
        _say(f"{behaviour.name}: {len(tests)} tests")
    return 1 if survivors else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# -- the tests of a behaviour --------------------------------------------------------------------------------------


def _tests_of(behaviour: Behaviour) -> Iterator[str]:
    """The test functions that name a behaviour, or use a definition of their file that does, as pytest names them."""
    for pattern in _TESTS:
        for path in sorted(_ROOT.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            if f"Behaviour.{behaviour.name}" in text:
                for function in _users(ast.parse(text), behaviour.name):
                    yield f"{path.relative_to(_ROOT)}::{function}"


def _users(module: ast.Module, name: str) -> list[str]:
    """The test functions of a module that use a name, directly or through its other definitions."""
    used, functions = {name}, []
    statements = [statement for statement in module.body if not isinstance(statement, ast.Import | ast.ImportFrom)]
    grew = True
    while grew:
        grew = False
        for statement in list(statements):
            if used.isdisjoint(_names(statement)):
                continue
            statements.remove(statement)
            defined = _defined(statement)
            functions += [one for one in defined if one.startswith("test_")]
            grew = not defined <= used or grew
            used |= defined
    return functions


def _names(statement: ast.stmt) -> set[str]:
    """The names that a statement reads, and the attributes of ``Behaviour``."""
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Behaviour":
            found.add(node.attr)
    return found


def _defined(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


# -- running them without the row ----------------------------------------------------------------------------------


def remove(behaviour: Behaviour, how: str) -> None:
    """Let a behaviour hold in no minor version ("never"), or in all of them ("always")."""
    has, removed = Minor.has, behaviour

    def has_without_row(self: Minor, behaviour: Behaviour) -> bool:
        return _HOLDS[how] if behaviour is removed else has(self, behaviour)

    Minor.has = has_without_row  # type: ignore[method-assign]


def _fails_in_fork(behaviour: Behaviour, how: str, tests: list[str]) -> bool:
    """Whether a test fails in a copy of this process, in which most modules are imported already."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == _TESTS_FAILED
    try:
        with tempfile.TemporaryFile() as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            remove(behaviour, how)
            import pytest

            os._exit(int(pytest.main([*_OPTIONS, *tests])))
    finally:
        os._exit(_TESTS_FAILED + 1)


def _fails_afresh(behaviour: Behaviour, how: str, tests: list[str]) -> bool:
    """The same in a new process: what modules determine when they are imported is then without the row, too."""
    command = [sys.executable, "-m", "pytest", "-p", "tools.behaviour_rows", *_OPTIONS, *tests]
    environment = {**os.environ, _REMOVED: f"{behaviour.name}={how}"}
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True).returncode == _TESTS_FAILED


def pytest_configure() -> None:
    """As a plugin of pytest, remove the row of the environment variable."""
    if removed := os.environ.get(_REMOVED):
        name, _, how = removed.partition("=")
        remove(Behaviour[name], how)


def _import_what_tests_import() -> None:
    for module in ("pytest", "kubestow.plugins", "kubestow.testing", "kubestow_lab.conformance.replay"):
        import_module(module)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
