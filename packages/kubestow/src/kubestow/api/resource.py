"""Devices and ResourceClaims (resource.k8s.io/v1), as scheduling reads and writes them.

A ResourceSlice publishes devices, a DeviceClass selects a category of devices, and a ResourceClaim requests devices and
records the allocated ones. Unlike other objects, the allocation of a claim is also written, so its structs have all
fields of the API.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from kubestow.api.core import NodeSelector, Taint, Toleration
from kubestow.api.formats.quantity import Quantity
from kubestow.api.json_text import MAX_DEPTH, is_too_deep
from kubestow.api.meta import APIObject, ObjectMeta, Time

#: Prevents the deletion of an allocated claim while it is in use.
FINALIZER = "resource.kubernetes.io/delete-protection"
#: Annotation of claims that the scheduler created for a pod's extended resources; its value is "true".
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"


# Devices -------------------------------------------------------------------------------------------------------------


class DeviceAttribute(APIObject, frozen=True):
    """An attribute value; exactly one of the four fields is set."""

    int_value: int | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")


class CapacityRequestPolicyRange(APIObject, frozen=True):
    """Valid amounts: ``min`` to ``max`` in multiples of ``step``."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(APIObject, frozen=True):
    """The valid requests for a capacity, and the amount consumed without a request."""

    default: Quantity | None = None
    valid_values: list[Quantity] = []
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(APIObject, frozen=True):
    """``capacity`` of a device."""

    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(APIObject, frozen=True):
    """A counter of a counter set, or its consumption by a device."""

    value: Quantity = "0"


class CounterSet(APIObject, frozen=True):
    """Counters that are shared by the devices of a pool."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(APIObject, frozen=True):
    """The counters that an allocated device consumes from a counter set.

    ``compatibility_groups`` are in v1.37: the device can be allocated beside others that declare one of them.
    """

    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: list[str] = []


class DeviceTaint(Taint, frozen=True):
    """A taint of a device; only requests that tolerate it can allocate the device."""


class Device(APIObject, frozen=True):
    """``spec.devices[]`` of a ResourceSlice."""

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
    """``spec.pool`` of a ResourceSlice; a pool is complete with ``resource_slice_count`` slices of one generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(APIObject, frozen=True):
    """``spec`` of a ResourceSlice: devices or shared counters, and the nodes that can access them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(APIObject, frozen=True):
    """Devices of a pool, published by a driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class CELDeviceSelector(APIObject, frozen=True):
    """A CEL expression over a device."""

    expression: str = ""


class DeviceSelector(APIObject, frozen=True):
    """A selector over devices."""

    cel: CELDeviceSelector | None = None


class DeviceConfiguration(APIObject, frozen=True):
    """Opaque parameters of a driver; raises ValueError for parameters that are too deep for recursion."""

    opaque: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.opaque is not None and is_too_deep(self.opaque):
            raise ValueError(f"opaque parameters of more than {MAX_DEPTH} levels")


class DeviceClassSpec(APIObject, frozen=True):
    """``spec`` of a DeviceClass."""

    selectors: list[DeviceSelector] = []
    config: list[DeviceConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(APIObject, frozen=True):
    """A category of devices, defined by an administrator."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaintSelector(APIObject, frozen=True):
    """``spec.deviceSelector`` of a DeviceTaintRule: the devices that satisfy all criteria; None asks for nothing.

    Only v1alpha3 of 1.33 and 1.34 has a device class and selectors.
    """

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    device_class_name: str | None = None
    selectors: list[DeviceSelector] = []


class DeviceTaintRuleSpec(APIObject, frozen=True):
    """``spec`` of a DeviceTaintRule."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(APIObject, frozen=True):
    """A taint for the selected devices, as if their slices had it; made by an administrator."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


# Requests ------------------------------------------------------------------------------------------------------------


class DeviceToleration(Toleration, frozen=True):
    """A toleration of a device taint."""

    toleration_seconds: int | None = None


class CapacityRequirements(APIObject, frozen=True):
    """The amounts of a device's capacities that a request consumes."""

    requests: dict[str, Quantity] = {}


class DeviceSelection(APIObject, frozen=True):
    """The common fields of :class:`ExactDeviceRequest` and :class:`DeviceSubRequest`."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(DeviceSelection, frozen=True):
    """``exactly`` of a request. With admin access, devices stay available to other claims."""

    admin_access: bool | None = None


class DeviceSubRequest(DeviceSelection, frozen=True):
    """``firstAvailable[]`` of a request: one of several alternatives."""

    name: str = ""


class DeviceRequest(APIObject, frozen=True):
    """``spec.devices.requests[]``: either ``exactly`` or alternatives in order of preference."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(APIObject, frozen=True):
    """An attribute that must be equal, or distinct, on the devices of the named requests (of all, if empty)."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(DeviceConfiguration, frozen=True):
    """Driver parameters for the named requests, or for all if empty."""

    requests: list[str] = []


class DeviceClaim(APIObject, frozen=True):
    """``spec.devices`` of a ResourceClaim."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(APIObject, frozen=True):
    """``spec`` of a ResourceClaim."""

    devices: DeviceClaim = DeviceClaim()


# Allocations ---------------------------------------------------------------------------------------------------------


class DeviceRequestAllocationResult(APIObject, frozen=True):
    """A device allocated for a request; ``share_id`` distinguishes shares of one device."""

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
    """Driver parameters of an allocation; ``source`` is FromClass or FromClaim."""

    source: str = ""
    requests: list[str] = []


class DeviceAllocationResult(APIObject, frozen=True):
    """``status.allocation.devices``."""

    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(APIObject, frozen=True):
    """``status.allocation``: the devices, and the nodes that can access them (all, without a selector)."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time | None = None


class ResourceClaimConsumerReference(APIObject, frozen=True):
    """``status.reservedFor[]``: a consumer of the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(APIObject, frozen=True):
    """A condition of an allocated device, reported by its driver."""

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
    """``status`` of a ResourceClaim."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(APIObject, frozen=True):
    """A request for devices and its allocation."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """``namespace/name``, for messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def is_reserved_for(self, uid: str) -> bool:
        """Whether the claim is reserved for the pod with this UID."""
        return any(consumer.uid == uid for consumer in self.status.reserved_for)
