"""Accessors of the outcome of a decision, for tests that compare decisions of any kind."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from kubestow.framework.interface import PostFilterResult
from kubestow.scheduling.decision.result import Decision, Unschedulable


def rejectors_of(decision: Decision) -> frozenset[str]:
    """The plugins that rejected the pod, empty for a scheduled one."""
    return decision.rejectors if isinstance(decision, Unschedulable) else frozenset()


def preemption_of(decision: Decision) -> PostFilterResult | None:
    """The result of PostFilter that sets or clears the pod's nomination."""
    return decision.post_filter.nominating_result if isinstance(decision, Unschedulable) else None


def post_filter_actions(decision: Decision) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """The actions that PostFilter plugins return."""
    return decision.post_filter.actions if isinstance(decision, Unschedulable) else []
