"""kubestow's plugins as an extender of another scheduler: what ``kubestow extend`` serves.

A stock kube-scheduler asks over HTTP which nodes can take a pod and how good they are, and a plugin, or all filters and
scores of a profile, answer. :mod:`.opinions` turns questions into answers, :mod:`.mirror` knows the cluster they are
about, :mod:`.service` speaks the protocol, :mod:`.stanza` is what the other scheduler's configuration needs.
"""

from __future__ import annotations

from kubestow.extending.mirror import Mirror
from kubestow.extending.opinions import Opinions
from kubestow.extending.service import Service
from kubestow.extending.stanza import Offer, stanza

__all__ = ["Mirror", "Offer", "Opinions", "Service", "stanza"]
