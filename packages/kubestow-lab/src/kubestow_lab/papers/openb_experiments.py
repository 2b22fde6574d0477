"""What the papers on GPU sharing have in common: lists of Alibaba's openb in random order, and profiles of plugins.

The pods of a list arrive in random order, then further ones drawn from it, until their GPU requests are a multiple of
the cluster's; nothing departs, all nodes are scored, and of the best the first by name is chosen, where names start
with random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubestow import config
from kubestow_lab.experiments.experiment_file import Experiment
from kubestow_lab.metrics.gpu_fragmentation import TypicalGpuPods
from kubestow_lab.traces import openb
from kubestow_lab.workloads.gpu import GPU_MILLI

DATA = "cluster-trace-gpu-v2023/csv"
DOWNLOAD = "git clone --depth 1 https://github.com/alibaba/clusterdata, folder cluster-trace-gpu-v2023/csv"
UTILISATION = f"utilisation.{GPU_MILLI}"
FGD = "FragmentationGradientDescent"


def experiment(
    data: Path,
    workload: str,
    seeds: Sequence[int],
    policies: Mapping[str, Mapping[str, Any]],
    *,
    load: float,
    subject: str,
) -> Experiment:
    """The experiment of policies, by name a KubeSchedulerConfiguration each, on one list. Raises InputError."""
    trace = {
        "name": workload,
        "trace": f"openb={data.resolve()}",
        "podList": workload,
        "order": "shuffled",
        "nodeOrder": "shuffled",
        "load": {"resource": GPU_MILLI, "share": load},
    }
    content = {
        "traces": [trace],
        "policies": [{"name": name, "config": configuration} for name, configuration in policies.items()],
        "seeds": list(seeds),
        "simulation": {"ties": "name", "departures": False},
        "metrics": [UTILISATION],
    }
    return Experiment.of(content, folder=Path(), subject=subject)


def fragmentation_arguments(data: Path, workload: str) -> dict[str, Any]:
    """The arguments of FragmentationGradientDescent for a list: its typical pods. Raises InputError."""
    _, pod_list = openb.list_files(data, pod_list=workload, node_list="gpu_node")
    typical = TypicalGpuPods.of(pod.shape for pod in openb.read_pods(pod_list))
    counts = [
        {
            "cpu": shape.cpu_milli,
            "gpus": shape.gpus,
            "gpuMilli": shape.gpu_milli or 1000,
            "models": list(shape.models),
            "count": count,
        }
        for shape, count in typical.counts
    ]
    return {"typicalPods": counts}


def configuration(
    assigns: str, weights: Mapping[str, int], arguments: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The filters that matter for the trace, the plugin that assigns GPUs, and score plugins with their weights."""
    everything = [{"name": "*"}]
    names = ("PrioritySort", "NodeAffinity", "NodeResourcesFit", assigns, "DefaultBinder")
    plugins: dict[str, Any] = {
        "multiPoint": {"disabled": everything, "enabled": [{"name": name} for name in names]},
        "preScore": {"disabled": everything},
        "score": {
            "disabled": everything,
            "enabled": [{"name": name, "weight": weight} for name, weight in weights.items()],
        },
    }
    profile: dict[str, Any] = {"schedulerName": "default-scheduler", "plugins": plugins}
    used = [{"name": name, "args": dict(args)} for name, args in arguments.items() if name in {assigns, *weights}]
    if used:
        profile["pluginConfig"] = used
    return {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}
