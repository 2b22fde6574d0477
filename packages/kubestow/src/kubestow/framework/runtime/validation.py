"""What plugins may return: types, shapes and ranges.

The runtime passes everything that a plugin returns through here. A result that violates the contract raises a
:class:`~kubestow.errors.PluginError` with plugin, extension point, the returned and the expected value. Whether a
result is *right* is not checked here: see :mod:`kubestow.testing.contract`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import Gang, GroupTerms, Placement
from kubestow.framework.interface import MAX_SCORE, Permission, Plugin, PostFilterResult
from kubestow.framework.status import SUCCESS, Code, Legend, Status, Verdict

_KEYS = np.dtype(np.int32)
_SCORES = np.dtype(np.int64)
_GANG_FIELDS: dict[str, Any] = {
    "name": Hashable,
    "uid": str,
    "min_count": int,
    "timeout": (int, float),
    "members": Members,
    "terms": GroupTerms | None,
    "children": tuple,
    "min_groups": int,
}


def as_status(plugin: Plugin, extension_point: str, result: Any, *, expected: str = "a Status or None") -> Status:
    """The result if it is a Status; None is success. Raises PluginError otherwise."""
    if result is None or result is SUCCESS:
        return SUCCESS
    if not isinstance(result, Status):
        raise unexpected(plugin, extension_point, result, expected=expected)
    if not isinstance(result.code, Code):
        problem = f"returned a Status with code {type(result.code).__name__}, expected a Code"
        raise PluginError(plugin.name, extension_point, problem)
    if not isinstance(result.reasons, tuple) or not all(isinstance(reason, str) for reason in result.reasons):
        raise PluginError(plugin.name, extension_point, "returned a Status whose reasons are not a tuple of strings")
    return result


def as_verdict(plugin: Plugin, result: Any, count: int) -> Verdict | None:
    """A Filter result over ``count`` nodes, None when all pass. The keys are an array that only the caller holds.

    The legend of the verdict raises PluginError for a key that it does not cover.
    """
    if result is None:
        return None
    if not isinstance(result, Verdict):
        raise unexpected(plugin, "Filter", result, expected="a Verdict or None")
    keys = _checked_array(plugin, "Filter", result.keys, _KEYS, count, name="keys of ")
    owned = keys if keys.flags.owndata else keys.copy()  # the result cache writes to it
    return Verdict(owned, _CheckedLegend(plugin, result.legend), has_errors=result.has_errors)


class _CheckedLegend:
    """A verdict's legend whose mistakes are the plugin's: it is called long after Filter, to explain a rejection."""

    __slots__ = ("_legend", "_plugin")

    def __init__(self, plugin: Plugin, legend: Legend) -> None:
        self._plugin = plugin
        self._legend = legend

    def __call__(self, key: int) -> Status:
        try:
            status = self._legend(key)
        except Exception as error:
            raise PluginError(
                self._plugin.name,
                "Filter",
                f"returned key {key}, which is not in its legend ({type(error).__name__}: {error})",
            ) from error
        if status is None:
            raise unexpected(self._plugin, "Filter", status, expected=f"a Status for key {key}")
        return as_status(self._plugin, "Filter", status, expected=f"a Status for key {key}")


def as_post_filter_result(plugin: Plugin, result: Any) -> PostFilterResult:
    """The result if it is a PostFilterResult with pods in the right places. Raises PluginError otherwise."""
    if not isinstance(result, PostFilterResult):
        raise unexpected(plugin, "PostFilter", result, expected="a PostFilterResult")
    if not _are_pods(result.victims) or not _are_pods(result.lower_priority_nominated):
        raise PluginError(plugin.name, "PostFilter", "victims and lower_priority_nominated must be tuples of PodInfo")
    if not isinstance(result.nominated_node_name, str | None):
        raise PluginError(plugin.name, "PostFilter", "nominated_node_name must be the name of a node or None")
    if result.status is None:
        raise PluginError(plugin.name, "PostFilter", "returned a PostFilterResult without a status")
    as_status(plugin, "PostFilter", result.status)
    return result


def as_gang(plugin: Plugin, result: Any) -> Gang | None:
    """The result if it is a Gang or None. Raises PluginError otherwise."""
    if result is None:
        return None
    if not isinstance(result, Gang):
        raise unexpected(plugin, "GangOf", result, expected="a Gang or None")
    for name, kinds in _GANG_FIELDS.items():
        value = getattr(result, name)
        if not isinstance(value, kinds):
            raise PluginError(plugin.name, "GangOf", f"returned a Gang whose {name} is {type(value).__name__}")
    if isnan(result.timeout):
        raise PluginError(plugin.name, "GangOf", "returned a Gang whose timeout is not a number")
    return result


def _are_pods(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(pod, PodInfo) for pod in value)


def as_scores(plugin: Plugin, extension_point: str, result: Any, count: int) -> NDArray[np.int64]:
    """The result if it is an int64 array of ``count`` scores. Raises PluginError otherwise."""
    return _checked_array(plugin, extension_point, result, _SCORES, count)


def in_range(plugin: Plugin, extension_point: str, scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Normalized scores, if they are 0 to 100. Raises PluginError in kube-scheduler's words otherwise."""
    unsigned = scores.view(np.uint64)  # in which negative numbers are huge
    if len(scores) and unsigned[unsigned.argmax()] > MAX_SCORE:
        culprit = next(score for score in scores.tolist() if not 0 <= score <= MAX_SCORE)
        raise out_of_range(plugin, extension_point, culprit)
    return scores


