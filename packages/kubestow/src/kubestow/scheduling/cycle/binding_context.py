"""The binding context: what a scheduling cycle hands to the binding cycle, and what undoes it after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.runtime.binding_runtime import BindingRuntime
from kubestow.scheduling.queued_pod import QueuedPod


@dataclass(frozen=True, slots=True)
class BindingContext:
    """An assumed pod on its way to its node.

    ``permit_timeouts`` names the plugins that delay it on Permit, with the seconds that each may take.
    """

    queued: QueuedPod
    info: PodInfo
    node_name: str
    state: CycleState
    runtime: BindingRuntime
    permit_timeouts: Mapping[str, float] = field(default_factory=dict)

    def unreserve_and_forget(self, cluster: Cluster) -> None:
        """Undo Reserve and the assumption."""
        self.runtime.run_unreserve_plugins(self.state, self.info, self.node_name)
        cluster.forget(self.info.uid)
