"""The registry of plugins: contributed ones are imported when they are looked up."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from kubestow.errors import InputError
from kubestow.framework.interface import ScorePlugin
from kubestow.framework.profile import implements
from kubestow.plugins import registry
from kubestow.plugins.registry import find_plugins, referenced_plugins


class Contributed(ScorePlugin):
    name = "Contributed"

    def score(self, state, pod, nodes):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class Impostor(Contributed):
    """Takes the name of a contributed plugin."""


@pytest.fixture(autouse=True)
def contributed(monkeypatch: pytest.MonkeyPatch) -> None:
    references = {
        "Contributed": f"{__name__}:Contributed",
        "Missing": "kubestow.no_such_module:Missing",
        "Misnamed": f"{__name__}:Contributed",
    }
    found = {name: EntryPoint(name, value, "kubestow.contributed_plugins") for name, value in references.items()}
    monkeypatch.setattr(registry, "contributed_plugins", lambda: found)


def test_a_name_is_known_before_the_plugin_is_imported() -> None:
    found = find_plugins()
    points = implements(found)
    assert "Missing" in found and "Missing" in points and "Missing" in list(found)
    assert len(found) == len(list(found)) == len(points)


def test_a_plugin_is_imported_when_it_is_looked_up() -> None:
    found = find_plugins()
    assert found["Contributed"] is Contributed
    assert implements(found)["Contributed"] == {"score"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [("Missing", "cannot be imported"), ("Misnamed", "has the name 'Contributed'")],
)
def test_a_contributed_plugin_that_cannot_be_used_is_named(name: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"plugin {name}: .*{problem}"):
        find_plugins()[name]


def test_other_plugins_may_take_the_name_of_a_contributed_one() -> None:
    assert find_plugins([f"{__name__}:Impostor"])["Contributed"] is Impostor
    assert find_plugins(classes={"Contributed": Impostor})["Contributed"] is Impostor


def test_the_plugins_of_references_are_those_alone() -> None:
    assert referenced_plugins([f"{__name__}:Contributed"]) == [Contributed]
    with pytest.raises(InputError, match="--plugin nothing: expected module:Class"):
        referenced_plugins(["nothing"])
