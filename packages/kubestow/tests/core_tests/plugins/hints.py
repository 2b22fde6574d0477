"""Runs the queueing hints of a plugin for one event."""

from __future__ import annotations

from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.testing import PluginHarness


def requeues_after(
    plugin_name: str,
    rejected: Pod,
    resource: EventResource,
    action: Action,
    *,
    old: Any = None,
    new: Any = None,
    minor: Minor = DEFAULT_MINOR,
) -> bool:
    """Whether an event makes a pod schedulable that the plugin has rejected."""
    harness = PluginHarness(minor=minor)
    event = ClusterEvent(resource, action)
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == plugin_name)
    registrations = [r for r in plugin.events_to_register if r.requeues and r.event.matches(event)]
    old, new = (harness.info(obj) if isinstance(obj, Pod) else obj for obj in (old, new))
    pod = harness.info(rejected)
    return any(registration.hint is None or registration.hint(pod, old, new) for registration in registrations)


def requeues_after_change(
    plugin_name: str, rejected: Pod, *, old: Pod | Node | None = None, new: Pod | Node | None = None
) -> bool:
    """The same for a pod or node that is added, deleted, or has its labels updated."""
    resource = EventResource.NODE if isinstance(old or new, Node) else EventResource.POD
    update = Action.UPDATE_NODE_LABEL if resource is EventResource.NODE else Action.UPDATE_POD_LABEL
    action = Action.ADD if old is None else Action.DELETE if new is None else update
    return requeues_after(plugin_name, rejected, resource, action, old=old, new=new)
