"""The frequencies of the node and pod shapes in Alibaba's GPU cluster "openb".

Counted from the public trace cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata): the node list with GPUs, the pod
list "default", and for GPU models the pod list "gpuspec33", because "default" has none. The trace was published with
Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC
2023. A test verifies the counts if the trace is available.

Each table maps shapes to numbers of occurrences, most frequent first. That of the pods is in ``openb_pod_shapes.csv``.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import cast

from kubestow_lab.workloads.gpu import NodeShape, PodShape, QoS

ATTRIBUTION = (
    "Alibaba cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata); "
    'Weng et al., "Beware of Fragmentation", USENIX ATC 2023'
)

#: 1,213 nodes of 15 shapes.
NODES: dict[NodeShape, int] = {
    NodeShape(96000, 393216, 8, "G2"): 549,
    NodeShape(104000, 524288, 2, "T4"): 387,
    NodeShape(16000, 122880, 2, "P100"): 107,
    NodeShape(128000, 786432, 8, "G3"): 39,
    NodeShape(32000, 131072, 4, "V100M16"): 28,
    NodeShape(64000, 262144, 2, "P100"): 22,
    NodeShape(96000, 786432, 8, "V100M32"): 21,
    NodeShape(8000, 32768, 1, "V100M16"): 19,
    NodeShape(96000, 393216, 4, "T4"): 17,
    NodeShape(48000, 376832, 4, "V100M32"): 9,
    NodeShape(64000, 262144, 8, "V100M16"): 7,
    NodeShape(8000, 61440, 1, "P100"): 3,
    NodeShape(8000, 61440, 2, "P100"): 2,
    NodeShape(128000, 1048576, 1, "A10"): 2,
    NodeShape(82000, 344064, 8, "V100M16"): 1,
}

#: The GPU models that 2,388 pods of "gpuspec33" require, without duplicates in a list.
GPU_MODELS: dict[tuple[str, ...], int] = {
    ("T4",): 1291,
    ("G2",): 331,
    ("P100",): 279,
    ("V100M16", "V100M32"): 163,
    ("P100", "V100M16", "V100M32"): 103,
    ("G3",): 86,
    ("G2", "P100", "T4", "V100M16", "V100M32"): 39,
    ("P100", "T4", "V100M16", "V100M32"): 33,
    ("A10", "G2", "T4", "V100M16", "V100M32"): 24,
    ("V100M32",): 20,
    ("A10", "T4"): 6,
    ("P100", "V100M16"): 4,
    ("A10", "G2", "P100", "T4", "V100M16", "V100M32"): 3,
    ("T4", "V100M16", "V100M32"): 3,
    ("V100M16",): 3,
}


def _read_pods() -> dict[PodShape, int]:
    with Path(__file__).with_name("openb_pod_shapes.csv").open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        next(rows)  # the header
        return {
            PodShape(int(cpu_milli), int(memory_mib), int(gpus), int(gpu_milli), cast(QoS, qos)): int(pods)
            for cpu_milli, memory_mib, gpus, gpu_milli, qos, pods in rows
        }


#: 8,152 pods of 151 shapes, 162 with their quality of service.
PODS: dict[PodShape, int] = _read_pods()
