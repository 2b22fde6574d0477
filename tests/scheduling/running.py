"""The living scheduler of :mod:`kubestow.testing`, where tests of this room find it."""

from __future__ import annotations

from kubestow.testing.scheduler_harness import Living, in_virtual_time, living

__all__ = ["Living", "in_virtual_time", "living"]
