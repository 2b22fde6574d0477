"""What brings back a pod that wants or shuns company, or is to be spread (semantics 6.10, 11.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage
from tests.integration.requeueing import Case, Changed, Created, Deleted, allocatable, labelled
from tests.integration.test_filters import affinity, anti, labels, spread, term

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SMALL = node("n", cpu="1")
FULL = pod("there", cpu="1", node="n")
APP = {"app": "x"}
LONELY = pod("new", affinity=affinity(term(labels(app="x"), key=HOST)))
SHY = pod("new", affinity=anti(term(labels(app="x"), key=HOST)))
FRIEND = pod("friend", node="n", labels=APP)
SPREAD = pod("new", labels=APP, spread=[spread(HOST)])
UNEVEN = [node("a"), node("b", unschedulable=True), pod("one", node="a", labels=APP)]
RACK = "rack"
#: One node in a rack with company, the only other node in none.
RACKED = [node("n", labels={RACK: "1"}), FRIEND, node("m", labels={"mine": "yes"})]
#: The pod may only go to the second node, and wants (or does not want) company in its rack.
JOINING = pod("new", node_selector={"mine": "yes"}, affinity=affinity(term(labels(app="x"), key=RACK)))
AVOIDING = pod("new", affinity=anti(term(labels(app="x"), key=RACK)))
#: Two nodes with a matching pod each, in fewer racks than the constraint wants.
SHELVED: list[Any] = [
    *(node("a", labels={RACK: "1", "row": "1"}), node("b", labels={RACK: "2", "row": "1"}), node("bare")),
    *(pod("one", node="a", labels=APP), pod("two", node="b", labels=APP)),
]


def over(key: str) -> Any:
    """A pod that wants to be spread over more domains than there are."""
    return pod("new", labels=APP, spread=[spread(key, minDomains=3)])


def unlabelled(key: str) -> Object:
    return {"metadata": {"labels": {key: None}}}


CASES = {
    # InterPodAffinity
    "InterPodAffinity: company comes": Case([SMALL], LONELY, Created(FRIEND), True),
    "InterPodAffinity: a stranger comes": Case([SMALL], LONELY, Created(pod("stranger", node="n")), False),
    "InterPodAffinity: a stranger becomes company": Case(
        [SMALL, pod("stranger", node="n")], LONELY, Changed(pod("stranger"), labelled(app="x")), True
    ),
    "InterPodAffinity: a stranger changes": Case(
        [SMALL, pod("stranger", node="n")], LONELY, Changed(pod("stranger"), labelled(app="y")), False
    ),
    "InterPodAffinity: who is avoided leaves": Case([SMALL, FRIEND], SHY, Deleted(FRIEND), True),
    "InterPodAffinity: another one leaves": Case([SMALL, FRIEND, FULL], SHY, Deleted(FULL), False),
    "InterPodAffinity: who is avoided changes": Case(
        [SMALL, FRIEND], SHY, Changed(FRIEND, {"metadata": {"labels": {"app": "y"}}}), True
    ),
    "InterPodAffinity: who avoids it leaves": Case(
        [SMALL, pod("shy", node="n", affinity=anti(term(labels(app="x"), key=HOST)))],
        pod("new", labels=APP),
        Deleted(pod("shy")),
        True,
    ),
    "InterPodAffinity: a node with the topology": Case([SMALL, FRIEND], SHY, Created(node("m")), True),
    "InterPodAffinity: a taint goes": Case(
        [node("n", taints=["k=v:PreferNoSchedule"]), FRIEND],
        SHY,
        Changed(SMALL, allocatable(memory="17Gi"), "status"),
        False,
    ),
    # PodTopologySpread
    "PodTopologySpread: a matching pod leaves": Case(UNEVEN, SPREAD, Deleted(pod("one")), True),
    "PodTopologySpread: another pod leaves": Case(
        [*UNEVEN, pod("other", node="a")], SPREAD, Deleted(pod("other")), False
    ),
    "PodTopologySpread: a matching pod comes": Case(UNEVEN, SPREAD, Created(pod("two", node="b", labels=APP)), True),
    "PodTopologySpread: another pod comes": Case(UNEVEN, SPREAD, Created(pod("two", node="b")), False),
    "PodTopologySpread: a pod matches no longer": Case(
        UNEVEN, SPREAD, Changed(pod("one"), {"metadata": {"labels": {"app": "y"}}}), True
    ),
    "PodTopologySpread: the labels of another change": Case(
        [*UNEVEN, pod("other", node="a")], SPREAD, Changed(pod("other"), labelled(app="y")), False
    ),
    "PodTopologySpread: a node with the key": Case(UNEVEN, SPREAD, Created(node("c")), True),
    "PodTopologySpread: a node with the key goes": Case(UNEVEN, SPREAD, Deleted(node("b")), True),
    "PodTopologySpread: a node without the key": Case(
        [node("a", zone="1"), node("b", zone="2", unschedulable=True), pod("one", node="a", labels=APP)],
        pod("new", labels=APP, spread=[spread(ZONE)]),
        Changed(node("a"), allocatable(memory="17Gi"), "status"),
        False,
    ),
    "InterPodAffinity: a node without the topology of wanted company": Case(RACKED, JOINING, Created(node("k")), False),
    "InterPodAffinity: a node with the topology of wanted company": Case(
        RACKED, JOINING, Created(node("k", labels={RACK: "2"})), True
    ),
    "InterPodAffinity: a node gets the topology of wanted company": Case(
        RACKED, JOINING, Changed(node("m"), labelled(rack="1")), True
    ),
    "InterPodAffinity: company moves to another topology": Case(
        RACKED, JOINING, Changed(node("n"), labelled(rack="2")), True
    ),
    "InterPodAffinity: another label of a node with company changes": Case(
        RACKED, JOINING, Changed(node("n"), labelled(x="y")), False
    ),
    "InterPodAffinity: a node of avoided company loses the topology": Case(
        RACKED[:2], AVOIDING, Changed(node("n"), unlabelled(RACK)), True
    ),
    "InterPodAffinity: avoided company moves to another topology": Case(
        RACKED[:2], AVOIDING, Changed(node("n"), labelled(rack="2")), True
    ),
    "InterPodAffinity: another label of a node of avoided company changes": Case(
        RACKED[:2], AVOIDING, Changed(node("n"), labelled(x="y")), False
    ),
    "InterPodAffinity: a node without the topology of avoided company": Case(
        RACKED[:2], AVOIDING, Created(node("k")), True
    ),
    "InterPodAffinity: who avoids somebody else leaves": Case(
        [
            SMALL,
            pod("shy", node="n", affinity=anti(term(labels(app="x"), key=HOST))),
            pod("other", node="n", affinity=anti(term(labels(app="y"), key=HOST))),
        ],
        pod("new", labels=APP),
        Deleted(pod("other")),
        False,
    ),
    "PodTopologySpread: a node without the topology": Case(SHELVED, over(RACK), Created(node("c")), False),
    "PodTopologySpread: a node without the topology goes": Case(SHELVED, over(RACK), Deleted(node("bare")), False),
    "PodTopologySpread: a node gets the topology": Case(
        SHELVED, over(RACK), Changed(node("bare"), labelled(rack="3")), True
    ),
    "PodTopologySpread: a node loses the topology": Case(
        SHELVED, over(RACK), Changed(node("b"), unlabelled(RACK)), True
    ),
    "PodTopologySpread: a node moves to another topology": Case(
        SHELVED, over(RACK), Changed(node("b"), labelled(rack="3")), True
    ),
    "PodTopologySpread: a node stays in its topology": Case(
        SHELVED, over("row"), Changed(node("b"), labelled(rack="3")), False
    ),
    "PodTopologySpread: a node gets another topology": Case(
        SHELVED, over("hall"), Changed(node("b"), labelled(rack="3")), False
    ),
    "PodTopologySpread: the taints of a node with the topology change": Case(
        SHELVED, over(RACK), Changed(node("b"), {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}), True
    ),
    "PodTopologySpread: the taints of a node without the topology change": Case(
        SHELVED, over(RACK), Changed(node("bare"), {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}), False
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_brings_a_pod_back(stage: Stage, case: Case) -> None:
    await case.happens(stage)
