"""kubestow's plugins as a scheduler extender: the implementation of ``kubestow extend``.

kube-scheduler calls the extender over HTTP to filter and prioritize nodes. :mod:`.server` implements the HTTP protocol,
:mod:`.profile_extender` evaluates the plugins of a profile, :mod:`.watch_cache` holds the state of the cluster, and
:mod:`.capabilities` prints the extender's entry for the configuration of kube-scheduler.
"""

from __future__ import annotations

from kubestow.extender.capabilities import ExtenderCapabilities, config_snippet
from kubestow.extender.profile_extender import ProfileExtender
from kubestow.extender.server import ExtenderServer
from kubestow.extender.watch_cache import WatchCache

__all__ = ["ExtenderCapabilities", "ExtenderServer", "ProfileExtender", "WatchCache", "config_snippet"]
