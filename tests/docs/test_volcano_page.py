"""The examples of docs/volcano.md work."""

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
from kubestow.api.meta import convert
from kubestow.cli import main
from kubestow_contrib.volcano.configuration import read_configuration
from kubestow_contrib.volcano.queues import Queue, read_queues
from tests.docs.page_examples import example, wait_for_pods

PAGE = (Path(__file__).parents[2] / "docs" / "volcano.md").read_text(encoding="utf-8")
PATHS = {
    "Queue": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
}


def block(name: str) -> str:
    """The example that is called ``# name``."""
    return example(PAGE, name)


def production() -> str:
    """The second job, as the commands of the page make it of the first."""
    (script,) = set(re.findall(r"sed '(.*?)' research.yaml", PAGE))
    made = subprocess.run(["sed", script], input=block("research.yaml"), capture_output=True, text=True, check=True)
    return made.stdout


def running(pods: list[dict[str, Any]]) -> Counter[str]:
    """How many pods of each Deployment have a node and are not terminating."""
    return Counter(
        pod["metadata"]["labels"]["app"]
        for pod in pods
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    )


def simulated(directory: Path, cluster: str, workload: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The objects after a simulation."""
    files = {"volcano-scheduler.conf": block("volcano-scheduler.conf"), "cluster": cluster, "workload": workload}
    for name, text in files.items():
        (directory / name).write_text(text)
    paths = {name: str(directory / name) for name in files}
    with pytest.raises(SystemExit) as exited:
        files_given = ("--cluster", paths["cluster"], "--workload", paths["workload"])
        main(["simulate", "--config", paths["volcano-scheduler.conf"], "-o", "yaml", *files_given])
    assert not exited.value.code
    found: list[dict[str, Any]] = yaml.safe_load(capsys.readouterr().out)["items"]
    return found


def test_simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Offline, first research alone, and then with production on the cluster that research has filled."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-0"},
        "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
    }
    research = block("research.yaml")
    cluster = "\n---\n".join([yaml.safe_dump(node), block("queues.yaml")])
    objects = simulated(tmp_path, cluster, research, capsys)
    pods = [each for each in objects if each["kind"] == "Pod"]
    assert running(pods) == {"research": 8}
    group = next(yaml.safe_load_all(research))
    dump = "\n---\n".join([cluster, *map(yaml.safe_dump, (group, *pods))])
    after = [each for each in simulated(tmp_path, dump, production(), capsys) if each["kind"] == "Pod"]
    assert running(after) == {"research": 2, "production": 6}
    waiting = next(
        each["metadata"]["name"]
        for each in after
        if each["metadata"]["labels"]["app"] == "production" and not each["spec"].get("nodeName")
    )
    groups = [group, next(yaml.safe_load_all(production()))]
    (tmp_path / "cluster").write_text("\n---\n".join([cluster, *map(yaml.safe_dump, (*groups, *after))]))
    given = ("--config", str(tmp_path / "volcano-scheduler.conf"), "--cluster", str(tmp_path / "cluster"))
    with pytest.raises(SystemExit):
        main(["explain", *given, f"default/{waiting}"])
    assert "Queue production has used its share of cpu" in capsys.readouterr().out


def test_the_other_configurations_are_read() -> None:
    """That of kube-batch, and the tier with capacity."""
    blocks = map(yaml.safe_load, re.findall(r"```yaml\n((?:schedulerName|- plugins).*?)```", PAGE, re.DOTALL))
    kube_batch, tiers = map(read_configuration, (next(blocks), {"tiers": next(blocks)}))
    assert kube_batch.evicts_as_kube_batch
    capacity = tiers.plugin("capacity")
    assert capacity is not None and capacity.is_hierarchical


def test_mistakes_of_queues_read_as_on_the_page() -> None:
    """The mistakes of the queue ``research`` that the page quotes."""
    mistaken = [
        {"weight": 1, "guarantee": {"resource": {"cpu": "2"}}, "capability": {"cpu": "1"}},
        {"weight": 1, "parent": "team"},
        {"weight": 0},
    ]
    team = {"metadata": {"name": "team"}, "spec": {"weight": 1, "parent": "research"}}
    for spec in mistaken:
        manifests = [{"metadata": {"name": "research"}, "spec": spec}, team]
        problem = read_queues([convert(Queue, each) for each in manifests], {})["research"].problem
        assert problem
        assert f"\n{problem}\n" in PAGE


async def test_up(tmp_path: Path) -> None:
    (tmp_path / "volcano-scheduler.conf").write_text(block("volcano-scheduler.conf"))
    arguments = ("--nodes", "1", "--config", str(tmp_path / "volcano-scheduler.conf"))
    async with up(tmp_path, *arguments) as cluster, aiohttp.ClientSession() as session:

        async def apply(text: str) -> None:
            for obj in yaml.safe_load_all(text):
                async with session.post(cluster.url + PATHS[obj["kind"]], json=obj) as response:
                    assert response.status == 201, await response.text()

        async def until(expected: dict[str, int]) -> None:
            """Wait until so many pods are running."""
            await wait_for_pods(session, cluster.url, lambda pods: running(pods) == expected)

        await apply(block("queues.yaml"))
        await apply(block("research.yaml"))
        await until({"research": 8})
        await apply(production())
        await until({"research": 2, "production": 6})
