"""Pod specs, wherever they stand (pods, templates): defaults and validation of what scheduling and kubectl rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubestow.api import quantity
from kubestow.api.names import dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors
from kubestow.devcluster.apiserver.field_errors import (
    Cause,
    duplicate_value,
    invalid_value,
    invalid_values,
    required_value,
    unsupported_value,
)
from kubestow.devcluster.apiserver.resources import metadata

__all__ = ["TAINT_EFFECTS", "containers_of", "default_spec", "default_template", "qos_class", "validate_spec"]

Object = dict[str, Any]

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_MODE_SOURCES = ("secret", "configMap", "downwardAPI", "projected")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def containers_of(spec: Object) -> Iterator[Object]:
    """Init containers first, then containers."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


# Defaults


def default_template(template: Object) -> None:
    default_spec(template.setdefault("spec", {}))


def default_spec(spec: Object) -> None:
    host_network = spec.get("hostNetwork", False)
    for container in containers_of(spec):
        _default_container(container, host_network=host_network)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _default_container(container: Object, *, host_network: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = "Always" if _is_latest(container.get("image", "")) else "IfNotPresent"
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, limit in limits.items():
            requests.setdefault(name, limit)
    for variable in container.get("env") or ():
        field = variable.get("valueFrom", {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")


def _default_probe(probe: Object) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(name, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in _MODE_SOURCES:
        if source in volume:
            volume[source].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for projected in volume.get("projected", {}).get("sources") or ():
        if "serviceAccountToken" in projected:
            projected["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _is_latest(image: str) -> bool:
    if "@" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from CPU and memory alone (zero counts as not given)."""
    any_given, guaranteed = False, True
    for container in containers_of(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            request, limit = requests.get(name, "0"), limits.get(name, "0")
            any_given = any_given or request != "0" or limit != "0"
            guaranteed = guaranteed and limit != "0" and request == limit
    if not any_given:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


# Validation


def validate_spec(spec: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    causes += _validate_volumes(spec.get("volumes") or (), f"{path}.volumes")
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append(required_value(f"{path}.containers"))
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            _validate_container(container, f"{path}.{field}[{index}]", names, causes)
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.append(
            unsupported_value(f"{path}.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never"))
        )
    if selector := spec.get("nodeSelector"):
        causes += metadata.validate_labels(selector, f"{path}.nodeSelector")
    if "affinity" in spec:
        causes += _validate_affinity(spec["affinity"], f"{path}.affinity")
    if "nodeName" in spec:
        causes += invalid_values(f"{path}.nodeName", spec["nodeName"], dns1123_subdomain_errors(spec["nodeName"]))
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _validate_toleration(toleration, f"{path}.tolerations[{index}]", causes)
    causes += _validate_spread(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    causes += _validate_gates(spec.get("schedulingGates") or (), f"{path}.schedulingGates")
    group = spec.get("schedulingGroup", {}).get("podGroupName", "")
    if group:
        causes += invalid_values(f"{path}.schedulingGroup.podGroupName", group, dns1123_subdomain_errors(group))
    return causes


def _validate_container(container: Object, path: str, names: set[str], causes: list[Cause]) -> None:
    causes += _name_causes(container.get("name", ""), f"{path}.name", names)
    if not container.get("image"):
        causes.append(required_value(f"{path}.image"))
    elif container["image"].strip() != container["image"]:
        problem = "must not have leading or trailing whitespace"
        causes.append(invalid_value(f"{path}.image", container["image"], problem))
    for index, port in enumerate(container.get("ports") or ()):
        _validate_port(port, f"{path}.ports[{index}]", causes)
    if resources := container.get("resources"):
        _validate_resources(resources, f"{path}.resources", causes)


def _name_causes(name: str, path: str, names: set[str]) -> list[Cause]:
    """What is wrong with the name of a container or volume, which is added to the others' names."""
    is_taken = name in names
    names.add(name)
    if not name:
        return [required_value(path)]
    if faults := dns1123_label_errors(name):
        return invalid_values(path, name, faults)
    return [duplicate_value(path, name)] if is_taken else []


def _validate_port(port: Object, path: str, causes: list[Cause]) -> None:
    number = port.get("containerPort")
    if not number:
        causes.append(required_value(f"{path}.containerPort"))
    causes += [
        invalid_value(f"{path}.{field}", port[field], "must be between 1 and 65535, inclusive")
        for field in ("containerPort", "hostPort")
        if port.get(field) and not 0 < port[field] < 65536
    ]
    if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
        causes.append(unsupported_value(f"{path}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP")))


def _validate_resources(resources: Object, path: str, causes: list[Cause]) -> None:
    limits = resources.get("limits") or {}
    for field in ("limits", "requests"):
        for name, text in (resources.get(field) or {}).items():
            if text[0] == "-":
                causes.append(invalid_value(f"{path}.{field}[{name}]", text, "must be greater than or equal to 0"))
            elif faults := qualified_name_errors(name):
                causes += invalid_values(f"{path}.{field}", name, faults)
            elif field == "requests" and name in limits:
                _validate_request(name, text, limits[name], path, causes)


def _validate_request(name: str, request: str, limit: str, path: str, causes: list[Cause]) -> None:
    if request == limit:
        return
    if "/" in name:
        problem = f"must be equal to {name} limit of {limit}"
        causes.append(invalid_value(f"{path}.requests", request, problem))
    elif quantity.parse(request) > quantity.parse(limit):
        problem = f"must be less than or equal to {name} limit of {limit}"
        causes.append(invalid_value(f"{path}.requests", request, problem))


def _validate_volumes(volumes: Any, path: str) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        causes += _name_causes(volume.get("name", ""), f"{path}[{index}].name", names)
        if len(volume) > 2:
            causes.append(
                Cause("FieldValueForbidden", "Forbidden: may not specify more than 1 volume type", f"{path}[{index}]")
            )
    return causes


def _validate_toleration(toleration: Object, path: str, causes: list[Cause]) -> None:
    key, operator, effect = (toleration.get(field, "") for field in ("key", "operator", "effect"))
    if key:
        causes += invalid_values(f"{path}.key", key, qualified_name_errors(key))
    if not key and operator != "Exists":
        problem = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(invalid_value(f"{path}.operator", operator, problem))
    if operator == "Exists" and toleration.get("value"):
        causes.append(
            invalid_value(f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
        )
    if operator not in ("", "Equal", "Exists", "Lt", "Gt"):
        causes.append(unsupported_value(f"{path}.operator", operator, ("Equal", "Exists", "Gt", "Lt")))
    if effect and effect not in TAINT_EFFECTS:
        causes.append(unsupported_value(f"{path}.effect", effect, TAINT_EFFECTS))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        problem = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.append(invalid_value(f"{path}.effect", effect, problem))


def _validate_spread(constraints: Any, path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        here = f"{path}[{index}]"
        skew, key, action = (constraint.get(name) for name in ("maxSkew", "topologyKey", "whenUnsatisfiable"))
        if not isinstance(skew, int) or skew <= 0:
            causes.append(invalid_value(f"{here}.maxSkew", skew or 0, "must be greater than zero"))
        if not key:
            causes.append(required_value(f"{here}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            causes.append(
                unsupported_value(f"{here}.whenUnsatisfiable", action or "", ("DoNotSchedule", "ScheduleAnyway"))
            )
        if (key, action) in seen:
            causes.append(duplicate_value(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        seen.add((str(key), str(action)))
        minimum = constraint.get("minDomains")
        if minimum is not None and minimum <= 0:
            causes.append(invalid_value(f"{here}.minDomains", minimum, "must be greater than zero"))
        if minimum is not None and action != "DoNotSchedule":
            problem = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
            causes.append(invalid_value(f"{here}.minDomains", minimum, problem))
    return causes


def _validate_gates(gates: Any, path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        causes += invalid_values(f"{path}[{index}]", name, qualified_name_errors(name))
        if name in seen:
            causes.append(duplicate_value(f"{path}[{index}]", name))
        seen.add(name)
    return causes


def _validate_affinity(affinity: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    node = affinity.get("nodeAffinity", {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    here = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    if required is not None:
        terms = required.get("nodeSelectorTerms") or ()
        if not terms:
            causes.append(required_value(f"{here}.nodeSelectorTerms", "must have at least one node selector term"))
        for index, term in enumerate(terms):
            _validate_term(term, f"{here}.nodeSelectorTerms[{index}]", causes)
    here = f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for index, preferred in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        _validate_weight(preferred, f"{here}[{index}]", causes)
        _validate_term(preferred.get("preference") or {}, f"{here}[{index}].preference", causes)
    for name in ("podAffinity", "podAntiAffinity"):
        _validate_pod_affinity(affinity.get(name) or {}, f"{path}.{name}", causes)
    return causes


def _validate_pod_affinity(affinity: Object, path: str, causes: list[Cause]) -> None:
    here = f"{path}.requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
        _validate_topology_key(term, f"{here}[{index}]", causes)
    here = f"{path}.preferredDuringSchedulingIgnoredDuringExecution"
    for index, weighted in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        _validate_weight(weighted, f"{here}[{index}]", causes)
        _validate_topology_key(weighted.get("podAffinityTerm") or {}, f"{here}[{index}].podAffinityTerm", causes)


def _validate_topology_key(term: Object, path: str, causes: list[Cause]) -> None:
    if not term.get("topologyKey"):
        causes.append(required_value(f"{path}.topologyKey", "can not be empty"))
    else:
        faults = qualified_name_errors(term["topologyKey"])
        causes += invalid_values(f"{path}.topologyKey", term["topologyKey"], faults)


def _validate_weight(weighted: Object, path: str, causes: list[Cause]) -> None:
    if not 1 <= weighted.get("weight", 0) <= 100:
        causes.append(invalid_value(f"{path}.weight", weighted.get("weight", 0), "must be in the range 1-100"))


def _validate_term(term: Object, path: str, causes: list[Cause]) -> None:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        key, operator = requirement.get("key", ""), requirement.get("operator", "")
        values = requirement.get("values") or ()
        causes += invalid_values(f"{here}.key", key, qualified_name_errors(key))
        if operator not in _SELECTOR_OPERATORS:
            causes.append(invalid_value(f"{here}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not values:
            causes.append(required_value(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(Cause("FieldValueForbidden", f"Forbidden: {problem}", f"{here}.values"))
        elif operator in ("Gt", "Lt") and len(values) != 1:
            problem = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            causes.append(required_value(f"{here}.values", problem))
