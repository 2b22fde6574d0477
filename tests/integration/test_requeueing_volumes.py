"""Events that requeue pods that wait for volumes or devices (semantics 6.10, 11.5).

Several plugins reject most pods with volumes; where a case is about one of them, the others are disabled.
"""

from __future__ import annotations

import pytest

from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object
from tests.integration.objects import (
    BOUND,
    DEVICE_CLASS,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    device_claim,
    devices,
    inline,
    reaching,
    storage_class,
    unbound,
    using,
    volume,
    zoned,
)
from tests.integration.requeueing import Case, Changed, Created, Deleted, labelled

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
SMALL = node("n", cpu="1")
ZONED = node("n", zone="1")
FULL = pod("existing", cpu="1", node="n")
USER = pod("new", spec=using("a"))
DEVICE_USER = pod("new", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})
AT_LIMIT = [
    *(SMALL, csi_node("n", 1), volume("b"), claim("b"), volume("a"), claim("a")),
    pod("user", node="n", spec=using("b")),
]
EBS_USER = pod("new", spec={"volumes": [{"name": "disk", "awsElasticBlockStore": {"volumeID": "a"}}]})
EBS_AT_LIMIT = [SMALL, csi_node("n", 0, driver="ebs.csi.aws.com", migrated="kubernetes.io/aws-ebs")]
ZONES, BINDING, LIMITS = ["VolumeZone"], ["VolumeBinding"], ["NodeVolumeLimits"]
MIGRATED = {"metadata": csi_node("n", 1, migrated="kubernetes.io/aws-ebs")["metadata"]}


def allowed_zones(*zones: str) -> Object:
    """The allowed topologies of a storage class."""
    return {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]}


def driver_spec(**spec: bool) -> Object:
    return {"spec": spec}


