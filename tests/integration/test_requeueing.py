"""Events of nodes and pods that requeue an unschedulable pod, and events that do not (semantics 6.10, 11.5).

The rows of TestCoreResourceEnqueue are here, in test_requeueing_topology and in test_requeueing_volumes, each with
positive and negative cases; those of GangScheduling are in test_pod_groups. Not here: an update that removes a pod's
required feature, because no known feature depends on a field that is mutable while a pod is pending.
"""

from __future__ import annotations

import pytest

from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object
from tests.integration.objects import device_class
from tests.integration.requeueing import Case, Changed, Created, Deleted, allocatable, labelled
from tests.integration.test_filters import node_affinity

TAINT: Object = {"key": "k", "value": "v", "effect": "NoSchedule"}
#: The tolerations that the server adds to every pod.
TOLERATED: list[Object] = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
SMALL = node("n", cpu="1")
BIG = pod("new", cpu="2")
FULL = pod("existing", cpu="1", node="n")
TAINTED = node("n", taints=["k=v:NoSchedule"])
SELECTIVE = pod("new", node_selector={"disk": "ssd"})
SELECTIVE_BIG = pod("new", cpu="4", node_selector={"disk": "ssd"})
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
FEATURE_USER: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "new"},
    "spec": {"containers": [RESTARTING]},
}


