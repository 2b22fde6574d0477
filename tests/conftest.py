"""Property tests draw the same examples in every run, so that a change is judged by what it changes.

``HYPOTHESIS_PROFILE=exploring`` draws new ones; what they find becomes a test of its own.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("exploring", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
