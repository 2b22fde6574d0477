"""What viewers of the dashboard cost a scheduler, and how long the page takes to show a large cluster.

    .venv/bin/python benchmarks/dashboard.py [--nodes 5000] [--rate 500] [--seconds 10] [--rounds 2]

One process has a scheduler in memory, its secure port, and a load of pods that are created, scheduled and deleted at
the given rate. Viewers are connections over TLS from another process, which reads and drops what it gets; so the CPU
time of the first process contains everything that viewers cost, encryption included. Periods with 0, 1 and all viewers
follow each other in turn. Shown is the CPU time per second: of the process, which varies with what else the machine
does, together with the median of its increase within a round, and of the dashboard alone, which is measured around the
ticks of the stream and the writes to viewers (without the event loop's work to wake their tasks). For the page, in
Chromium, the time from the navigation until it is first painted, and until the nodes are drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import ssl
import sys
import time
from asyncio import sslproto
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import Callable
from contextlib import asynccontextmanager
from statistics import median

import aiohttp

from kubestow import config
from kubestow.config import FeatureGates
from kubestow.dashboard.event_stream import EventStream
from kubestow.dashboard.page import page_file
from kubestow.observability.observability import Observability
from kubestow.process import WallClock
from kubestow.serving.options import DelegatingAuthorizationOptions, ServingOptions
from kubestow.serving.routes import ComponentInfo, SchedulerRoutes
from kubestow.serving.secure_server import SecureServer
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import running_scheduler

#: Connections of one address, of which the secure port allows 64.
_PER_ADDRESS = 50
#: Pods that exist at a time; older ones are deleted.
_ALIVE = 4_000
_TICK = 0.05


async def view(port: int, count: int) -> None:
    """Be so many viewers until killed; each is counted on standard output with its first bytes."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def one(number: int) -> None:
        address = (f"127.0.0.{2 + number // _PER_ADDRESS}", 0)
        connector = aiohttp.TCPConnector(ssl=context, local_addr=address)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=timeout) as session:
            url = f"https://127.0.0.1:{port}/dashboard/events"
            async with session.get(url, headers={"Accept-Encoding": "gzip"}) as response:
                response.raise_for_status()
                received = 0
                async for part in response.content.iter_any():
                    if not received:
                        print("viewing", flush=True)
                    received += len(part)

    await asyncio.gather(*(one(number) for number in range(count)))


@asynccontextmanager
async def viewers(port: int, count: int):
    if not count:
        yield
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--view", str(port), "--viewers", str(count), stdout=PIPE
    )
    for _ in range(count):
        await process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        await process.wait()


