"""What nodes and other pods do that brings a refused pod back to the queue, and what does not (semantics 6.10, 11.5).

The rows of TestCoreResourceEnqueue are here and in the two files beside this one, each with what helps and what does
not; those of GangScheduling are in test_pod_groups. Not here: a pod whose update takes a required feature away, because
no feature that the plugin knows comes from a field that may change while a pod is pending.
"""

from __future__ import annotations

import pytest

from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage
from tests.integration.objects import device_class
from tests.integration.requeueing import Case, Changed, Created, Deleted, allocatable, labelled
from tests.integration.test_filters import node_affinity

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
PICKY = pod("new", node_selector={"disk": "ssd"})
PICKY_BIG = pod("new", cpu="4", node_selector={"disk": "ssd"})
TWO_SIZES = [node("n"), node("m", cpu="2", labels={"disk": "ssd"})]
NAMED: Object = {"key": "metadata.name", "operator": "In", "values": ["n"]}
TOLERATES_L: Object = {"key": "l", "operator": "Exists"}
PORTED = pod("new", host_ports=[80])
HOLDER = pod("holder", node="n", host_ports=[80])
GPU = "example.com/gpu"
FIT_AND_DEVICES = ["NodeResourcesFit", "DynamicResources"]
FEATURE = "RestartAllContainersOnContainerExits"
RESTARTING: Object = {
    "name": "main",
    "image": "app",
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}],
}
FUTURISTIC: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "new"},
    "spec": {"containers": [RESTARTING]},
}


def resized(**requests: str) -> Object:
    """A pod's only container with other requests."""
    return {"spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}]}}


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
    # more of NodeResourcesFit
    "Fit: the pod asks for less": Case([SMALL], BIG, Changed(BIG, resized(cpu="1"), "resize"), True),
    "Fit: a node that is out of reach grows in what the pod asks for": Case(
        TWO_SIZES, PICKY_BIG, Changed(node("n"), allocatable(cpu="5"), "status"), True
    ),
    "Fit: a node that is out of reach grows in another way": Case(
        TWO_SIZES, PICKY_BIG, Changed(node("n"), allocatable(cpu="4", memory="32Gi"), "status"), False
    ),
    "Fit: a node that is out of reach takes more pods": Case(
        [node("n", max_pods=2), node("m", max_pods=1, labels={"disk": "ssd"}), pod("there", node="m")],
        PICKY,
        Changed(node("n"), allocatable(cpu="4", pods="3"), "status"),
        True,
    ),
    "Fit: the one node that the pod names grows": Case(
        [SMALL, node("m", cpu="1")],
        pod("new", cpu="4", affinity=node_affinity({"matchFields": [NAMED]})),
        Changed(SMALL, allocatable(cpu="4"), "status"),
        True,
    ),
    # extended resources, which devices may stand in for
    "Fit: another resource grows on a node that has the extended one": Case(
        [node("n", cpu="1", allocatable={GPU: "1"})],
        pod("new", cpu="2", requests={GPU: "1"}),
        Changed(node("n"), allocatable(memory="32Gi", **{GPU: "1"}), "status"),
        False,
        only=FIT_AND_DEVICES,
    ),
    "Fit: another resource grows on a node without the extended one, and devices are off": Case(
        [SMALL],
        pod("new", requests={GPU: "1"}),
        Changed(SMALL, allocatable(memory="32Gi"), "status"),
        False,
        only=FIT_AND_DEVICES,
        gates={"DRAExtendedResource": False},
    ),
    "Fit: another resource grows on a node that devices may help": Case(
        [node("n"), node("m", cpu="2", labels={"disk": "ssd"}), device_class("gpus", GPU)],
        pod("new", cpu="4", requests={GPU: "1"}, node_selector={"disk": "ssd"}),
        Changed(node("n"), allocatable(cpu="4", memory="32Gi"), "status"),
        True,
        only=[*FIT_AND_DEVICES, "NodeAffinity"],
    ),
    "Fit: a class of devices for the resource appears": Case(
        [SMALL], pod("new", requests={GPU: "1"}), Created(device_class("gpus", GPU)), True, only=["NodeResourcesFit"]
    ),
    "Fit: a class of devices for another resource appears": Case(
        [SMALL],
        pod("new", requests={GPU: "1"}),
        Created(device_class("gpus", "example.com/other")),
        False,
        only=["NodeResourcesFit"],
    ),
    "Fit: a class of devices is for the resource now": Case(
        [SMALL, device_class("gpus")],
        pod("new", requests={GPU: "1"}),
        Changed(device_class("gpus"), device_class("gpus", GPU)),
        True,
        only=["NodeResourcesFit"],
    ),
    "Fit: a class of devices is for another resource now": Case(
        [SMALL, device_class("gpus")],
        pod("new", requests={GPU: "1"}),
        Changed(device_class("gpus"), device_class("gpus", "example.com/other")),
        False,
        only=["NodeResourcesFit"],
    ),
    # more of NodeAffinity and TaintToleration
    "NodeAffinity: a node that matched all along": Case(
        [node("n", cpu="1", labels={"disk": "ssd"}), node("m")], PICKY_BIG, Changed(SMALL, labelled(x="y")), False
    ),
    "TaintToleration: another taint, which the pod tolerates": Case(
        [TAINTED],
        pod("new", tolerations=[TOLERATES_L]),
        Changed(TAINTED, {"spec": {"taints": [{"key": "l", "effect": "NoSchedule"}]}}),
        True,
    ),
    "TaintToleration: a node with a taint that the pod tolerates": Case(
        [TAINTED],
        pod("new", tolerations=[TOLERATES_L]),
        Created(node("m", taints=["l=:NoSchedule"]), ready=True),
        True,
    ),
    "TaintToleration: the node grows": Case([TAINTED], BIG, Changed(TAINTED, allocatable(cpu="8"), "status"), False),
    # NodeDeclaredFeatures
    "NodeDeclaredFeatures: a node declares the feature": Case(
        [SMALL], FUTURISTIC, Changed(SMALL, {"status": {"declaredFeatures": [FEATURE]}}, "status"), True
    ),
    "NodeDeclaredFeatures: a node declares another feature": Case(
        [SMALL], FUTURISTIC, Changed(SMALL, {"status": {"declaredFeatures": ["Another"]}}, "status"), False
    ),
    "NodeDeclaredFeatures: a node that declares it": Case(
        [SMALL], FUTURISTIC, Created(node("m", status={"declaredFeatures": [FEATURE]})), True
    ),
    "NodeDeclaredFeatures: a label of the node changes": Case(
        [SMALL], FUTURISTIC, Changed(SMALL, labelled(x="y")), False
    ),
    "NodeDeclaredFeatures: a label of the pod changes": Case(
        [SMALL], FUTURISTIC, Changed(pod("new"), labelled(x="y")), False
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_brings_a_pod_back(stage: Stage, case: Case) -> None:
    await case.happens(stage)
