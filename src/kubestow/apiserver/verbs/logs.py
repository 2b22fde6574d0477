"""Logs of simulated containers: there are none, and a client is told so."""

from __future__ import annotations

from kubestow.apiserver import statuses
from kubestow.apiserver.messages import Answer
from kubestow.apiserver.verbs.call import Call

__all__ = ["get_log"]


def get_log(call: Call) -> Answer:
    call.registry.get(call.kind, call.target.namespace, call.target.name)
    raise statuses.internal("no preferred addresses found; known addresses: []")
