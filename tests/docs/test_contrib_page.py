"""The examples of docs/contrib.md work."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from devcluster_tests.cli.up_process import up
from kubestow.cli import main
from tests.docs.page_examples import example

PAGE = (Path(__file__).parents[2] / "docs" / "contrib.md").read_text(encoding="utf-8")
#: The time of all simulated clusters, here and in Shanghai.
NOW, IN_SHANGHAI = "2026-01-01T00:00:00Z", "2026-01-01T08:00:00Z"


def block(name: str) -> str:
    """The example that is called ``# name``."""
    return example(PAGE, name)


def nodes(count: int) -> list[dict[str, Any]]:
    """The nodes of a development cluster, with the labels and annotations that the commands of the page give them."""
    made = []
    for number in range(count):
        name = f"node-{number}"
        amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": _pairs("label", name), "annotations": _pairs("annotate", name)},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": NOW}],
                },
            }
        )
    return made


def _pairs(command: str, node: str) -> dict[str, str]:
    """The labels or annotations that a command gives a node."""
    found = re.search(rf"kubectl {command} (?:--overwrite )?node {node} ([^#\n]*)", PAGE)
    words = found[1].split() if found is not None else []
    return dict(word.replace("$now", IN_SHANGHAI).split("=", 1) for word in words)


def deployment(replicas: int) -> str:
    """What ``kubectl create deployment web`` creates."""
    assert f"kubectl create deployment web --image=nginx --replicas={replicas}" in PAGE
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})


def production() -> str:
    """The other deployment of CapacityScheduling, as the command of the page makes it, a minute later."""
    (script,) = re.findall(r"sed '(.*?)' research.yaml", PAGE)
    made = subprocess.run(["sed", script], input=block("research.yaml"), capture_output=True, text=True, check=True)
    return made.stdout.replace("metadata: {labels:", "metadata: {annotations: {kubestow.dev/arrival: 1m}, labels:")


EXAMPLES = {
    "crane": ("dynamic.yaml", 2, (), [deployment(4)], {("web", "node-1"): 4}),
    "koordinator": ("load-aware.yaml", 2, ("node-metrics.yaml",), [deployment(4)], {("web", "node-1"): 4}),
    "NetworkOverhead": (
        "network.yaml",
        3,
        ("network-objects.yaml",),
        [block("shop.yaml")],
        {("database", "node-0"): 1, ("web", "node-1"): 4},
    ),
}


def simulated(
    directory: Path,
    configuration: str,
    cluster: list[str],
    workload: list[str],
    capsys: pytest.CaptureFixture[str],
) -> list[dict[str, Any]]:
    """The pods with nodes after a simulation."""
    (directory / "config.yaml").write_text(block(configuration))
    (directory / "cluster.yaml").write_text("\n---\n".join(cluster))
    (directory / "workload.yaml").write_text("\n---\n".join(workload))
    files = [f"--{name}={directory / name}.yaml" for name in ("config", "cluster", "workload")]
    with pytest.raises(SystemExit) as exited:
        main(["simulate", "-o", "yaml", *files])
    assert not exited.value.code
    objects = yaml.safe_load(capsys.readouterr().out)["items"]
    return [each for each in objects if each["kind"] == "Pod" and each["spec"].get("nodeName")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_simulate(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration, count, files, workload, expected = EXAMPLES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TZ", raising=False)
    (tmp_path / "policy.yaml").write_text(block("policy.yaml"))
    cluster = [*map(yaml.safe_dump, nodes(count)), *map(block, files)]
    pods = simulated(tmp_path, configuration, cluster, workload, capsys)
    found = Counter((each["metadata"]["name"].split("-")[0], each["spec"]["nodeName"]) for each in pods)
    assert found == expected


def test_simulate_capacity_scheduling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = [*map(yaml.safe_dump, nodes(2)), block("quotas.yaml")]
    alone = simulated(tmp_path, "capacity.yaml", cluster, [block("research.yaml")], capsys)
    assert Counter(each["metadata"]["namespace"] for each in alone) == {"research": 16}
    both = simulated(tmp_path, "capacity.yaml", cluster, [block("research.yaml"), production()], capsys)
    assert Counter(each["metadata"]["namespace"] for each in both) == {"research": 8, "production": 8}


DEFINITIONS = {
    "node-metrics-crd.yaml": "node-metrics.yaml",
    "quotas-crd.yaml": "quotas.yaml",
    "network-crds.yaml": "network-objects.yaml",
    "zones-crd.yaml": "zones.yaml",
}


async def test_the_development_cluster_accepts_the_definitions_and_the_objects(tmp_path: Path) -> None:
    async with up(tmp_path, "--nodes", "1") as cluster, aiohttp.ClientSession() as session:

        async def create(path: str, obj: dict[str, Any]) -> None:
            async with session.post(cluster.url + path, json=obj) as response:
                assert response.status == 201, await response.text()

        for namespace in re.findall(r"kubectl create namespace (\w+)", PAGE):
            await create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        plurals = {}
        for definitions in DEFINITIONS:
            for definition in yaml.safe_load_all(block(definitions)):
                await create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
                names, scope = definition["spec"]["names"], definition["spec"]["scope"]
                plurals[names["kind"]] = names["plural"], scope == "Namespaced"
        for objects in DEFINITIONS.values():
            for obj in yaml.safe_load_all(block(objects)):
                plural, is_namespaced = plurals[obj["kind"]]
                where = f"/namespaces/{obj['metadata']['namespace']}" if is_namespaced else ""
                await create(f"/apis/{obj['apiVersion']}{where}/{plural}", obj)
