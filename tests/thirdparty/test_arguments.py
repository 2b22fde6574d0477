"""A plugin's args arrive in the type it declares, or somebody is told in one line what does not fit."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ConfigurationError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Handle, Plugin, ScorePlugin
from kubestow.testing import World


class Step(msgspec.Struct, rename="camel"):
    price: int
    at_least: int = 0


class PriceArgs(msgspec.Struct, rename="camel"):
    per_zone: dict[str, int] = {}
    steps: list[Step] = []
    otherwise: int = 50

    def __post_init__(self) -> None:
        if self.otherwise < 0:
            raise ValueError("otherwise must not be negative")


class Price(ScorePlugin):
    """Keeps the args it was made with."""

    name = "Price"
    Args: ClassVar[type[msgspec.Struct] | None] = PriceArgs
    made_with: list[Any] = []

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.made_with.append(args)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        return np.zeros(len(nodes), np.int64)


class Careless(Price):
    """Declares nothing."""

    name = "Careless"
    Args = None


def made_with(kind: type[Price], *args: Any) -> Any:
    """What a plugin gets when its args are written down, or nothing is."""
    kind.made_with.clear()
    configured = [{"name": kind.name, "args": args[0]}] if args else []
    World(plugins=[kind], profile={**enabled(kind), "pluginConfig": configured})
    return kind.made_with[-1]


def enabled(kind: type[Plugin]) -> dict[str, Any]:
    return {"plugins": {"multiPoint": {"enabled": [{"name": kind.name}]}}}


def refusal(args: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        made_with(Price, args)
    return str(refused.value)


def test_declared_args_arrive_in_their_type() -> None:
    args = made_with(Price, {"perZone": {"zone-a": 3}, "steps": [{"price": 1, "atLeast": 5}]})
    assert args == PriceArgs(per_zone={"zone-a": 3}, steps=[Step(price=1, at_least=5)])


def test_declared_args_that_are_not_given_have_their_defaults() -> None:
    assert made_with(Price) == made_with(Price, None) == PriceArgs()


def test_the_type_of_the_args_may_be_named_as_kubernetes_does() -> None:
    assert made_with(Price, {"apiVersion": "example.com/v1", "kind": "PriceArgs", "otherwise": 1}).otherwise == 1


def test_undeclared_args_arrive_as_they_were_written() -> None:
    assert made_with(Careless, {"anything": [1, "goes"]}) == {"anything": [1, "goes"]}
    assert made_with(Careless) is None


def test_a_value_of_the_wrong_type_is_told_with_profile_plugin_and_path() -> None:
    assert refusal({"otherwise": "cheap"}) == (
        'profile "default-scheduler": pluginConfig[0].args.otherwise: plugin Price: expected `int`, got `str`'
    )


def test_a_value_deep_inside_is_told_with_its_path() -> None:
    assert "pluginConfig[0].args.steps[0].price: plugin Price: expected `int`" in refusal({"steps": [{"price": 1.5}]})


def test_unknown_fields_are_told_all_at_once_with_what_was_probably_meant() -> None:
    text = refusal({"perzone": {}, "steps": [{"price": 1, "atleast": 2}]})
    assert 'args.perzone: plugin Price: unknown field, did you mean "perZone"?' in text
    assert 'args.steps[0].atleast: plugin Price: unknown field, did you mean "atLeast"?' in text


def test_a_missing_field_is_told() -> None:
    assert "missing required field `price`" in refusal({"steps": [{}]})


def test_a_rule_of_the_plugin_is_told_as_it_says_it() -> None:
    assert "otherwise must not be negative" in refusal({"otherwise": -1})


def test_args_that_are_no_object_are_refused() -> None:
    assert "expected `object`, got `array`" in refusal([1, 2])


class Undecided(Price):
    """Cannot be made."""

    name = "Undecided"

    def __init__(self, args: Any, handle: Handle) -> None:
        raise RuntimeError("cannot decide")


class WronglyInterested(Price):
    """Declares an interest as a word."""

    name = "WronglyInterested"
    events_to_register = ("Node",)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Undecided, "RuntimeError: cannot decide"),
        (WronglyInterested, "events_to_register holds str, expected EventRegistration"),
    ],
)
def test_a_plugin_that_cannot_be_made_is_named(kind: type[Plugin], problem: str) -> None:
    with pytest.raises(PluginError, match=f"plugin '{kind.name}' failed at construction: {problem}"):
        World(plugins=[kind], profile=enabled(kind))
