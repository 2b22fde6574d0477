"""The features of dynamic resource allocation that feature gates turn on or off.

Filter, allocator and PreBind get the same :class:`Features`, read once when the plugin is created.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.framework.interface import Handle

__all__ = ["Features"]


@dataclass(frozen=True, slots=True)
class Features:
    """The enabled features; the defaults are those of the feature gates."""

    prioritized_list: bool = True
    partitionable_devices: bool = True
    taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    extended_resources: bool = True

    @classmethod
    def from_gates(cls, handle: Handle) -> Features:
        """Read the feature gates."""
        enabled = handle.feature_enabled
        return cls(
            prioritized_list=enabled("DRAPrioritizedList"),
            partitionable_devices=enabled("DRAPartitionableDevices"),
            taints=enabled("DRADeviceTaints"),
            binding_conditions=enabled("DRADeviceBindingConditions") and enabled("DRAResourceClaimDeviceStatus"),
            consumable_capacity=enabled("DRAConsumableCapacity"),
            extended_resources=enabled("DRAExtendedResource"),
        )
