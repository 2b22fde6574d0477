"""An explanation says of every node what the decision pipeline says, and its message is the scheduler's."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from core_tests.scheduling.gangs.groups import GATES, member
from kubestow.api.core import Node, Pod, PodCondition
from kubestow.cluster.nodes.views import Nodes
from kubestow.config import FeatureGates
from kubestow.engine.explanation.evaluated_nodes import VerdictKind
from kubestow.engine.explanation.explain import explain
from kubestow.engine.explanation.explanation import Explanation
from kubestow.engine.explanation.explanation_report import explanation_report
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError
from kubestow.reports.model import Table
from kubestow.scheduling.decision.result import Scheduled, Unschedulable
from kubestow.testing import builders
from kubestow.testing.plugin_harness import PluginHarness

ZONE = "topology.kubernetes.io/zone"


def explained(nodes: list[Node], pods: list[Pod], probe: Pod, **options: Any) -> Explanation:
    return explain(ClusterObjects.of(nodes, [*pods, probe]), f"default/{probe.metadata.name}", **options)


def printed(found: Any) -> str:
    console = Console(width=150, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(found)
    return captured.get()


# -- against the pipeline ------------------------------------------------------------------------------------------

TERM = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}
PROBES = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["100m", "1", "3", "5"]),
        "priority": st.sampled_from([0, 10]),
        "labels": st.sampled_from([{"app": "a"}, {"app": "b"}]),
        "node_selector": st.sampled_from([{}, {"disk": "ssd"}]),
        "tolerations": st.sampled_from([[], [{"key": "dedicated", "operator": "Exists"}]]),
        "host_ports": st.sampled_from([[], [80]]),
        "affinity": st.sampled_from(
            [None, {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}]
        ),
        "spread": st.sampled_from(
            [
                [],
                [
                    {
                        "maxSkew": 1,
                        "topologyKey": ZONE,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "a"}},
                    }
                ],
            ]
        ),
    }
)
NODES = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.sampled_from(["1", "2", "4"]),
            "zone": st.sampled_from(["east", "west", None]),
            "labels": st.sampled_from([{}, {"disk": "ssd"}]),
            "taints": st.sampled_from([[], ["dedicated=x:NoSchedule"], ["slow=:PreferNoSchedule"]]),
            "unschedulable": st.booleans(),
        }
    ),
    min_size=1,
    max_size=6,
)
PLACED = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.sampled_from(["100m", "1"]),
            "labels": st.sampled_from([{"app": "a"}, {"app": "b"}]),
            "host_ports": st.sampled_from([[], [80]]),
            "priority": st.sampled_from([0, 5]),
        }
    ),
    max_size=8,
)


@given(NODES, PLACED, PROBES)
def test_verdicts_totals_and_message_are_those_of_the_pipeline(
    nodes: list[dict[str, Any]], placed: list[dict[str, Any]], probe: dict[str, Any]
) -> None:
    node_objects = [builders.node(f"n{i}", **fields) for i, fields in enumerate(nodes)]
    pods = [builders.pod(f"p{i}", node=f"n{i % len(nodes)}", **fields) for i, fields in enumerate(placed)]
    pod = builders.pod("probe", **probe)
    found = explained(node_objects, pods, pod, counterfactuals=False)

    harness = PluginHarness(node_objects, pods)
    decision = harness.decide(pod)
    assert isinstance(decision, Scheduled | Unschedulable)
    assert decision.feasibility is not None
    diagnosis = decision.feasibility.diagnose()
    for row, name in enumerate(harness.cluster.nodes.names):
        rejections = found.node(name).rejections
        status = diagnosis.status(row) if diagnosis.rejected[row] else None
        assert (rejections[0].status if rejections else None) == status
    if isinstance(decision, Unschedulable):
        assert found.message == decision.message
        assert found.message.startswith(diagnosis.message())
        return
    assert decision.evaluation is not None
    names = Nodes(harness.cluster.nodes, decision.candidates).names
    totals = decision.evaluation.compute_totals(decision.pod, decision.candidates).tolist()
    assert {name: found.node(name).total for name in names} == dict(zip(names, totals, strict=True))
    for result in decision.evaluation.score_by_plugin(decision.pod, decision.candidates):
        for name, weighted in zip(names, result.weighted.tolist(), strict=True):
            assert next(s for s in found.node(name).scores if s.plugin == result.plugin).weighted == weighted
    assert found.best(1)[0].node == decision.node_name


@given(NODES, PROBES)
def test_groups_hold_each_infeasible_node_once_with_its_rejections(
    nodes: list[dict[str, Any]], probe: dict[str, Any]
) -> None:
    node_objects = [builders.node(f"n{i}", **fields) for i, fields in enumerate(nodes)]
    found = explained(node_objects, [], builders.pod("probe", **probe), counterfactuals=False)
    grouped = {name: group.rejections for group in found.groups() for name in group.nodes}
    every = {node.metadata.name: found.node(node.metadata.name) for node in node_objects}
    assert grouped == {name: node.rejections for name, node in every.items() if not node.feasible}
    assert len({group.rejections for group in found.groups()}) == len(found.groups())


@given(NODES, PLACED, PROBES)
def test_columns_have_the_verdicts_of_the_nodes(
    nodes: list[dict[str, Any]], placed: list[dict[str, Any]], probe: dict[str, Any]
) -> None:
    node_objects = [builders.node(f"n{i}", **fields) for i, fields in enumerate(nodes)]
    pods = [builders.pod(f"p{i}", node=f"n{i % len(nodes)}", **fields) for i, fields in enumerate(placed)]
    evaluated = explained(node_objects, pods, builders.pod("probe", **probe), counterfactuals=False).evaluated
    kinds = {-2: "not run", -1: "skipped", 0: "passed"}
    for row in range(len(evaluated)):
        in_columns = [
            (column.plugin, kinds.get(code, "rejected"), column.statuses[code - 1].reasons if code > 0 else ())
            for column in evaluated.columns()
            for code in [int(column.codes[row])]
        ]
        verdicts = [(v.plugin, v.kind.value, v.status.reasons) for v in evaluated.at(row).verdicts]
        # PreFilter has a column if it left any node out, and a verdict for those nodes only.
        assert [found for found in in_columns if found in verdicts] == verdicts
        assert all(kind == "passed" for _, kind, _ in set(in_columns) - set(verdicts))


# -- examples ------------------------------------------------------------------------------------------------------


def test_a_node_has_the_verdicts_of_all_plugins_not_only_the_first_rejection() -> None:
    node = builders.node("a", cpu="1", taints=["dedicated=x:NoSchedule"])
    found = explained([node], [], builders.pod("p", cpu="2")).node("a")
    assert [r.plugin for r in found.rejections] == ["TaintToleration", "NodeResourcesFit"]
    kinds = {verdict.plugin: verdict.kind for verdict in found.verdicts}
    assert kinds["NodeAffinity"] is VerdictKind.SKIPPED
    assert kinds["NodeName"] in (VerdictKind.PASSED, VerdictKind.SKIPPED)


def test_a_bound_pod_is_explained_as_if_it_was_not_there() -> None:
    pod = builders.pod("p", cpu="3", node="a")
    found = explained([builders.node("a"), builders.node("b")], [builders.pod("q", node="b", cpu="2")], pod)
    assert (found.bound_to, found.feasible, found.best(1)[0].node) == ("a", 1, "a")
    assert "that node has rank 1 of 1" in printed(found)


def test_a_bound_pod_that_would_not_fit_now_is_said_so() -> None:
    node = builders.node("a", taints=["new=:NoSchedule"])
    found = explained([node], [], builders.pod("p", cpu="1", node="a"))
    assert "where it would not fit now: TaintToleration: node(s) had untolerated taint(s)" in printed(found)


def test_two_nodes_are_compared_by_the_weighted_scores_that_differ() -> None:
    nodes = [builders.node("a"), builders.node("b", taints=["slow=:PreferNoSchedule"])]
    comparison = explained(nodes, [], builders.pod("p", cpu="1")).compare("b", "a")
    assert comparison.differences() == [("TaintToleration", -300)]
    assert comparison.text.endswith("is preferred to b (total 192): TaintToleration +300") or (
        "a (total" in comparison.text and "TaintToleration +300" in comparison.text
    )


def test_a_rejected_node_is_compared_by_its_reasons() -> None:
    nodes = [builders.node("a"), builders.node("b", cpu="500m")]
    comparison = explained(nodes, [], builders.pod("p", cpu="1")).compare("a", "b")
    assert comparison.text == "a is feasible; b is rejected by NodeResourcesFit: Insufficient cpu"


def test_a_gated_pod_is_not_attempted() -> None:
    found = explained([builders.node("a")], [], builders.pod("p", gates=["example.com/quota"]))
    assert found.gate.startswith("SchedulingGates: ")
    assert found.feasible == 1


def test_a_pod_that_its_missing_pod_group_gates_names_the_group() -> None:
    enabled = [{"name": "GangScheduling"}]
    options = SchedulerOptions(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}],
        },
        gates=FeatureGates(GATES),
    )
    found = explained([builders.node("a")], [], member("p", "team-a"), options=options)
    text = 'waiting for pods\'s pod group "team-a" to appear in scheduling queue'
    assert found.gate == f"GangScheduling: {text}"
    assert f"it is not attempted: GangScheduling: {text}" in found.headline()
    assert found.summary()[: len(found.headline())] == found.headline()


def test_preemption_names_its_victims() -> None:
    victim = builders.pod("low", node="a", cpu="3", priority=1)
    found = explained([builders.node("a")], [victim], builders.pod("p", cpu="2", priority=5))
    assert found.preemption is not None
    assert (found.preemption.node, found.preemption.victims) == ("a", ("default/low",))


def test_pre_filter_rejections_are_those_of_all_nodes() -> None:
    volume = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]}
    found = explained([builders.node("a"), builders.node("b")], [], builders.pod("p", spec=volume))
    (group,) = found.groups()
    assert len(group.nodes) == 2
    assert 'persistentvolumeclaim "missing" not found' in group.rejections[0].status.message
    assert found.message.startswith('0/2 nodes are available: persistentvolumeclaim "missing" not found.')


def test_thousands_of_nodes_are_a_few_lines_with_examples() -> None:
    nodes = builders.nodes(500, cpu="1") + builders.nodes(3, cpu="8")[:0]
    text = printed(explained(nodes, [], builders.pod("p", cpu="2"), counterfactuals=False))
    assert "500  NodeResourcesFit: Insufficient cpu  node-0, node-1, node-2, …" in text
    assert len(text.splitlines()) < 12


def test_the_document_has_every_node_and_is_plain_data() -> None:
    found = explained([builders.node("a"), builders.node("b", cpu="500m")], [], builders.pod("p", cpu="1"))
    document = json.loads(msgspec.json.encode(found.document()))
    assert [node["node"] for node in document["byNode"]] == ["a", "b"]
    assert document["byNode"][0]["scores"]["TaintToleration"]["weighted"] == 300
    assert document["byNode"][1]["verdicts"]["NodeResourcesFit"]["reasons"] == ["Insufficient cpu"]


def test_an_explanation_shows_as_tables_in_a_notebook() -> None:
    found = explained([builders.node("a")], [], builders.pod("p"))
    assert "in detail" in found._repr_html_()
    assert repr(found) == "<Explanation of default/p: fits on 1 of 1 node>"


@pytest.mark.parametrize(
    ("pod", "target", "problem"),
    [
        ("default/other", None, "pod default/other: no such pod"),
        ("web-1", None, "pod default/web-1: no such pod in the cluster, finished pods aside; similar: default/web-2"),
        ("web-2", "nod-a", "node nod-a: no such node; similar: node-a"),
    ],
)
def test_what_does_not_exist_is_named(pod: str, target: str | None, problem: str) -> None:
    cluster = ClusterObjects.of([builders.node("node-a")], [builders.pod("web-2")])
    with pytest.raises(InputError) as raised:
        explain(cluster, pod, target=target)
    assert str(raised.value).startswith(problem)


def test_a_pod_of_another_scheduler_is_an_error() -> None:
    with pytest.raises(InputError, match=r"spec\.schedulerName is mine, the profiles .* are: default-scheduler"):
        explained([builders.node("a")], [], builders.pod("p", scheduler="mine"))


# -- what the pod itself says ----------------------------------------------------------------------------------------


def reported_pod(*, message: str = "", reason: str = "Unschedulable", node: str = "") -> Pod:
    """A pod from an API server, with a PodScheduled condition if there is a message."""
    made = builders.pod("probe", cpu="8", node=node)
    replace = msgspec.structs.replace
    condition = PodCondition(type="PodScheduled", status="False", reason=reason, message=message)
    return replace(
        made,
        metadata=replace(made.metadata, creation_timestamp="2026-01-01T00:00:00Z"),
        status=replace(made.status, conditions=[condition] if message else []),
    )


def test_the_last_message_of_the_scheduler_is_shown_where_it_differs_from_what_is_computed() -> None:
    nodes = [builders.node("a", cpu="4")]
    found = explained(nodes, [], reported_pod(message="0/9 nodes are available: 9 Insufficient memory."))
    assert found.reported == "the scheduler's last message: 0/9 nodes are available: 9 Insufficient memory."
    assert found.reported in found.headline()
    assert found.document()["reported"] == found.reported
    assert explained(nodes, [], reported_pod(message=found.message)).reported == ""


def test_a_plugin_that_failed_is_shown_as_an_error() -> None:
    found = explained(
        [builders.node("a")], [], reported_pod(message='running "X" filter plugin: boom', reason="SchedulerError")
    )
    assert found.reported == 'the scheduler\'s last message after an error: running "X" filter plugin: boom'


def test_a_pod_that_no_scheduler_has_tried_says_so_unless_it_is_a_manifest() -> None:
    nodes = [builders.node("a", cpu="4")]
    assert explained(nodes, [], reported_pod()).reported.startswith("no attempt is reported yet: default-scheduler ")
    assert explained(nodes, [], builders.pod("probe")).reported == ""
    assert explained(nodes, [], reported_pod(node="a")).reported == ""


def test_a_pod_whose_name_begins_with_the_given_one_is_suggested() -> None:
    pods = [builders.pod("web-7d4b9c6f5-x2x9k"), builders.pod("other")]
    with pytest.raises(InputError, match=r"similar: default/web-7d4b9c6f5-x2x9k$"):
        explain(ClusterObjects.of([builders.node("a")], pods), "web")


# -- tables and pages --------------------------------------------------------------------------------------------------


def tables(view: Any) -> list[list[Sequence[str]]]:
    """The rows of each table, with the headings."""
    return [[block.headings, *block.rows] for block in view.blocks() if isinstance(block, Table)]


def test_a_node_in_detail_has_the_reason_of_each_rejection_and_what_passes() -> None:
    nodes = [builders.node("a", cpu="1", unschedulable=True), builders.node("b", cpu="9")]
    found = explained(nodes, [], builders.pod("probe", cpu="2", node="b"))

    [rejected] = tables(found.about("a"))
    assert rejected[0] == ("filter", "a")
    assert {plugin: cell for plugin, cell in rejected[1:] if cell != "passed"} == {
        "NodeUnschedulable": "node(s) were unschedulable",
        "NodeResourcesFit": "Insufficient cpu",
    }
    filters, scores = tables(found.about("b"))
    assert filters[0] == ("filter", "b (its node)")
    assert ("NodeResourcesFit", "passed") in filters
    assert (scores[0], scores[-1][0]) == (("score", "b (its node)"), "total")
    assert scores[-1][1].endswith(" (rank 1)")


def test_what_the_answer_leaves_out_is_remarked_on() -> None:
    probe = builders.pod("probe", nominated="a", deleting=True)
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 50,
        "extenders": [{"urlPrefix": "http://extender.example", "filterVerb": "filter"}],
    }
    nodes = [builders.node("a")]

    assert explained(nodes, [], builders.pod("probe")).remarks == ()
    assert explained(nodes, [], probe, options=SchedulerOptions(configuration)).remarks == (
        "1 extender of the configuration was not called",
        "the profile scores a sample of the feasible nodes only; here all of them are scored",
        "the pod is nominated for a, which the scheduler tries first",
        "the pod is being deleted, so the scheduler does not attempt it",
    )


def test_the_page_says_what_is_explained_and_as_which_version() -> None:
    found = explained([builders.node("a", cpu="1")], [], builders.pod("probe", cpu="2"))

    page = explanation_report(found, "Kubernetes 1.34")

    assert "Pod default/probe" in page
    assert "Why it is on its node, or on none; decided as Kubernetes 1.34" in page
    assert "The pod would fit with one of these changes, each verified:" in page
    assert "request 1 cpu instead of 2" in page
    assert "decided as" not in explanation_report(found)
    fits = explained([builders.node("a")], [], builders.pod("probe"))
    assert "with one of these changes" not in explanation_report(fits)
    stays = explained(
        [builders.node("a", taints=["node.kubernetes.io/not-ready=:NoSchedule"])], [], builders.pod("probe")
    )
    assert "No small change was found with which the pod fits on any node." in explanation_report(stays)


def test_the_page_has_every_node_in_columns() -> None:
    nodes = [builders.node("a", cpu="1"), builders.node("b", cpu="1"), builders.node("c"), builders.node("d", cpu="9")]
    found = explained([*nodes, builders.node("e", unschedulable=True)], [], builders.pod("probe", cpu="2"))

    [embedded] = re.findall(r'<script[^>]*"application/json"[^>]*>(.*?)</script>', explanation_report(found), re.DOTALL)

    decisions = json.loads(embedded)["decisions"]
    assert decisions["nodes"] == ["d", "c"]
    assert decisions["totals"] == [node.total for node in found.best(2)]
    assert decisions["scores"] == [[score.weighted for score in node.scores] for node in found.best(2)]
    reasons = [decisions["reasons"][reason] for reason in decisions["reason"]]
    assert dict(zip(decisions["rejected"], reasons, strict=True)) == {
        "a": "NodeResourcesFit: Insufficient cpu",
        "b": "NodeResourcesFit: Insufficient cpu",
        "e": "NodeUnschedulable: node(s) were unschedulable",
    }
