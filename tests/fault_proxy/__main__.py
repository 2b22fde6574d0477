"""Run schedulers behind a proxy that injects faults, in front of a real API server, and print the report.

    python -m tests.fault_proxy --kubeconfig K --minutes 60

The API server needs no kubelets and no controllers, and must have no scheduler of its own. Use a cluster for tests:
nodes and pods are created and deleted, those that are there already too. The exit status is 1 if a rule is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from kubestow.client.rest.credentials import load_credentials
from tests.fault_proxy.run import RunOptions, run


async def _main(options: argparse.Namespace) -> int:
    credentials = await load_credentials(options.kubeconfig, master="")
    run_options = RunOptions(
        seconds=60 * options.minutes,
        pods_per_second=options.pods_per_second,
        nodes=options.nodes,
        seed=options.seed,
        fault_scale=options.fault_scale,
        directory=options.logs,
    )
    report = await run(credentials, run_options)
    print(json.dumps(report, indent=2))  # noqa: T201
    return int(bool(report["violations"]))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault_proxy", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--minutes", type=float, default=60.0, help="default: %(default)s")
    parser.add_argument("--pods-per-second", type=float, default=4.0, help="default: %(default)s")
    parser.add_argument("--nodes", type=int, default=50, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of load and faults (default: %(default)s)")
    parser.add_argument("--fault-scale", type=float, default=1.0, help="multiplies all rates of faults")
    parser.add_argument("--logs", type=Path, help="keep the logs of the schedulers in this directory")
    return asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
