"""The cost of Volcano: CPU time of scheduling pods in queues, in pairs with the default profile.

python -m contrib_tests.volcano.cost [--pods 10000] [--queues 100] [--nodes 1000] [--groups] [--one-at-a-time]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from typing import Any

from contrib_tests.volcano.objects import member, pod_group, profile, queue, single
from kubestow.api.core import Pod
from kubestow.testing import SchedulerHarness, in_virtual_time, node
from kubestow_contrib.volcano.pod_groups import VOLCANO
from kubestow_contrib.volcano.volcano import Volcano

_PAIRS = 3
_MEMBERS = 10


def measure(options: argparse.Namespace, *, volcano: bool) -> float:
    """CPU seconds from the arrival of the first pod until all that fit are bound."""
    pods = [_pod(number, options) for number in range(options.pods)]
    objects: list[Any] = [node(f"n-{number}", cpu="32", memory="128Gi") for number in range(options.nodes)]
    if volcano:
        objects += [queue(f"q-{number}", 1 + number % 5) for number in range(options.queues)]
        groups = options.pods // _MEMBERS if options.groups else 0
        objects += [
            pod_group(f"g-{number}", f"q-{number % options.queues}", minResources={"cpu": "1"})
            for number in range(groups)
        ]
    spent = 0.0

    async def scenario(harness: SchedulerHarness) -> None:
        nonlocal spent
        gc.collect()
        began = time.process_time()
        for each in pods:
            harness.cluster.put(each)
            if options.one_at_a_time:
                await harness.advance(0.001)
        await harness.advance(5)
        spent = time.process_time() - began

    profiles = profile() if volcano else [{"schedulerName": "default-scheduler"}]
    in_virtual_time(scenario, *objects, plugins=[Volcano], pod_group_apis=[VOLCANO], profiles=profiles)
    return spent


def _pod(number: int, options: argparse.Namespace) -> Pod:
    if options.groups:
        return member(f"p-{number}", f"g-{number % (options.pods // _MEMBERS)}", cpu="1", memory="1Gi")
    return single(f"p-{number}", f"q-{number % options.queues}", cpu="1", memory="1Gi")


def main() -> None:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser()
    for name, default in (("--pods", 10_000), ("--queues", 100), ("--nodes", 1000)):
        parser.add_argument(name, type=int, default=default)
    for name in ("--groups", "--one-at-a-time"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    pairs = [(measure(options, volcano=False), measure(options, volcano=True)) for _ in range(_PAIRS)]
    plain, with_queues = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(second / first for first, second in pairs)
    sys.stdout.write(f"default {plain:.1f} s, Volcano {with_queues:.1f} s, {ratio:.1f} times\n")


if __name__ == "__main__":
    main()
