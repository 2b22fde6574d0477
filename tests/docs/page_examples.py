"""The named examples of a page, and the pods that its commands lead to in a development cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import aiohttp


def example(page: str, name: str) -> str:
    """The code block of a page that begins with ``# name``."""
    blocks: list[str] = re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)
    return next(text for text in blocks if text.startswith(f"# {name}\n"))


async def wait_for_pods(
    session: aiohttp.ClientSession, url: str, condition: Callable[[list[dict[str, Any]]], bool]
) -> None:
    """Watch the pods of the namespace ``default`` until a condition holds of all of them."""
    found: dict[str, dict[str, Any]] = {}
    async with session.get(f"{url}/api/v1/namespaces/default/pods?watch=true") as watch:
        async for line in watch.content:
            event = json.loads(line)
            pod = event["object"]
            found[pod["metadata"]["name"]] = pod
            if event["type"] == "DELETED":
                del found[pod["metadata"]["name"]]
            if condition(list(found.values())):
                return
