"""The registry of plugins: contributed ones are imported when they are looked up."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from core_tests.scheduling.gangs.groups import TEAMS
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.errors import InputError
from kubestow.framework.interface import ScorePlugin
from kubestow.framework.profile import implements
from kubestow.plugins import registry
from kubestow.plugins.registry import find_plugins, find_pod_group_apis, referenced_plugins


class Contributed(ScorePlugin):
    name = "Contributed"

    def score(self, state, pod, nodes):  # type: ignore[no-untyped-def]
        raise NotImplementedError


OTHER = PodGroupAPI("other.example.com", TEAMS.kind, TEAMS.group_of, TEAMS.gang_policy)


class Impostor(Contributed):
    """Takes the name of a contributed plugin."""


READ_ANEW = registry._entry_points.__wrapped__


def install(monkeypatch: pytest.MonkeyPatch, *found: EntryPoint) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda: EntryPoints(found))
    monkeypatch.setattr(registry, "_entry_points", READ_ANEW)


@pytest.fixture(autouse=True)
def contributed(monkeypatch: pytest.MonkeyPatch) -> None:
    references = {
        "Contributed": f"{__name__}:Contributed",
        "Missing": "kubestow.no_such_module:Missing",
        "Misnamed": f"{__name__}:Contributed",
    }
    plugins = [EntryPoint(name, value, "kubestow.contributed_plugins") for name, value in references.items()]
    install(monkeypatch, *plugins)


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


NATIVE = "kubestow.cluster.pods.pod_groups:KUBERNETES"
TEAMS_REFERENCE = "core_tests.scheduling.gangs.groups:TEAMS"


def install_apis(monkeypatch: pytest.MonkeyPatch, references: dict[str, str]) -> None:
    install(monkeypatch, *(EntryPoint(*each, "kubestow.pod_group_apis") for each in references.items()))


def test_pod_group_apis_are_ordered_by_the_names_of_their_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    install_apis(monkeypatch, {"b": f"{__name__}:OTHER", "a": TEAMS_REFERENCE})
    assert find_pod_group_apis() == (TEAMS, OTHER)


@pytest.mark.parametrize(
    ("references", "problem"),
    [
        ({"a": "kubestow.no_such_module:API"}, r"entry point a \(.*\): cannot be loaded: ModuleNotFoundError"),
        ({"a": f"{__name__}:Contributed"}, "entry point a: is not a kubestow.cluster.pods.pod_groups.PodGroupAPI"),
        ({"a": NATIVE}, "entry point a: the pod groups of scheduling.k8s.io are known already"),
        (dict.fromkeys("ab", TEAMS_REFERENCE), "entry point b: the pod groups of example.com are known already"),
    ],
)
def test_a_pod_group_api_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, references: dict[str, str], problem: str
) -> None:
    install_apis(monkeypatch, references)
    with pytest.raises(InputError, match=problem):
        find_pod_group_apis()


NEAREST = {"NodeResourceTopology": "NodeResourcesFit with topology"}


def test_a_package_says_what_comes_nearest_to_a_plugin_of_another_project(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("elsewhere", f"{__name__}:NEAREST", "kubestow.absent_plugins"))
    found = find_plugins()
    assert isinstance(found, registry._LazyRegistry)
    nearest = "elsewhere's NodeResourceTopology is not there; nearest: NodeResourcesFit with topology"
    assert found.absence("NodeResourceTopology") == nearest
    assert found.absence("NodeResourceFit") == 'did you mean "NodeResourcesFit"?'
    assert found.absence("Nothing like it") == ""
