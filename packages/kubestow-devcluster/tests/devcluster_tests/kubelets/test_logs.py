"""The log of a simulated container says what happened to it."""

from __future__ import annotations

import asyncio
from typing import Any

from devcluster_tests.client import NODES, PODS, Client, node, pod
from devcluster_tests.kubelet_scenarios import run_pod, run_scenario

LOG = f"{PODS}/p/log"


def with_command(*command: str, **spec: Any) -> dict[str, Any]:
    new = pod(**spec)
    new["spec"]["containers"][0]["command"] = list(command)
    return new


def test_the_log_has_the_output_of_a_known_command_and_its_end() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, with_command("sh", "-c", "echo one; echo two; sleep 2; exit 3", restartPolicy="Never"))
        await asyncio.sleep(1)
        assert (await client.get(LOG)).content == b"one\ntwo\n"
        assert (await client.get(f"{LOG}?tailLines=1")).content == b"two\n"
        assert (await client.get(f"{LOG}?limitBytes=3")).content == b"one"
        await asyncio.sleep(5)
        lines = (await client.get(f"{LOG}?timestamps=true")).content.decode().splitlines()
        assert lines[0].endswith("Z one") and "kubestow: container c exited with code 3 at " in lines[-1]

    run_scenario(scenario)


def test_the_log_of_any_other_container_says_that_it_is_simulated() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod())
        await asyncio.sleep(1)
        (line,) = (await client.get(f"{LOG}?follow=true")).content.decode().splitlines()
        assert line.startswith("kubestow: simulated container c of image x:1 started at 2026-")

    run_scenario(scenario)


def test_the_log_of_the_previous_run_exists_after_a_restart() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, with_command("sleep", "5"))
        await asyncio.sleep(1)
        response = await client.get(f"{LOG}?previous=true")
        assert (response.status, response.message) == (400, 'previous terminated container "c" in pod "p" not found')
        await asyncio.sleep(9)
        assert b"exited with code 0" in (await client.get(f"{LOG}?previous=true")).content

    run_scenario(scenario)


def test_a_container_that_has_not_started_has_no_log() -> None:
    async def scenario(client: Client) -> None:
        await client.post(NODES, node("n"))
        await asyncio.sleep(1)
        await run_pod(client, pod(), **{"kubestow.dev/start": "10s"})
        await asyncio.sleep(1)
        response = await client.get(LOG)
        assert response.message == 'container "c" in pod "p" is waiting to start: ContainerCreating'
        await client.patch(f"{PODS}/p", {"metadata": {"annotations": {"kubestow.dev/pull-error": "no"}}})
        await asyncio.sleep(30)
        response = await client.get(LOG)
        assert response.message == 'container "c" in pod "p" is waiting to start: trying and failing to pull image'

    run_scenario(scenario)


def test_exec_says_in_one_line_why_it_fails() -> None:
    async def scenario(client: Client) -> None:
        await run_pod(client, pod())
        response = await client.post(f"{PODS}/p/exec?command=sh", None)
        assert (response.status, response.message) == (
            501,
            "simulated nodes do not run containers: there is nothing to connect to",
        )

    run_scenario(scenario)
