"""Hypothesis profiles, and what all tests can use.

Property tests draw the same examples in every run, and take as long as the machine needs.
``HYPOTHESIS_PROFILE=exploring`` draws new examples; a failing one becomes a test of its own. ``first-failure`` ends at
the first example that fails and does not simplify it, for those who only want to know whether one does.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from kubestow import gc_tuning

gc_tuning.raise_thresholds()  # as every command does, and before thousands of tests are imported

# Processes that tests start import what the tests import, such as plugins.
_ROOT = Path(__file__).parent
_IMPORTED = [path for path in sys.path if path == str(_ROOT) or Path(path).match("packages/*/tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([*_IMPORTED, *filter(None, [os.environ.get("PYTHONPATH")])])

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("exploring", settings.get_profile("repeatable"), derandomize=False, max_examples=200)
settings.register_profile(
    "first-failure",
    settings.get_profile("repeatable"),
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    database=None,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The processes of a run with ``-n auto``: two more than cores, since many tests wait for processes they start."""
    cores = len(os.sched_getaffinity(0))
    return cores + min(cores, 2)


@pytest.fixture(scope="module")
def only_own_garbage() -> Iterator[None]:
    """The garbage collector looks at what the tests of a module create, and not at what thousands before have left."""
    gc.freeze()
    yield
    gc.unfreeze()
