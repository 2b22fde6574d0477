"""Why is my pod pending? The answers of /debug."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubestow.errors import APIError
from kubestow.serving.handlers.debug import SchedulingDebugger
from kubestow.serving.http_messages import HTTPRequest, StatusError
from kubestow.testing import node, pod
from tests.observability.test_metrics import Hesitant
from tests.observability.watched import Watched, watching

Told = dict[str, Any]


def asking(story: Callable[[Watched, SchedulingDebugger], Awaitable[None]], *objects: Any, **configured: Any) -> None:
    async def told(watched: Watched) -> None:
        scheduler = watched.world.scheduler
        await story(watched, SchedulingDebugger(scheduler, watched.observability.attempts, scheduler._clock))

    watching(told, *objects, **configured)


def about(why: SchedulingDebugger, name: str, **query: str) -> Told:
    request = HTTPRequest("GET", "/", {key: [value] for key, value in query.items()})
    answer: Told = json.loads(why.pod("default", name, request).body)
    return answer


def test_a_refused_pod_is_told_why_and_what_it_waits_for() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.put(pod("big", cpu="100"))
        await watched.world.passes(60)
        told = about(why, "big")
        assert told["answer"].startswith("attempt 1 failed: 0/2 nodes are available: 2 Insufficient cpu.")
        assert told["answer"].endswith("It is tried again when something changes that NodeResourcesFit waits for.")
        assert (told["lastAttempt"]["number"], told["lastAttempt"]["result"]) == (1, "unschedulable")
        assert "NodeAdd" in told["queue"]["waitsFor"]["NodeResourcesFit"]
        assert told["queue"]["place"] == "unschedulable"
        assert told["now"]["byNode"][0] == {
            "node": "a",
            "plugin": "NodeResourcesFit",
            "code": "UnschedulableAndUnresolvable",
            "reasons": ["Insufficient cpu"],
        }

    asking(story, node("a"), node("b"))


def test_asking_changes_nothing() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.put(pod("big", cpu="100"))
        await watched.world.settles()
        before = len(watched.world.cluster.events)
        assert about(why, "big") == about(why, "big")
        await watched.world.settles()
        assert len(watched.world.cluster.events) == before

    asking(story, node("a"))


def test_what_nodes_would_say_now_is_not_what_they_said_then() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.put(pod("big", cpu="3"))
        await watched.world.settles()
        watched.world.scheduler.queue.move = lambda *event, **among: None  # type: ignore[method-assign]
        watched.world.cluster.put(node("free", cpu="8"))
        told = about(why, "big")
        assert told["lastAttempt"]["message"].startswith("0/1 nodes")
        assert told["now"] == {"nodes": 2, "feasible": 1, "feasibleNodes": ["free"]}

    asking(story, node("small", cpu="2"))


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (pod("p", gates=["quota"]), "SchedulingGates keeps it out of the queue"),
        (pod("p", scheduler="somebody"), "its schedulerName is somebody, which is another scheduler's"),
        (pod("p", node="n"), "it is on node n"),
    ],
)
def test_every_place_has_its_sentence(made: Any, answer: str) -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.put(made)
        await watched.world.settles()
        assert about(why, "p")["answer"].startswith(answer)

    asking(story, node("n"))


def test_a_pod_that_is_held_back_says_by_whom() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.put(pod("held"))
        await watched.world.settles()
        assert about(why, "held")["answer"] == "it has been given node n, and is held back by Hesitant"

    enabled = {"schedulerName": "default-scheduler", "plugins": {"permit": {"enabled": [{"name": "Hesitant"}]}}}
    asking(story, node("n"), plugins=[Hesitant], profiles=[enabled])


def test_a_pod_whose_bind_failed_is_in_backoff() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.bind_failures.append(APIError(403, "Forbidden", "pods/binding is not for you"))
        watched.world.cluster.put(pod("p"))
        await watched.world.settles()
        told = about(why, "p")
        assert "pods/binding is not for you" in told["answer"]
        assert told["queue"]["place"] == "error backoff"
        assert "backoffEnds" in told["queue"]

    asking(story, node("n"))


def test_a_bound_pods_attempt_names_its_node() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.put(pod("p"))
        await watched.world.settles()
        assert about(why, "p")["lastAttempt"]["node"] == "n"

    asking(story, node("n"))


def test_a_pod_that_does_not_exist_is_404() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        with pytest.raises(StatusError, match="default/none is not known here") as raised:
            about(why, "none")
        assert raised.value.code == 404

    asking(story)


def test_the_queue_is_listed_by_place() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        for number in range(3):
            watched.world.cluster.put(pod(f"big{number}", cpu="100"))
        await watched.world.settles()
        told = json.loads(why.queue(HTTPRequest("GET", "/", {"limit": ["2"], "place": ["unschedulable"]})).body)
        assert told["counts"]["unschedulable"] == 3
        assert [entry["pod"] for entry in told["pods"]] == ["default/big0", "default/big1"]
        for query in ({"place": ["nowhere"]}, {"limit": ["-1"]}, {"limit": ["9" * 400]}):
            with pytest.raises(StatusError) as raised:
                why.queue(HTTPRequest("GET", "/", query))
            assert raised.value.code == 400

    asking(story, node("n"))


def test_the_cache_is_listed_by_node() -> None:
    async def story(watched: Watched, why: SchedulingDebugger) -> None:
        watched.world.cluster.put(pod("p", cpu="1500m"))
        await watched.world.settles()
        told = json.loads(why.cache(HTTPRequest("GET", "/", {"node": ["n"]})).body)
        assert told["byNode"][0]["requested"] == {"cpu": "1500m"}
        assert told["byNode"][0]["podsHere"] == ["default/p"]
        with pytest.raises(StatusError, match='"none" is not known'):
            why.cache(HTTPRequest("GET", "/", {"node": ["none"]}))

    asking(story, node("n"))
