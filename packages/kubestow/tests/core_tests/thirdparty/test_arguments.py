"""Args are decoded into the type that a plugin declares; an error says in one line what does not fit."""

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
from kubestow.testing import PluginHarness


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
    """Records the args it is constructed with."""

    name = "Price"
    Args: ClassVar[type[msgspec.Struct] | None] = PriceArgs
    args_of: list[Any] = []

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.args_of.append(args)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        return np.zeros(len(nodes), np.int64)


class WithoutArgs(Price):
    """Declares no type of args."""

    name = "WithoutArgs"
    Args = None


def args_of(kind: type[Price], *args: Any) -> Any:
    """The args of a plugin constructed with this configuration, or with none."""
    kind.args_of.clear()
    configured = [{"name": kind.name, "args": args[0]}] if args else []
    PluginHarness(plugins=[kind], profile={**enabled(kind), "pluginConfig": configured})
    return kind.args_of[-1]


def enabled(kind: type[Plugin]) -> dict[str, Any]:
    return {"plugins": {"multiPoint": {"enabled": [{"name": kind.name}]}}}


def rejection_message(args: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        args_of(Price, args)
    return str(refused.value)


def test_args_are_decoded_into_the_declared_type() -> None:
    args = args_of(Price, {"perZone": {"zone-a": 3}, "steps": [{"price": 1, "atLeast": 5}]})
    assert args == PriceArgs(per_zone={"zone-a": 3}, steps=[Step(price=1, at_least=5)])


def test_missing_args_have_the_declared_defaults() -> None:
    assert args_of(Price) == args_of(Price, None) == PriceArgs()


def test_the_type_of_the_args_may_be_named_as_kubernetes_does() -> None:
    assert args_of(Price, {"apiVersion": "example.com/v1", "kind": "PriceArgs", "otherwise": 1}).otherwise == 1


def test_args_without_a_declared_type_are_plain_data() -> None:
    assert args_of(WithoutArgs, {"anything": [1, "goes"]}) == {"anything": [1, "goes"]}
    assert args_of(WithoutArgs) is None


def test_a_value_of_the_wrong_type_is_reported_with_profile_plugin_and_path() -> None:
    assert rejection_message({"otherwise": "cheap"}) == (
        'profile "default-scheduler": pluginConfig[0].args.otherwise: plugin Price: expected `int`, got `str`'
    )


def test_a_nested_value_is_reported_with_its_path() -> None:
    assert "pluginConfig[0].args.steps[0].price: plugin Price: expected `int`" in rejection_message(
        {"steps": [{"price": 1.5}]}
    )


def test_all_unknown_fields_are_reported_with_a_suggestion() -> None:
    text = rejection_message({"perzone": {}, "steps": [{"price": 1, "atleast": 2}]})
    assert 'args.perzone: plugin Price: unknown field, did you mean "perZone"?' in text
    assert 'args.steps[0].atleast: plugin Price: unknown field, did you mean "atLeast"?' in text


def test_a_missing_field_is_reported() -> None:
    assert "missing required field `price`" in rejection_message({"steps": [{}]})


def test_a_constraint_of_the_plugin_is_reported_in_its_own_words() -> None:
    assert "otherwise must not be negative" in rejection_message({"otherwise": -1})


def test_args_that_are_not_an_object_are_rejected() -> None:
    assert "expected `object`, got `array`" in rejection_message([1, 2])


class FailsToConstruct(Price):
    """Raises in its constructor."""

    name = "FailsToConstruct"

    def __init__(self, args: Any, handle: Handle) -> None:
        raise RuntimeError("cannot decide")


class RegistersAString(Price):
    """Registers a string in place of an event."""

    name = "RegistersAString"
    events_to_register = ("Node",)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (FailsToConstruct, "RuntimeError: cannot decide"),
        (RegistersAString, "events_to_register holds str, expected EventRegistration"),
    ],
)
def test_a_plugin_that_cannot_be_constructed_is_named(kind: type[Plugin], problem: str) -> None:
    with pytest.raises(PluginError, match=f"plugin '{kind.name}' failed at construction: {problem}"):
        PluginHarness(plugins=[kind], profile=enabled(kind))
