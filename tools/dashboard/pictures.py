"""Make the pictures of docs/dashboard.md and README.md: ``python -m tools.dashboard.pictures docs/pictures``.

A development cluster is started with racks, pools and pods that are placed, pending, gated, preempting and in a gang,
and another one with queues of jobs; Chromium then takes one picture of each view. Pictures are below 100 kB each.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from playwright.sync_api import Page

NODES = 120
MOST_BYTES = 100_000
GATES = "GenericWorkload=true,GangScheduling=true"


def nodes() -> list[dict[str, Any]]:
    """Nodes in three zones and two pools, some of them with GPUs and a taint."""
    found = []
    for number in range(NODES):
        has_gpu = number % 6 == 0
        capacity = {"cpu": "32", "memory": "128Gi", "pods": "110", **({"nvidia.com/gpu": "8"} if has_gpu else {})}
        labels = {
            "topology.kubernetes.io/zone": f"zone-{'abc'[number % 3]}",
            "node-pool": "gpu" if has_gpu else "general",
            "rack": f"rack-{number // 10 + 1}",
        }
        taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}] if has_gpu else []
        found.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{number:03}", "labels": labels},
                "spec": {"taints": taints, "unschedulable": number in (7, 52)},
                "status": {"capacity": capacity, "allocatable": capacity},
            }
        )
    return found


#: Of the cluster with gangs, and of that with queues.
GANGS = {"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}
QUEUES = {
    "plugins": {"multiPoint": {"enabled": [{"name": "JobQueues"}], "disabled": [{"name": "DefaultPreemption"}]}},
    "pluginConfig": [
        {
            "name": "JobQueues",
            "args": {"queues": [{"name": "vision", "weight": 2}, {"name": "speech"}, {"name": "production"}]},
        }
    ],
}


class Cluster:
    """A development cluster with some nodes and a scheduler with a profile."""

    def __init__(self, directory: Path, objects: list[dict[str, Any]], profile: dict[str, Any]) -> None:
        file, config = directory / "nodes.yaml", directory / "scheduler.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
        config.write_text(yaml.safe_dump(document))
        command = [
            *(sys.executable, "-m", "kubestow", "up", "--port", "0", "--cluster", str(file), "--seed", "1"),
            *("--config", str(config), "--feature-gates", GATES, "--kubeconfig", ""),
            *("--kubeconfig-out", str(directory / "kubeconfig")),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = ""
        for line in self.process.stdout:
            if line.startswith("serving"):
                self.url = line.split()[-1]
            if line == "ready\n":
                break

    def create(self, path: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request):
            pass

    def pod(self, name: str, requests: dict[str, str], **spec: Any) -> None:
        container = {"name": "main", "image": "app", "resources": {"requests": requests}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        self.create("/api/v1/namespaces/default/pods", body)

    def fill(self) -> None:
        """Create the pods."""
        for value in (1, 1000):
            self.create(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                {"metadata": {"name": f"priority-{value}"}, "value": value},
            )
        for number in range(260):
            sizes = (("1", "2Gi"), ("4", "8Gi"), ("8", "24Gi"), ("12", "64Gi"))
            cpu, memory = sizes[number % 4]
            self.pod(f"web-{number}", {"cpu": cpu, "memory": memory}, priorityClassName="priority-1")
        tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        for number in range(17):
            self.pod(f"train-{number}", {"cpu": "8", "nvidia.com/gpu": "4"}, tolerations=tolerations)
        for number in range(6):
            self.pod(f"render-{number}", {"cpu": "2", "nvidia.com/gpu": "16"}, tolerations=tolerations)
        for number in range(3):
            self.pod(f"analytics-{number}", {"cpu": "48", "memory": "300Gi"})
        self.pod("report", {"cpu": "1"}, nodeSelector={"disk": "ssd"})
        self.pod("held", {"cpu": "1"}, schedulingGates=[{"name": "example.com/quota"}])
        self.create(
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups",
            {"metadata": {"name": "ring"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}},
        )
        for number in range(3):
            self.pod(f"ring-{number}", {"cpu": "4"}, schedulingGroup={"podGroupName": "ring"})
        self.pod("urgent", {"cpu": "31"}, priorityClassName="priority-1000", preemptionPolicy="PreemptLowerPriority")

    def job(self, name: str, queue: str, pods: int, seconds: int) -> None:
        """Create a job whose pods have a node with eight GPUs each, for so long."""
        container = {"name": "main", "image": "app", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
        template = {
            "metadata": {"annotations": {"kubestow.dev/queue": queue, "kubestow.dev/duration": f"{seconds}s"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            },
        }
        body = {"metadata": {"name": name}, "spec": {"parallelism": pods, "completions": pods, "template": template}}
        self.create("/apis/batch/v1/namespaces/default/jobs", body)


def take(page: Page, directory: Path, name: str) -> None:
    file = directory / f"dashboard-{name}.png"
    page.wait_for_timeout(1500)
    page.screenshot(path=file)
    size = file.stat().st_size
    sys.stdout.write(f"{file}: {size:,} bytes\n")
    if size > MOST_BYTES:
        raise SystemExit(f"{file}: more than {MOST_BYTES:,} bytes")


def take_all(page: Page, cluster: Cluster, directory: Path) -> None:
    """The pictures of the cluster with gangs."""

    def show(view: str) -> None:
        page.goto(f"{cluster.url}/dashboard#/{view}")
        page.locator("main h1").wait_for()

    show("decisions")  # the candidates of preemptions are recorded while a page is open
    cluster.fill()
    page.get_by_role("link", name="default/urgent").first.wait_for()
    page.wait_for_timeout(3000)  # until the last pods have been attempted
    show("cluster/node-004")
    page.get_by_label("Group by").select_option("rack")
    take(page, directory, "cluster")
    page.set_viewport_size({"width": 1020, "height": 550})
    show("queue")
    take(page, directory, "queue")
    show("pending")
    page.get_by_role("button", name="What would help?").first.click()
    page.locator("[aria-live] strong").first.wait_for()
    take(page, directory, "pending")
    show("pod/default/web-7")
    page.get_by_role("heading", name="Plugins by node").wait_for()
    page.get_by_role("heading", name="Attempts").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('main h2').scrollIntoView()")
    take(page, directory, "pod")
    show("pod/default/urgent")
    page.get_by_role("heading", name="Plugins by node").wait_for()
    page.evaluate("document.querySelector('main h2').scrollIntoView()")
    take(page, directory, "preemption")
    page.emulate_media(color_scheme="dark")
    show("decisions")
    take(page, directory, "decisions")
    show("try")
    take(page, directory, "try")


def take_queues(page: Page, cluster: Cluster, directory: Path) -> None:
    """The picture of the cluster with queues, after some jobs have ended."""
    for number, (queue, pods, seconds) in enumerate(
        [
            *(("vision", 6, 25), ("speech", 4, 35), ("vision", 5, 30), ("production", 8, 20), ("speech", 3, 70)),
            *(("vision", 10, 60), ("production", 6, 90), ("speech", 16, 60), ("vision", 2, 15), ("production", 3, 120)),
        ]
    ):
        cluster.job(f"train-{number}", queue, pods, seconds)
        page.wait_for_timeout(4_000)
    page.wait_for_timeout(20_000)
    page.set_viewport_size({"width": 820, "height": 680})
    page.goto(f"{cluster.url}/dashboard#/report/JobQueues")
    page.get_by_role("heading", name="Nodes over time").wait_for()
    page.evaluate("document.querySelectorAll('main h2')[1].scrollIntoView()")
    take(page, directory, "queues")


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the pictures are written")
    parser.add_argument("--only", choices=["gangs", "queues"], help="only the pictures of one of both clusters")
    arguments = parser.parse_args()
    with_gpus = [each for each in nodes() if "nvidia.com/gpu" in each["status"]["capacity"]]
    subjects: dict[str, tuple[list[dict[str, Any]], dict[str, Any], Callable[[Page, Cluster, Path], None]]] = {
        "gangs": (nodes(), GANGS, take_all),
        "queues": (with_gpus, QUEUES, take_queues),
    }
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    for name, (objects, profile, take_pictures) in subjects.items():
        if arguments.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
            cluster = Cluster(Path(temporary), objects, profile)
            try:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1200, "height": 580})
                take_pictures(page, cluster, arguments.directory)
                browser.close()
            finally:
                cluster.process.terminate()
                cluster.process.wait()


if __name__ == "__main__":
    main()
