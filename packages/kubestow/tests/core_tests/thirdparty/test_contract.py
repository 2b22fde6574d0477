"""The contract checker passes good plugins and explains what is wrong with others."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.node_info import NodeInfo
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
    """The problem that the checker finds with a plugin."""
    with pytest.raises(AssertionError) as found:
        check_plugin(kind, **material)
    return str(found.value)


@pytest.mark.parametrize("kind", IN_TREE, ids=lambda kind: kind.name)
def test_in_tree_plugins_satisfy_the_contract(kind: type[Plugin]) -> None:
    check_plugin(kind, events=40)


class OnDisk(FilterPlugin, ScorePlugin):
    """Rejects slow disks for pods of an app; cached, and registered for the right events."""

    name = "OnDisk"
    events_to_register = (on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),)

    def signature(self, pod: PodInfo) -> Hashable | None:
        return pod.labels.get("app", "")

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        rejected = nodes.by_label(DISK, lambda disk: disk == "hdd" and "app" in pod.labels, np.bool_)
        return Verdict.rejecting(rejected, Status.unschedulable("slow disk"))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.by_label(DISK, lambda disk: 100 if disk == "ssd" else 0)


class Strict(msgspec.Struct):
    limit: int


class OnePerNode(NodeFilterPlugin, NodeScorePlugin):
    """A per-node plugin with args."""

    name = "OnePerNode"
    Args = Strict

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status | None:
        return Status.unschedulable("too many pods") if len(node_info.pods) >= self.args.limit else None

    def score_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> int:
        return max(0, 100 - len(node_info.pods))


def test_a_good_plugin_passes() -> None:
    check_plugin(OnDisk)
    check_plugin(OnDisk, nodes=[node("a", labels={DISK: "ssd"}), node("b")], pods=[pod("p"), pod("q", node="a")])


def test_a_good_per_node_plugin_passes() -> None:
    check_plugin(OnePerNode, args={"limit": 2})
    check_plugin(OnePerNode, args=Strict(limit=1))


class RegistersTooLittle(OnDisk):
    name = "RegistersTooLittle"
    events_to_register = (on(EventResource.NODE, Action.ADD),)


class SignatureTooBroad(OnDisk):
    name = "SignatureTooBroad"

    def signature(self, pod: PodInfo) -> Hashable | None:
        return "always the same"


@pytest.mark.parametrize("kind", [RegistersTooLittle, SignatureTooBroad])
def test_stale_cached_results_are_found(kind: type[Plugin]) -> None:
    found = problem(kind)
    assert found.startswith(f"plugin '{kind.name}' at ")
    assert re.search(r": (feasible|rejected \(.*\)|score \d+) in the cache, but ", found)
    assert "register for the event" in found


class ReadsPastTheView(FilterPlugin):
    name = "ReadsPastTheView"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        crowded = self.handle.cluster.all_nodes().pod_count[nodes.row_numbers] > 1
        return Verdict.rejecting(crowded, Status.unschedulable("crowded"))


def test_a_filter_that_ignores_hypothetical_changes_is_found() -> None:
    found = problem(ReadsPastTheView)
    assert found.startswith("plugin 'ReadsPastTheView' at Filter, pod ")
    assert "read pods through the view, not the cluster" in found


class ScoresPastTheView(ScorePlugin):
    name = "ScoresPastTheView"
    scores_hypothetical_nodes = True

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.minimum(self.handle.cluster.all_nodes().pod_count[nodes.row_numbers], 100)


class ScoresTheActualPods(ScoresPastTheView):
    name = "ScoresTheActualPods"
    scores_hypothetical_nodes = False


def test_a_score_that_ignores_hypothetical_changes_is_found_if_it_declares_otherwise() -> None:
    found = problem(ScoresPastTheView)
    assert found.startswith("plugin 'ScoresPastTheView' at Score, pod ")
    assert "read pods through the view, not the cluster" in found
    check_plugin(ScoresTheActualPods, events=20)


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


def test_results_that_depend_on_the_other_rows_are_found() -> None:
    assert re.search("at Filter, pod default/nothing: node .*: feasible in a view of ", problem(ComparesNodes))
    assert re.search("at Score, pod default/nothing: node .*: 0 in a view of ", problem(ComparesScores))


class NormalizesByPosition(OnDisk):
    name = "NormalizesByPosition"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return np.arange(len(scores))


class NormalizesTooFar(NormalizesByPosition):
    name = "NormalizesTooFar"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return scores * 2


def test_wrongly_normalized_scores_are_found() -> None:
    assert "declare scores_feasible_set = True" in problem(NormalizesByPosition)
    assert "returns an invalid score 200" in problem(NormalizesTooFar)


class WritesToNodes(NodeFilterPlugin):
    name = "WritesToNodes"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> None:
        node_info.node.metadata.labels["seen"] = "yes"


class WritesToPods(PreFilterPlugin):
    name = "WritesToPods"

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
        (WritesToNodes, "Filter", "the nodes"),
        (WritesToPods, "PreFilter", "the pod"),
        (Deletes, "Score", "the pods on nodes"),
    ],
)
def test_side_effects_are_found(kind: type[Plugin], point: str, part: str) -> None:
    assert problem(kind) == f"plugin '{kind.name}' failed at {point}: changed {part}, which is read-only"


class ByName(OnDisk):
    name = "ByName"

    def signature(self, pod: PodInfo) -> Hashable | None:
        return pod.name


class AppliesByName(OnDisk):
    name = "AppliesByName"

    def applies_to(self, pod: PodInfo) -> bool:
        return pod.name != "twin"


def test_a_signature_that_differs_between_copies_of_a_pod_is_found() -> None:
    assert "plugin 'ByName' at signature, pod default/nothing: a copy" in problem(ByName)
    assert "plugin 'AppliesByName' at applies_to, pod default/nothing: the result differs for a copy" in problem(
        AppliesByName
    )


class ByUndeclaredLabel(OnDisk):
    name = "ByUndeclaredLabel"
    label_keys = ("disk",)

    def signature(self, pod: PodInfo) -> Hashable | None:
        return tuple(sorted(pod.labels.items()))


def test_a_signature_that_depends_on_labels_that_the_plugin_does_not_name_is_found() -> None:
    assert "plugin 'ByUndeclaredLabel' at label_keys, pod default/nothing: the result differs for a pod" in problem(
        ByUndeclaredLabel
    )


class ByUndeclaredRequests(OnDisk):
    """Applies by the requests of a pod, and declares that it does not read them."""

    name = "ByUndeclaredRequests"
    reads_requests = False

    def applies_to(self, pod: PodInfo) -> bool:
        return pod.requests.get("cpu", 0) > 3


class ByUndeclaredVolumes(OnDisk):
    """Applies by the volumes of a pod, and declares that it does not read them."""

    name = "ByUndeclaredVolumes"
    reads_volumes = False

    def applies_to(self, pod: PodInfo) -> bool:
        return not pod.spec.volumes


@pytest.mark.parametrize(
    ("kind", "declaration"), [(ByUndeclaredRequests, "reads_requests"), (ByUndeclaredVolumes, "reads_volumes")]
)
def test_a_plugin_that_reads_what_it_declares_not_to_read_is_found(kind: type[Plugin], declaration: str) -> None:
    with pytest.raises(AssertionError, match=declaration):
        check_plugin(kind, pods=[pod("p", cpu="1")])


class NotAVerdict(OnDisk):
    name = "NotAVerdict"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Any:
        return np.ones(len(nodes), np.bool_)


class SkipsNodes(NodeFilterPlugin):
    name = "SkipsNodes"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status:
        return Status(Code.SKIP)


def test_results_of_the_wrong_type_are_found() -> None:
    assert problem(NotAVerdict) == (
        "plugin 'NotAVerdict' failed at Filter: returned ndarray, expected a Verdict or None"
    )
    assert problem(SkipsNodes) == "plugin 'SkipsNodes' failed at Filter: returned Skip: "


class NeverReturns(PreBindPlugin):
    name = "NeverReturns"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.time_limit = 20.0

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        import asyncio

        await asyncio.sleep(3600)


class FailsAfterBinding(PostBindPlugin):
    name = "FailsAfterBinding"

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        raise LookupError("no address")


def test_failures_of_the_binding_cycle_are_found() -> None:
    assert "NeverReturns" in problem(NeverReturns)
    assert "cancelled after its time limit of 20 s" in problem(NeverReturns)
    assert problem(FailsAfterBinding).endswith("plugin 'FailsAfterBinding' failed at PostBind: LookupError: no address")


def test_a_hint_that_requeues_pods_without_a_key_of_the_event_is_found() -> None:
    class Zoned(FilterPlugin):
        name = "Zoned"

        def __init__(self, args: Any, handle: Handle) -> None:
            super().__init__(args, handle)
            self.events_to_register = (
                on(EventResource.NODE, Action.ADD, hint=lambda pod, old, new: True, hint_keys=self._keys_of_node),
            )

        def hint_keys(self, pod: PodInfo) -> Iterable[Hashable]:
            return [pod.spec.node_selector["zone"]]

        def _keys_of_node(self, old: Any, new: Node) -> Iterable[Hashable]:
            return [new.metadata.labels["zone"]]

        def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
            pass

    nodes, pods = [node("a", labels={"zone": "1"})], [pod("p", node_selector={"zone": "2"})]
    assert "hint_keys, pod default/p: the hint returns True for an event of Node" in problem(
        Zoned, nodes=nodes, pods=pods
    )
