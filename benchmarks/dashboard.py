"""The dashboard: what viewers cost a scheduler, and the page."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import sys
from asyncio import sslproto
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median
from time import monotonic, process_time, thread_time

import aiohttp

from benchmarks.harness import Row
from kubestow import config
from kubestow.config import FeatureGates
from kubestow.dashboard.event_stream import EventStream
from kubestow.observability.observability import Observability
from kubestow.process import Heartbeat, WallClock
from kubestow.serving.dashboard_handler import page_file
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
#: The files of the page for the view of the cluster, and for all others.
_SCRIPTS = ("app.js", "store.js", "format.js", "cluster.js", "table.js", "vendor/preact-htm.js")
_FIRST_FILES = ("index.html", "style.css", *_SCRIPTS, "vendor/uplot.css", "icon.svg")
_OTHER_FILES = ("queue.js", "pending.js", "pod.js", "decisions.js", "try.js", "vendor/uplot.js")


async def _view(port: int, count: int) -> None:
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
async def _viewers(port: int, count: int):
    """So many viewers from another process, once each has received something."""
    if not count:
        yield
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.dashboard", str(port), str(count), stdout=PIPE
    )
    for _ in range(count):
        await process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        await process.wait()


class _Attributed:
    """The CPU time that is spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object) -> object:
            began = thread_time()
            try:
                return call(*arguments)
            finally:
                self.seconds += thread_time() - began

        return timed


class _Load:
    """Creates pods at a rate, and deletes the oldest."""

    def __init__(self, cluster, rate: float) -> None:
        self._cluster, self._rate = cluster, rate
        self._alive: deque[str] = deque()
        self.created = 0

    async def run(self) -> None:
        began = monotonic()
        while True:
            due = int((monotonic() - began) * self._rate) - self.created
            for _ in range(due):
                name = f"pod-{self.created}"
                self._cluster.put(pod(name, cpu="100m", memory="200Mi", labels={"app": f"app-{self.created % 20}"}))
                self._alive.append(name)
                self.created += 1
                if len(self._alive) > _ALIVE:
                    self._cluster.remove(pod(self._alive.popleft()))
            await asyncio.sleep(_TICK)


async def dashboard(
    nodes: int = 5000, rate: float = 500.0, seconds: float = 10.0, rounds: int = 2, viewers: int = 100
) -> AsyncIterator[Row]:
    """What viewers of the dashboard cost a scheduler, and how long the page takes to show a large cluster.

    One process has a scheduler in memory, its secure port, and a load of pods that are created, scheduled and deleted
    at the given rate. Viewers are connections over TLS from another process, which reads and drops what it gets; so the
    CPU time of the first process contains everything that viewers cost, encryption included. Periods with 0, 1 and all
    viewers follow each other in turn. Shown is the CPU time per second: of the process, which varies with what else the
    machine does, together with the median of its increase within a round, and of the dashboard alone, which is measured
    around the ticks of the stream and the writes to viewers (without the event loop's work to wake their tasks). For
    the page, in Chromium, the time from the navigation until it is first painted, and until the nodes are drawn.
    """
    clock, gates = WallClock(), FeatureGates()
    observability = Observability(clock, gates)
    configuration = config.load({"apiVersion": config.API_VERSION, "kind": config.KIND})
    serving = ServingOptions(
        address="127.0.0.1", port=0, authorization=DelegatingAuthorizationOptions(always_allow_paths=("/*",))
    )
    inventory = [
        node(
            f"node-{number}",
            cpu="32",
            memory="128Gi",
            zone=f"zone-{number % 3}",
            labels={"pool": f"pool-{number % 8}", "rack": f"rack-{number // 40}"},
        )
        for number in range(nodes)
    ]
    attributed = _Attributed()
    EventStream.tick = attributed.around(EventStream.tick)
    sslproto._SSLProtocolTransport.write = attributed.around(sslproto._SSLProtocolTransport.write)
    sslproto._SSLProtocolTransport.writelines = attributed.around(sslproto._SSLProtocolTransport.writelines)
    routes = SchedulerRoutes(ComponentInfo(configuration, gates, {}), observability, Heartbeat(clock.monotonic), clock)
    async with (
        SecureServer(
            serving, routes.mux(), observability.metrics, clock=clock, before_stop=routes.dashboard.close
        ) as server,
        running_scheduler(inventory, observer=observability.observer) as harness,  # the loop's time is real here
    ):
        observability.attach(harness.scheduler)
        await harness.scheduler.started()
        for number in range(10):
            harness.cluster.put(pod(f"big-{number}", cpu="100"))
        load = _Load(harness.cluster, rate)
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(_ALIVE / rate + 2)  # from then on pods are deleted, too
        alone: dict[int, list[float]] = {count: [] for count in (0, 1, viewers)}
        whole: dict[int, list[float]] = {count: [] for count in (0, 1, viewers)}
        for number in range(rounds):
            for count in alone:
                async with _viewers(server.port, count):
                    await asyncio.sleep(1)
                    cpu, began, created = process_time(), monotonic(), load.created
                    attributed.seconds = 0.0
                    await asyncio.sleep(seconds)
                    elapsed = monotonic() - began
                    alone[count].append(attributed.seconds / elapsed * 100)
                    whole[count].append((process_time() - cpu) / elapsed * 100)
                figures = {
                    "% CPU for the dashboard": alone[count][-1],
                    "% in all": whole[count][-1],
                    "pods/s": (load.created - created) / elapsed,
                }
                yield f"{count} viewers, round {number + 1}", figures
        loading.cancel()
        for count, found in alone.items():
            more = median(now / without - 1 for now, without in zip(whole[count], whole[0], strict=True)) * 100
            figures = {
                "% CPU for the dashboard": median(found),
                "% at most": max(found),
                "% for the process": median(whole[count]),
                "% more than without viewers": more,
            }
            yield f"{count} viewers", figures
        async for row in _first_paint(server.port, rounds):
            yield row


async def _first_paint(port: int, rounds: int) -> AsyncIterator[Row]:
    chromium = shutil.which("chromium")
    if chromium is None:
        yield "the page", {"": "not measured, no Chromium is installed"}
        return
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--ignore-certificate-errors"]
        )
        for number in range(rounds + 1):
            page = await browser.new_page(viewport={"width": 1280, "height": 800}, ignore_https_errors=True)
            await page.goto(f"https://127.0.0.1:{port}/dashboard")
            await page.wait_for_selector("canvas")
            drawn = await page.evaluate("new Promise((done) => requestAnimationFrame(() => done(performance.now())))")
            paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            yield f"the page, load {number + 1}", {"ms until the first paint": paint, "ms until all nodes": drawn}
            await page.close()
        await browser.close()
    sizes = {name: len(page_file(name).compressed) for name in (*_FIRST_FILES, *_OTHER_FILES)}
    first = sum(sizes[name] for name in _FIRST_FILES)
    yield "the page, compressed", {"bytes for the cluster": first, "bytes for all views": sum(sizes.values())}


if __name__ == "__main__":
    asyncio.run(_view(*map(int, sys.argv[1:])))
