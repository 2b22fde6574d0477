"""Events that requeue pods with inter-pod affinity or topology spread constraints (semantics 6.10, 11.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object
from tests.integration.requeueing import Case, Changed, Created, Deleted, allocatable, labelled
from tests.integration.test_filters import affinity, anti, labels, spread, term

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SMALL = node("n", cpu="1")
FULL = pod("existing", cpu="1", node="n")
APP = {"app": "x"}
AFFINITY = pod("new", affinity=affinity(term(labels(app="x"), key=HOST)))
ANTI_AFFINITY = pod("new", affinity=anti(term(labels(app="x"), key=HOST)))
MATCHING = pod("matching", node="n", labels=APP)
SPREAD = pod("new", labels=APP, spread=[spread(HOST)])
SKEWED = [node("a"), node("b", unschedulable=True), pod("one", node="a", labels=APP)]
RACK = "rack"
#: One node in a rack with a matching pod, and one node without a rack.
RACKED = [node("n", labels={RACK: "1"}), MATCHING, node("m", labels={"mine": "yes"})]
#: JOINING selects the second node and requires a matching pod in its rack; AVOIDING excludes racks with one.
JOINING = pod("new", node_selector={"mine": "yes"}, affinity=affinity(term(labels(app="x"), key=RACK)))
AVOIDING = pod("new", affinity=anti(term(labels(app="x"), key=RACK)))
#: Two nodes with a matching pod each, in fewer racks than minDomains.
TOO_FEW_DOMAINS: list[Any] = [
    *(node("a", labels={RACK: "1", "row": "1"}), node("b", labels={RACK: "2", "row": "1"}), node("bare")),
    *(pod("one", node="a", labels=APP), pod("two", node="b", labels=APP)),
]


def with_min_domains(key: str) -> Any:
    """A pod with minDomains above the number of existing domains."""
    return pod("new", labels=APP, spread=[spread(key, minDomains=3)])


def unlabelled(key: str) -> Object:
    return {"metadata": {"labels": {key: None}}}


CASES = {
    # InterPodAffinity
    "InterPodAffinity: a matching pod is created": Case([SMALL], AFFINITY, Created(MATCHING), True),
    "InterPodAffinity: another pod is created": Case([SMALL], AFFINITY, Created(pod("other", node="n")), False),
    "InterPodAffinity: another pod matches after a label change": Case(
        [SMALL, pod("other", node="n")], AFFINITY, Changed(pod("other"), labelled(app="x")), True
    ),
    "InterPodAffinity: the labels of another pod change": Case(
        [SMALL, pod("other", node="n")], AFFINITY, Changed(pod("other"), labelled(app="y")), False
    ),
    "InterPodAffinity: the avoided pod is deleted": Case([SMALL, MATCHING], ANTI_AFFINITY, Deleted(MATCHING), True),
    "InterPodAffinity: another pod is deleted": Case([SMALL, MATCHING, FULL], ANTI_AFFINITY, Deleted(FULL), False),
    "InterPodAffinity: the labels of the avoided pod change": Case(
        [SMALL, MATCHING], ANTI_AFFINITY, Changed(MATCHING, {"metadata": {"labels": {"app": "y"}}}), True
    ),
    "InterPodAffinity: a pod whose anti-affinity matches is deleted": Case(
        [SMALL, pod("exclusive", node="n", affinity=anti(term(labels(app="x"), key=HOST)))],
        pod("new", labels=APP),
        Deleted(pod("exclusive")),
        True,
    ),
    "InterPodAffinity: a node with the topology": Case([SMALL, MATCHING], ANTI_AFFINITY, Created(node("m")), True),
    "InterPodAffinity: the capacity of a node changes": Case(
        [node("n", taints=["k=v:PreferNoSchedule"]), MATCHING],
        ANTI_AFFINITY,
        Changed(SMALL, allocatable(memory="17Gi"), "status"),
        False,
    ),
    # PodTopologySpread
    "PodTopologySpread: a matching pod is deleted": Case(SKEWED, SPREAD, Deleted(pod("one")), True),
    "PodTopologySpread: another pod is deleted": Case(
        [*SKEWED, pod("other", node="a")], SPREAD, Deleted(pod("other")), False
    ),
    "PodTopologySpread: a matching pod is created": Case(
        SKEWED, SPREAD, Created(pod("two", node="b", labels=APP)), True
    ),
    "PodTopologySpread: another pod is created": Case(SKEWED, SPREAD, Created(pod("two", node="b")), False),
    "PodTopologySpread: a matching pod loses its label": Case(
        SKEWED, SPREAD, Changed(pod("one"), {"metadata": {"labels": {"app": "y"}}}), True
    ),
    "PodTopologySpread: the labels of another change": Case(
        [*SKEWED, pod("other", node="a")], SPREAD, Changed(pod("other"), labelled(app="y")), False
    ),
    "PodTopologySpread: a node with the key": Case(SKEWED, SPREAD, Created(node("c")), True),
    "PodTopologySpread: a node with the key is deleted": Case(SKEWED, SPREAD, Deleted(node("b")), True),
    "PodTopologySpread: a node without the key": Case(
        [node("a", zone="1"), node("b", zone="2", unschedulable=True), pod("one", node="a", labels=APP)],
        pod("new", labels=APP, spread=[spread(ZONE)]),
        Changed(node("a"), allocatable(memory="17Gi"), "status"),
        False,
    ),
    "InterPodAffinity: a node without the topology of the required pod": Case(
        RACKED, JOINING, Created(node("k")), False
    ),
    "InterPodAffinity: a node with the topology of the required pod": Case(
        RACKED, JOINING, Created(node("k", labels={RACK: "2"})), True
    ),
    "InterPodAffinity: a node gets the topology of the required pod": Case(
        RACKED, JOINING, Changed(node("m"), labelled(rack="1")), True
    ),
    "InterPodAffinity: the node of the required pod moves to another domain": Case(
        RACKED, JOINING, Changed(node("n"), labelled(rack="2")), True
    ),
    "InterPodAffinity: another label of the required pod's node changes": Case(
        RACKED, JOINING, Changed(node("n"), labelled(x="y")), False
    ),
    "InterPodAffinity: the node of the avoided pod loses the topology": Case(
        RACKED[:2], AVOIDING, Changed(node("n"), unlabelled(RACK)), True
    ),
    "InterPodAffinity: the node of the avoided pod moves to another domain": Case(
        RACKED[:2], AVOIDING, Changed(node("n"), labelled(rack="2")), True
    ),
    "InterPodAffinity: another label of the avoided pod's node changes": Case(
        RACKED[:2], AVOIDING, Changed(node("n"), labelled(x="y")), False
    ),
    "InterPodAffinity: a node without the topology of the avoided pod": Case(
        RACKED[:2], AVOIDING, Created(node("k")), True
    ),
    "InterPodAffinity: a pod whose anti-affinity does not match is deleted": Case(
        [
            SMALL,
            pod("exclusive", node="n", affinity=anti(term(labels(app="x"), key=HOST))),
            pod("other", node="n", affinity=anti(term(labels(app="y"), key=HOST))),
        ],
        pod("new", labels=APP),
        Deleted(pod("other")),
        False,
    ),
    "PodTopologySpread: a node without the topology": Case(
        TOO_FEW_DOMAINS, with_min_domains(RACK), Created(node("c")), False
    ),
    "PodTopologySpread: a node without the topology is deleted": Case(
        TOO_FEW_DOMAINS, with_min_domains(RACK), Deleted(node("bare")), False
    ),
    "PodTopologySpread: a node gets the topology": Case(
        TOO_FEW_DOMAINS, with_min_domains(RACK), Changed(node("bare"), labelled(rack="3")), True
    ),
    "PodTopologySpread: a node loses the topology": Case(
        TOO_FEW_DOMAINS, with_min_domains(RACK), Changed(node("b"), unlabelled(RACK)), True
    ),
    "PodTopologySpread: a node moves to another topology": Case(
        TOO_FEW_DOMAINS, with_min_domains(RACK), Changed(node("b"), labelled(rack="3")), True
    ),
    "PodTopologySpread: a node stays in its topology": Case(
        TOO_FEW_DOMAINS, with_min_domains("row"), Changed(node("b"), labelled(rack="3")), False
    ),
    "PodTopologySpread: a node gets another topology": Case(
        TOO_FEW_DOMAINS, with_min_domains("hall"), Changed(node("b"), labelled(rack="3")), False
    ),
    "PodTopologySpread: the taints of a node with the topology change": Case(
        TOO_FEW_DOMAINS,
        with_min_domains(RACK),
        Changed(node("b"), {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
        True,
    ),
    "PodTopologySpread: the taints of a node without the topology change": Case(
        TOO_FEW_DOMAINS,
        with_min_domains(RACK),
        Changed(node("bare"), {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
        False,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_change_requeues_a_pod_or_does_not(cluster: ClusterFixture, case: Case) -> None:
    await case.run(cluster)
