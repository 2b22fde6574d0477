"""A browser."""

from __future__ import annotations
