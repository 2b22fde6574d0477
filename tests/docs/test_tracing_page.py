"""The command of docs/tracing.md exports traces."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path

from core_tests.client.kubeconfigs import kubeconfig, save
from core_tests.hang_limit import HANG_LIMIT
from core_tests.observability.tracing.collector import attributes_of, running_collector
from devcluster_tests.client import PODS, Client, pod
from kubestow_devcluster.cluster import DevCluster

PAGE = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text(encoding="utf-8")


async def test_the_command_exports_the_trace_of_a_pod(tmp_path: Path) -> None:
    [line] = re.findall(r"^kubestow run .*$", PAGE, re.MULTILINE)
    async with DevCluster(nodes=1) as api:
        client = Client(api)
        with running_collector() as collector:
            given = {
                "~/.kube/config": str(save(tmp_path, kubeconfig(api.url))),
                "http://127.0.0.1:4317": collector.endpoint,
                "0.1": "1",
            }
            arguments = [given.get(word, word) for word in shlex.split(line)[1:]]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kubestow", *arguments, "--secure-port=0", "--leader-elect=false")
            )
            try:
                assert (await client.post(PODS, pod("web"))).status == 201
                async with asyncio.timeout(HANG_LIMIT):
                    # The collector runs in a thread.
                    while not any(span.name == "PostBind" for span in collector.spans):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                process.terminate()
                assert await process.wait() == 0
            finally:
                if process.returncode is None:
                    process.kill()
    assert collector.resources[0]["service.name"] == "kubestow"
    names = {span.name for span in collector.spans}
    assert names >= {"schedule pod", "queue", "scheduling cycle", "binding cycle", "Filter", "Bind", "POST"}
    [root] = [span for span in collector.spans if span.name == "schedule pod"]
    assert attributes_of(root)["k8s.pod.name"] == "web"
    [binding] = [span for span in collector.spans if attributes_of(span).get("url.path", "").endswith("/web/binding")]
    assert (binding.trace_id, attributes_of(binding)["http.response.status_code"]) == (root.trace_id, 201)
    documented = set(re.findall(r"`((?:k8s|kubestow|http|server|url)\.[a-z_.]+)`", PAGE))
    assert {name for span in collector.spans for name in attributes_of(span)} <= documented
