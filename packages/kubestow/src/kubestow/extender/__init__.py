"""kubestow's plugins as a scheduler extender: the implementation of ``kubestow extend``.

kube-scheduler calls the extender over HTTP to filter and prioritize nodes. :mod:`.extender_server` implements the HTTP
protocol, :mod:`.profile_extender` evaluates the plugins of a profile and prints the extender's entry for the
configuration of kube-scheduler, :mod:`.handle` is what plugins get of the state of the cluster, :mod:`.binder` binds
pods, and :mod:`.extender_app` composes them.
"""

from __future__ import annotations

from kubestow.extender.extender_server import ExtenderServer
from kubestow.extender.profile_extender import ExtenderCapabilities, ProfileExtender, config_snippet

__all__ = ["ExtenderCapabilities", "ExtenderServer", "ProfileExtender", "config_snippet"]
