"""The contract checker lets good plugins pass and says in plain words what is wrong with the others."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import (
    FilterPlugin,
    Handle,
    NodeFilterPlugin,
    NodeScorePlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    ScorePlugin,
)
from kubestow.framework.status import Code, Status, Verdict
from kubestow.plugins import IN_TREE
from kubestow.testing import check_plugin, node, pod

Scores = NDArray[np.int64]
DISK = "disk"


def problem(kind: type[Plugin], **material: Any) -> str:
    """What the checker has against a plugin."""
    with pytest.raises(AssertionError) as found:
        check_plugin(kind, **material)
    return str(found.value)


@pytest.mark.parametrize("kind", IN_TREE, ids=lambda kind: kind.name)
def test_the_plugins_of_this_package_keep_their_contract(kind: type[Plugin]) -> None:
    check_plugin(kind, events=40)


class OnDisk(FilterPlugin, ScorePlugin):
    """Wants the disk that the pod's label names; remembered, and woken by what matters."""

    name = "OnDisk"
    events_to_register = (on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),)

    def signature(self, pod: PodInfo) -> Hashable | None:
        return pod.labels.get("app", "")

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        refused = nodes.by_label(DISK, lambda disk: disk == "hdd" and "app" in pod.labels, np.bool_)
        return Verdict.rejecting(refused, Status.unschedulable("slow disk"))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.by_label(DISK, lambda disk: 100 if disk == "ssd" else 0)


class Strict(msgspec.Struct):
    limit: int


class OnePerNode(NodeFilterPlugin, NodeScorePlugin):
    """Written for one node at a time, with args."""

    name = "OnePerNode"
    Args = Strict

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status | None:
        return Status.unschedulable("too many pods") if len(pods) >= self.args.limit else None

    def score_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> int:
        return max(0, 100 - len(pods))


def test_a_good_plugin_passes() -> None:
    check_plugin(OnDisk)
    check_plugin(OnDisk, nodes=[node("a", labels={DISK: "ssd"}), node("b")], pods=[pod("p"), pod("q", node="a")])


def test_a_good_plugin_for_one_node_at_a_time_passes() -> None:
    check_plugin(OnePerNode, args={"limit": 2})
    check_plugin(OnePerNode, args=Strict(limit=1))


class Deaf(OnDisk):
    name = "Deaf"
    events_to_register = (on(EventResource.NODE, Action.ADD),)


class TooGeneral(OnDisk):
    name = "TooGeneral"

    def signature(self, pod: PodInfo) -> Hashable | None:
        return "always the same"


@pytest.mark.parametrize("kind", [Deaf, TooGeneral])
def test_answers_that_are_remembered_wrongly_are_found(kind: type[Plugin]) -> None:
    found = problem(kind)
    assert found.startswith(f"plugin '{kind.name}' at ")
    assert re.search(r": (feasible|rejected \(.*\)|score \d+) in the cache, but ", found)
    assert "register for the event" in found


class LooksPastTheView(FilterPlugin):
    name = "LooksPastTheView"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        crowded = self.handle.cluster.all_nodes().pod_count[nodes.row_numbers] > 1
        return Verdict.rejecting(crowded, Status.unschedulable("crowded"))


def test_a_filter_that_looks_past_imagined_changes_is_found() -> None:
    found = problem(LooksPastTheView)
    assert found.startswith("plugin 'LooksPastTheView' at Filter, pod ")
    assert "read pods through the view, not the cluster" in found


class ComparesNodes(FilterPlugin, ScorePlugin):
    name = "ComparesNodes"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        cpu = nodes.allocatable("cpu")
        return Verdict.rejecting(cpu < cpu.max(initial=0), Status.unschedulable("not the largest"))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.arange(len(nodes))


class ComparesScores(ComparesNodes):
    name = "ComparesScores"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Any:
        return None


def test_answers_that_depend_on_the_other_rows_are_found() -> None:
    assert re.search("at Filter, pod default/nothing: node .*: feasible in a view of ", problem(ComparesNodes))
    assert re.search("at Score, pod default/nothing: node .*: 0 in a view of ", problem(ComparesScores))


class NormalizesByPlace(OnDisk):
    name = "NormalizesByPlace"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return np.arange(len(scores))


class NormalizesTooFar(NormalizesByPlace):
    name = "NormalizesTooFar"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return scores * 2


def test_wrongly_normalised_scores_are_found() -> None:
    assert "declare scores_feasible_set = True" in problem(NormalizesByPlace)
    assert "returns an invalid score 200" in problem(NormalizesTooFar)


class NotesOnNodes(NodeFilterPlugin):
    name = "NotesOnNodes"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> None:
        node.metadata.labels["seen"] = "yes"


class NotesOnPods(PreFilterPlugin):
    name = "NotesOnPods"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        pod.labels["seen"] = "yes"


class Deletes(ScorePlugin):
    name = "Deletes"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        for info in nodes.pods(0):
            self.handle.cluster.remove_pod(info.uid)
        return np.zeros(len(nodes), np.int64)


@pytest.mark.parametrize(
    ("kind", "point", "part"),
    [
        (NotesOnNodes, "Filter", "the nodes"),
        (NotesOnPods, "PreFilter", "the pod"),
        (Deletes, "Score", "the pods on nodes"),
    ],
)
def test_a_plugin_that_leaves_traces_is_found(kind: type[Plugin], point: str, part: str) -> None:
    assert problem(kind) == f"plugin '{kind.name}' failed at {point}: changed {part}, which is read-only"


class ByName(OnDisk):
    name = "ByName"

    def signature(self, pod: PodInfo) -> Hashable | None:
        return pod.name


class Choosy(OnDisk):
    name = "Choosy"

    def applies_to(self, pod: PodInfo) -> bool:
        return pod.name != "twin"


def test_a_signature_or_concern_that_tells_copies_apart_is_found() -> None:
    assert "plugin 'ByName' at signature, pod default/nothing: a copy" in problem(ByName)
    assert "plugin 'Choosy' at applies_to, pod default/nothing: the result differs for a copy" in problem(Choosy)


class NotAVerdict(OnDisk):
    name = "NotAVerdict"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Any:
        return np.ones(len(nodes), np.bool_)


class SkipsNodes(NodeFilterPlugin):
    name = "SkipsNodes"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status:
        return Status(Code.SKIP)


def test_answers_of_the_wrong_form_are_found() -> None:
    assert problem(NotAVerdict) == (
        "plugin 'NotAVerdict' failed at Filter: returned ndarray, expected a Verdict or None"
    )
    assert problem(SkipsNodes) == "plugin 'SkipsNodes' failed at Filter: returned Skip: "


class LeavesForGood(PreBindPlugin):
    name = "LeavesForGood"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.time_limit = 20.0

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        import asyncio

        await asyncio.sleep(3600)


class Stumbles(PostBindPlugin):
    name = "Stumbles"

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        raise LookupError("whom to tell?")


def test_what_goes_wrong_while_binding_is_found() -> None:
    assert "LeavesForGood" in problem(LeavesForGood)
    assert "cancelled after its time limit of 20 s" in problem(LeavesForGood)
    assert problem(Stumbles).endswith("plugin 'Stumbles' failed at PostBind: LookupError: whom to tell?")
