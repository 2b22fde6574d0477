"""The runtime of gangs: what it asks of which plugin, and what it makes of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import (
    Gang,
    GangOutcome,
    GangPlacementPlugin,
    GangPlugin,
    GangPreemptionPlugin,
    GangSource,
    Placement,
    PlacementGeneratePlugin,
    Segments,
)
from kubestow.framework.interface import Plugin, PostFilterPlugin, PostFilterResult, PreEnqueuePlugin
from kubestow.framework.runtime.gang_runtime import GangRuntime
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.testing import PluginHarness, node, pod

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"


class GangObserver(PluginObserver):
    """Records the calls of plugins and the ends of attempts at gangs."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.attempts: list[tuple[str, float, float | None]] = []

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        self.calls.append((plugin, extension_point))

    def gang_attempt_ended(self, outcome: str, seconds: float, *, deciding: float | None) -> None:
        self.attempts.append((outcome, seconds, deciding))


def gang_runtime(*plugins: type[Plugin], observer: PluginObserver | None = None, now: float = 0.0) -> GangRuntime:
    """The runtime of a profile with no plugins but these, and those that every profile needs."""
    names = ["PrioritySort", *(plugin.name for plugin in plugins), "DefaultBinder"]
    enabled = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}}
    profile = PluginHarness(profile={"plugins": enabled}, plugins=plugins).profiles["default-scheduler"]
    return GangRuntime(profile.runtime.plugins, monotonic=lambda: now, observer=observer)


def fails(*arguments: Any) -> Any:
    raise ValueError("boom")


def plugin_with(*bases: type[Plugin], name: str = "Gangs", **methods: Callable[..., Any]) -> type[Any]:
    """A plugin with these methods; those that it lacks return None."""
    abstract = {method for base in bases for method in base.__abstractmethods__}
    rest = {method: lambda self, *arguments: None for method in abstract}
    return type(name, bases, {"name": name, "events_to_register": ()} | rest | methods)


class OfGang(PreEnqueuePlugin):
    """Makes a GangSource a plugin that a configuration can enable, without gating any pod."""

    def pre_enqueue(self, pod: PodInfo) -> Status:
        raise AssertionError("only plugins that define gangs and gate them are asked as such")


HARNESS = PluginHarness(
    [
        node("a1", zone="a", labels={RACK: "1"}),
        node("a2", zone="a", labels={RACK: "2"}),
        node("b1", zone="b", labels={RACK: "1"}),
        node("b2", zone="b", labels={RACK: "2"}),
        node("nowhere", labels={RACK: "1"}),
    ]
)
CLUSTER = HARNESS.cluster


def members_of(*names: str, placed: Sequence[str] = ()) -> Members:
    """Ready members of a gang, some of them placed."""
    members = Members({f"uid-default-{name}": None for name in placed}.keys())
    for name in names:
        members.put(HARNESS.info(pod(name)))
    return members


GANG = Gang("g", "uid", 1, 1.0, members_of("p", "q"))
PODS = list(GANG.members.pods.values())


# -- failures and results ------------------------------------------------------------------------------------------


def test_pre_enqueue_asks_a_plugin_that_can_gate_the_pod() -> None:
    info = PODS[0]
    refuses = plugin_with(GangPlugin, pre_enqueue=lambda self, pod: Status.unschedulable("too few"))
    assert gang_runtime(refuses).run_gang_pre_enqueue(info) == Status.unschedulable("too few").by("Gangs")
    broken = gang_runtime(plugin_with(GangPlugin, pre_enqueue=fails)).run_gang_pre_enqueue(info)
    assert (broken.code, broken.plugin, broken.message) == (Code.ERROR, "Gangs", "ValueError: boom")
    cannot = plugin_with(GangPlugin, pre_enqueue=fails, may_gate=lambda self, pod: False)
    assert gang_runtime(cannot).run_gang_pre_enqueue(info) is SUCCESS
    assert gang_runtime(plugin_with(GangSource, OfGang)).run_gang_pre_enqueue(info) is SUCCESS
    assert gang_runtime().run_gang_pre_enqueue(info) is SUCCESS


