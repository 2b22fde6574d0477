"""How long a test waits for something that must happen, before it counts as hanging."""

from __future__ import annotations

#: Seconds. No test depends on speed: this only ends a test that would wait for ever.
HANG_LIMIT = 600.0
