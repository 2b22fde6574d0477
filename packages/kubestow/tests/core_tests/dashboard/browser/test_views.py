"""Every view shows what it should, live, with mouse and keyboard, and is accessible."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from core_tests.dashboard.browser.conftest import Cluster
from kubestow.rules.minors import DEFAULT_MINOR

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

VIEWS = {
    "cluster": "Cluster",
    "queue": "Scheduling queue",
    "pending": "Pending pods",
    "pod/default/big": "default/big",
    "pod/default/web-1": "default/web-1",
    "decisions": "Decisions",
    "try": "Try it",
}


def open_view(page: Page, cluster: Cluster, view: str) -> Locator:
    """Open a view and wait for its content; the main part of the page."""
    page.goto(f"{cluster.dashboard}#/{view}")
    page.get_by_role("heading", level=1, name=VIEWS.get(view, ""), exact=False).wait_for()
    main = page.locator("main")
    if view.startswith("pod/"):
        main.get_by_role("heading", name="Plugins by node").wait_for()
    return main


def serious_violations(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds serious or critical, with the elements concerned."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    return [
        (violation["id"], [node["html"][:200] for node in violation["nodes"]])
        for violation in axe.run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_finds_nothing_serious(page: Page, cluster: Cluster, view: str, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 800})
    open_view(page, cluster, view)
    assert serious_violations(page) == []


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_wider_than_a_phone(page: Page, cluster: Cluster, view: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    open_view(page, cluster, view)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_everything_comes_from_the_server(page: Page, cluster: Cluster) -> None:
    hosts = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    for view in VIEWS:
        open_view(page, cluster, view)
    assert hosts == {urlsplit(cluster.url).netloc}


def test_the_header_names_the_minor_version(page: Page, cluster: Cluster) -> None:
    open_view(page, cluster, "cluster")
    page.locator("header").get_by_text(f"Kubernetes {DEFAULT_MINOR}").wait_for()


def test_the_arrow_keys_choose_a_node_whose_pods_are_listed(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "cluster")
    main.locator("canvas").first.focus()
    page.keyboard.press("Home")
    panel = main.get_by_role("region", name="Node node-0")
    panel.get_by_text(re.compile(r"\d+ CPU free of 32 CPU")).wait_for()
    panel.get_by_role("link").first.wait_for()
    assert "node-0" in main.locator("[aria-live=polite]").inner_text()
    page.keyboard.press("ArrowRight")
    main.get_by_role("region", name=re.compile("Node node-[1-5]")).wait_for()
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"


def test_pointing_at_a_tile_shows_its_node(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "cluster")
    main.locator("canvas").first.hover(position={"x": 12, "y": 30})
    main.get_by_role("region", name="Node node-0").wait_for()


def test_nodes_are_grouped_and_coloured(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "cluster")
    canvas = main.locator("canvas").first
    pictures = [canvas.screenshot()]
    for label, option in (("Group by", ""), ("Colour by", "taints"), ("Colour by", "memory")):
        main.get_by_label(label).select_option(option)
        pictures.append(canvas.screenshot())
    assert len(set(pictures)) == len(pictures)
    main.get_by_label("Colour by").select_option("taints")
    cluster.request("PATCH", "/api/v1/nodes/node-2", {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}})
    main.get_by_label("Colour by").select_option("team:NoSchedule")
    main.get_by_text("without it", exact=True).wait_for()
    one_taint = canvas.screenshot()
    main.get_by_label("Colour by").select_option("memory")
    assert canvas.screenshot() != one_taint
    main.get_by_label("Colour by").select_option("team:NoSchedule")
    cluster.request("PATCH", "/api/v1/nodes/node-2", {"spec": {"taints": None}})
    main.get_by_text("diagonal line: cordoned").wait_for()  # without the taint, load is shown
    main.get_by_role("button", name="As a table").click()
    assert main.get_by_role("row").count() == 7


def test_the_queue_changes_without_reloading(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "queue")
    main.get_by_role("link", name="default/picky").wait_for()
    main.get_by_text("too little CPU is free").wait_for()
    cluster.create("late", "99")
    main.get_by_role("link", name="default/late").wait_for()
    cluster.request("DELETE", "/api/v1/namespaces/default/pods/late")
    main.get_by_role("link", name="default/late").wait_for(state="detached")


def test_the_queue_is_filtered_by_place(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "queue")
    main.get_by_role("link", name="default/picky").wait_for()
    main.get_by_role("button", name="gated").click()
    main.get_by_role("link", name="default/picky").wait_for(state="detached")
    assert main.get_by_role("link", name="default/gated").count() == 1


def test_a_long_queue_is_paged_and_searched(page: Page, start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster()
    for number in range(130):
        cluster.create(f"big-{number}", "100")
    main = open_view(page, cluster, "queue")
    pager = main.get_by_role("navigation", name="Pages of pods")
    pager.get_by_text("1 to 100 of 130 pods").wait_for()
    rows = main.get_by_role("region", name="Pending pods", exact=True).locator("tbody tr")
    first = rows.first.inner_text().split()[0]
    pager.get_by_role("button", name="Next").click()
    pager.get_by_text("101 to 130 of 130 pods").wait_for()
    assert rows.count() == 30
    assert rows.first.inner_text().split()[0] != first
    assert pager.get_by_role("button", name="Next").is_disabled()
    main.get_by_label("Search").fill("Big-12")
    pager.get_by_text("1 to 11 of 11 pods").wait_for()  # 12 and 120 to 129
    assert rows.count() == 11
    assert "NodeAdd" in rows.first.inner_text()
    assert serious_violations(page) == []


def test_pending_pods_are_told_what_would_help(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "pending")
    group = main.get_by_role("region").filter(has_text="default/big")
    assert "0/6 nodes are available: 6 Insufficient cpu." in group.inner_text()
    group.get_by_role("button", name="What would help?").click()
    group.get_by_text(re.compile(r"request \d+ cpu instead of 100: fits on")).wait_for()


def test_all_pods_of_a_group_are_listed_and_the_change_helps_so_many(
    page: Page, start_cluster: Callable[..., Cluster]
) -> None:
    cluster = start_cluster()
    for number in range(120):
        cluster.create(f"big-{number}", "100")
    cluster.create("picky", nodeSelector={"disk": "ssd"})
    main = open_view(page, cluster, "pending")
    group = main.get_by_role("region").filter(has_text="too little CPU is free")
    group.get_by_text("all 120 pods").wait_for()
    group.get_by_role("button", name="What would help?").click()
    group.get_by_text(re.compile(r"helps \d+ of 100 pods")).first.wait_for()
    group.get_by_role("link", name="all 120 pods").click()
    main.get_by_role("heading", level=1, name="Pods with the same reason").wait_for()
    main.get_by_text("1 to 100 of 120 pods").wait_for()
    main.get_by_role("button", name="Last").click()
    main.get_by_text("101 to 120 of 120 pods").wait_for()
    assert main.get_by_role("link", name="default/picky").count() == 0
    assert serious_violations(page) == []
    main.get_by_role("link", name="The whole queue").click()
    main.get_by_role("heading", level=1, name="Scheduling queue").wait_for()


def test_past_attempts_show_the_candidates_of_their_preemption(
    page: Page, start_cluster: Callable[..., Cluster]
) -> None:
    cluster = start_cluster()
    cluster.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 9})
    main = open_view(page, cluster, "decisions")  # candidates are recorded while a dashboard is open
    for number in range(6):
        cluster.create(f"low-{number}", "31")
    main.get_by_role("link", name="default/low-5").wait_for()
    cluster.create("urgent", "30", priorityClassName="high")
    main.get_by_role("link", name="default/urgent").first.wait_for()
    main = open_view(page, cluster, "pod/default/urgent")
    main.get_by_text("Attempt 1, ").wait_for()
    table = main.get_by_role("region", name="Preemption candidates of attempt 1")
    assert table.locator("tbody tr").count() == 6
    assert "(chosen)" in table.locator("tbody tr").first.inner_text()
    assert "default/low-" in table.locator("tbody tr").first.inner_text()
    assert serious_violations(page) == []


def test_the_plugins_of_a_pod_are_sorted_and_filtered(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "pod/default/web-1")
    table = main.get_by_role("region", name="Verdicts and scores by node")
    first = table.locator("tbody tr").first
    totals = [int(text) for text in table.locator("tbody tr td:nth-child(4)").all_inner_texts()]
    assert totals == sorted(totals, reverse=True)
    table.get_by_role("button", name="Node", exact=True).click()
    assert first.inner_text().startswith("node-0")
    table.get_by_role("button", name="Node", exact=True).click()
    assert first.inner_text().startswith("node-5")
    main.get_by_label("Filter").fill("node-3")
    assert table.locator("tbody tr").count() == 1
    assert re.search(r"\d+ → \d+ × 1 = \d+", first.inner_text())


def test_two_nodes_are_compared(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "pod/default/web-1")
    main.get_by_label("This node").fill("node-1")
    main.get_by_label("That node").fill("node-2")
    main.get_by_label("That node").press("Tab")
    main.get_by_text(re.compile(r"node-[12] .*(is preferred to|have the same total)")).wait_for()
    assert main.get_by_role("region", name="Scores of both nodes").locator("tbody tr").count() >= 3


def test_decisions_have_a_timeline_and_the_reasons(page: Page, cluster: Cluster) -> None:
    main = open_view(page, cluster, "decisions")
    assert main.locator("figure canvas").count() == 2
    cluster.create("reason", "98")
    main.get_by_text("Insufficient cpu", exact=True).wait_for()
    main.get_by_role("link", name="default/reason").wait_for()
    cluster.request("DELETE", "/api/v1/namespaces/default/pods/reason")


def test_a_view_can_be_opened_with_the_keyboard(page: Page, cluster: Cluster) -> None:
    open_view(page, cluster, "cluster")
    page.get_by_role("link", name="Queue").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Scheduling queue").wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_label("Pod, as namespace/name").fill("big")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="default/big").wait_for()


def test_an_unknown_view_is_the_cluster(page: Page, cluster: Cluster) -> None:
    page.goto(f"{cluster.dashboard}#/constructor")
    page.get_by_role("heading", level=1, name="Cluster").wait_for()


def test_a_view_is_opened_at_its_top(page: Page, cluster: Cluster) -> None:
    page.set_viewport_size({"width": 390, "height": 500})
    open_view(page, cluster, "pod/default/web-1")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    assert page.evaluate("scrollY") > 0
    page.evaluate("location.hash = '#/decisions'")
    page.get_by_role("heading", level=1, name="Decisions").wait_for()
    assert page.evaluate("scrollY") == 0


def test_a_lost_connection_is_shown_and_established_again(page: Page, cluster: Cluster) -> None:
    is_down = True
    page.route("**/dashboard/events", lambda route: route.abort() if is_down else route.continue_())
    page.goto(cluster.dashboard)
    page.locator(".status.lost").wait_for()
    is_down = False
    page.get_by_role("heading", level=1, name="Cluster").wait_for()
    page.locator(".status.live").wait_for()


def test_data_needs_a_token_where_clients_authenticate(
    page: Page, start_cluster: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text("secret,developer,1\n")
    cluster = start_cluster("--token-file", str(tokens))
    page.goto(cluster.dashboard)
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token").fill("wrong")
    dialog.get_by_role("button").click()
    dialog.get_by_text("Unauthorized").wait_for()
    dialog.get_by_label("Token").fill("secret")
    dialog.get_by_role("button").click()
    page.get_by_role("heading", level=1, name="Cluster").wait_for()
    page.get_by_role("link", name="Try it").wait_for()
    assert (
        page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])").count("secret") == 0
    )
