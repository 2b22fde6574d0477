"""kubestow's plugins as a scheduler extender: the implementation of ``kubestow extend``.

kube-scheduler calls the extender over HTTP to filter and prioritize nodes. :mod:`.extender_server` implements the HTTP
protocol, :mod:`.profile_extender` evaluates the plugins of a profile and prints the extender's entry for the
configuration of kube-scheduler, :mod:`.watch_cache` holds the state of the cluster, :mod:`.handle` is what plugins get
of it, and :mod:`.extender_app` composes them.
"""

from __future__ import annotations

from kubestow.extender.extender_server import ExtenderServer
from kubestow.extender.profile_extender import ExtenderCapabilities, ProfileExtender, config_snippet
from kubestow.extender.watch_cache import WatchCache

__all__ = ["ExtenderCapabilities", "ExtenderServer", "ProfileExtender", "WatchCache", "config_snippet"]
