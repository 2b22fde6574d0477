"""A score plugin for shared GPUs: a weighted sum of what a pod leaves behind on a node, found by evolve.py."""

import numpy as np

from kubestow.framework.interface import MAX_SCORE
from kubestow_contrib.fragmentation import BestFitArgs
from kubestow_contrib.fragmentation.gpu_sharing import GpuSharingPlugin

#: Cores per idle GPU that are neither too few nor too many, and the weights of the costs in Evolved.score.
CORES_PER_GPU = 14.31
WEIGHTS = (0.07943, 0.04092, 0.3091, 0.01096, 0.1012, 0.04515, 1.197, -1.651)


class EvolvedArgs(BestFitArgs, rename="camel", frozen=True, kw_only=True):
    """The GPUs of a pod are not recorded: this is for simulations."""

    index_annotation: str = ""


class Evolved(GpuSharingPlugin):
    """Prefers the node where least is left that the next pods cannot use."""

    name = "Evolved"
    Args = EvolvedArgs
    scores_feasible_set = True

    def score(self, state, pod, nodes):
        """The costs in millionths, negative."""
        request, idle = self.request(pod), self.devices.idle(nodes)
        nothing = np.zeros(len(nodes))
        cores = (nodes.allocatable("cpu") - nodes.requested("cpu") - pod.shape.requests.get("cpu", 0)) / 1000
        gpus = (idle.total - request.total) / 1000
        left, opened = nothing, nothing  # on the GPU that a share goes to, and whether it was wholly idle
        if request.is_share:
            room = np.where(idle.each >= request.milli, idle.each - request.milli, 10_000)
            left = room.min(axis=1, initial=10_000) / 1000
            opened = (left == (1000 - request.milli) / 1000).astype(float)
        whole = idle.whole - (opened if request.is_share else request.gpus)
        costs = (
            cores / 100,
            gpus / 8,
            np.maximum(gpus - cores / CORES_PER_GPU, 0),  # GPUs without cores
            np.maximum(cores - gpus * CORES_PER_GPU, 0) / 100,  # cores without GPUs
            left,
            opened,
            gpus - whole,  # idle parts of GPUs
            (self.devices.counts(nodes) > 0) & (request.gpus == 0),  # a node with GPUs for a pod without
        )
        total = sum(weight * cost for weight, cost in zip(WEIGHTS, costs, strict=True))
        return -np.rint(1e6 * (total + nothing)).astype(np.int64)

    def normalize(self, state, pod, scores, nodes):
        """100 for the best value, 99 for the next one, and so on."""
        values, position = np.unique(scores, return_inverse=True)
        return np.maximum(MAX_SCORE - (len(values) - 1 - position), 0)

    def choose_device(self, pod, node_name, idle):
        """The GPU with least idle on which the share fits."""
        milli = self.request(pod).milli
        return min(
            (device for device, amount in enumerate(idle) if amount >= milli), key=idle.__getitem__, default=None
        )
