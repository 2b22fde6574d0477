"""kubectl prints the same against this server as it printed against kube-apiserver."""

from __future__ import annotations

import re
from pathlib import Path

from core_tests.recordings import printed
from devcluster_tests.kubectl import NEEDS_KUBECTL, Kubectl
from devcluster_tests.wire.clusters import prepare
from kubestow_devcluster.cluster import DevCluster

pytestmark = NEEDS_KUBECTL

#: In the order of the recording, because later commands depend on earlier ones.
COMMANDS = (
    "get-nodes-pods",
    "get-pods-wide",
    "get-pod-yaml",
    "get-selector",
    "describe-pod",
    "describe-node",
    "get-events",
    "label",
    "annotate",
    "taint",
    "cordon",
    "uncordon",
    "patch",
    "drain-dry-run",
    "drain-dry-run-client",
    "scale-deployment",
    "scale-replicaset",
    "explain",
    "get-notfound",
    "wait",
    "delete-pod",
    "delete-pod-force",
    "logs",
)
_FAILING = ("get-notfound", "logs")
#: Ages, times, uids and resourceVersions, and two phrases that only some releases of kubectl print.
_VARYING = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "<time>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>"),
    (r"\b\d+[smhd](\d+[smhd])?\b", "<age>"),
    (r'resourceVersion: "\d+"', "resourceVersion"),
    (r" from default namespace", ""),
    (r"Kube-Proxy Version: *\n", ""),
    (r" +", " "),
)


def normalized_lines(text: str) -> list[str]:
    for pattern, replacement in _VARYING:
        text = re.sub(pattern, replacement, text)
    return sorted(line.strip() for line in text.splitlines())


async def test_kubectl_prints_the_same(tmp_path: Path) -> None:
    async with DevCluster(kubelets=False) as server:
        await prepare(server, "kubectl")
        kubectl = Kubectl(server.url, tmp_path)
        for name in COMMANDS:
            recorded = printed()[name]
            output = await kubectl.output(*recorded["command"].split()[1:], fails=name in _FAILING)
            assert normalized_lines(output) == normalized_lines(recorded["output"]), name
