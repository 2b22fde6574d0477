"""Endpoints and EndpointSlices follow the services and their pods."""

from __future__ import annotations

import asyncio
from typing import Any

from devcluster_tests.client import NODES, PODS, pod
from devcluster_tests.scenarios import Cluster, run_scenario

SERVICES = "/api/v1/namespaces/default/services"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
WEB = {"app": "web"}


def service(name: str = "web", **spec: Any) -> dict[str, Any]:
    spec = {"selector": WEB, "ports": [{"port": 80, "targetPort": 8080}]} | spec
    return {"metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec}


def web(name: str, *, ports: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    created = pod(name, **spec)
    created["metadata"]["labels"] = dict(WEB)
    if ports is not None:
        created["spec"]["containers"][0]["ports"] = ports
    return created


async def run(cluster: Cluster, *pods: dict[str, Any]) -> None:
    for each in pods:
        await cluster.post(PODS, each)
    await cluster.pass_time(5)


async def slices(cluster: Cluster, name: str = "web") -> list[dict[str, Any]]:
    found = await cluster.items(SLICES)
    return [each for each in found if each["metadata"]["labels"].get("kubernetes.io/service-name") == name]


def ready(slice_: dict[str, Any]) -> dict[str, bool]:
    return {each["targetRef"]["name"]: each["conditions"]["ready"] for each in slice_.get("endpoints") or ()}


async def endpoints(cluster: Cluster, name: str = "web") -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.get(f"{ENDPOINTS}/{name}")).json
    return found


def names(subset: dict[str, Any], kind: str = "addresses") -> list[str]:
    return [address["targetRef"]["name"] for address in subset.get(kind) or ()]


def test_a_service_has_its_ready_pods_as_endpoints() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.patch(f"{NODES}/n", {"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}})
        await cluster.post(SERVICES, service())
        await run(cluster, web("a"), web("b"), pod("other"))
        (only,) = await slices(cluster)
        assert ready(only) == {"a": True, "b": True}
        assert only["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
        first = only["endpoints"][0]
        address = (await cluster.get(f"{PODS}/a")).json["status"]["podIP"]
        assert (first["addresses"], first["nodeName"], first["zone"]) == ([address], "n", "z")
        labels = only["metadata"]["labels"]
        assert labels["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io"
        assert (labels["team"], only["metadata"]["ownerReferences"][0]["name"]) == ("a", "web")
        (subset,) = (await endpoints(cluster))["subsets"]
        assert names(subset) == ["a", "b"]
        assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
        assert subset["addresses"][0]["ip"] == address

    run_scenario(scenario)


def test_pods_that_are_deleted_finish_or_change_their_labels_are_no_endpoints() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SERVICES, service())
        await run(cluster, *(web(name) for name in "abc"))
        await cluster.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "batch"}}})
        await cluster.patch(f"{PODS}/b/status", {"status": {"phase": "Succeeded"}})
        await asyncio.sleep(1)
        assert ready((await slices(cluster))[0]) == {"c": True}
        assert [names(each) for each in (await endpoints(cluster))["subsets"]] == [["c"]]
        await cluster.delete(f"{PODS}/c")
        await asyncio.sleep(60)
        assert [each.get("endpoints") for each in await slices(cluster)] in ([None], [[]])
        assert not (await endpoints(cluster)).get("subsets")

    run_scenario(scenario)


def test_a_pod_that_is_not_ready_is_apart_unless_the_service_publishes_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SERVICES, service())
        await cluster.post(SERVICES, service("all", publishNotReadyAddresses=True, clusterIP="None"))
        await run(cluster, web("a"))
        not_ready = [{"type": "Ready", "status": "False"}]
        await cluster.patch(f"{PODS}/a/status", {"status": {"conditions": not_ready}})
        await asyncio.sleep(0.1)
        assert ready((await slices(cluster))[0]) == {"a": False}
        (subset,) = (await endpoints(cluster))["subsets"]
        assert (names(subset), names(subset, "notReadyAddresses")) == ([], ["a"])
        assert ready((await slices(cluster, "all"))[0]) == {"a": True}
        assert names((await endpoints(cluster, "all"))["subsets"][0]) == ["a"]
        assert (await endpoints(cluster, "all"))["metadata"]["labels"]["service.kubernetes.io/headless"] == ""

    run_scenario(scenario)


def test_a_named_port_is_that_of_each_pod() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SERVICES, service(ports=[{"name": "http", "port": 80, "targetPort": "http"}]))
        numbers = {"a": 8080, "b": 9090, "c": 8080}
        ports = {name: [{"name": "http", "containerPort": number}] for name, number in numbers.items()}
        await run(cluster, *(web(name, ports=its) for name, its in ports.items()), web("d"))
        subsets = (await endpoints(cluster))["subsets"]
        found = {name: subset["ports"][0]["port"] for subset in subsets for name in names(subset) if "ports" in subset}
        assert found == numbers
        by_slice = [
            (sorted(ready(each)), [port["port"] for port in each.get("ports") or ()]) for each in await slices(cluster)
        ]
        assert sorted(by_slice) == [(["a", "c"], [8080]), (["b"], [9090]), (["d"], [])]

    run_scenario(scenario)


def test_a_service_without_pods_has_an_empty_slice_and_one_without_selector_none() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SERVICES, service())
        await cluster.post(SERVICES, {"metadata": {"name": "manual"}, "spec": {"ports": [{"port": 80}]}})
        await asyncio.sleep(1)
        assert len(await slices(cluster)) == 1
        assert not (await endpoints(cluster)).get("subsets")
        assert await slices(cluster, "manual") == []
        assert (await cluster.get(f"{ENDPOINTS}/manual")).status == 404
        await cluster.delete(f"{SERVICES}/web")
        await asyncio.sleep(1)
        assert await slices(cluster) == []
        assert (await cluster.get(f"{ENDPOINTS}/web")).status == 404

    run_scenario(scenario)


def test_a_slice_has_at_most_a_hundred_endpoints() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.post(SERVICES, service())
        for number in range(105):
            await cluster.post(PODS, web(f"p{number:03}", containers=[{"name": "c", "image": "x"}]))
        await cluster.bind_all()
        await asyncio.sleep(10)
        assert sorted(len(each["endpoints"]) for each in await slices(cluster)) == [5, 100]
        (subset,) = (await endpoints(cluster))["subsets"]
        assert len(names(subset)) == 105

    run_scenario(scenario)
