"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

__all__ = ["json_merge_patch"]


def json_merge_patch(original: Any, patch: Any) -> Any:
    """Merge ``patch`` into ``original``; null removes a field."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = json_merge_patch(result.get(key), value)
    return result
