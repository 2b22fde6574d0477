"""A development cluster with pending pods, and a browser."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core_tests.chromium import browser, page

__all__ = ["browser", "page"]

_UP = (sys.executable, "-c", "from kubestow.cli import main; main()", "up", "--port", "0", "--nodes", "6")


@dataclass(frozen=True)
class Cluster:
    """A running cluster, and requests to its API server."""

    url: str

    @property
    def dashboard(self) -> str:
        return f"{self.url}/dashboard"

    def create(self, name: str, cpu: str = "1", **spec: Any) -> None:
        """Create a pod in the namespace default."""
        container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
        pod = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        self.request("POST", "/api/v1/namespaces/default/pods", pod)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": f"application/{'merge-patch+json' if method == 'PATCH' else 'json'}"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers, method=method)) as response:
            return json.load(response)


def _started(directory: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    command = (*_UP, "--kubeconfig-out", str(directory / "kubeconfig"), "--kubeconfig", "", *arguments)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "ready":
        line = process.stdout.readline()
        assert line, "the process ended before it was ready"
        lines.append(line.strip())
    return process, next(line.split()[-1] for line in lines if line.startswith("serving"))


@pytest.fixture(scope="package")
def start_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Start a cluster with further options of ``kubestow up``; it ends with the tests of this package."""
    processes = []

    def start(*arguments: str) -> Cluster:
        process, url = _started(tmp_path_factory.mktemp("up"), *arguments)
        processes.append(process)
        return Cluster(url)

    yield start
    for process in processes:
        process.terminate()
        assert process.wait() == 0
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="package")
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster with placed, unschedulable and gated pods."""
    found = start_cluster()
    for number in range(9):
        found.create(f"web-{number}", "10")
    found.create("big", "100")
    found.create("picky", nodeSelector={"disk": "ssd"})
    found.create("gated", schedulingGates=[{"name": "example.com/wait"}])
    return found
