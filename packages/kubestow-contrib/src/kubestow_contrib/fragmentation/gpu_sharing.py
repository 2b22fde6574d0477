"""What plugins for GPU sharing have in common: Filter, Reserve, PreBind and PostBind by the state of each GPU.

A pod fits on a node if it fits on the GPUs: a share on a single one, whole GPUs on wholly idle ones. Reserve assigns
the GPUs that the plugin chooses, and PreBind records them in an annotation of the pod, from which a device plugin or a
container runtime hook takes them, and a restarted scheduler learns them. Enable one such plugin in a profile, beside
NodeResourcesFit, which checks all other resources and the sum per node.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import EventRegistration, invalidation_mask, on
from kubestow.framework.interface import FilterPlugin, Handle, PostBindPlugin, PreBindPlugin, ReservePlugin, ScorePlugin
from kubestow.framework.status import SUCCESS, Status, Verdict
from kubestow_contrib.fragmentation.devices import WHOLE, DeviceResources, Devices, GpuRequest, device_table

_TOO_FEW, _BUSY = 1, 2
_STATUSES = {
    _TOO_FEW: Status.unresolvable("node(s) had too few GPUs"),
    _BUSY: Status.unschedulable("node(s) had no GPU with enough idle capacity"),
}


class GpuSharingArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The names under which nodes and pods have GPUs.

    Nodes have ``gpu_resource``, or ``gpu_milli_resource`` with 1000 per GPU, or both. A pod with whole GPUs requests
    either, a pod with a share less than 1000 of ``gpu_milli_resource``. ``index_annotation`` gets the GPUs of a pod;
    with "", they are only known until the scheduler ends, as is enough for simulations.
    """

    gpu_resource: str = "nvidia.com/gpu"
    gpu_milli_resource: str = "kubestow.dev/gpu-milli"
    index_annotation: str = "kubestow.dev/gpu-index"


class GpuSharingPlugin(FilterPlugin, ScorePlugin, ReservePlugin, PreBindPlugin, PostBindPlugin):
    """The base of plugins that choose the node and the GPUs of a pod."""

    label_keys = ()
    parallel = True
    events_to_register: Sequence[EventRegistration] = (
        on(EventResource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
        on(EventResource.ASSIGNED_POD, Action.ADD | Action.UPDATE | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_LABEL),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = DeviceResources(args.gpu_resource, args.gpu_milli_resource, args.index_annotation)
        mask = invalidation_mask(self.events_to_register)
        self.devices = device_table(handle.cluster, self._resources, mask)

    def request(self, pod: PodInfo) -> GpuRequest:
        """The GPUs that a pod requests."""
        return self._resources.request(pod.shape.requests)

    def signature(self, pod: PodInfo) -> Hashable:
        """CPU and GPUs; nothing else matters to the score."""
        return pod.shape.requests.get("cpu", 0), self.request(pod)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Reject the nodes without a GPU, or enough of them, that has the requested amount idle."""
        request = self.request(pod)
        if not request.gpus:
            return None
        fit = self.devices.fit(nodes, request)
        if fit.all():
            return None
        keys = np.where(self.devices.counts(nodes) < request.gpus, _TOO_FEW, _BUSY).astype(np.int32)
        keys[fit] = 0
        return Verdict.of(keys, _STATUSES)

    def filter_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        request = self.request(pod)
        if not request.gpus or self.devices.fits(node, request):
            return 0
        return _TOO_FEW if self.devices.count(node) < request.gpus else _BUSY

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Assign GPUs of the node to the pod."""
        request = self.request(pod)
        if not request.gpus:
            return SUCCESS
        idle = self.devices.idle_without(pod.uid, node_name)
        if request.is_share:
            device = self.choose_device(pod, node_name, idle)
            chosen: Devices | None = None if device is None else (device,)
        else:  # the first that are wholly idle
            free = [device for device, amount in enumerate(idle) if amount == WHOLE]
            chosen = tuple(free[: request.gpus]) if len(free) >= request.gpus else None
        if chosen is None:
            return _STATUSES[_BUSY]
        self.devices.reserve(pod.uid, node_name, chosen)
        return SUCCESS

    @abstractmethod
    def choose_device(self, pod: PodInfo, node_name: str, idle: Sequence[int]) -> int | None:
        """The GPU for a pod with a share, given the idle thousandths of each GPU; None if it fits on none."""

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release the GPUs."""
        self.devices.release(pod.uid)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Skip pods without GPUs, and all if nothing is recorded."""
        return SUCCESS if self._resources.annotation and self.devices.reserved(pod.uid) else Status.skip()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Record the pod's GPUs in its annotation."""
        devices = self.devices.reserved(pod.uid)
        if devices:
            # The annotation is this plugin's own, so it does not matter if the pod has changed, such as in its status.
            unversioned = msgspec.structs.replace(pod.metadata, resource_version="")
            target = msgspec.structs.replace(pod.pod, metadata=unversioned)
            await self.handle.patch(target, {"metadata": {"annotations": self._resources.annotations(devices)}})

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Forget the reservations of pods that are gone."""
        self.devices.drop_stale_reservations()
