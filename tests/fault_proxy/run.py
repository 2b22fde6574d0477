"""One run: schedulers and load under faults, then without, and the report."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.process import WallClock
from tests.fault_proxy import rules
from tests.fault_proxy.churn import Churn
from tests.fault_proxy.faults import Faults
from tests.fault_proxy.observation import Observations, observers
from tests.fault_proxy.proxy import FaultProxy
from tests.fault_proxy.schedulers import SAMPLE_INTERVAL, SchedulerProcess, running

#: Seconds that the Lease lasts, by default.
_LEASE_DURATION = 15.0
#: Seconds from one partition of a scheduler to the next, and of a partition, at most.
_PARTITION_INTERVAL, _PARTITION = 180.0, 25.0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """``calm_seconds`` is how long schedulers have to bind everything once faults have stopped."""

    seconds: float
    pods_per_second: float = 4.0
    nodes: int = 50
    schedulers: int = 2
    seed: int = 1
    fault_scale: float = 1.0
    calm_seconds: float = 180.0
    #: The log files of the schedulers; a temporary directory without it.
    directory: Path | None = None


async def run(credentials: Credentials, options: RunOptions) -> dict[str, Any]:
    """Run against an API server without a scheduler of its own, and return the report.

    ``report["violations"]`` has the rules that were broken.
    """
    loop, random = asyncio.get_running_loop(), Random(options.seed)
    start = loop.time()

    def clock() -> float:
        return loop.time() - start

    observations, faults = Observations(clock), Faults(random, scale=options.fault_scale)
    async with AsyncExitStack() as stack:
        directory = options.directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fault-proxy-")))
        directory.mkdir(parents=True, exist_ok=True)
        transport = await stack.enter_async_context(Transport(credentials, clock=WallClock()))
        churn = Churn(transport, observations, random, nodes=options.nodes)
        await churn.prepare()
        watches = [asyncio.ensure_future(each) for each in observers(transport, observations)]
        for each in watches:
            stack.callback(each.cancel)
        proxy = FaultProxy(credentials, faults, observations, clock)
        stack.push_async_callback(proxy.close)
        names = [f"scheduler-{number}" for number in range(options.schedulers)]
        schedulers = [
            SchedulerProcess(name, await stack.enter_async_context(proxy.serving(name)), directory) for name in names
        ]
        await stack.enter_async_context(running(schedulers))
        await _disturb(churn, faults, schedulers, options)
        faults.stop()
        calm = await _calm(churn, observations, options)
        await churn.remove_everything()
    return _report(options, observations, faults, schedulers, churn, calm)


async def _disturb(churn: Churn, faults: Faults, schedulers: list[SchedulerProcess], options: RunOptions) -> None:
    """Load and faults for the time of the run. Now and then one scheduler cannot reach the API server at all."""
    load = asyncio.create_task(churn.run(options.pods_per_second))
    loop, random = asyncio.get_running_loop(), faults.random
    end = loop.time() + options.seconds
    while (left := end - loop.time()) > 0:
        await asyncio.sleep(min(left, random.uniform(0, _PARTITION_INTERVAL)))
        client = random.choice(schedulers).name
        faults.set_partitioned(client, True)
        await asyncio.sleep(max(0.0, min(end - loop.time(), random.uniform(0, _PARTITION))))
        faults.set_partitioned(client, False)
        if load.done():
            break
    load.cancel()
    await asyncio.gather(load, return_exceptions=True)


async def _calm(churn: Churn, observations: Observations, options: RunOptions) -> float | None:
    """Wait until no pending pod fits anywhere; the seconds that it took, None if some still do at the end."""
    loop = asyncio.get_running_loop()
    start, kubelets = loop.time(), asyncio.create_task(churn.run_kubelets())
    try:
        while loop.time() - start < options.calm_seconds:
            await asyncio.sleep(1)
            if not rules.missed_pods(observations):
                return loop.time() - start
        return None
    finally:
        kubelets.cancel()


def _report(
    options: RunOptions,
    observations: Observations,
    faults: Faults,
    schedulers: list[SchedulerProcess],
    churn: Churn,
    calm: float | None,
) -> dict[str, Any]:
    bindings, leases = observations.bindings, observations.lease_writes
    violations = list(observations.violations)
    violations += rules.bindings_take_effect_once(bindings)
    violations += rules.only_the_leader_binds(bindings, leases)
    violations += rules.a_lease_expires_before_it_is_taken(leases, _LEASE_DURATION)
    for scheduler in schedulers:
        violations += scheduler.violations
        for number, samples in enumerate(scheduler.resident):
            violations += rules.memory_is_flat(f"{scheduler.name}, process {number}", samples)
    if calm is None:
        missed = rules.missed_pods(observations) or ["no more"]
        violations.append(f"every schedulable pod is bound once faults stop: {'; '.join(missed[:5])}")
    leaders = [write.client for write in leases if write.holder]
    cuts = quantiles(observations.latencies, n=100) if len(observations.latencies) > 1 else [0.0] * 99
    return {
        "minutes": round(options.seconds / 60, 1),
        "pods created": churn.created,
        "pods bound": len({binding.uid for binding in bindings if binding.status in (200, 201)}),
        "binding requests": Counter(str(binding.status) for binding in bindings),
        "seconds from creation to binding": {"p50": round(cuts[49], 3), "p99": round(cuts[98], 3)},
        "faults": {str(fault): number for fault, number in sorted(faults.counts.items())},
        "changes of the leader": sum(one != other for one, other in pairwise(leaders)),
        "leases lost": {scheduler.name: scheduler.lost_leases for scheduler in schedulers},
        "MiB": {
            scheduler.name: [
                [size >> 20 for size in samples[:: max(1, len(samples) // 8)]] for samples in scheduler.resident
            ]
            for scheduler in schedulers
        },
        "seconds between samples": SAMPLE_INTERVAL,
        "seconds to bind everything after the faults": None if calm is None else round(calm, 1),
        "violations": violations,
    }
