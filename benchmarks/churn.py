"""Memory while pods come and go that have nothing in common.

    .venv/bin/python benchmarks/churn.py [--nodes 100] [--pods 20000]

Each pod names labels, a resource, a host port, a node label and a topology key that no other pod names, counts pods by
a selector of its own, is decided about, placed and deleted. Prints the number of columns, of cached evaluations and of
shapes, and the resident memory, after every fifth of the pods: none of them may keep growing.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import Any

from kubestow.api.core import Pod
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.testing import PluginHarness, nodes, pod

HOST = "kubernetes.io/hostname"


def distinct_pods(number: int) -> tuple[Pod, Pod]:
    """A pod that fits and one that does not, which have nothing in common with the pods of other numbers."""
    labels = {f"example.com/key-{number}": f"value-{number}"}
    selector = {"labelSelector": {"matchLabels": labels}}
    constraints: list[dict[str, Any]] = [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **selector}
        for key in (HOST, f"example.com/domain-{number}")
    ]
    anti_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOST, **selector}]}
    fits = pod(
        f"fits-{number}",
        labels=labels,
        requests={f"example.com/resource-{number}": "0"},
        host_ports=[1 + number % 60000],
        spread=constraints,
        affinity={"podAntiAffinity": anti_affinity},
    )
    pending = pod(
        f"pending-{number}",
        labels=labels,
        requests={f"example.com/other-{number}": "1"},
        node_selector={f"example.com/disk-{number}": "ssd"},
    )
    return fits, pending


class Churn:
    """A cluster through which the pods pass."""

    def __init__(self, size: int) -> None:
        self.harness = PluginHarness(nodes(size, zones=3))
        self.cluster = self.harness.cluster
        self._pipeline = DecisionPipeline(self.cluster, self.harness.profiles, FirstByName())

    def run(self, start: int, end: int) -> None:
        """Let the pods of some numbers pass."""
        for number in range(start, end):
            fits, pending = distinct_pods(number)
            info = self.harness.info(fits)
            decision = self._pipeline.decide(info)
            assert decision.node_name is not None, decision.message
            self.cluster.assume(info, decision.node_name)
            self._pipeline.decide(self.harness.info(pending))
            self.cluster.forget(info.uid)

    def counts(self) -> dict[str, int]:
        """What must not keep growing."""
        gc.collect()
        table = self.cluster.nodes
        return {
            "columns": len(table.columns),
            "resources": len(table.requested.names()) + len(table.allocatable.names()),
            "shapes": len(self.cluster.shapes),
        }


def resident_mb() -> float:
    """Resident memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=100)
    arguments.add_argument("--pods", type=int, default=20000)
    options = arguments.parse_args()
    churn = Churn(options.nodes)
    fifth = options.pods // 5
    for part in range(5):
        churn.run(part * fifth, (part + 1) * fifth)
        counts = ", ".join(f"{count:,} {name}" for name, count in churn.counts().items())
        print(f"{2 * (part + 1) * fifth:,} pods: {counts}, {resident_mb():.0f} MB resident")


if __name__ == "__main__":
    main()
