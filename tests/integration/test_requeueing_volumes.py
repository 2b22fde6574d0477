"""What brings back a pod that waits for volumes or devices (semantics 6.10, 11.5).

Most refusals over volumes are those of several plugins; where a row is about one of them, the others are left out.
"""

from __future__ import annotations

import pytest

from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage
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
FULL = pod("there", cpu="1", node="n")
USER = pod("new", spec=using("a"))
DEVICE_USER = pod("new", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})
LIMITED = [
    *(SMALL, csi_node("n", 1), volume("b"), claim("b"), volume("a"), claim("a")),
    pod("user", node="n", spec=using("b")),
]
EBS_USER = pod("new", spec={"volumes": [{"name": "disk", "awsElasticBlockStore": {"volumeID": "a"}}]})
EBS_FULL = [SMALL, csi_node("n", 0, driver="ebs.csi.aws.com", migrated="kubernetes.io/aws-ebs")]
ZONES, BINDING, LIMITS = ["VolumeZone"], ["VolumeBinding"], ["NodeVolumeLimits"]
MIGRATED = {"metadata": csi_node("n", 1, migrated="kubernetes.io/aws-ebs")["metadata"]}


def into(*zones: str) -> Object:
    """The topologies that a class is allowed."""
    return {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]}


def driven(**spec: bool) -> Object:
    return {"spec": spec}


