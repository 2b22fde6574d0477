"""LowNodeUtilization and HighNodeUtilization: even out the utilization of nodes, or pack pods on fewer of them."""

from kubestow.descheduling.strategies.node_utilization.high import HighNodeUtilization, HighNodeUtilizationArgs
from kubestow.descheduling.strategies.node_utilization.low import LowNodeUtilization, LowNodeUtilizationArgs

__all__ = ["HighNodeUtilization", "HighNodeUtilizationArgs", "LowNodeUtilization", "LowNodeUtilizationArgs"]
