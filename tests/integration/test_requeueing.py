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
from kubestow.cluster.events import Action, EventResource
from kubestow.framework.interest import on
from kubestow.framework.plugin import Permission
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.queue import Place
from kubestow.testing import node, pod
from tests.integration.puppets import FAIL, REJECT, profile, puppet
from tests.integration.stage import Object, Stage, Troupe, as_sent
from tests.integration.test_filters import affinity, anti, labels, node_affinity, spread, term
from tests.integration.test_preemption import claim, using, volume

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
        if not as_sent(case.refused)["spec"].get("schedulingGates"):
            await stage.refused("new")
            await troupe.has_seen(await stage.read(case.refused))
        before = troupe.queued("new")
        assert before is not None
        attempts, place = before.attempts, before.place
        await case.event.happen(stage, troupe)
        after = troupe.queued("new")
        came_back = after is None or (after.attempts, after.place) != (attempts, place)
        assert came_back is case.helps


# -- in time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["reserve", "permit"])
@pytest.mark.parametrize("event", ["registered", "unrelated"])
async def test_a_rejected_pod_waits_for_an_event_that_its_plugin_registered(
    stage: Stage, point: str, event: str
) -> None:
    answers = [REJECT]
    asked = puppet(
        wakes=[on(EventResource.NODE, Action.ADD)],
        at={point: lambda info: answers.pop() if answers else SUCCESS},
    )
    await stage.create(SMALL, pod("new"))
    async with stage.scheduler(**profile(asked)) as troupe:
        await stage.refused("new")
        await troupe.until(lambda: troupe.place("new") is Place.UNSCHEDULABLE)
        if event == "registered":
            await stage.create(node("m"))
            await stage.bound("new")
        else:
            await Created(pod("other", node="n")).happen(stage, troupe)
            assert troupe.place("new") is Place.UNSCHEDULABLE


@pytest.mark.parametrize("point", ["reserve", "permit", "bind"])
async def test_a_pod_that_failed_is_tried_again_by_itself(stage: Stage, point: str) -> None:
    answers = [FAIL]
    last = Status(Code.SKIP) if point == "bind" else SUCCESS
    asked = puppet(at={point: lambda info: answers.pop() if answers else last})
    await stage.create(SMALL, pod("new"))
    async with stage.scheduler(podInitialBackoffSeconds=1, **profile(asked)):
        await stage.bound("new")
    assert [at for at, _ in asked.asked].count(point) == 2


async def test_an_event_that_came_while_the_pod_was_waiting_is_not_lost(stage: Stage) -> None:
    permissions: list[Permission | Status] = [Permission.wait(600)]
    asked = puppet(
        wakes=[on(EventResource.NODE, Action.ADD)],
        permit=lambda info: permissions.pop() if permissions else SUCCESS,
    )
    await stage.create(SMALL, pod("new"))
    async with stage.scheduler(**profile(asked)) as troupe:
        await stage.until(lambda: stage.nomination("new") == "n")
        await Created(node("m")).happen(stage, troupe)
        troupe.scheduler.waiting.all()[0].reject("Puppet", "no")
        await stage.bound("new")


async def test_a_backoff_is_cut_short_when_nothing_else_is_to_be_done(stage: Stage) -> None:
    await stage.create(SMALL, BIG)
    async with stage.scheduler(podInitialBackoffSeconds=100, podMaxBackoffSeconds=100) as troupe:
        await stage.refused("new")
        await troupe.until(lambda: troupe.place("new") is Place.UNSCHEDULABLE)
        await stage.create(node("m"))
        assert await stage.bound("new") == ["m"]