CASES = {
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
        LIMITED,
        USER,
        Changed(csi_node("n", 1), {"spec": csi_node("n", 2)["spec"]}),
        True,
    ),
    "NodeVolumeLimits: a label changes": Case(
        LIMITED,
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
    "VolumeRestrictions: its claim appears": Case(
        [SMALL, volume("a")], USER, Created(claim("a")), True, only=["VolumeRestrictions"]
    ),
    "VolumeRestrictions: another claim appears": Case(
        [SMALL, volume("a")], USER, Created(claim("b")), False, only=["VolumeRestrictions"]
    ),
    # VolumeZone
    "VolumeZone: its volume appears": Case([ZONED, claim("a")], USER, Created(volume("a")), True, only=ZONES),
    "VolumeZone: its volume moves": Case(
        [ZONED, volume("a") | zoned("2", "a"), claim("a")], USER, Changed(volume("a"), labelled(**{ZONE: "1"})), True
    ),
    "VolumeZone: its volume changes in another way": Case(
        [ZONED, volume("a") | zoned("2", "a"), claim("a")],
        USER,
        Changed(volume("a"), labelled(x="y")),
        False,
        only=ZONES,
    ),
    "VolumeZone: its claim appears": Case([ZONED, volume("a")], USER, Created(claim("a")), True, only=ZONES),
    "VolumeZone: another claim appears": Case([ZONED, volume("a")], USER, Created(claim("b")), False, only=ZONES),
    "VolumeZone: its claim is bound": Case(
        [ZONED, volume("a"), unbound("a", of="")], USER, Changed(unbound("a", of=""), BOUND), True, only=ZONES
    ),
    "VolumeZone: another claim changes": Case(
        [ZONED, unbound("a", of=""), unbound("b", of="")],
        USER,
        Changed(unbound("b", of=""), labelled(x="y")),
        False,
        only=ZONES,
    ),
    "VolumeZone: a class that waits for pods appears": Case(
        [ZONED, unbound("a", of="slow")], USER, Created(storage_class("slow")), True, only=ZONES
    ),
    "VolumeZone: a class that does not wait for pods appears": Case(
        [ZONED, unbound("a", of="slow")],
        USER,
        Created(storage_class("slow") | {"volumeBindingMode": "Immediate"}),
        False,
        only=ZONES,
    ),
    # VolumeBinding
    "VolumeBinding: a node comes": Case(
        [ZONED, reaching(ZONE, "2", "a"), claim("a")], USER, Created(node("m", zone="2")), True, only=BINDING
    ),
    "VolumeBinding: a node gets another label": Case(
        [ZONED, reaching(ZONE, "2", "a"), claim("a")], USER, Changed(ZONED, labelled(**{ZONE: "2"})), True, only=BINDING
    ),
    "VolumeBinding: its volume can be reached from elsewhere": Case(
        [ZONED, reaching(OLD_ZONE, "1", "a"), claim("a")],
        USER,
        Changed(volume("a"), {"spec": {"nodeAffinity": reaching(ZONE, "1", "a")["spec"]["nodeAffinity"]}}),
        True,
        only=BINDING,
    ),
    "VolumeBinding: its claim is bound": Case(
        [SMALL, volume("a"), unbound("a", of="")], USER, Changed(unbound("a", of=""), BOUND), True, only=BINDING
    ),
    "VolumeBinding: another claim changes": Case(
        [SMALL, unbound("a", of=""), unbound("b", of="")],
        USER,
        Changed(unbound("b", of=""), labelled(x="y")),
        False,
        only=BINDING,
    ),
    "VolumeBinding: the topologies of a class change": Case(
        [ZONED, storage_class("slow") | into("3"), unbound("a", of="slow")],
        USER,
        Changed(storage_class("slow"), into("1")),
        True,
        only=BINDING,
    ),
    "VolumeBinding: what a node can mount is told": Case(
        [SMALL, unbound("a", of="")], USER, Created(csi_node("n", 1)), True, only=BINDING
    ),
    "VolumeBinding: plugins of a node migrate": Case(
        [SMALL, csi_node("n", 1), unbound("a", of="")], USER, Changed(csi_node("n", 1), MIGRATED), True, only=BINDING
    ),
    "VolumeBinding: what a node can mount changes in another way": Case(
        [SMALL, csi_node("n", 1), unbound("a", of="")],
        USER,
        Changed(csi_node("n", 1), labelled(x="y")),
        False,
        only=BINDING,
    ),
    "VolumeBinding: capacity does not matter to a driver any more": Case(
        [SMALL, csi_driver(storageCapacity=True), unbound("a", of="")],
        pod("new", spec=inline("a")),
        Changed(csi_driver(), driven(storageCapacity=False)),
        True,
        only=BINDING,
    ),
    "VolumeBinding: capacity matters to a driver from now on": Case(
        [SMALL, csi_driver(storageCapacity=False), unbound("a", of="")],
        pod("new", spec=inline("a")),
        Changed(csi_driver(), driven(storageCapacity=True)),
        False,
        only=BINDING,
    ),
    "VolumeBinding: there is capacity": Case(
        [SMALL, unbound("a", of="")], USER, Created(capacity("10")), True, only=BINDING
    ),
    "VolumeBinding: there is more capacity": Case(
        [SMALL, unbound("a", of=""), capacity("10")],
        USER,
        Changed(capacity("10"), {"capacity": "20"}),
        True,
        only=BINDING,
    ),
    "VolumeBinding: there is less capacity": Case(
        [SMALL, unbound("a", of=""), capacity("10")],
        USER,
        Changed(capacity("10"), {"capacity": "5"}),
        False,
        only=BINDING,
    ),
    # NodeVolumeLimits
    "NodeVolumeLimits: what another node takes is told": Case(
        LIMITED, USER, Created(csi_node("m", 1)), True, only=LIMITS
    ),
    "NodeVolumeLimits: a pod with volumes leaves": Case(LIMITED, USER, Deleted(pod("user")), True, only=LIMITS),
    "NodeVolumeLimits: a pod without volumes leaves": Case([*LIMITED, FULL], USER, Deleted(FULL), False, only=LIMITS),
    "NodeVolumeLimits: its claim appears": Case(
        [*LIMITED[:5], LIMITED[6]], USER, Created(claim("a")), True, only=LIMITS
    ),
    "NodeVolumeLimits: another claim appears": Case(
        [*LIMITED[:5], LIMITED[6]], USER, Created(claim("c")), False, only=LIMITS
    ),
    "NodeVolumeLimits: a volume is detached": Case(
        [*LIMITED, attachment("x", "example.com")], USER, Deleted(attachment("x", "example.com")), True, only=LIMITS
    ),
    "NodeVolumeLimits: a volume of the driver is detached": Case(
        [*EBS_FULL, attachment("x", "ebs.csi.aws.com")],
        EBS_USER,
        Deleted(attachment("x", "ebs.csi.aws.com")),
        True,
        only=LIMITS,
    ),
    "NodeVolumeLimits: a volume of another driver is detached": Case(
        [*EBS_FULL, attachment("x", "pd.csi.storage.gke.io")],
        EBS_USER,
        Deleted(attachment("x", "pd.csi.storage.gke.io")),
        False,
        only=LIMITS,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_brings_a_pod_back(stage: Stage, case: Case) -> None:
    await case.happens(stage)
