"""What several extenders say together, without a scheduler around them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from kubestow.cluster.cache import Cluster
from kubestow.framework.status import Status
from kubestow.log_fields import FIELDS
from kubestow.scheduling.extenders.stages import ExtenderFilterResponse, ExtenderFilterResult, Extenders
from kubestow.testing import pod


def test_scores_are_weighted_and_summed_by_node() -> None:
    cluster = Cluster()
    one = ScriptedExtender("prioritize", scores={"a": 10, "b": 0}, weight=2)
    other = ScriptedExtender("prioritize", scores={"a": 1, "c": 3}, weight=1)
    silent = ScriptedExtender("filter", scores={"a": 9})
    extenders = Extenders(cluster, [one, other, silent])
    info = cluster.shapes.info(pod())
    assert asyncio.run(extenders.prioritize(info, ["a", "b", "c"])) == {"a": 210, "b": 0, "c": 30}
    assert extenders.prioritizing == 0


def test_the_sum_of_scores_is_clamped() -> None:
    cluster = Cluster()
    extender = ScriptedExtender("prioritize", scores={"a": 2**70, "b": -(2**70), "c": 1}, weight=1)
    scores = asyncio.run(Extenders(cluster, [extender]).prioritize(cluster.shapes.info(pod()), ["a", "b", "c"]))
    assert scores == {"a": 2**60, "b": -(2**60), "c": 10}


def test_a_failure_is_logged_again_once_the_extender_has_worked(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    extender = ScriptedExtender("prioritize")
    extenders, info = Extenders(cluster, [extender]), cluster.shapes.info(pod())
    with caplog.at_level(logging.INFO):
        for extender.fails in ("out of order", "out of order", "", "out of order"):
            asyncio.run(extenders.prioritize(info, ["a"]))
    failed = "extender http://extender failed at prioritize: out of order"
    assert [record.getMessage() for record in caplog.records] == [
        failed,
        "extender http://extender works again at prioritize",
        failed,
    ]
    assert caplog.records[0].__dict__[FIELDS]["err"] == "out of order"


def test_the_rejections_of_extenders_are_joined() -> None:
    result = ExtenderFilterResult(["a", "b", "c", "d"])
    result.add(ExtenderFilterResponse(["a", "b", "c", "d"]))
    assert (result.passed, result.rejected, result.vetoed) == (["a", "b", "c", "d"], {}, frozenset())
    result.add(ExtenderFilterResponse(["c", "a"], failed={"b": "full"}))
    assert result.passed == ["a", "c"]  # in the order of the nodes
    assert result.rejected == {"b": Status.unschedulable("full"), "d": Status.unresolvable()}
    result.add(ExtenderFilterResponse(["c"], failed={"c": "although it passes"}, unresolvable={"a": "never"}))
    assert result.passed == ["c"]
    assert result.rejected["a"] == Status.unresolvable("never")
    assert "c" not in result.rejected
    assert result.vetoed == {"a", "d"}