def resized(**requests: str) -> Object:
    """A patch of the requests of a pod's only container."""
    return {"spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}]}}


CASES = {
    # NodeResourcesFit
    "Fit: a pod is deleted": Case([SMALL, FULL], pod("new", cpu="1"), Deleted(FULL), True),
    "Fit: a pending pod is deleted": Case(
        [SMALL, FULL, pod("gated", cpu="1", gates=["x"])], pod("new", cpu="1"), Deleted(pod("gated")), False
    ),
    "Fit: a large enough node": Case([SMALL], BIG, Created(node("m", cpu="4")), True),
    "Fit: a node too small": Case([SMALL], BIG, Created(node("m", cpu="1")), False),
    "Fit: a node grows": Case([SMALL], BIG, Changed(SMALL, allocatable(cpu="4"), "status"), True),
    "Fit: a node grows too little": Case([SMALL], BIG, Changed(SMALL, allocatable(cpu="1500m"), "status"), False),
    "Fit: a node gains other capacity": Case([SMALL], BIG, Changed(SMALL, allocatable(memory="32Gi"), "status"), False),
    "Fit: a label changes": Case([SMALL], BIG, Changed(SMALL, labelled(x="y")), False),
    "Fit: a node allows more pods": Case(
        [node("n", max_pods=1), pod("existing", node="n")],
        pod("new"),
        Changed(node("n"), allocatable(cpu="4", pods="10"), "status"),
        True,
    ),
    # NodeAffinity
    "NodeAffinity: a matching node": Case([SMALL], SELECTIVE, Created(node("m", labels={"disk": "ssd"})), True),
    "NodeAffinity: another node": Case([SMALL], SELECTIVE, Created(node("m", labels={"disk": "hdd"})), False),
    "NodeAffinity: a node matches after a label change": Case(
        [SMALL], SELECTIVE, Changed(SMALL, labelled(disk="ssd")), True
    ),
    "NodeAffinity: a node still does not match": Case([SMALL], SELECTIVE, Changed(SMALL, labelled(disk="hdd")), False),
    "NodeAffinity: by expression": Case(
        [SMALL],
        pod("new", affinity=node_affinity({"matchExpressions": [{"key": "disk", "operator": "Exists"}]})),
        Changed(SMALL, labelled(disk="any")),
        True,
    ),
    "NodeAffinity: a pod is deleted": Case([SMALL, FULL], SELECTIVE, Deleted(FULL), False),
    # NodeUnschedulable
    "NodeUnschedulable: uncordoned": Case(
        [node("n", unschedulable=True)], pod("new"), Changed(SMALL, {"spec": {"unschedulable": None}}), True
    ),
    "NodeUnschedulable: another cordoned node": Case(
        [node("n", unschedulable=True)], pod("new"), Created(node("m", unschedulable=True)), False
    ),
    "NodeUnschedulable: a node": Case([node("n", unschedulable=True)], pod("new"), Created(node("m")), True),
    # TaintToleration
    "TaintToleration: the taint is removed": Case(
        [TAINTED], pod("new"), Changed(TAINTED, {"spec": {"taints": None}}), True
    ),
    "TaintToleration: another taint is added": Case(
        [TAINTED],
        pod("new"),
        Changed(TAINTED, {"spec": {"taints": [TAINT, {"key": "l", "effect": "NoSchedule"}]}}),
        False,
    ),
    "TaintToleration: a node without the taint": Case([TAINTED], pod("new"), Created(node("m"), ready=True), True),
    "TaintToleration: a node with the taint": Case(
        [TAINTED], pod("new"), Created(node("m", taints=["k=v:NoSchedule"])), False
    ),
    "TaintToleration: a toleration is added": Case(
        [TAINTED],
        pod("new"),
        Changed(pod("new"), {"spec": {"tolerations": [*TOLERATED, {"operator": "Exists"}]}}),
        True,
    ),
    "TaintToleration: a label changes": Case([TAINTED], pod("new"), Changed(TAINTED, labelled(x="y")), False),
    # NodePorts
    "NodePorts: the holder is deleted": Case([SMALL, HOLDER], PORTED, Deleted(HOLDER), True),
    "NodePorts: a pod with another port is deleted": Case(
        [SMALL, HOLDER, pod("other", node="n", host_ports=[81])], PORTED, Deleted(pod("other")), False
    ),
    "NodePorts: a pod without ports is deleted": Case(
        [SMALL, HOLDER, pod("other", node="n")], PORTED, Deleted(pod("other")), False
    ),
    "NodePorts: a node": Case([SMALL, HOLDER], PORTED, Created(node("m")), True),
    # SchedulingGates
    "SchedulingGates: all are removed": Case(
        [SMALL], pod("new", gates=["a", "b"]), Changed(pod("new"), {"spec": {"schedulingGates": []}}), True
    ),
    "SchedulingGates: one of two is removed": Case(
        [SMALL],
        pod("new", gates=["a", "b"]),
        Changed(pod("new"), {"spec": {"schedulingGates": [{"name": "b"}]}}),
        False,
    ),
    "SchedulingGates: a label changes": Case(
        [SMALL], pod("new", gates=["a"]), Changed(pod("new"), labelled(x="y")), False
    ),
    # more of NodeResourcesFit
    "Fit: the pod requests less": Case([SMALL], BIG, Changed(BIG, resized(cpu="1"), "resize"), True),
    "Fit: a node that another plugin rejects gains requested capacity": Case(
        TWO_SIZES, SELECTIVE_BIG, Changed(node("n"), allocatable(cpu="5"), "status"), True
    ),
    "Fit: a node that another plugin rejects gains other capacity": Case(
        TWO_SIZES, SELECTIVE_BIG, Changed(node("n"), allocatable(cpu="4", memory="32Gi"), "status"), False
    ),
    "Fit: a node that another plugin rejects allows more pods": Case(
        [node("n", max_pods=2), node("m", max_pods=1, labels={"disk": "ssd"}), pod("existing", node="m")],
        SELECTIVE,
        Changed(node("n"), allocatable(cpu="4", pods="3"), "status"),
        True,
    ),
    "Fit: the only node that the pod names grows": Case(
        [SMALL, node("m", cpu="1")],
        pod("new", cpu="4", affinity=node_affinity({"matchFields": [NAMED]})),
        Changed(SMALL, allocatable(cpu="4"), "status"),
        True,
    ),
    # extended resources that can be backed by devices
    "Fit: another resource grows on a node that has the extended one": Case(
        [node("n", cpu="1", allocatable={GPU: "1"})],
        pod("new", cpu="2", requests={GPU: "1"}),
        Changed(node("n"), allocatable(memory="32Gi", **{GPU: "1"}), "status"),
        False,
        plugins=FIT_AND_DEVICES,
    ),
    "Fit: another resource grows on a node without the extended one, and DRAExtendedResource is off": Case(
        [SMALL],
        pod("new", requests={GPU: "1"}),
        Changed(SMALL, allocatable(memory="32Gi"), "status"),
        False,
        plugins=FIT_AND_DEVICES,
        gates={"DRAExtendedResource": False},
    ),
    "Fit: another resource grows on a node where devices may back the extended one": Case(
        [node("n"), node("m", cpu="2", labels={"disk": "ssd"}), device_class("gpus", GPU)],
        pod("new", cpu="4", requests={GPU: "1"}, node_selector={"disk": "ssd"}),
        Changed(node("n"), allocatable(cpu="4", memory="32Gi"), "status"),
        True,
        plugins=[*FIT_AND_DEVICES, "NodeAffinity"],
    ),
    "Fit: a device class for the resource is created": Case(
        [SMALL], pod("new", requests={GPU: "1"}), Created(device_class("gpus", GPU)), True, plugins=["NodeResourcesFit"]
    ),
    "Fit: a device class for another resource is created": Case(
        [SMALL],
        pod("new", requests={GPU: "1"}),
        Created(device_class("gpus", "example.com/other")),
        False,
        plugins=["NodeResourcesFit"],
    ),
    "Fit: a device class gets the resource": Case(
        [SMALL, device_class("gpus")],
        pod("new", requests={GPU: "1"}),
        Changed(device_class("gpus"), device_class("gpus", GPU)),
        True,
        plugins=["NodeResourcesFit"],
    ),
    "Fit: a device class gets another resource": Case(
        [SMALL, device_class("gpus")],
        pod("new", requests={GPU: "1"}),
        Changed(device_class("gpus"), device_class("gpus", "example.com/other")),
        False,
        plugins=["NodeResourcesFit"],
    ),
    # more of NodeAffinity and TaintToleration
    "NodeAffinity: a node that matched before": Case(
        [node("n", cpu="1", labels={"disk": "ssd"}), node("m")], SELECTIVE_BIG, Changed(SMALL, labelled(x="y")), False
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
        [SMALL], FEATURE_USER, Changed(SMALL, {"status": {"declaredFeatures": [FEATURE]}}, "status"), True
    ),
    "NodeDeclaredFeatures: a node declares another feature": Case(
        [SMALL], FEATURE_USER, Changed(SMALL, {"status": {"declaredFeatures": ["Another"]}}, "status"), False
    ),
    "NodeDeclaredFeatures: a node that declares it": Case(
        [SMALL], FEATURE_USER, Created(node("m", status={"declaredFeatures": [FEATURE]})), True
    ),
    "NodeDeclaredFeatures: a label of the node changes": Case(
        [SMALL], FEATURE_USER, Changed(SMALL, labelled(x="y")), False
    ),
    "NodeDeclaredFeatures: a label of the pod changes": Case(
        [SMALL], FEATURE_USER, Changed(pod("new"), labelled(x="y")), False
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_change_requeues_a_pod_or_does_not(cluster: ClusterFixture, case: Case) -> None:
    await case.run(cluster)
