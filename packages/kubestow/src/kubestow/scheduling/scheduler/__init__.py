"""The scheduler: its composition, the loop that pops one pod after the other, and the handles of plugins."""

from kubestow.scheduling.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