def test_the_end_of_an_attempt_is_reported_to_the_observer_and_to_the_plugin(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[tuple[Gang, GangOutcome, str]] = []
    observer = GangObserver()
    kind = plugin_with(GangPlugin, attempt_ended=lambda self, *arguments: ended.append(arguments))
    runtime = gang_runtime(kind, observer=observer, now=5.0)
    runtime.gang_attempt_ended(GANG, GangOutcome.SCHEDULED, "", began=1.0, decided=3.5)
    runtime.gang_attempt_ended(GANG, GangOutcome.ERROR, "no", began=4.0, decided=None)
    assert observer.attempts == [("scheduled", 4.0, 2.5), ("error", 1.0, None)]
    assert ended == [(GANG, GangOutcome.SCHEDULED, ""), (GANG, GangOutcome.ERROR, "no")]
    gang_runtime(kind).gang_attempt_ended(GANG, GangOutcome.ERROR, "unobserved", began=4.0, decided=None)
    assert ended[2:] == [(GANG, GangOutcome.ERROR, "unobserved")]
    gang_runtime(observer=observer).gang_attempt_ended(GANG, GangOutcome.ERROR, "no", began=0.0, decided=None)
    assert observer.attempts[2:] == [("error", 0.0, None)], "in a profile that defines no gangs"
    failing = gang_runtime(plugin_with(GangPlugin, attempt_ended=fails), observer=observer)
    failing.gang_attempt_ended(GANG, GangOutcome.SCHEDULED, "", began=0.0, decided=0.0)
    assert caplog.messages == ["plugin 'Gangs' failed at Concluded: ValueError: boom"]


class Preempting(PostFilterPlugin, GangPreemptionPlugin):
    """Preempts for pods and gangs."""

    def post_filter(self, *arguments: Any) -> PostFilterResult:
        return PostFilterResult(Status.unschedulable())


def test_a_failure_names_the_extension_point_of_gangs(caplog: pytest.LogCaptureFixture) -> None:
    methods: dict[str, Any] = dict.fromkeys(
        ("gang_of", "preempts_as_a_whole", "evictable_units", "place_gang", "placements"), fails
    )
    kinds = (GangPlugin, Preempting, GangPlacementPlugin, PlacementGeneratePlugin)
    observer = GangObserver()
    runtime = gang_runtime(plugin_with(*kinds, **methods), observer=observer)
    calls: dict[str, Callable[[], Any]] = {
        "GangOf": lambda: runtime.gang_of(PODS[0]),
        "PodGroupPostFilter": lambda: runtime.evictable_units(GANG, PODS),
        "PlaceGang": lambda: runtime.place_gang(GANG, PODS),
        "PlacementGenerate": lambda: runtime.generate_placements(GANG, PODS, CLUSTER),
    }
    for point, call in calls.items():
        with pytest.raises(PluginError, match=f"plugin 'Gangs' failed at {point}: ValueError: boom"):
            call()
    assert runtime.preempts_as_a_whole(GANG) is False
    assert caplog.messages == ["plugin 'Gangs' failed at PreemptsFor: ValueError: boom"]
    assert observer.calls == [("Gangs", point) for point in (*calls, "PreemptsFor")]


def test_preemption_for_a_gang_is_what_its_plugin_says() -> None:
    for answer, expected in ((True, True), (False, False), (None, False), ("yes", True)):
        kind = plugin_with(Preempting, preempts_as_a_whole=lambda self, gang, answer=answer: answer)
        assert gang_runtime(kind).preempts_as_a_whole(GANG) is expected
    assert gang_runtime().preempts_as_a_whole(GANG) is False


@pytest.mark.parametrize("nonsense", [None, 5])
def test_the_pods_to_evict_are_units_or_a_status(nonsense: Any) -> None:
    waits = Status(Code.PENDING, ("victims are terminating",))
    kind = plugin_with(Preempting, evictable_units=lambda self, gang, pods: waits)
    assert gang_runtime(kind).evictable_units(GANG, PODS) == waits
    kind = plugin_with(Preempting, evictable_units=lambda self, gang, pods: nonsense)
    problem = f"PodGroupPostFilter: returned {type(nonsense).__name__}, expected Evictable or a Status"
    with pytest.raises(PluginError, match=problem):
        gang_runtime(kind).evictable_units(GANG, PODS)


def test_nodes_found_for_a_gang_are_those_of_its_plugin() -> None:
    found: Any = None
    kind = plugin_with(GangPlacementPlugin, PostFilterPlugin, place_gang=lambda self, gang, pods: found)
    runtime = gang_runtime(kind)
    assert runtime.place_gang(GANG, PODS) == SUCCESS.by("Gangs")
    found = [(PODS[0], "a1")]
    assert runtime.place_gang(GANG, PODS) == found
    found = []
    assert runtime.place_gang(GANG, PODS) is SUCCESS
    found = Status.unschedulable("no")
    assert runtime.place_gang(GANG, PODS) == Status.unschedulable("no").by("Gangs")
    assert gang_runtime().place_gang(GANG, PODS) is SUCCESS


# -- domains and segments ------------------------------------------------------------------------------------------


def nodes_named(*names: str) -> Nodes:
    numbers = [CLUSTER.nodes.rows[name] for name in names]
    return CLUSTER.some_nodes(numbers)


class Listed(PlacementGeneratePlugin):
    """Lists the placements that a test sets."""

    name = "Listed"
    listed: Sequence[Placement] | None = None

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | None:
        return self.listed


def described(placements: Any) -> dict[str, list[str]]:
    return {placement.name: list(placement.nodes.names) for placement in placements}


def test_a_gang_with_a_level_is_placed_in_one_of_its_domains() -> None:
    of_zone = replace(GANG, level=ZONE)
    placements = gang_runtime().generate_placements(of_zone, PODS, CLUSTER)
    assert described(placements) == {"a": ["a1", "a2"], "b": ["b1", "b2"]}
    within = gang_runtime().generate_placements(of_zone, PODS, CLUSTER, nodes_named("a2", "nowhere"))
    assert described(within) == {"a": ["a2"]}
    without = gang_runtime().generate_placements(of_zone, PODS, CLUSTER, nodes_named("nowhere"))
    assert without == Status.unschedulable("no feasible placements found")
    assert gang_runtime().generate_placements(GANG, PODS, CLUSTER) is None


def test_the_domains_within_placements_have_the_names_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [Placement("left", nodes_named("a1", "b1", "nowhere")), Placement("right", nodes_named("b2"))]
    monkeypatch.setattr(Listed, "listed", listed)
    runtime = gang_runtime(Listed)
    assert described(runtime.generate_placements(GANG, PODS, CLUSTER)) == {
        "left": ["a1", "b1", "nowhere"],
        "right": ["b2"],
    }
    assert described(runtime.generate_placements(replace(GANG, level=ZONE), PODS, CLUSTER)) == {
        "left/a": ["a1"],
        "left/b": ["b1"],
        "right/b": ["b2"],
    }


def cluster_with(**placed: str) -> PluginHarness:
    """The same nodes, with pods (their nodes by name)."""
    return PluginHarness(CLUSTER.nodes.objects, [pod(name, node=where) for name, where in placed.items()])


@pytest.mark.parametrize(
    ("placed", "zones"),
    [
        ({}, ["a", "b"]),
        ({"p": "b1"}, ["b"]),
        ({"p": "b1", "q": "b2"}, ["b"]),
        ({"p": "a1", "q": "b1"}, None),
        ({"p": "nowhere"}, None),
        ({"p": "gone"}, None),
    ],
)
def test_the_domain_of_a_gang_is_that_of_its_members_that_have_nodes(
    placed: dict[str, str], zones: list[str] | None
) -> None:
    cluster = cluster_with(**placed).cluster
    gang = replace(GANG, level=ZONE, members=members_of("p", "q", "r", placed=list(placed)))
    found = gang_runtime().generate_placements(gang, PODS, cluster)
    if zones is None:
        assert found == Status.unschedulable("no feasible placements found")
    else:
        assert list(described(found)) == zones


def test_there_is_no_placement_outside_the_domain_of_the_members_that_have_nodes() -> None:
    gang, cluster = replace(GANG, level=ZONE, members=members_of("p", "q", placed="p")), cluster_with(p="b1").cluster
    within = cluster.some_nodes([cluster.nodes.rows["a1"], cluster.nodes.rows["a2"]])
    found = gang_runtime().generate_placements(gang, PODS, cluster, within)
    assert found == Status.unschedulable("no feasible placements found")


def respects_terms(gang: Gang, runtime: GangRuntime | None = None, /, *, cluster: Any = CLUSTER, **nodes: str) -> bool:
    by_uid = {f"uid-default-{name}": where for name, where in nodes.items()}
    return (runtime or gang_runtime()).respects_terms(gang, by_uid, cluster)


def test_members_in_one_domain_respect_a_level() -> None:
    gang = replace(GANG, level=ZONE)
    assert respects_terms(gang, p="b1", q="b2")
    assert respects_terms(gang, p="b1")
    assert not respects_terms(gang, p="a1", q="b2")
    assert not respects_terms(gang, p="nowhere")
    assert respects_terms(gang), "none of them gets a node"
    assert respects_terms(GANG, p="a1", q="b2")


def test_members_of_each_gang_of_a_tree_are_in_one_domain() -> None:
    children = tuple(replace(GANG, name=name, level=RACK, members=members_of(name)) for name in "pq")
    pair = replace(GANG, name="pq", level=RACK)
    tree = replace(GANG, level=ZONE, children=children)
    assert respects_terms(tree, p="a1", q="a2")
    assert not respects_terms(tree, p="a1", q="b2")
    assert not respects_terms(replace(tree, children=(pair,)), p="a1", q="a2")
    assert respects_terms(replace(tree, level="", children=(pair,)), p="a1", q="b1")


def test_members_in_one_placement_respect_the_terms_of_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Listed, "listed", [Placement("left", nodes_named("a1", "b1")), Placement("r", nodes_named("b2"))]
    )
    runtime = gang_runtime(Listed)
    assert respects_terms(GANG, runtime, p="a1", q="b1")
    assert not respects_terms(GANG, runtime, p="a1", q="b2")
    monkeypatch.setattr(Listed, "listed", [])
    assert not respects_terms(GANG, runtime, p="a1")


def test_members_are_in_whole_segments_together_with_those_that_have_nodes() -> None:
    gang = replace(GANG, segments=Segments(ZONE, 2))
    assert respects_terms(gang, p="a1", q="a2")
    assert not respects_terms(gang, p="a1", q="b1")
    assert not respects_terms(gang, p="a1")
    assert not respects_terms(gang, p="nowhere", q="nowhere")
    with_node = replace(gang, members=members_of("p", "q", "r", placed=["r"]))
    cluster = cluster_with(r="b2").cluster
    assert respects_terms(with_node, p="b1", cluster=cluster)
    assert not respects_terms(with_node, p="a1", cluster=cluster)
    gone = cluster_with(r="gone").cluster
    assert not respects_terms(with_node, p="b1", cluster=gone)


def test_a_member_that_has_left_its_node_counts_for_no_domain() -> None:
    left = members_of("p", "q", "r", placed=["r"])
    assert respects_terms(replace(GANG, level=ZONE, members=left), p="a1", q="a2")
    assert respects_terms(replace(GANG, segments=Segments(ZONE, 2), members=left), p="a1", q="a2")
