"""The page of job queues on the dashboard: waiting jobs, shares over time and jobs on nodes, live and accessible."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from contrib_tests.queues.jobs_of_pods import profile
from core_tests.dashboard.browser.conftest import Cluster
from core_tests.dashboard.browser.test_views import serious_violations

if TYPE_CHECKING:
    from playwright.sync_api import Page


def create_job(cluster: Cluster, name: str, queue: str, pods: int, duration: str) -> None:
    """Create the pods of a job; the nodes have 32 CPUs, and each pod half of one."""
    annotations = {
        "kubestow.dev/job": name,
        "kubestow.dev/job-size": str(pods),
        "kubestow.dev/queue": queue,
        "kubestow.dev/duration": duration,
    }
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "16"}}}
    for number in range(pods):
        metadata = {"name": f"{name}-{number}", "annotations": annotations}
        pod = {"metadata": metadata, "spec": {"containers": [container]}}
        cluster.request("POST", "/api/v1/namespaces/default/pods", pod)


@pytest.fixture(scope="package")
def cluster(start_cluster: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Two jobs run on three nodes, one waits with a reserved start, and one would delay that."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config = tmp_path_factory.mktemp("config") / "queues.yaml"
    config.write_text(json.dumps({**kind, "profiles": profile(("research", "production"))}))
    found = start_cluster("--nodes", "3", "--config", str(config))
    create_job(found, "first", "research", 3, "1h")
    create_job(found, "second", "production", 2, "2h")
    create_job(found, "large", "research", 6, "30m")
    create_job(found, "long", "research", 1, "9h")
    return found


def open_report(page: Page, cluster: Cluster) -> None:
    """Open the page, and wait for all jobs of the cluster."""
    page.goto(f"{cluster.dashboard}#/queue")
    page.get_by_role("link", name="Job queues").click()
    page.get_by_role("heading", level=1, name="Job queues").wait_for()
    page.get_by_role("row", name="job/default/long").first.wait_for()


def test_waiting_jobs_have_their_run_times_and_reserved_starts(page: Page, cluster: Cluster) -> None:
    open_report(page, cluster)
    rows = page.get_by_role("region", name="Waiting jobs").get_by_role("row")
    [large] = rows.filter(has_text="job/default/large").all()
    cells = large.get_by_role("cell").all_inner_texts() + large.get_by_role("rowheader").all_inner_texts()
    assert "30m0s" in cells
    assert "annotation kubestow.dev/duration" in cells
    assert any(re.fullmatch(r"in [12]h\d+m\d+s", cell) for cell in cells), cells  # nodes are held a moment longer
    queues = page.get_by_role("region", name="Queues").get_by_role("row")
    assert queues.filter(has_text="research").inner_text().split()[:4] == ["research", "0", "1", "2"]


def test_charts_show_shares_and_the_jobs_on_each_node(page: Page, cluster: Cluster) -> None:
    open_report(page, cluster)
    shares = page.get_by_role("img", name="What each queue uses of all cpu")
    assert {"research", "production"} <= set(shares.locator("text").all_text_contents())
    nodes = page.get_by_role("img", name="The jobs on each node")
    titles = nodes.locator("title").all_text_contents()
    for text in (
        "job/default/first in queue research: 3 pods on ",
        "job/default/second in queue production: 2 pods on ",
        "job/default/large in queue research: 6 pods on 3 nodes, from now or its reserved start on",
    ):
        assert any(title.startswith(text) for title in titles), (text, titles)


def test_a_new_job_appears_without_a_reload(page: Page, cluster: Cluster) -> None:
    open_report(page, cluster)
    create_job(cluster, "later", "research", 2, "1h")
    page.get_by_role("row", name="job/default/later").first.wait_for()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_is_accessible_and_fits_a_phone(page: Page, cluster: Cluster, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    open_report(page, cluster)
    page.set_viewport_size({"width": width, "height": 800})
    assert serious_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
