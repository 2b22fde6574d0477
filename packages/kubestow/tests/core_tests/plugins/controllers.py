"""Builders of services and controllers with selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.api.apps import ReplicaSet, StatefulSet
from kubestow.api.core import ReplicationController, Service
from kubestow.api.meta import convert


def service(selector: Mapping[str, str], *, name: str = "service", namespace: str = "default") -> Service:
    return convert(Service, _with_selector(name, namespace, selector))


def replication_controller(selector: Mapping[str, str], *, name: str = "owner") -> ReplicationController:
    return convert(ReplicationController, _with_selector(name, "default", selector))


def replica_set(selector: Mapping[str, Any], *, name: str = "owner") -> ReplicaSet:
    return convert(ReplicaSet, _with_selector(name, "default", selector))


def stateful_set(selector: Mapping[str, Any], *, name: str = "owner") -> StatefulSet:
    return convert(StatefulSet, _with_selector(name, "default", selector))


def owned_by(kind: str, api_version: str, *, name: str = "owner") -> dict[str, Any]:
    """Metadata of a pod that a controller owns."""
    owner = {"kind": kind, "apiVersion": api_version, "name": name, "uid": "uid-owner", "controller": True}
    return {"ownerReferences": [owner]}


def _with_selector(name: str, namespace: str, selector: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}
