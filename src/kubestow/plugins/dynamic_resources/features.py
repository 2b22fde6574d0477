"""Which parts of dynamic resource allocation the feature gates leave on."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.framework.interface import Handle

__all__ = ["Features"]


@dataclass(frozen=True, slots=True)
class Features:
    """What devices and claims may use; by default everything that is on by default."""

    prioritized_list: bool = True
    partitionable: bool = True
    taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    extended_resources: bool = True

    @classmethod
    def of(cls, handle: Handle) -> Features:
        """As the gates say."""
        on = handle.feature_enabled
        return cls(
            prioritized_list=on("DRAPrioritizedList"),
            partitionable=on("DRAPartitionableDevices"),
            taints=on("DRADeviceTaints"),
            binding_conditions=on("DRADeviceBindingConditions") and on("DRAResourceClaimDeviceStatus"),
            consumable_capacity=on("DRAConsumableCapacity"),
            extended_resources=on("DRAExtendedResource"),
        )
