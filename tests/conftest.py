"""Hypothesis profiles: property tests draw the same examples in every run.

``HYPOTHESIS_PROFILE=exploring`` draws new examples; a failing one becomes a test of its own.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("exploring", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
