"""DefaultEvictor: which pods may be evicted at all, by protections, thresholds and node fit."""

from kubestow.descheduling.default_evictor.args import DefaultEvictorArgs
from kubestow.descheduling.default_evictor.plugin import DefaultEvictor

__all__ = ["DefaultEvictor", "DefaultEvictorArgs"]