def out_of_range(plugin: Plugin, extension_point: str, score: int) -> PluginError:
    """The error for a normalized score that is not 0 to 100, in kube-scheduler's words."""
    problem = (
        f'plugin "{plugin.name}" returns an invalid score {score}, '
        f"it should in the range of [0, {MAX_SCORE}] after normalizing"
    )
    message = f"applying score defaultWeights on {extension_point.removeprefix('Normalize')} plugins: {problem}"
    return PluginError(plugin.name, extension_point, problem, message=message)


def as_permission(plugin: Plugin, result: Any) -> Permission:
    """A Permit result: a Permission, or a Status without a timeout. Raises PluginError for anything else."""
    if not isinstance(result, Permission):
        return Permission(as_status(plugin, "Permit", result))
    if not isinstance(result.timeout, (int, float)):
        raise PluginError(plugin.name, "Permit", f"timeout is {type(result.timeout).__name__}, expected seconds")
    if isnan(result.timeout):
        raise PluginError(plugin.name, "Permit", "timeout is not a number, expected seconds")
    return Permission(as_status(plugin, "Permit", result.status), result.timeout)


def as_placement(plugin: Plugin, result: Any) -> Placement:
    """One of the placements of PlacementGenerate. Raises PluginError for anything else."""
    if not isinstance(result, Placement):
        raise unexpected(plugin, "PlacementGenerate", result, expected="Placements, a Status or None")
    if not isinstance(result.nodes, Nodes):
        problem = f"returned a Placement of {type(result.nodes).__name__}, expected Nodes"
        raise PluginError(plugin.name, "PlacementGenerate", problem)
    return result


def as_assignments(plugin: Plugin, result: Any) -> list[tuple[PodInfo, str]]:
    """The pods and their nodes of PlaceGang. Raises PluginError for anything else."""
    if not isinstance(result, Iterable):
        raise unexpected(plugin, "PlaceGang", result, expected="pods with their nodes, or a Status")
    assignments = list(result)
    for each in assignments:
        match each:
            case (PodInfo(), str()):
                pass
            case _:
                raise PluginError(plugin.name, "PlaceGang", "returned pods that are not with the names of their nodes")
    return assignments


def unexpected(plugin: Plugin, extension_point: str, result: object, *, expected: str) -> PluginError:
    """The error for a result of the wrong type."""
    return PluginError(plugin.name, extension_point, f"returned {type(result).__name__}, expected {expected}")


def _checked_array(
    plugin: Plugin, extension_point: str, result: Any, dtype: np.dtype[Any], count: int, *, name: str = ""
) -> NDArray[Any]:
    if isinstance(result, np.ndarray):
        if result.dtype == dtype and result.shape == (count,):
            return result
        found = f"an array of {result.dtype} and shape {result.shape}"
    else:
        found = type(result).__name__
    wanted = f"an array of {dtype.name} and shape ({count},)"
    raise PluginError(plugin.name, extension_point, f"returned {name}{found}, expected {wanted}")