CASES = {
    "VolumeRestrictions: the other user of the claim is deleted": Case(
        [SMALL, volume("a"), claim("a"), pod("user", node="n", spec=using("a"))],
        pod("new", spec=using("a")),
        Deleted(pod("user")),
        True,
    ),
    "VolumeRestrictions: another pod is deleted": Case(
        [SMALL, volume("a"), claim("a"), pod("user", node="n", spec=using("a")), pod("other", node="n")],
        pod("new", spec=using("a")),
        Deleted(pod("other")),
        False,
    ),
    "VolumeBinding: its claim is created": Case(
        [SMALL, volume("a")], pod("new", spec=using("a")), Created(claim("a")), True
    ),
    "VolumeBinding: another claim is created": Case([SMALL], pod("new", spec=using("a")), Created(claim("b")), False),
    "VolumeBinding: a class is created": Case(
        [SMALL, unbound("a", of="slow")], USER, Created(storage_class("slow")), True
    ),
    "VolumeBinding: a label of a class changes": Case(
        [SMALL, storage_class("slow"), unbound("a", of="slow")],
        USER,
        Changed(storage_class("slow"), labelled(x="y")),
        False,
    ),
    "VolumeZone: the zone of the node changes to the volume's": Case(
        [node("n", zone="1"), volume("a") | zoned("2", "a"), claim("a")],
        USER,
        Changed(node("n"), labelled(**{ZONE: "2"})),
        True,
    ),
    "NodeVolumeLimits: the limit of a node grows": Case(
        AT_LIMIT,
        USER,
        Changed(csi_node("n", 1), {"spec": csi_node("n", 2)["spec"]}),
        True,
    ),
    "NodeVolumeLimits: a label changes": Case(
        AT_LIMIT,
        USER,
        Changed(csi_node("n", 1), labelled(x="y")),
        False,
    ),
    # DynamicResources
    "DynamicResources: its claim is created": Case([SMALL], DEVICE_USER, Created(device_claim("gpu")), True),
    "DynamicResources: another claim is created": Case([SMALL], DEVICE_USER, Created(device_claim("other")), False),
    "DynamicResources: devices are published": Case(
        [SMALL, DEVICE_CLASS, device_claim("gpu")], DEVICE_USER, Created(devices("n")), True
    ),
    "DynamicResources: the class is created": Case(
        [SMALL, device_claim("gpu"), devices("n")], DEVICE_USER, Created(DEVICE_CLASS), True
    ),
    "DynamicResources: a pod is deleted": Case(
        [SMALL, DEVICE_CLASS, device_claim("gpu"), FULL], DEVICE_USER, Deleted(FULL), False
    ),
    "VolumeBinding: a volume is created": Case(
        [SMALL, claim("a")], pod("new", spec=using("a")), Created(volume("a")), True
    ),
    "VolumeRestrictions: its claim is created": Case(
        [SMALL, volume("a")], USER, Created(claim("a")), True, plugins=["VolumeRestrictions"]
    ),
    "VolumeRestrictions: another claim is created": Case(
        [SMALL, volume("a")], USER, Created(claim("b")), False, plugins=["VolumeRestrictions"]
    ),
    # VolumeZone
    "VolumeZone: its volume is created": Case([ZONED, claim("a")], USER, Created(volume("a")), True, plugins=ZONES),
    "VolumeZone: the zone of its volume changes": Case(
        [ZONED, volume("a") | zoned("2", "a"), claim("a")], USER, Changed(volume("a"), labelled(**{ZONE: "1"})), True
    ),
    "VolumeZone: another label of its volume changes": Case(
        [ZONED, volume("a") | zoned("2", "a"), claim("a")],
        USER,
        Changed(volume("a"), labelled(x="y")),
        False,
        plugins=ZONES,
    ),
    "VolumeZone: its claim is created": Case([ZONED, volume("a")], USER, Created(claim("a")), True, plugins=ZONES),
    "VolumeZone: another claim is created": Case([ZONED, volume("a")], USER, Created(claim("b")), False, plugins=ZONES),
    "VolumeZone: its claim is bound": Case(
        [ZONED, volume("a"), unbound("a", of="")], USER, Changed(unbound("a", of=""), BOUND), True, plugins=ZONES
    ),
    "VolumeZone: another claim changes": Case(
        [ZONED, unbound("a", of=""), unbound("b", of="")],
        USER,
        Changed(unbound("b", of=""), labelled(x="y")),
        False,
        plugins=ZONES,
    ),
    "VolumeZone: a class with WaitForFirstConsumer is created": Case(
        [ZONED, unbound("a", of="slow")], USER, Created(storage_class("slow")), True, plugins=ZONES
    ),
    "VolumeZone: a class with Immediate binding is created": Case(
        [ZONED, unbound("a", of="slow")],
        USER,
        Created(storage_class("slow") | {"volumeBindingMode": "Immediate"}),
        False,
        plugins=ZONES,
    ),
    # VolumeBinding
    "VolumeBinding: a node is added": Case(
        [ZONED, reaching(ZONE, "2", "a"), claim("a")], USER, Created(node("m", zone="2")), True, plugins=BINDING
    ),
    "VolumeBinding: a node gets another label": Case(
        [ZONED, reaching(ZONE, "2", "a"), claim("a")],
        USER,
        Changed(ZONED, labelled(**{ZONE: "2"})),
        True,
        plugins=BINDING,
    ),
    "VolumeBinding: the node affinity of its volume changes": Case(
        [ZONED, reaching(OLD_ZONE, "1", "a"), claim("a")],
        USER,
        Changed(volume("a"), {"spec": {"nodeAffinity": reaching(ZONE, "1", "a")["spec"]["nodeAffinity"]}}),
        True,
        plugins=BINDING,
    ),
    "VolumeBinding: its claim is bound": Case(
        [SMALL, volume("a"), unbound("a", of="")], USER, Changed(unbound("a", of=""), BOUND), True, plugins=BINDING
    ),
    "VolumeBinding: another claim changes": Case(
        [SMALL, unbound("a", of=""), unbound("b", of="")],
        USER,
        Changed(unbound("b", of=""), labelled(x="y")),
        False,
        plugins=BINDING,
    ),
    "VolumeBinding: the topologies of a class change": Case(
        [ZONED, storage_class("slow") | allowed_zones("3"), unbound("a", of="slow")],
        USER,
        Changed(storage_class("slow"), allowed_zones("1")),
        True,
        plugins=BINDING,
    ),
    "VolumeBinding: a CSINode is created": Case(
        [SMALL, unbound("a", of="")], USER, Created(csi_node("n", 1)), True, plugins=BINDING
    ),
    "VolumeBinding: the migrated plugins of a CSINode change": Case(
        [SMALL, csi_node("n", 1), unbound("a", of="")], USER, Changed(csi_node("n", 1), MIGRATED), True, plugins=BINDING
    ),
    "VolumeBinding: a label of a CSINode changes": Case(
        [SMALL, csi_node("n", 1), unbound("a", of="")],
        USER,
        Changed(csi_node("n", 1), labelled(x="y")),
        False,
        plugins=BINDING,
    ),
    "VolumeBinding: a driver disables storageCapacity": Case(
        [SMALL, csi_driver(storageCapacity=True), unbound("a", of="")],
        pod("new", spec=inline("a")),
        Changed(csi_driver(), driver_spec(storageCapacity=False)),
        True,
        plugins=BINDING,
    ),
    "VolumeBinding: a driver enables storageCapacity": Case(
        [SMALL, csi_driver(storageCapacity=False), unbound("a", of="")],
        pod("new", spec=inline("a")),
        Changed(csi_driver(), driver_spec(storageCapacity=True)),
        False,
        plugins=BINDING,
    ),
    "VolumeBinding: a CSIStorageCapacity is created": Case(
        [SMALL, unbound("a", of="")], USER, Created(capacity("10")), True, plugins=BINDING
    ),
    "VolumeBinding: a CSIStorageCapacity grows": Case(
        [SMALL, unbound("a", of=""), capacity("10")],
        USER,
        Changed(capacity("10"), {"capacity": "20"}),
        True,
        plugins=BINDING,
    ),
    "VolumeBinding: a CSIStorageCapacity shrinks": Case(
        [SMALL, unbound("a", of=""), capacity("10")],
        USER,
        Changed(capacity("10"), {"capacity": "5"}),
        False,
        plugins=BINDING,
    ),
    # NodeVolumeLimits
    "NodeVolumeLimits: the CSINode of another node is created": Case(
        AT_LIMIT, USER, Created(csi_node("m", 1)), True, plugins=LIMITS
    ),
    "NodeVolumeLimits: a pod with volumes is deleted": Case(AT_LIMIT, USER, Deleted(pod("user")), True, plugins=LIMITS),
    "NodeVolumeLimits: a pod without volumes is deleted": Case(
        [*AT_LIMIT, FULL], USER, Deleted(FULL), False, plugins=LIMITS
    ),
    "NodeVolumeLimits: its claim is created": Case(
        [*AT_LIMIT[:5], AT_LIMIT[6]], USER, Created(claim("a")), True, plugins=LIMITS
    ),
    "NodeVolumeLimits: another claim is created": Case(
        [*AT_LIMIT[:5], AT_LIMIT[6]], USER, Created(claim("c")), False, plugins=LIMITS
    ),
    "NodeVolumeLimits: a volume is detached": Case(
        [*AT_LIMIT, attachment("x", "example.com")], USER, Deleted(attachment("x", "example.com")), True, plugins=LIMITS
    ),
    "NodeVolumeLimits: a volume of the driver is detached": Case(
        [*EBS_AT_LIMIT, attachment("x", "ebs.csi.aws.com")],
        EBS_USER,
        Deleted(attachment("x", "ebs.csi.aws.com")),
        True,
        plugins=LIMITS,
    ),
    "NodeVolumeLimits: a volume of another driver is detached": Case(
        [*EBS_AT_LIMIT, attachment("x", "pd.csi.storage.gke.io")],
        EBS_USER,
        Deleted(attachment("x", "pd.csi.storage.gke.io")),
        False,
        plugins=LIMITS,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_change_requeues_a_pod_or_does_not(cluster: ClusterFixture, case: Case) -> None:
    await case.run(cluster)
