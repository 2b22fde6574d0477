"""What brings a refused pod back to the queue, and what does not (reference 6.10, 11.5).

A case is a cluster, a pod that is refused in it, and something that happens then. Whether it was worth another try is
known as soon as the scheduler has seen it happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.scheduling.queue import Place
from kubestow.testing import node, pod
from tests.integration.objects import (
    DEVICE_CLASS,
    claim,
    csi_node,
    device_claim,
    devices,
    storage_class,
    unbound,
    using,
    volume,
    zoned,
)
from tests.integration.stage import Object, Stage, Troupe
from tests.integration.test_filters import affinity, anti, labels, node_affinity, spread, term

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


@dataclass(frozen=True)
class Created:
    """An object comes. A node has its taint of new nodes still, unless it is ``ready``: losing that would be another
    event."""

    obj: Any
    ready: bool = False

    async def happen(self, stage: Stage, troupe: Troupe) -> None:
        await troupe.has_seen(await stage.create_one(self.obj, ready=self.ready))


@dataclass(frozen=True)
class Changed:
    obj: Any
    changes: Object
    subresource: str = ""

    async def happen(self, stage: Stage, troupe: Troupe) -> None:
        await troupe.has_seen(await stage.change(self.obj, self.changes, subresource=self.subresource))


@dataclass(frozen=True)
class Deleted:
    obj: Any

    async def happen(self, stage: Stage, troupe: Troupe) -> None:
        before = await stage.read(self.obj)
        await stage.delete(self.obj)
        await troupe.has_lost(before)


@dataclass(frozen=True)
class Case:
    """``there`` is the cluster in which ``refused`` finds no node."""

    there: Sequence[Any]
    refused: Pod
    event: Created | Changed | Deleted
    helps: bool


def labelled(**marks: str) -> Object:
    return {"metadata": {"labels": marks}}


def allocatable(**amounts: str) -> Object:
    room = {"cpu": "1", "memory": "16Gi", "pods": "110", **amounts}
    return {"status": {"allocatable": room, "capacity": room}}


TAINT: Object = {"key": "k", "value": "v", "effect": "NoSchedule"}
#: What the server adds to every pod.
TOLERATED: list[Object] = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
SMALL = node("n", cpu="1")
BIG = pod("new", cpu="2")
FULL = pod("there", cpu="1", node="n")
TAINTED = node("n", taints=["k=v:NoSchedule"])
APP = {"app": "x"}
LONELY = pod("new", affinity=affinity(term(labels(app="x"), key=HOST)))
SHY = pod("new", affinity=anti(term(labels(app="x"), key=HOST)))
FRIEND = pod("friend", node="n", labels=APP)
SPREAD = pod("new", labels=APP, spread=[spread(HOST)])
UNEVEN = [node("a"), node("b", unschedulable=True), pod("one", node="a", labels=APP)]
PICKY = pod("new", node_selector={"disk": "ssd"})
PORTED = pod("new", host_ports=[80])
USER = pod("new", spec=using("a"))
HOLDER = pod("holder", node="n", host_ports=[80])

DEVICE_USER = pod("new", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})

LIMITED = [
    *(SMALL, csi_node("n", 1), volume("b"), claim("b"), volume("a"), claim("a")),
    pod("user", node="n", spec=using("b")),
]

CASES = {
    # NodeResourcesFit
    "Fit: a pod leaves": Case([SMALL, FULL], pod("new", cpu="1"), Deleted(FULL), True),
    "Fit: a pending pod leaves": Case(
        [SMALL, FULL, pod("gated", cpu="1", gates=["x"])], pod("new", cpu="1"), Deleted(pod("gated")), False
    ),
    "Fit: a large enough node": Case([SMALL], BIG, Created(node("m", cpu="4")), True),
    "Fit: a node too small": Case([SMALL], BIG, Created(node("m", cpu="1")), False),
    "Fit: a node grows": Case([SMALL], BIG, Changed(SMALL, allocatable(cpu="4"), "status"), True),
    "Fit: a node grows too little": Case([SMALL], BIG, Changed(SMALL, allocatable(cpu="1500m"), "status"), False),
    "Fit: a node grows in another way": Case([SMALL], BIG, Changed(SMALL, allocatable(memory="32Gi"), "status"), False),
    "Fit: a label changes": Case([SMALL], BIG, Changed(SMALL, labelled(x="y")), False),
    "Fit: a node takes more pods": Case(
        [node("n", max_pods=1), pod("there", node="n")],
        pod("new"),
        Changed(node("n"), allocatable(cpu="4", pods="10"), "status"),
        True,
    ),
    # NodeAffinity
    "NodeAffinity: a matching node": Case([SMALL], PICKY, Created(node("m", labels={"disk": "ssd"})), True),
    "NodeAffinity: another node": Case([SMALL], PICKY, Created(node("m", labels={"disk": "hdd"})), False),
    "NodeAffinity: a node matches now": Case([SMALL], PICKY, Changed(SMALL, labelled(disk="ssd")), True),
    "NodeAffinity: a node still does not match": Case([SMALL], PICKY, Changed(SMALL, labelled(disk="hdd")), False),
    "NodeAffinity: by expression": Case(
        [SMALL],
        pod("new", affinity=node_affinity({"matchExpressions": [{"key": "disk", "operator": "Exists"}]})),
        Changed(SMALL, labelled(disk="any")),
        True,
    ),
    "NodeAffinity: a pod leaves": Case([SMALL, FULL], PICKY, Deleted(FULL), False),
    # NodeUnschedulable
    "NodeUnschedulable: uncordoned": Case(
        [node("n", unschedulable=True)], pod("new"), Changed(SMALL, {"spec": {"unschedulable": None}}), True
    ),
    "NodeUnschedulable: another cordoned node": Case(
        [node("n", unschedulable=True)], pod("new"), Created(node("m", unschedulable=True)), False
    ),
    "NodeUnschedulable: a node": Case([node("n", unschedulable=True)], pod("new"), Created(node("m")), True),
    # TaintToleration
    "TaintToleration: the taint goes": Case([TAINTED], pod("new"), Changed(TAINTED, {"spec": {"taints": None}}), True),
    "TaintToleration: one more": Case(
        [TAINTED],
        pod("new"),
        Changed(TAINTED, {"spec": {"taints": [TAINT, {"key": "l", "effect": "NoSchedule"}]}}),
        False,
    ),
    "TaintToleration: a node without": Case([TAINTED], pod("new"), Created(node("m"), ready=True), True),
    "TaintToleration: a node with it too": Case(
        [TAINTED], pod("new"), Created(node("m", taints=["k=v:NoSchedule"])), False
    ),
    "TaintToleration: the pod tolerates it now": Case(
        [TAINTED],
        pod("new"),
        Changed(pod("new"), {"spec": {"tolerations": [*TOLERATED, {"operator": "Exists"}]}}),
        True,
    ),
    "TaintToleration: a label changes": Case([TAINTED], pod("new"), Changed(TAINTED, labelled(x="y")), False),
    # NodePorts
    "NodePorts: the holder leaves": Case([SMALL, HOLDER], PORTED, Deleted(HOLDER), True),
    "NodePorts: one with another port leaves": Case(
        [SMALL, HOLDER, pod("other", node="n", host_ports=[81])], PORTED, Deleted(pod("other")), False
    ),
    "NodePorts: one without ports leaves": Case(
        [SMALL, HOLDER, pod("other", node="n")], PORTED, Deleted(pod("other")), False
    ),
    "NodePorts: a node": Case([SMALL, HOLDER], PORTED, Created(node("m")), True),
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
    # SchedulingGates
    "SchedulingGates: all go": Case(
        [SMALL], pod("new", gates=["a", "b"]), Changed(pod("new"), {"spec": {"schedulingGates": []}}), True
    ),
    "SchedulingGates: one of two goes": Case(
        [SMALL],
        pod("new", gates=["a", "b"]),
        Changed(pod("new"), {"spec": {"schedulingGates": [{"name": "b"}]}}),
        False,
    ),
    "SchedulingGates: a label changes": Case(
        [SMALL], pod("new", gates=["a"]), Changed(pod("new"), labelled(x="y")), False
    ),
    # volumes
    "VolumeRestrictions: the other user of the claim leaves": Case(
        [SMALL, volume("a"), claim("a"), pod("user", node="n", spec=using("a"))],
        pod("new", spec=using("a")),
        Deleted(pod("user")),
        True,
    ),
    "VolumeRestrictions: somebody else leaves": Case(
        [SMALL, volume("a"), claim("a"), pod("user", node="n", spec=using("a")), pod("other", node="n")],
        pod("new", spec=using("a")),
        Deleted(pod("other")),
        False,
    ),
    "VolumeBinding: its claim appears": Case(
        [SMALL, volume("a")], pod("new", spec=using("a")), Created(claim("a")), True
    ),
    "VolumeBinding: another claim appears": Case([SMALL], pod("new", spec=using("a")), Created(claim("b")), False),
    "VolumeBinding: a class appears": Case(
        [SMALL, unbound("a", of="slow")], USER, Created(storage_class("slow")), True
    ),
    "VolumeBinding: a class changes in a way that does not matter": Case(
        [SMALL, storage_class("slow"), unbound("a", of="slow")],
        USER,
        Changed(storage_class("slow"), labelled(x="y")),
        False,
    ),
    "VolumeZone: the node moves to the volume's zone": Case(
        [node("n", zone="1"), volume("a") | zoned("2", "a"), claim("a")],
        USER,
        Changed(node("n"), labelled(**{ZONE: "2"})),
        True,
    ),
    "NodeVolumeLimits: a node takes more volumes": Case(
        [
            SMALL,
            csi_node("n", 1),
            volume("b"),
            claim("b"),
            volume("a"),
            claim("a"),
            pod("user", node="n", spec=using("b")),
        ],
        USER,
        Changed(csi_node("n", 1), {"spec": csi_node("n", 2)["spec"]}),
        True,
    ),
    "NodeVolumeLimits: a label changes": Case(
        [
            SMALL,
            csi_node("n", 1),
            volume("b"),
            claim("b"),
            volume("a"),
            claim("a"),
            pod("user", node="n", spec=using("b")),
        ],
        USER,
        Changed(csi_node("n", 1), labelled(x="y")),
        False,
    ),
    # DynamicResources
    "DynamicResources: its claim appears": Case([SMALL], DEVICE_USER, Created(device_claim("gpu")), True),
    "DynamicResources: another claim appears": Case([SMALL], DEVICE_USER, Created(device_claim("other")), False),
    "DynamicResources: devices appear": Case(
        [SMALL, DEVICE_CLASS, device_claim("gpu")], DEVICE_USER, Created(devices("n")), True
    ),
    "DynamicResources: the class appears": Case(
        [SMALL, device_claim("gpu"), devices("n")], DEVICE_USER, Created(DEVICE_CLASS), True
    ),
    "DynamicResources: a pod leaves": Case(
        [SMALL, DEVICE_CLASS, device_claim("gpu"), FULL], DEVICE_USER, Deleted(FULL), False
    ),
    "VolumeBinding: a volume appears": Case(
        [SMALL, claim("a")], pod("new", spec=using("a")), Created(volume("a")), True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_brings_a_pod_back(stage: Stage, case: Case) -> None:
    await stage.create(*case.there)
    # Preemption would make room for some, and bring them back in its own way.
    off = {"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
    async with stage.scheduler(profiles=[off]) as troupe:
        await stage.create(case.refused)
        await troupe.until(lambda: troupe.place("new") in (Place.UNSCHEDULABLE, Place.GATED))
        if troupe.place("new") is Place.UNSCHEDULABLE:
            await stage.refused("new")
            await troupe.has_seen(await stage.read(case.refused))
        before = troupe.queued("new")
        assert before is not None
        attempts, place = before.attempts, before.place
        await case.event.happen(stage, troupe)
        after = troupe.queued("new")
        came_back = after is None or (after.attempts, after.place) != (attempts, place)
        assert came_back is case.helps
