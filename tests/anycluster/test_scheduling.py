"""A scheduler at work, as the users of the cluster see it."""

from __future__ import annotations

from kubestow.client.rest.transport import MERGE_PATCH
from tests.anycluster.place import Object, Place


def is_bound(pod: Object) -> bool:
    return "nodeName" in pod["spec"]


def refused(pod: Object) -> bool:
    return bool(message(pod))


def message(pod: Object) -> str:
    """Why a pod is pending, as its condition says it."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled"), "")


async def test_a_pod_goes_to_the_node_that_has_room(place: Place) -> None:
    await place.node("small", cpu="500m")
    large = await place.node("large")
    async with place.scheduler():
        await place.pod("p")
        pod = await place.until(f"{place.namespace}/pods", "p", is_bound)
    assert pod["spec"]["nodeName"] == large


async def test_a_pod_that_was_there_before_is_scheduled_too(place: Place) -> None:
    node = await place.node("a")
    await place.pod("p")
    async with place.scheduler():
        pod = await place.until(f"{place.namespace}/pods", "p", is_bound)
    assert pod["spec"]["nodeName"] == node


async def test_a_pod_that_fits_nowhere_says_why_and_gets_a_node_that_comes(place: Place) -> None:
    await place.node("small", cpu="500m")
    async with place.scheduler():
        await place.pod("p")
        waiting = await place.until(f"{place.namespace}/pods", "p", refused)
        assert "1 Insufficient cpu" in message(waiting)
        large = await place.node("large")
        pod = await place.until(f"{place.namespace}/pods", "p", is_bound)
    assert pod["spec"]["nodeName"] == large


async def test_a_pod_waits_behind_its_gates(place: Place) -> None:
    await place.node("a")
    async with place.scheduler():
        await place.pod("p", schedulingGates=[{"name": "example.com/wait"}])
        await place.pod("other")
        await place.until(f"{place.namespace}/pods", "other", is_bound)
        assert not is_bound(await place.read("p"))
        path = f"{place.namespace}/pods/p"
        opened: Object = {"spec": {"schedulingGates": []}}
        await place.request("PATCH", path, opened, content_type=MERGE_PATCH)
        await place.until(f"{place.namespace}/pods", "p", is_bound)


async def test_a_pod_of_higher_priority_gets_the_room_of_a_lower_one(place: Place) -> None:
    priorities = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = {"kind": "PriorityClass", "metadata": {"name": f"{place.name}-high"}, "value": 1000}
    await place.create(priorities, high)
    node = await place.node("a", cpu="1")
    async with place.scheduler():
        await place.pod("low", terminationGracePeriodSeconds=0)
        await place.until(f"{place.namespace}/pods", "low", is_bound)
        await place.pod("high", priorityClassName=f"{place.name}-high")
        nominated = await place.until(
            f"{place.namespace}/pods", "high", lambda pod: pod["status"].get("nominatedNodeName") or is_bound(pod)
        )
    assert node in (nominated["status"].get("nominatedNodeName"), nominated["spec"].get("nodeName"))


async def test_pods_that_shun_each_other_are_kept_apart(place: Place) -> None:
    nodes = {await place.node("a"), await place.node("b")}
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for node in nodes:
        labels = {"metadata": {"labels": {"kubernetes.io/hostname": node}}}
        await place.request("PATCH", f"/api/v1/nodes/{node}", labels, content_type=MERGE_PATCH)
    async with place.scheduler():
        for name in ("p", "q", "r"):
            await place.pod(name, affinity=apart)
        bound = [
            await place.until(f"{place.namespace}/pods", name, lambda pod: is_bound(pod) or refused(pod))
            for name in "pqr"
        ]
    assert {pod["spec"]["nodeName"] for pod in bound if is_bound(pod)} == nodes
    (left,) = (pod for pod in bound if not is_bound(pod))
    assert "anti-affinity rules" in message(left)


async def test_events_tell_what_happened(place: Place) -> None:
    node = await place.node("a")
    async with place.scheduler():
        await place.pod("p")
        events = f"/apis/events.k8s.io/v1/namespaces/{place.name}/events"
        await place.until(f"{place.namespace}/pods", "p", is_bound)
        event = await _event(place, events, "Scheduled")
    assert event["note"] == f"Successfully assigned {place.name}/p to {node}"
    assert event["reportingController"] == place.name


async def _event(place: Place, collection: str, reason: str) -> Object:
    async for event in place.watch(collection):
        if event["object"].get("reason") == reason:
            found: Object = event["object"]
            return found
    raise AssertionError(f"no event {reason}")
