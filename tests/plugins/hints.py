"""Asking a plugin's queueing hint about one event."""

from __future__ import annotations

from typing import Any

from kubestow.api.core import Pod
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.testing import World


def says_queue(
    plugin: str, waiting: Pod, resource: EventResource, action: Action, *, old: Any = None, new: Any = None
) -> bool:
    """Whether an event makes a pod that the plugin refused worth another try."""
    world = World()
    event = ClusterEvent(resource, action)
    asked = next(p for p in world.profiles["default-scheduler"].plugins if p.name == plugin)
    interested = [i for i in asked.events_to_register if i.requeues and i.event.matches(event)]
    old, new = (world.info(obj) if isinstance(obj, Pod) else obj for obj in (old, new))
    pod = world.info(waiting)
    return any(interest.hint is None or interest.hint(pod, old, new) for interest in interested)
