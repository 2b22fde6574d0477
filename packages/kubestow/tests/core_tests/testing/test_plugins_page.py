"""Every block of Python and YAML in docs/plugins.md works: modules are imported, tests are run."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kubestow
from kubestow import config
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.plugins.registry import find_plugins

PAGE = (Path(__file__).parents[5] / "docs" / "plugins.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for _, block in found]


def name_of(block: str) -> str:
    named = re.match(r"# (\w+)\.py\n", block)
    assert named, f"a block without a module name: {block[:40]}"
    return named[1]


MODULES = {name_of(block): block for block in blocks("python")}
PLUGINS = {
    "ZoneCost": "zone_cost",
    "TeamLimit": "team_limit",
    "Coscheduling": "coscheduling",
    "FreeCapacity": "free_capacity",
}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The modules of the page in an importable directory."""
    for name, block in MODULES.items():
        (tmp_path / f"{name}.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def page_tests(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("test_")])
def test_the_tests_on_the_page_pass(written: Path, name: str) -> None:
    tests = page_tests(importlib.import_module(name))
    assert "test_the_contract_is_kept" in tests
    for test in tests.values():
        test()


@pytest.mark.parametrize("document", blocks("yaml"))
def test_the_configurations_on_the_page_are_accepted(written: Path, document: str) -> None:
    registry = find_plugins(f"{module}:{name}" for name, module in PLUGINS.items())
    config.load(document, subject="docs/plugins.md", implements=implements(registry))


def test_the_entry_point_on_the_page_names_the_plugin(written: Path) -> None:
    (package,) = blocks("toml")
    ((name, place),) = tomllib.loads(package)["project"]["entry-points"]["kubestow.plugins"].items()
    module, _, attribute = place.partition(":")
    found: type[Plugin] = getattr(importlib.import_module(module), attribute)
    assert found.name == name


def test_the_program_on_the_page_registers_its_plugin(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {}
    monkeypatch.setattr(kubestow, "run", arguments.update, raising=False)
    importlib.import_module("my_scheduler").main()
    registry = find_plugins(classes=arguments["plugins"])
    assert config.load(arguments["config"], implements=implements(registry)).profiles


def test_every_module_on_the_page_has_a_test() -> None:
    assert {f"test_{name}" for name in MODULES if not name.startswith("test_")} - MODULES.keys() == {
        "test_my_scheduler"
    }
