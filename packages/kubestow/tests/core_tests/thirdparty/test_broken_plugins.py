"""A plugin that breaks its contract fails attempts of one pod; the error names plugin and extension point."""

from __future__ import annotations

import logging
from typing import Any, cast

import numpy as np
import pytest

from core_tests.thirdparty.broken import EXTENSION_POINTS, broken, hanging, scores, verdict
from kubestow.framework.interface import Permission, PreFilterResult
from kubestow.framework.status import Code, Status
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

OTHERWISE_TESTED = ("PostFilter", "PostBind")  # see the tests below


def profile(kind: type[Any]) -> dict[str, Any]:
    """A profile with an additional plugin, which binds before the default binder."""
    plugins: dict[str, Any] = {"multiPoint": {"enabled": [{"name": kind.name}]}}
    if "bind" in vars(kind):
        plugins["bind"] = {"enabled": [{"name": kind.name}, {"name": "DefaultBinder"}], "disabled": [{"name": "*"}]}
    return {"schedulerName": "default-scheduler", "plugins": plugins}


def reported_error(world: SchedulerHarness, name: str) -> str:
    """The message of a pod's condition, which is also that of its last warning."""
    condition = world.cluster.condition(name)
    assert condition is not None
    warnings = [e.note for e in world.cluster.events if e.regarding.name == name and e.type == "Warning"]
    assert warnings[-1] == condition.message
    assert condition.reason == "SchedulerError"
    return condition.message or ""


def check_recovery(kind: type[Any], point: str, problem: str) -> None:
    """One pod gets the error and is bound after the plugin is repaired; the other is not affected."""

    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("unlucky", labels={"luck": "none"}))
        world.cluster.put(pod("fine"))
        await world.settle()
        assert (world.node_of("unlucky"), bool(world.node_of("fine"))) == ("", True)
        message = reported_error(world, "unlucky")
        assert "Broken" in message and point in message and problem in message, message
        await world.advance(30)
        attempts = sum(e.regarding.name == "unlucky" for e in world.cluster.events)
        assert 3 <= attempts <= 7  # with backoff: after 1, 2, 4, 8, 10 seconds, rounded up
        kind.repaired = True
        await world.advance(12)
        assert world.node_of("unlucky")

    in_virtual_time(scenario, node("a"), node("b"), plugins=[kind], profiles=[profile(kind)])


def raise_boom(*arguments: Any) -> Any:
    raise ValueError("boom")


@pytest.mark.parametrize("point", [point for point in EXTENSION_POINTS if point not in OTHERWISE_TESTED])
def test_an_exception(point: str) -> None:
    check_recovery(broken(point, raise_boom), point.removesuffix("Node"), "ValueError: boom")


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("PreEnqueue", "a Status or None"),
        ("PreFilter", "a Status, a PreFilterResult or None"),
        ("Filter", "a Verdict or None"),
        ("PreScore", "a Status or None"),
        ("Score", "an array of int64 and shape (2,)"),
        ("NormalizeScore", "an array of int64 and shape (2,)"),
        ("Reserve", "a Status or None"),
        ("Permit", "a Status or None"),
        ("PreBindPreFlight", "a Status or None"),
        ("PreBind", "a Status or None"),
        ("Bind", "a Status or None"),
    ],
)
def test_a_result_of_the_wrong_type(point: str, expected: str) -> None:
    check_recovery(broken(point, lambda *_: 42), point, f"returned int, expected {expected}")


