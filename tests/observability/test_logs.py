"""A line of the log, as klog writes it and as JSON."""

from __future__ import annotations

import json
import logging
import re

import pytest

from kubestow.observability.logs import JSONFormatter, TextFormatter, V, fields
from kubestow.testing import node, pod
from tests.observability.watched import Watched, watching


def record(level: int, message: str, *, failed: Exception | None = None, **named: object) -> logging.LogRecord:
    exc_info = (type(failed), failed, failed.__traceback__) if failed is not None else None
    logger = logging.getLogger("kubestow.scheduling.queue.scheduling_queue")
    return logger.makeRecord(logger.name, level, "queue.py", 7, message, (), exc_info, extra=fields(**named))


def test_text_is_klogs() -> None:
    line = TextFormatter().format(record(V(2), 'Bound "it"', pod="default/a", attempts=2))
    assert re.fullmatch(
        r'I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ queue\.py:7\] "Bound \\"it\\"" pod="default/a" attempts=2', line
    )


def test_json_is_kubernetes() -> None:
    entry = json.loads(JSONFormatter().format(record(V(2), "Bound", pod="default/a")))
    assert entry.pop("ts") > 1e12
    assert entry == {"caller": "scheduling/queue/scheduling_queue.py:7", "msg": "Bound", "v": 2, "pod": "default/a"}


def test_an_error_has_no_verbosity_and_says_what_happened() -> None:
    entry = json.loads(JSONFormatter().format(record(logging.ERROR, "Failed", failed=ValueError("no"))))
    assert "v" not in entry
    assert entry["err"] == "ValueError: no"


def test_a_field_cannot_take_the_place_of_the_message() -> None:
    assert json.loads(JSONFormatter().format(record(V(0), "Said", msg="other")))["msg"] == "Said"


@pytest.mark.parametrize(("verbosity", "told"), [(0, False), (1, False), (2, True), (4, True)])
def test_what_became_of_a_pod_is_told_from_verbosity_2_on(
    caplog: pytest.LogCaptureFixture, verbosity: int, told: bool
) -> None:
    async def story(watched: Watched) -> None:
        watched.world.cluster.put(pod("a"))
        watched.world.cluster.put(pod("big", cpu="100"))
        await watched.world.settles()

    caplog.set_level(V(verbosity))
    watching(story, node("n"))
    assert ("Successfully bound pod to node" in caplog.messages) is told
    assert ("Unable to schedule pod; waiting" in caplog.messages) is told
