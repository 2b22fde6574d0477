"""What several extenders say together, without a scheduler around them."""

from __future__ import annotations

import asyncio

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from kubestow.cluster.cache import Cluster
from kubestow.framework.status import Status
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
