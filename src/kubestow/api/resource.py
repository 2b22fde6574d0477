"""Devices and claims on them (resource.k8s.io/v1), as scheduling reads and writes them.

A ResourceSlice publishes devices, a DeviceClass names a kind of device, a ResourceClaim asks for devices and holds,
once allocated, which ones it got. Unlike other objects a claim's allocation is also written, so the structs it is made
of keep every field they may have.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from kubestow.api.core import NodeSelector
from kubestow.api.meta import APIObject, ObjectMeta
from kubestow.api.quantity import Quantity

__all__ = [
    "EXTENDED_RESOURCE_CLAIM",
    "FINALIZER",
    "AllocatedDeviceStatus",
    "AllocationResult",
    "CELDeviceSelector",
    "CapacityRequestPolicy",
    "CapacityRequestPolicyRange",
    "CapacityRequirements",
    "Counter",
    "CounterSet",
    "Device",
    "DeviceAllocationConfiguration",
    "DeviceAllocationResult",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClaimConfiguration",
    "DeviceClass",
    "DeviceClassSpec",
    "DeviceConfiguration",
    "DeviceConstraint",
    "DeviceCounterConsumption",
    "DeviceRequest",
    "DeviceRequestAllocationResult",
    "DeviceSelection",
    "DeviceSelector",
    "DeviceSubRequest",
    "DeviceTaint",
    "DeviceToleration",
    "ExactDeviceRequest",
    "ResourceClaim",
    "ResourceClaimConsumerReference",
    "ResourceClaimSpec",
    "ResourceClaimStatus",
    "ResourcePool",
    "ResourceSlice",
    "ResourceSliceSpec",
]

#: Keeps an allocated claim from vanishing while it is in use.
FINALIZER = "resource.kubernetes.io/delete-protection"
#: Annotation of claims that a scheduler made for a pod's extended resources; its value is "true".
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"


# -- what there is ---------------------------------------------------------------------------------------------------


class DeviceAttribute(APIObject, frozen=True):
    """One value of one of four types."""

    int_value: int | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")


class CapacityRequestPolicyRange(APIObject, frozen=True):
    """Amounts from ``min`` to ``max`` in steps."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(APIObject, frozen=True):
    """Which amounts of a capacity may be asked for, and how much is taken when nobody says."""

    default: Quantity | None = None
    valid_values: list[Quantity] = []
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(APIObject, frozen=True):
    """How much of something a device has."""

    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(APIObject, frozen=True):
    """An amount of something that devices share."""

    value: Quantity = "0"


class CounterSet(APIObject, frozen=True):
    """Counters of a pool that its devices draw upon."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(APIObject, frozen=True):
    """What a device takes from a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(APIObject, frozen=True):
    """Keeps claims away from a device unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(APIObject, frozen=True):
    """``spec.devices[]`` of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: list[DeviceTaint] = []
    binds_to_node: bool = False
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool = False


class ResourcePool(APIObject, frozen=True):
    """The pool a slice is part of: complete when as many slices of its generation are there."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(APIObject, frozen=True):
    """``spec`` of a slice: devices or counters, and the nodes that reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(APIObject, frozen=True):
    """A part of a pool of devices, as a driver publishes it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class CELDeviceSelector(APIObject, frozen=True):
    """An expression over a device."""

    expression: str = ""


class DeviceSelector(APIObject, frozen=True):
    """One condition on a device."""

    cel: CELDeviceSelector | None = None


class DeviceConfiguration(APIObject, frozen=True):
    """Parameters for a driver, which nobody else reads."""

    opaque: dict[str, Any] | None = None


class DeviceClassSpec(APIObject, frozen=True):
    """``spec`` of a class."""

    selectors: list[DeviceSelector] = []
    config: list[DeviceConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(APIObject, frozen=True):
    """A kind of device, in an administrator's words."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# -- what is asked for -----------------------------------------------------------------------------------------------


class DeviceToleration(APIObject, frozen=True):
    """A taint that a request puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(APIObject, frozen=True):
    """How much of a device's capacities a request needs."""

    requests: dict[str, Quantity] = {}


class DeviceSelection(APIObject, frozen=True):
    """Which devices, and how many: what requests and their alternatives have in common."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(DeviceSelection, frozen=True):
    """A request that leaves no choice of class. With admin access devices are not taken from others."""

    admin_access: bool | None = None


class DeviceSubRequest(DeviceSelection, frozen=True):
    """One of several alternatives."""

    name: str = ""


class DeviceRequest(APIObject, frozen=True):
    """``spec.devices.requests[]``: either one selection or alternatives, the best first."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(APIObject, frozen=True):
    """An attribute that the devices of some requests (all, if none is named) must share, or must not."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(DeviceConfiguration, frozen=True):
    """Parameters for some requests, all of them if none is named."""

    requests: list[str] = []


class DeviceClaim(APIObject, frozen=True):
    """``spec.devices`` of a claim."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(APIObject, frozen=True):
    """``spec`` of a claim."""

    devices: DeviceClaim = DeviceClaim()


# -- what was given --------------------------------------------------------------------------------------------------


class DeviceRequestAllocationResult(APIObject, frozen=True):
    """One device for one request; ``share_id`` tells shares of the same device apart."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}


class DeviceAllocationConfiguration(DeviceConfiguration, frozen=True):
    """Parameters that go with an allocation; ``source`` is FromClass or FromClaim."""

    source: str = ""
    requests: list[str] = []


class DeviceAllocationResult(APIObject, frozen=True):
    """``status.allocation.devices``."""

    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(APIObject, frozen=True):
    """``status.allocation``: the devices, and the nodes that reach them (all, without a selector)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(APIObject, frozen=True):
    """``status.reservedFor[]``: who may use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(APIObject, frozen=True):
    """A condition that a driver reports of an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(APIObject, frozen=True):
    """``status.devices[]``."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: list[DeviceCondition] = []


class ResourceClaimStatus(APIObject, frozen=True):
    """``status`` of a claim."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(APIObject, frozen=True):
    """Asks for devices, and holds them."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """``namespace/name``, for people and messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def is_reserved_for(self, uid: str) -> bool:
        """Whether a pod, by its uid, may use the claim."""
        return any(consumer.uid == uid for consumer in self.status.reserved_for)
