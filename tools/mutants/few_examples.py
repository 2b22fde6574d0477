"""A plugin of pytest that lets property tests run few examples: ``-p tools.mutants.few_examples``.

Nearly every mutant that a property test notices is noticed by one of its first examples. With all of them the property
tests of the core take two thirds of the time of all tests, and a mutant could be tried with few of them.
"""

from __future__ import annotations

import unittest

import pytest
from hypothesis import settings

_MOST = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        test = getattr(item, "obj", None)
        function = getattr(test, "__func__", test)
        if function is None or not getattr(function, "is_hypothesis_test", False):
            continue
        machine = getattr(item, "cls", None)
        if machine is not None and issubclass(machine, unittest.TestCase):
            machine.settings = _few(machine.settings)
        else:
            function._hypothesis_internal_use_settings = _few(function._hypothesis_internal_use_settings)


def _few(given: settings) -> settings:
    return settings(given, max_examples=min(given.max_examples, _MOST))
