"""Log lines in klog's text format and in JSON."""

from __future__ import annotations

import json
import logging
import re

import pytest

from core_tests.observability.harness import Observed, observe
from kubestow.log_fields import V, fields
from kubestow.observability.logs import JSONFormatter, TextFormatter
from kubestow.testing import node, pod


def record(level: int, message: str, *, failed: Exception | None = None, **pairs: object) -> logging.LogRecord:
    exc_info = (type(failed), failed, failed.__traceback__) if failed is not None else None
    logger = logging.getLogger("kubestow.scheduling.queue.scheduling_queue")
    return logger.makeRecord(logger.name, level, "queue.py", 7, message, (), exc_info, extra=fields(**pairs))


def test_text_has_klogs_format() -> None:
    line = TextFormatter().format(record(V(2), 'Bound "it"', pod="default/a", attempts=2))
    assert re.fullmatch(
        r'I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ queue\.py:7\] "Bound \\"it\\"" pod="default/a" attempts=2', line
    )


def test_json_has_the_format_of_kubernetes() -> None:
    entry = json.loads(JSONFormatter().format(record(V(2), "Bound", pod="default/a")))
    assert entry.pop("ts") > 1e12
    assert entry == {"caller": "scheduling/queue/scheduling_queue.py:7", "msg": "Bound", "v": 2, "pod": "default/a"}


def test_an_error_has_no_verbosity_and_contains_the_exception() -> None:
    entry = json.loads(JSONFormatter().format(record(logging.ERROR, "Failed", failed=ValueError("no"))))
    assert "v" not in entry
    assert entry["err"] == "ValueError: no"


def test_a_field_cannot_replace_the_message() -> None:
    assert json.loads(JSONFormatter().format(record(V(0), "Bound", msg="other")))["msg"] == "Bound"


@pytest.mark.parametrize(("verbosity", "logged"), [(0, False), (1, False), (2, True), (4, True)])
def test_scheduling_results_are_logged_from_verbosity_2_on(
    caplog: pytest.LogCaptureFixture, verbosity: int, logged: bool
) -> None:
    async def scenario(observed: Observed) -> None:
        observed.harness.cluster.put(pod("a"))
        observed.harness.cluster.put(pod("big", cpu="100"))
        await observed.harness.settle()

    caplog.set_level(V(verbosity))
    observe(scenario, node("n"))
    assert ("Successfully bound pod to node" in caplog.messages) is logged
    assert ("Unable to schedule pod; no fit; waiting" in caplog.messages) is logged
