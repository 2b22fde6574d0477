"""Printers of services, endpoints, endpoint slices, ingresses and network policies."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import (
    NONE,
    UNSET,
    Printer,
    age_of,
    columns,
    format_labels,
    format_list,
    format_selector,
    name_of,
)
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS"]


#: Items that a cell lists; it counts the others.
_MAX_SHOWN = 3


def _shortened(items: list[str]) -> str:
    """The first items, and the number of the others."""
    if not items:
        return NONE
    rest = f" + {len(items) - _MAX_SHOWN} more..." if len(items) > _MAX_SHOWN else ""
    return ",".join(items[:_MAX_SHOWN]) + rest


def _print_service(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    ingress = status.get("loadBalancer", {}).get("ingress") or ()
    addresses = list(spec.get("externalIPs") or ()) + [one.get("ip") or one.get("hostname", "") for one in ingress]
    if spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer" and not addresses:
        external = "<pending>"
    else:
        external = format_list(addresses)
    ports = format_list(
        f"{port.get('port', 0)}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port', 0)}/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    )
    return [
        name_of(obj),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        external,
        ports,
        age_of(obj, now),
        format_labels(spec.get("selector")),
    ]


def _print_endpoints(obj: Object, now: datetime) -> list[Any]:
    found = [
        f"{address['ip']}:{port['port']}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return [name_of(obj), _shortened(found), age_of(obj, now)]


def _print_endpoint_slice(obj: Object, now: datetime) -> list[Any]:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or ()]
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    shown = [_shortened(ports) if ports else UNSET, _shortened(addresses) if addresses else UNSET]
    return [name_of(obj), obj.get("addressType", ""), *shown, age_of(obj, now)]


def _print_ingress(obj: Object, now: datetime) -> list[Any]:
    spec, balancers = obj.get("spec", {}), obj.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    address = ",".join(one.get("ip") or one.get("hostname", "") for one in balancers)
    ports = "80, 443" if spec.get("tls") else "80"
    shown = _shortened(hosts) if hosts else "*"
    return [name_of(obj), spec.get("ingressClassName") or NONE, shown, address, ports, age_of(obj, now)]


def _print_network_policy(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), format_selector(obj.get("spec", {}).get("podSelector")), age_of(obj, now)]


PRINTERS: dict[str, Printer] = {
    "endpoints": Printer(columns("Name", "Endpoints", "Age"), _print_endpoints),
    "endpointslices.discovery.k8s.io": Printer(
        columns("Name", "AddressType", "Ports", "Endpoints", "Age"), _print_endpoint_slice
    ),
    "ingresses.networking.k8s.io": Printer(
        columns("Name", "Class", "Hosts", "Address", "Ports", "Age"), _print_ingress
    ),
    "networkpolicies.networking.k8s.io": Printer(columns("Name", "Pod-Selector", "Age"), _print_network_policy),
    "services": Printer(
        columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "!Selector"), _print_service
    ),
}