class Attributed:
    """The CPU time that is spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object) -> object:
            began = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.seconds += time.thread_time() - began

        return timed


class Load:
    """Creates pods at a rate, and deletes the oldest."""

    def __init__(self, cluster, rate: float) -> None:
        self._cluster, self._rate = cluster, rate
        self._alive: deque[str] = deque()
        self.created = 0

    async def run(self) -> None:
        began = time.monotonic()
        while True:
            due = int((time.monotonic() - began) * self._rate) - self.created
            for _ in range(due):
                name = f"pod-{self.created}"
                self._cluster.put(pod(name, cpu="100m", memory="200Mi", labels={"app": f"app-{self.created % 20}"}))
                self._alive.append(name)
                self.created += 1
                if len(self._alive) > _ALIVE:
                    self._cluster.remove(pod(self._alive.popleft()))
            await asyncio.sleep(_TICK)


async def measure(options: argparse.Namespace) -> None:
    clock, gates = WallClock(), FeatureGates()
    observability = Observability(clock, gates)
    configuration = config.load({"apiVersion": config.API_VERSION, "kind": config.KIND})
    serving = ServingOptions(
        address="127.0.0.1", port=0, authorization=DelegatingAuthorizationOptions(always_allow_paths=("/*",))
    )
    nodes = [
        node(
            f"node-{number}",
            cpu="32",
            memory="128Gi",
            labels={
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                "pool": f"pool-{number % 8}",
                "rack": f"rack-{number // 40}",
            },
        )
        for number in range(options.nodes)
    ]
    dashboard = Attributed()
    EventStream.tick = dashboard.around(EventStream.tick)
    sslproto._SSLProtocolTransport.write = dashboard.around(sslproto._SSLProtocolTransport.write)
    sslproto._SSLProtocolTransport.writelines = dashboard.around(sslproto._SSLProtocolTransport.writelines)
    routes = SchedulerRoutes(ComponentInfo(configuration, gates, {}), observability, clock)
    async with (
        SecureServer(
            serving, routes.mux(), observability.metrics, clock=clock, before_stop=routes.dashboard.close
        ) as server,
        running_scheduler(nodes, observer=observability.observer) as harness,  # the loop's time is real here
    ):
        observability.attach(harness.scheduler)
        await harness.scheduler.started()
        for number in range(10):
            harness.cluster.put(pod(f"big-{number}", cpu="100"))
        load = Load(harness.cluster, options.rate)
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(_ALIVE / options.rate + 2)  # from then on pods are deleted, too
        counts = (0, 1, options.viewers)
        figures: dict[int, list[float]] = {count: [] for count in counts}
        wholes: dict[int, list[float]] = {count: [] for count in counts}
        for _ in range(options.rounds):
            for count, found in figures.items():
                async with viewers(server.port, count):
                    await asyncio.sleep(1)
                    cpu, wall, created = time.process_time(), time.monotonic(), load.created
                    dashboard.seconds = 0.0
                    await asyncio.sleep(options.seconds)
                    elapsed = time.monotonic() - wall
                    whole = (time.process_time() - cpu) / elapsed * 100
                    found.append(dashboard.seconds / elapsed * 100)
                    wholes[count].append(whole)
                    rate = (load.created - created) / elapsed
                shares = f"{found[-1]:.2f} % CPU for the dashboard, {whole:.1f} % in all"
                print(f"{count:4} viewers: {shares}, {rate:.0f} pods/s", flush=True)
        loading.cancel()
        for count, found in figures.items():
            more = median(now / without - 1 for now, without in zip(wholes[count], wholes[0], strict=True)) * 100
            print(
                f"{count:4} viewers: {median(found):.2f} % CPU for the dashboard, at most {max(found):.2f} %;"
                f" the process {median(wholes[count]):.1f} %, {more:+.1f} % against the period before without viewers"
            )
        await first_paint(server.port, options.rounds)


async def first_paint(port: int, rounds: int) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("first paint: not measured, no Chromium is installed")
        return
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--ignore-certificate-errors"]
        )
        for _ in range(rounds + 1):
            page = await browser.new_page(viewport={"width": 1280, "height": 800}, ignore_https_errors=True)
            await page.goto(f"https://127.0.0.1:{port}/dashboard")
            await page.wait_for_selector("canvas")
            drawn = await page.evaluate("new Promise((done) => requestAnimationFrame(() => done(performance.now())))")
            paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            print(f"page: first contentful paint after {paint:.0f} ms, all nodes drawn after {drawn:.0f} ms")
            await page.close()
        await browser.close()
    names = (
        "index.html",
        "style.css",
        "app.js",
        "store.js",
        "format.js",
        "cluster.js",
        "table.js",
        "vendor/preact-htm.js",
    )
    first = sum(len(page_file(name).compressed) for name in (*names, "vendor/uplot.css", "icon.svg"))
    others = ("queue.js", "pending.js", "pod.js", "decisions.js", "try.js", "vendor/uplot.js")
    rest = sum(len(page_file(name).compressed) for name in others)
    print(f"bytes, compressed: {first:,} for the cluster, {first + rest:,} for all views")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--view", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(measure(options) if options.view is None else view(options.view, options.viewers))


if __name__ == "__main__":
    main()
