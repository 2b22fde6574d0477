"""Try it: what the page changes in a development cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from core_tests.dashboard.browser.conftest import Cluster

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

YAML = """\
apiVersion: v1
kind: Namespace
metadata:
  name: trial
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: trial
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: app}]}
"""


@pytest.fixture(scope="module")
def own_cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster("--node-monitor-grace-period", "2s")


def form(page: Page, cluster: Cluster, title: str) -> Locator:
    page.goto(f"{cluster.dashboard}#/try")
    found = page.get_by_role("region", name=title)
    found.wait_for()
    return found


def test_pods_are_created_from_a_form(page: Page, own_cluster: Cluster) -> None:
    found = form(page, own_cluster, "Create pods")
    found.get_by_label("Name", exact=True).fill("tried")
    found.get_by_label("Pods").fill("3")
    found.get_by_role("button", name="Create").click()
    found.get_by_text("3 pods created").wait_for()
    page.get_by_role("region", name="What happened").get_by_text(re.compile(r"default/tried-\w+")).first.wait_for()
    pods = own_cluster.request("GET", "/api/v1/namespaces/default/pods?labelSelector=app%3Dtried")["items"]
    assert len(pods) == 3
    assert pods[0]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_objects_are_created_from_yaml(page: Page, own_cluster: Cluster) -> None:
    found = form(page, own_cluster, "Create from YAML")
    found.get_by_role("textbox").fill(YAML)
    found.get_by_role("button", name="Create").click()
    found.get_by_text("created: Namespace trial, Deployment web").wait_for()


def test_a_mistake_is_shown(page: Page, own_cluster: Cluster) -> None:
    found = form(page, own_cluster, "Create from YAML")
    found.get_by_role("textbox").fill("apiVersion: v1\nkind: Nothing\n")
    found.get_by_role("button", name="Create").click()
    found.get_by_text("v1 Nothing is not served").wait_for()


def test_a_node_is_cordoned_tainted_and_stopped(page: Page, own_cluster: Cluster) -> None:
    found = form(page, own_cluster, "Cordon or stop a node")
    found.get_by_label("Node").fill("node-1")
    found.get_by_role("button", name="Cordon", exact=True).click()
    found.get_by_text("node-1 cordoned").wait_for()
    taint = page.get_by_role("region", name="Taint a node")
    taint.get_by_label("Node").fill("node-1")
    taint.get_by_role("button", name="Add the taint").click()
    taint.get_by_text("dedicated=test:NoSchedule").wait_for()
    page.goto(f"{own_cluster.dashboard}#/cluster/node-1")
    panel = page.get_by_role("region", name="Node node-1")
    panel.get_by_text("cordoned: no new pods").wait_for()
    panel.get_by_text("dedicated=test:NoSchedule").wait_for()
    found = form(page, own_cluster, "Cordon or stop a node")
    found.get_by_label("Node").fill("node-1")
    found.get_by_role("button", name="Uncordon").click()
    found.get_by_text("node-1 uncordoned").wait_for()
    assert "unschedulable" not in own_cluster.request("GET", "/api/v1/nodes/node-1")["spec"]
    found.get_by_role("button", name="Stop").click()
    page.goto(f"{own_cluster.dashboard}#/cluster/node-1")
    page.get_by_role("region", name="Node node-1").get_by_text("node.kubernetes.io/unreachable:NoExecute").wait_for()


def test_a_scheduler_of_a_real_cluster_offers_nothing_to_try(page: Page, own_cluster: Cluster) -> None:
    page.route("**/version", lambda route: route.fulfill(status=403, json={"message": "forbidden"}))
    page.goto(own_cluster.dashboard)
    page.get_by_role("heading", level=1, name="Cluster").wait_for()
    assert page.get_by_role("link", name="Try it").count() == 0
