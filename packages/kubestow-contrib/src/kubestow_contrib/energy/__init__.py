"""Energy, carbon and cost as scores: PowerAware, CarbonAware and CostAware.

:mod:`.power_models` says what a node draws by its CPU and GPU models, and how much more with a pod on it. PowerAware
prefers the node where that is least, CarbonAware weighs it by the carbon intensity of the node's zone, CostAware
compares prices of nodes.
"""

from kubestow_contrib.energy.carbon_aware import CarbonArgs, CarbonAware
from kubestow_contrib.energy.cost_aware import CostArgs, CostAware
from kubestow_contrib.energy.power_aware import PowerAware
from kubestow_contrib.energy.power_models import CpuPower, GpuPower, Granularity, PowerArgs

__all__ = [
    "CarbonArgs",
    "CarbonAware",
    "CostArgs",
    "CostAware",
    "CpuPower",
    "GpuPower",
    "Granularity",
    "PowerArgs",
    "PowerAware",
]
