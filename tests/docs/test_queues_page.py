"""The examples of docs/queues.md work."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from devcluster_tests.cli.up_process import up
from kubestow.cli import main
from kubestow_contrib.queues.configuration import JobQueuesArgs, read_queues
from tests.docs.page_examples import example, wait_for_pods

PAGE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text(encoding="utf-8")
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def block(name: str) -> str:
    """The example that is called ``# name``."""
    return example(PAGE, name)


def jobs() -> dict[str, dict[str, Any]]:
    """The jobs, as the commands of the page make them of the first, in their order."""
    found = {"first": yaml.safe_load(block("jobs.yaml"))}
    for script in re.findall(r"sed '(.*?)' jobs.yaml", PAGE):
        text = block("jobs.yaml")
        for old, new in re.findall(r"s/(.*?)/(.*?)/", script):
            text = re.sub(old, new, text, flags=re.MULTILINE)
        job = yaml.safe_load(text)
        found[job["metadata"]["name"]] = job
    return found


def job_of(pod: dict[str, Any]) -> str:
    """The name of a pod's job."""
    name: str = pod["metadata"]["ownerReferences"][0]["name"]
    return name


def running(pods: list[dict[str, Any]]) -> Counter[str]:
    """How many pods of each job have a node and are not ending."""
    return Counter(
        job_of(pod)
        for pod in pods
        if pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    )


def test_simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}, "status": {"allocatable": amounts}}
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node]}))
    (tmp_path / "queues.yaml").write_text(block("queues.yaml"))
    given = list(jobs().values())
    for number, job in enumerate(given):  # they come one after the other
        job["spec"]["template"]["metadata"]["annotations"]["kubestow.dev/arrival"] = f"{10 * number}s"
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all(given))
    paths = {name: str(tmp_path / name) for name in ("dump.json", "jobs.yaml", "queues.yaml", "report.html")}
    arguments = ["--cluster", paths["dump.json"], "--workload", paths["jobs.yaml"], "--config", paths["queues.yaml"]]
    with pytest.raises(SystemExit) as exited:
        main(["simulate", *arguments, "-o", "json", "-o", f"html={paths['report.html']}"])
    assert not exited.value.code
    ended = json.loads(capsys.readouterr().out)["plugins"]["JobQueues"]["ended"]
    assert [each["job"] for each in ended] == [f"job/default/{name}" for name in ("short", "first", "large", "long")]
    assert "Reservations" in Path(paths["report.html"]).read_text()


async def test_up(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queues.yaml").write_text(block("queues.yaml"))
    config = ("--config", str(tmp_path / "queues.yaml"))
    async with up(tmp_path, "--nodes", "1", *config) as cluster, aiohttp.ClientSession() as session:

        async def apply(name: str) -> None:
            """Create a job, and wait for its pods."""
            job = jobs()[name]
            async with session.post(cluster.url + JOBS, json=job) as response:
                assert response.status == 201, await response.text()
            await until(lambda pods: Counter(map(job_of, pods))[name] == job["spec"]["parallelism"])

        async def until(condition: Callable[[list[dict[str, Any]]], bool]) -> None:
            await wait_for_pods(session, cluster.url, condition)

        def answer(*arguments: str) -> str:
            with pytest.raises(SystemExit) as exited:
                main([*arguments, "--kubeconfig", str(cluster.kubeconfig), *config])
            out, err = capfd.readouterr()
            assert not exited.value.code, err
            return out

        await apply("first")
        await until(lambda pods: running(pods) == {"first": 2})
        for name in ("large", "long", "short"):
            await apply(name)
        await until(lambda pods: running(pods) == {"first": 2, "short": 2})
        said = await asyncio.to_thread(answer, "when", "job/large")
        assert "job/default/large in queue research: 4 pods, position 1 of 2 waiting jobs" in said
        assert "reserved start" in said
        assert "job/default/first  research     2" in said
        assert "waits in queue research: too little is free" in await asyncio.to_thread(answer, "why", "job/large")
        for name in ("first", "short"):
            async with session.delete(f"{cluster.url}{JOBS}/{name}?propagationPolicy=Background") as response:
                assert response.status == 200, await response.text()
        await until(lambda pods: running(pods) == {"large": 4})


def test_queues_of_volcano_are_printed_with_the_differences(tmp_path: Path) -> None:
    vision = {"parent": "ml", "guarantee": {"resource": {"cpu": "1"}}}
    version = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    queues = [{**version, "metadata": {"name": name}, "spec": spec} for name, spec in (("ml", {}), ("vision", vision))]
    path = tmp_path / "volcano-queues.yaml"
    path.write_text(yaml.safe_dump_all(queues))
    command = [sys.executable, "-m", "kubestow_contrib.queues.queues_file", str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    [shown] = re.findall(r"queues_file volcano-queues.yaml\n(.*?)\.\.\.\n", PAGE, re.DOTALL)
    assert printed.startswith(shown)


def test_the_other_args_are_read() -> None:
    found = map(yaml.safe_load, re.findall(r"```yaml\n((?:args|preemption):.*?)```", PAGE, re.DOTALL))
    args = msgspec.convert({**next(found)["args"], **next(found)}, JobQueuesArgs)
    assert read_queues(args)["vision"].lineage == ("vision", "ml")
    assert args.preemption.reclaim
