"""A profile: what is read of its plugins before they are constructed, and how that can fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import ExtensionPoint
from kubestow.errors import ConfigurationError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.gang import Gang, GangPlacementPlugin, GangPlugin, GangSource
from kubestow.framework.interface import Handle, PermitPlugin, Plugin, PreBindPlugin, PreEnqueuePlugin
from kubestow.framework.profile import implements
from kubestow.framework.runtime.plugin_caller import ProfilePlugins
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import PluginHarness


class Step(msgspec.Struct, rename="camel"):
    price: int = 0


class FarmArgs(msgspec.Struct, rename="camel"):
    step: Step | None = None
    steps: tuple[Step, ...] = ()
    by_zone: dict[str, Step] = {}


class Farm(PermitPlugin):
    """Has args with nested structs."""

    name = "Farm"
    Args: ClassVar[type[msgspec.Struct] | None] = FarmArgs
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS


def plugins_of(*kinds: type[Plugin], args: Any = None) -> ProfilePlugins:
    """The plugins of a profile with some of them, the first of which has args."""
    enabled = {"multiPoint": {"enabled": [{"name": kind.name} for kind in kinds]}}
    configured = [{"name": kinds[0].name, "args": args}] if args is not None else []
    harness = PluginHarness(profile={"plugins": enabled, "pluginConfig": configured}, plugins=kinds)
    return harness.profiles["default-scheduler"].runtime.plugins


class Registry(dict[str, type[Plugin]]):
    """Knows why it lacks a plugin, and counts how often each is looked up."""

    def __init__(self, *kinds: type[Plugin]) -> None:
        super().__init__({kind.name: kind for kind in kinds})
        self.looked_up: list[str] = []

    def __getitem__(self, name: str) -> type[Plugin]:
        self.looked_up.append(name)
        return super().__getitem__(name)

    def absence(self, name: str) -> str:
        return f"{name} needs the extra farms"


def test_the_extension_points_of_the_plugins_of_a_registry_are_looked_up_once_when_they_are_read() -> None:
    registry = Registry(Farm)
    found = implements(registry)
    assert (list(found), len(found), "Farm" in found, "Other" in found) == (["Farm"], 1, True, False)
    assert registry.looked_up == []
    for _ in range(2):
        assert found["Farm"] == {ExtensionPoint.PERMIT}
    assert registry.looked_up == ["Farm"]


def test_a_registry_may_know_why_a_plugin_is_absent() -> None:
    known: Any = implements(Registry(Farm))
    assert known.absence("Other") == "Other needs the extra farms"
    plain: Any = implements({Farm.name: Farm})
    assert plain.absence("Other") == ""


class Placing(GangPlacementPlugin):
    """Is enabled at PostFilter, where nothing of it is called."""

    name = "Placing"

    def place_gang(self, gang: Gang, pods: Sequence[PodInfo]) -> Status:
        return SUCCESS


def test_a_plugin_is_not_called_at_extension_points_at_which_it_is_only_named() -> None:
    plugins = plugins_of(Placing)
    assert isinstance(plugins.gang_placement, Placing)
    assert "DefaultPreemption" in {plugin.name for plugin in plugins.post_filter}
    assert not any(isinstance(plugin, Placing) for plugin in plugins.post_filter)
    assert implements({Placing.name: Placing})["Placing"] == {ExtensionPoint.POST_FILTER}


class Refuses(Farm):
    """Cannot be constructed."""

    name = "Refuses"
    error: ClassVar[Exception] = ConfigurationError("farm", [("args", "no fields")])

    def __init__(self, args: Any, handle: Handle) -> None:
        raise self.error


def test_an_error_of_the_configuration_is_that_of_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plugins_of(Refuses)
    assert refused.value is Refuses.error
    monkeypatch.setattr(Refuses, "error", ValueError("no fields"))
    with pytest.raises(PluginError, match="plugin 'Refuses' failed at construction: ValueError: no fields"):
        plugins_of(Refuses)


class RegistersText(Farm):
    """Registers something else than events."""

    name = "RegistersText"
    events_to_register: Any = ("harvest",)


def test_events_are_registrations() -> None:
    with pytest.raises(PluginError, match="events_to_register holds str, expected EventRegistration"):
        plugins_of(RegistersText)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"step": {"prize": 1}}, 'args.step.prize: plugin Farm: unknown field, did you mean "price"?'),
        ({"steps": [{}, {"prize": 1}]}, 'args.steps[1].prize: plugin Farm: unknown field, did you mean "price"?'),
        ({"byZone": {"a": {"x": 1}}}, "args.byZone.a.x: plugin Farm: unknown field"),
        ({"zzz": {}}, "args.zzz: plugin Farm: unknown field"),
        ({"step": 5}, "args.step: plugin Farm: expected `object | null`, got `int`"),
    ],
)
def test_fields_that_args_do_not_declare_are_named_at_any_depth(args: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plugins_of(Farm, args=args)
    assert [f"{path}: {text}" for path, text in refused.value.problems] == [f"pluginConfig[0].{problem}"]


def test_fields_that_args_declare_are_no_problem() -> None:
    given = {"apiVersion": "v1", "kind": "FarmArgs", "step": {"price": 2}, "steps": [{}], "byZone": {"a": {"price": 3}}}
    (plugin,) = plugins_of(Farm, args=given).permit
    assert plugin.args == FarmArgs(Step(2), (Step(),), {"a": Step(3)})
    (plugin,) = plugins_of(Farm, args={"step": None}).permit
    assert plugin.args == FarmArgs()


# -- gangs ---------------------------------------------------------------------------------------------------------


class Defines(GangSource, PreBindPlugin):
    """Defines gangs without gating them."""

    name = "Defines"
    events_to_register = ()

    def gang_of(self, pod: PodInfo) -> None:
        return None

    def pre_bind(self, *arguments: Any) -> None:
        return None


class AlsoDefines(Defines):
    name = "AlsoDefines"


class Gates(GangPlugin, PreEnqueuePlugin):
    """Defines gangs and gates them."""

    name = "Gates"
    events_to_register = ()

    def gang_of(self, pod: PodInfo) -> None:
        return None

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return SUCCESS


@pytest.mark.parametrize(
    ("kinds", "source"),
    [((Defines, Gates), "Gates"), ((Gates, Defines), "Gates"), ((Defines, AlsoDefines), "Defines"), ((), None)],
)
def test_gangs_are_defined_by_the_first_plugin_that_gates_them_too(
    kinds: tuple[type[Plugin], ...], source: str | None
) -> None:
    names = [{"name": name} for name in ("PrioritySort", *(kind.name for kind in kinds), "DefaultBinder")]
    enabled = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": names}}
    harness = PluginHarness(profile={"plugins": enabled}, plugins=kinds)
    found = harness.profiles["default-scheduler"].runtime.plugins.gang_source
    assert (None if found is None else found.name) == source
