"""Explanations of pod groups: where their pods would go, and in plain words why there is no place for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core_tests.engine.gangs.clusters import pod_group, worker
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.scheduling import PodGroup
from kubestow.engine.gangs.group_explanation import GroupExplanation, explain_group
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError
from kubestow.reports.model import Paragraph, Table
from kubestow.testing import node, pod

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

GATES = config.FeatureGates({"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True})
OPTIONS = SchedulerOptions(gates=GATES)
IN_A_RACK = pod_group("train", 3, topology="rack")


def explained(
    nodes: Sequence[Node], pods: Sequence[Pod], group: PodGroup, options: SchedulerOptions = OPTIONS
) -> GroupExplanation:
    return explain_group(ClusterObjects.of(nodes, pods, [group]), "default/train", options)


def workers(count: int, **same: Any) -> list[Pod]:
    return [worker(f"w{number}", **{"cpu": "1"} | same) for number in range(count)]


def texts(found: GroupExplanation) -> list[str]:
    return [block.text for block in found.blocks() if isinstance(block, Paragraph)]


def rows(found: GroupExplanation) -> list[Sequence[str]]:
    """The headings and rows of the table, without any if there is none."""
    return [row for block in found.blocks() if isinstance(block, Table) for row in (block.headings, *block.rows)]


# -- placements --------------------------------------------------------------------------------------------------------


def test_a_placement_has_the_node_of_each_pod() -> None:
    found = explained([node("a", cpu="2"), node("b", cpu="1")], workers(3), pod_group("train", 3))

    assert found.document() == {
        "kind": "PodGroupExplanation",
        "podGroup": "default/train",
        "minCount": 3,
        "pods": 3,
        "podsWithNode": 0,
        "needed": 3,
        "result": "Placed",
        "foundBy": "scheduler",
        "domain": "",
        "assignments": [
            {"pod": "default/w0", "node": "a"},
            {"pod": "default/w1", "node": "a"},
            {"pod": "default/w2", "node": "b"},
        ],
        "certificates": [],
        "rejections": {},
        "undecided": "",
        "preference": "",
        "passedOver": [],
        "remarks": [],
    }
    assert texts(found) == ["default/train: fits, 3 pods on 2 nodes"]
    assert rows(found) == [("node", "pods"), ("a", "2"), ("b", "1")]


def test_a_placement_that_kube_scheduler_misses_is_marked() -> None:
    found = explained(
        [node("large", cpu="4"), node("small", cpu="2")],
        [worker("a-small", cpu="2"), worker("b-large", cpu="4")],
        pod_group("train", 2),
    )

    assert found.document()["foundBy"] == "search"
    assert texts(found) == [
        "default/train: fits, 2 pods on 2 nodes",
        "kube-scheduler does not find it, because it takes the best node for one pod after the other",
    ]


def test_the_domain_of_a_placement_is_named() -> None:
    nodes = [node("a", cpu="2", labels={"rack": "r"}), node("b", cpu="3", labels={"rack": "s"})]

    found = explained(nodes, workers(3), IN_A_RACK)

    assert found.document()["domain"] == "s"
    assert texts(found) == ["default/train: fits in s, 3 pods on 1 node"]


def test_a_preferred_domain_is_named_or_passed_over() -> None:
    def group(prefers: str) -> PodGroup:
        return pod_group("train", 3, annotations={"kubestow.dev/preferred-topology": prefers})

    nodes = [
        node("a", cpu="2", labels={"rack": "r", "zone": "z"}),
        node("b", labels={"rack": "s", "zone": "z"}, cpu="1"),
    ]

    in_zone, anywhere = explained(nodes, workers(3), group("zone")), explained(nodes, workers(3), group("rack"))

    assert texts(in_zone) == ["default/train: fits in z, as it prefers: one domain of zone, 3 pods on 2 nodes"]
    assert texts(anywhere) == [
        "default/train: fits, 3 pods on 2 nodes",
        "not in one domain of rack: no placement exists: at most 2 pods of the 3 that are needed can be placed in one "
        "topology domain, r of 2; cpu: 3.0 cores needed, 2.0 cores free on nodes that pass the filters, "
        "1.0 cores short",
    ]
    [passed_over] = anywhere.document()["passedOver"]
    assert (passed_over["terms"], passed_over["undecided"]) == ("one domain of rack", "")
    assert [each["domain"] for each in passed_over["certificates"]] == ["r", "s"]


def test_no_more_than_thirty_nodes_are_listed() -> None:
    for count in (30, 32):
        nodes = [node(f"n{number:02}", cpu="1") for number in range(count)]
        listed = rows(explained(nodes, workers(count), pod_group("train", count)))
        names = [f"n{number:02}" for number in range(30)]
        assert listed[1:31] == [(name, "1") for name in names]
        assert listed[31:] == ([] if count == 30 else [("… 2 more nodes", "")])


def test_a_group_that_runs_needs_no_placement() -> None:
    found = explained([node("a", cpu="2")], workers(2, node="a"), pod_group("train", 2))

    assert (found.document()["podsWithNode"], found.document()["needed"]) == (2, 0)
    assert texts(found) == ["default/train: enough of its pods have a node"]


# -- no placement ------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_said_of_the_nearest_domain_and_listed_of_all() -> None:
    nodes = [node("b", cpu="1", labels={"rack": "s"}), node("a", cpu="2", labels={"rack": "r"})]

    found = explained(nodes, workers(3), IN_A_RACK)

    assert found.document()["result"] == "Impossible"
    assert found.document()["certificates"] == [
        {
            "domain": domain,
            "needed": 3,
            "most": most,
            "constraints": [{"constraint": "cpu", "needed": 3000, "free": 1000 * most, "room": most}],
            "passingNodes": {"default/w0 and 2 more": 1},
        }
        for domain, most in (("r", 2), ("s", 1))
    ]
    assert texts(found) == [
        "default/train: no placement exists: at most 2 pods of the 3 that are needed can be placed in one topology "
        "domain, r of 2",
        "cpu: 3.0 cores needed, 2.0 cores free on nodes that pass the filters, 1.0 cores short",
    ]
    assert rows(found) == [("domain", "at most", "because of"), ("r", "2", "cpu"), ("s", "1", "cpu")]


def test_no_more_than_thirty_domains_are_listed() -> None:
    for count in (30, 32):
        nodes = [node(f"n{number:02}", cpu="1", labels={"rack": f"r{number:02}"}) for number in range(count)]
        listed = rows(explained(nodes, workers(3), IN_A_RACK))
        assert listed[1:31] == [(f"r{number:02}", "1", "cpu") for number in range(30)]
        assert listed[31:] == ([] if count == 30 else [("… 2 more domains", "", "")])


def test_constraints_that_exclude_a_placement_together_are_said_to_do_so() -> None:
    nodes = [node("a", cpu="2", memory="1Gi"), node("b", cpu="1", memory="16Gi")]

    found = explained(nodes, workers(3, memory="1Gi"), pod_group("train", 3))

    *_, last = texts(found)
    assert [each["constraint"] for each in found.document()["certificates"][0]["constraints"]] == ["cpu", "memory"]
    assert last == "all of these together; without any one of them there might be a placement"
    assert rows(found) == []


def test_pods_that_pass_the_filters_of_no_node_are_named_with_the_reason() -> None:
    selecting = workers(2, node_selector={"x": "y"})

    found = explained([node("a", labels={"rack": "r"})], selecting, pod_group("train", 2, topology="rack"))

    assert "node(s) didn't match Pod's node affinity/selector" in found.rejections["default/w0 and 1 more"]
    assert texts(found) == [
        "default/train: no placement exists: at most 0 pods of the 2 that are needed can be placed in one topology "
        "domain, r of 1",
        "no node passes the filters for default/w0 and 1 more in r",
        "1 node: the pod's nodeSelector or nodeAffinity does not match",
    ]


def test_a_pod_whose_name_begins_with_that_of_another_has_its_own_reason() -> None:
    pods = [*workers(2), worker("w10", cpu="1", node_selector={"x": "y"})]

    found = explained([node("a")], pods, pod_group("train", 3))

    assert [name for name, reason in found.rejections.items() if "node affinity/selector" in reason] == ["default/w10"]


def test_domains_that_no_node_of_passes_are_excluded_by_filters() -> None:
    nodes = [node(name, labels={"rack": name}) for name in "rs"]

    found = explained(nodes, workers(3, node_selector={"x": "y"}), IN_A_RACK)

    assert rows(found)[1:] == [("r", "0", "node filters"), ("s", "0", "node filters")]


def test_without_a_domain_there_is_no_place() -> None:
    found = explained([node("a")], workers(2), IN_A_RACK)

    assert found.document()["result"] == "Impossible"
    assert texts(found) == ["default/train: fits nowhere, because no topology domain exists for it"]


def test_a_domain_that_cannot_be_determined_leaves_the_answer_open() -> None:
    found = explained([node("a")], [*workers(1, node="a"), worker("waiting")], IN_A_RACK)

    assert found.document()["result"] == "Undecided"
    assert texts(found) == [
        "default/train: not known whether there is a placement: cannot determine domain for already scheduled pods: "
        "no topology domain found for pod default/w0"
    ]


def test_pods_that_do_not_exist_are_missing() -> None:
    some_placed = [*workers(2, node="a"), worker("waiting", cpu="1")]

    assert texts(explained([node("a")], some_placed, pod_group("train", 4))) == [
        "default/train: 2 of its pods still need a node, and 1 pod without a node exists"
    ]
    assert texts(explained([node("a")], workers(2), pod_group("train", 3))) == [
        "default/train: 3 of its pods still need a node, and 2 pods without a node exist"
    ]


def test_pods_of_several_schedulers_are_not_placed_together() -> None:
    other = pod("other", spec={"schedulerName": "other", "schedulingGroup": {"podGroupName": "train"}})

    found = explained([node("a")], [other, *workers(2)], pod_group("train", 2))

    assert texts(found) == [
        "default/train: not known whether there is a placement: its pods name several schedulers: default-scheduler "
        "and other"
    ]


# -- groups and profiles -----------------------------------------------------------------------------------------------


def test_the_group_is_found_beside_other_pods() -> None:
    others = [
        pod("of-another-scheduler", spec={"schedulerName": "other"}),
        pod("alone"),
        pod("apart", spec={"schedulingGroup": {"podGroupName": "other"}}),
    ]

    found = explained([node("a")], [*others, *workers(2)], pod_group("train", 2))

    assert [each["pod"] for each in found.document()["assignments"]] == ["default/w0", "default/w1"]


def test_a_group_without_pods_is_an_error_with_similar_names() -> None:
    cluster = ClusterObjects.of([node("a")], [pod("alone"), *workers(2)], [pod_group("train", 2)])

    with pytest.raises(InputError) as error:
        explain_group(cluster, "default/trian", OPTIONS)
    assert str(error.value) == (
        "podgroup default/trian: no pod of the cluster is in such a group; similar: default/train"
    )


def test_without_a_profile_that_schedules_groups_the_gate_is_named() -> None:
    cluster = ClusterObjects.of([node("a")], [pod("alone")])

    with pytest.raises(InputError, match="no profile schedules pod groups; enable GangScheduling"):
        explain_group(cluster, "default/train", SchedulerOptions())
    with pytest.raises(InputError, match=r"no pod of the cluster is in such a group$"):
        explain_group(cluster, "default/train", OPTIONS)


def test_extenders_are_remarked_on() -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": "http://extender.example", "filterVerb": "filter"}],
    }

    found = explained([node("a")], workers(2), pod_group("train", 2), SchedulerOptions(configuration, gates=GATES))

    assert found.document()["remarks"] == ["1 extender of the configuration was not called"]
