"""Markup in names, labels, taints and messages is shown as text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from core_tests.dashboard.browser.conftest import Cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

MARKUP = "\"'><img src=x onerror=hacked=1><script>hacked=1</script><svg onload=hacked=1>&lt;b&gt;${hacked=1}"
KEY = f"{MARKUP}/{MARKUP}"


def snapshot() -> dict[str, Any]:
    """A snapshot in which every text is markup. An API server would not accept most of it."""
    group = {
        "id": MARKUP,
        "place": "unschedulable",
        "plugins": [MARKUP],
        "message": MARKUP,
        "words": [MARKUP],
        "waitsFor": {MARKUP: [MARKUP]},
        "count": 9,
        "oldest": 1,
        "examples": [KEY],
    }
    pod = {
        "pod": KEY,
        "place": "unschedulable",
        "since": 1,
        "priority": 0,
        "attempts": 1,
        "retryAt": 2,
        "group": MARKUP,
    }
    waiting = {
        "pod": KEY,
        "place": "waiting on permit",
        "priority": 0,
        "node": MARKUP,
        "plugins": [MARKUP],
        "deadline": 9,
    }
    counts = ("active", "in flight", "waiting on permit", "backoff", "error backoff", "unschedulable", "gated")
    attempt = {"pod": KEY, "number": 1, "time": 1, "seconds": 1, "result": MARKUP, "node": MARKUP, "message": MARKUP}
    point = {"time": 1, "scheduled": 0, "unschedulable": 1, "error": 0, "latency": [1, 1, 1], "reasons": {MARKUP: 1}}
    gang = {
        "name": MARKUP,
        "api": MARKUP,
        "minCount": 2,
        "pods": 1,
        "placed": 0,
        "members": [{"pod": KEY, "state": MARKUP, "node": MARKUP}],
    }
    return {
        "time": 2,
        "nodes": {
            "names": [MARKUP],
            "labels": {MARKUP: {"values": [MARKUP], "codes": [1]}},
            "taints": {"values": [[], [MARKUP]], "codes": [1]},
            "resources": ["cpu", MARKUP, "pods"],
            "allocatable": {"cpu": [1000], MARKUP: [1], "pods": [9]},
            "requested": {"cpu": [1000], MARKUP: [1], "pods": [1]},
            "cordoned": [0],
        },
        "queue": {"counts": dict.fromkeys(counts, 1), "groups": [group], "pods": [pod, waiting]},
        "decisions": {"points": [point], "attempts": [attempt]},
        "gangs": {"count": 1, "gangs": [gang]},
    }


def candidate() -> dict[str, Any]:
    return {
        "node": MARKUP,
        "violations": 0,
        "highestPriority": 0,
        "prioritySum": 0,
        "count": 2,
        "earliestStart": None,
        "victims": [{"pod": KEY, "priority": 0}],
    }


def details() -> dict[str, Any]:
    attempt = {"number": 1, "time": 1, "seconds": 1, "result": MARKUP, "node": "", "message": MARKUP}
    statuses = [{"code": MARKUP, "reasons": [MARKUP]}]
    return {
        "pod": KEY,
        "uid": MARKUP,
        "time": 1,
        "priority": 0,
        "requests": {MARKUP: 1},
        "labels": {MARKUP: MARKUP},
        "node": MARKUP,
        "isBound": False,
        "nominatedNode": MARKUP,
        "summary": MARKUP,
        "queue": {"place": MARKUP, "since": 1, "retryAt": 2, "gatedBy": MARKUP, "waitsFor": {MARKUP: [MARKUP]}},
        "attempts": [{**attempt, "preemption": {"chosen": candidate(), "best": [candidate()], "found": 1}}],
        "error": MARKUP,
        "evaluation": {
            "nodes": [MARKUP, "other"],
            "filters": [{"plugin": MARKUP, "codes": [1, 1], "statuses": statuses}],
            "rows": [],
            "totals": [],
            "scores": [],
        },
        "preemption": {"candidates": [candidate()], "tried": 1, "note": MARKUP},
    }


def node() -> dict[str, Any]:
    pod = {"pod": KEY, "priority": 0, "requests": {MARKUP: 1}, "assumed": True, "terminating": True}
    return {"name": MARKUP, "podCount": 1, "pods": [pod], "nominated": [KEY]}


def queue_page() -> dict[str, Any]:
    queue = snapshot()["queue"]
    return {"matches": 7, "offset": 0, "pods": queue["pods"], "groups": queue["groups"]}


def counterfactuals() -> dict[str, Any]:
    changes = [{"text": MARKUP, "helped": 1}, {"text": MARKUP, "helped": 1}]
    return {"pod": KEY, "pods": 2, "summary": [MARKUP], "feasible": 0, "counterfactuals": changes, "remarks": [MARKUP]}


def respond(route: Route) -> None:
    url = route.request.url
    if url.endswith("/events"):
        body = f"event: snapshot\ndata: {json.dumps(snapshot())}\n\n"
        route.fulfill(body=body, content_type="text/event-stream")
    elif "/queue?" in url:
        route.fulfill(json=queue_page())
    elif "/nodes/" in url:
        route.fulfill(json=node())
    elif url.endswith("/counterfactuals"):
        route.fulfill(json=counterfactuals())
    else:
        route.fulfill(json=details())


@pytest.mark.parametrize("view", ["cluster", "queue", "queue/a", "pending", "pod", "pod/a/b", "decisions", "try"])
def test_markup_is_text_in_every_view(page: Page, cluster: Cluster, view: str) -> None:
    page.route("**/dashboard/events", respond)
    page.route(re.compile(r"/dashboard/queue\?"), respond)
    page.route("**/dashboard/nodes/**", respond)
    page.route("**/dashboard/pods/**", respond)
    page.goto(f"{cluster.dashboard}#/{view}")
    page.locator("main h1").wait_for()
    if view == "cluster":
        page.locator("canvas").first.focus()
        page.keyboard.press("Home")
        page.locator(".aside li").first.wait_for()
    elif view == "pod/a/b":
        page.get_by_role("heading", name="Preemption in past attempts").wait_for()
    elif view.startswith("queue"):
        page.get_by_role("status").get_by_text("of 7 pods").wait_for()
    if view in ("pending", "pod/a/b"):
        page.route("**/dashboard/groups/**", respond)
        page.get_by_role("button", name="What would help?").click()
        page.get_by_text(MARKUP, exact=True).first.wait_for()
    if view != "try":
        assert "<img src=x" in page.locator("main").inner_text()
    assert page.locator("main img, main script, main svg").count() == 0
    assert page.evaluate("typeof hacked") == "undefined"


def test_markup_in_a_fragment_is_text(page: Page, cluster: Cluster) -> None:
    page.goto(f"{cluster.dashboard}#/pod/{MARKUP}/x")
    page.locator("main h1").wait_for()
    assert page.locator("main img, main script, main svg").count() == 0
    assert page.evaluate("typeof hacked") == "undefined"


def test_an_inline_script_would_be_blocked(page: Page, cluster: Cluster) -> None:
    """The policy holds whatever the code of the page does."""
    context = page.context.browser.new_context()  # type: ignore[union-attr]
    other = context.new_page()
    other.goto(cluster.dashboard)
    other.evaluate("""() => {
        const script = document.createElement('script');
        try { script.text = 'hacked = 1'; document.head.append(script); } catch { /* no trusted type */ }
        try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=hacked=1>'); } catch { /* likewise */ }
    }""")
    assert other.evaluate("typeof hacked") == "undefined"
    assert other.locator("body > img").count() == 0
    context.close()


def test_the_page_of_another_site_cannot_start_a_search(page: Page, cluster: Cluster) -> None:
    """A link may be followed to the page, and not to its data."""
    link = f"<a href='{cluster.url}/dashboard/pods/default/big/counterfactuals'>big</a>"
    page.route("http://localhost:1/", lambda route: route.fulfill(body=link, content_type="text/html"))
    page.goto("http://localhost:1/")
    page.get_by_role("link").click()
    page.get_by_text("the data of the dashboard is for its own page").wait_for()
