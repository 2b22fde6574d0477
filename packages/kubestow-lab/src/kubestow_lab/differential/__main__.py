"""Compare decisions about mutated scenarios with those of a kube-scheduler, for a while.

    python -m kubestow_lab.differential --kubeconfig K --minutes 60 tests/conformance/corpus

K is the kubeconfig of a cluster for tests, in which everything is deleted. It has a kube-scheduler and neither
controllers nor kubelets; its API server runs without the admission plugin ServiceAccount. Differences are printed,
shrunk and appended to a file that ``kubestow verify`` reads. The exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from random import Random

from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock
from kubestow_lab.conformance.recorded_cases import Case
from kubestow_lab.differential.fuzzing import Fuzzer, append_case
from kubestow_lab.differential.reference_cluster import ReferenceCluster, server_minor
from kubestow_lab.differential.scenarios import Mutator, Scenario, scenarios_of


async def _fuzz(options: argparse.Namespace) -> int:
    recorded = scenarios_of(sorted(path for folder in options.recordings for path in folder.glob("*.jsonl.gz")))
    mutator = Mutator(recorded, Random(options.seed))
    credentials = await load_credentials(options.kubeconfig, master="")
    async with Transport(credentials, clock=WallClock()) as transport:
        minor = await server_minor(transport)
        cluster = ReferenceCluster(transport, minor)
        await cluster.prepare()

        async def play(scenario: Scenario, settle_seconds: float) -> Case | None:
            return await cluster.play(scenario, settle_seconds=settle_seconds)

        fuzzer = Fuzzer(play, in_tree_registry(minor))
        end, differences = time.monotonic() + 60 * options.minutes, 0
        while time.monotonic() < end:
            difference = await fuzzer.try_scenario(mutator.draw())
            if difference is not None:
                differences += 1
                print(difference, flush=True)  # noqa: T201
                append_case(options.differences, difference.case)
        await cluster.empty()
    total = sum(fuzzer.counts.values())
    print(f"{total:,} scenarios, beside kube-scheduler {minor}")  # noqa: T201
    for verdict, number in sorted(fuzzer.counts.items()):
        print(f"{number:>8,} {verdict}")  # noqa: T201
    return int(differences > 0)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kubestow_lab.differential", description=__doc__)
    parser.add_argument("recordings", nargs="+", type=Path, help="folders of recorded cases")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--minutes", type=float, default=60.0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--differences", type=Path, default=Path("differences.jsonl.gz"), help="default: %(default)s")
    return asyncio.run(_fuzz(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