@pytest.mark.parametrize(
    ("point", "answer", "problem"),
    [
        ("Score", lambda _, __, nodes: np.zeros(len(nodes)), "returned an array of float64 and shape (2,)"),
        (
            "Score",
            lambda *_: np.zeros(5, np.int64),
            "returned an array of int64 and shape (5,), expected an array of int64 and shape (2,)",
        ),
        ("Score", scores(101), "returns an invalid score 101, it should in the range of [0, 100]"),
        ("Score", scores(-1), "returns an invalid score -1"),
        ("ScoreNode", lambda *_: 0.5, "returned float for node a, expected a whole number"),
        ("ScoreNode", lambda *_: "high", "returned str for node a, expected a whole number"),
        ("FilterNode", lambda *_: True, "returned bool for node a, expected a Status or None"),
        (
            "PreFilter",
            lambda *_: PreFilterResult(frozenset(cast(Any, [1]))),
            "returned a set with int, expected a frozenset",
        ),
        ("NormalizeScore", lambda *_: np.zeros(1, np.int64), "int64 and shape (1,)"),
        ("NormalizeScore", lambda _, __, given, ___: given + 200, "returns an invalid score 200"),
        ("NormalizeScore", lambda _, __, given, ___: given.fill(1), "read-only"),
        ("Filter", verdict(lambda _: [1, 2], {}), "returned keys of list, expected an array of int32 and shape (2,)"),
        (
            "Filter",
            verdict(lambda nodes: np.ones(len(nodes)), {}),
            "returned keys of an array of float64 and shape (2,)",
        ),
        (
            "Filter",
            verdict(lambda _: np.ones(1, np.int32), {}),
            "int32 and shape (1,), expected an array of int32 and shape (2,)",
        ),
        (
            "Filter",
            verdict(lambda n: np.ones(len(n), np.int32), {}),
            "returned key 1, which is not in its legend",
        ),
        ("Filter", verdict(lambda n: np.ones(len(n), np.int32), {1: Status.error("no")}), "no"),
        (
            "PreFilter",
            lambda *_: PreFilterResult(cast(Any, ["a"])),
            "returned list, expected a frozenset of node names",
        ),
        ("Permit", lambda *_: Permission(Status(Code.WAIT), cast(Any, "5m")), "timeout is str, expected seconds"),
        ("signature", lambda *_: [1], "unhashable type: 'list'"),
    ],
)
def test_an_invalid_result(point: str, answer: Any, problem: str) -> None:
    if problem == "no":  # kube-scheduler's wording, as for an error status of Filter …
        check_recovery(broken(point, answer), "filter plugin", problem)
    elif "invalid score" in problem:  # … and a score that is out of range
        check_recovery(broken(point, answer), "applying score defaultWeights on Score plugins", problem)
    else:
        check_recovery(broken(point, answer), point.removesuffix("Node"), problem)


@pytest.mark.parametrize("point", ["PreBind", "Bind"])
def test_a_hanging_plugin_is_cancelled_after_its_time_limit(point: str) -> None:
    kind = hanging(point)

    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("unlucky", cpu="3"))
        world.cluster.put(pod("fine", cpu="3"))
        await world.advance(29)
        assert (world.node_of("unlucky"), bool(world.node_of("fine"))) == ("", True)
        await world.advance(1.5)
        assert (
            reported_error(world, "unlucky")
            == f'running {point} plugin "Broken": cancelled after its time limit of 30 s'
        )
        kind.repaired = True
        await world.advance(3)
        assert world.node_of("unlucky")

    in_virtual_time(scenario, node("a"), node("b"), plugins=[kind], profiles=[profile(kind)])


def test_a_hanging_plugin_does_not_block_shutdown() -> None:
    kind = hanging("PreBind", time_limit=1000)

    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("unlucky"))
        await world.settle()

    in_virtual_time(scenario, node("a"), plugins=[kind], profiles=[profile(kind)])


@pytest.mark.parametrize("kind", [broken("PostBind", raise_boom), hanging("PostBind")])
def test_a_pod_stays_bound_when_post_bind_fails(kind: type[Any], caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("unlucky"))
        await world.advance(31)
        assert world.node_of("unlucky") == "a"

    in_virtual_time(scenario, node("a"), plugins=[kind], profiles=[profile(kind)])
    assert "plugin 'Broken' failed at PostBind: " in caplog.text


def test_an_error_of_post_filter_replaces_the_rejections() -> None:
    kind = broken("PostFilter", raise_boom)

    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("unlucky", cpu="100"))
        await world.settle()
        assert reported_error(world, "unlucky") == "plugin 'Broken' failed at PostFilter: ValueError: boom"

    in_virtual_time(scenario, node("a"), plugins=[kind], profiles=[first(kind)])


def first(kind: type[Any]) -> dict[str, Any]:
    """A profile with a plugin as the only one at PostFilter."""
    point = {"enabled": [{"name": kind.name}], "disabled": [{"name": "*"}]}
    return {"schedulerName": "default-scheduler", "plugins": {"postFilter": point}}


def test_a_pod_is_retried_when_unreserve_fails(caplog: pytest.LogCaptureFixture) -> None:
    kind = broken("Reserve", lambda *_: Status.error("not yet"))
    kind.unreserve = raise_boom

    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("unlucky"))
        await world.settle()
        kind.repaired = True
        await world.advance(5)
        assert world.node_of("unlucky") == "a"

    in_virtual_time(scenario, node("a"), plugins=[kind], profiles=[profile(kind)])
    assert "plugin 'Broken' failed at Unreserve: ValueError: boom" in caplog.text


def test_the_log_has_the_traceback_of_the_plugin(caplog: pytest.LogCaptureFixture) -> None:
    kind = broken("Filter", raise_boom)

    async def scenario(world: SchedulerHarness) -> None:
        world.cluster.put(pod("unlucky"))
        await world.settle()

    in_virtual_time(scenario, node("a"), plugins=[kind], profiles=[profile(kind)])
    record = next(r for r in caplog.records if r.levelno == logging.ERROR)
    assert record.getMessage() == "pod default/unlucky: plugin 'Broken' failed at Filter: ValueError: boom"
    assert record.exc_info is not None and isinstance(record.exc_info[1], ValueError)
