"""Every flag of ``kubestow run``, in kube-scheduler's sections and with its defaults (semantics 1.1).

The help says where a flag means less here than there: what has no counterpart in this process is accepted, so that a
manifest keeps working, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubestow.cli.flags.values import (
    ADDRESS,
    BOOL,
    DURATION,
    FLOAT,
    INT,
    INTS,
    MAP,
    PATH,
    PORT,
    SNI,
    STRING,
    STRINGS,
    Kind,
    one_of,
)
from kubestow.config import Duration
from kubestow.serving.tls import TLS_VERSIONS

__all__ = ["BY_NAME", "SECTIONS", "Flag"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. ``short`` is its letter, if it has one."""

    name: str
    kind: Kind
    default: Any
    help: str
    short: str = ""


def _seconds(seconds: int) -> Duration:
    return Duration.of(seconds=seconds)


_IGNORED = "Accepted; has no effect here."
_WITH_CONFIG = "DEPRECATED: ignored when --config is given."

SECTIONS: Mapping[str, tuple[Flag, ...]] = {
    "Misc": (
        Flag("config", PATH, None, "The configuration file, a KubeSchedulerConfiguration."),
        Flag("master", STRING, "", "Address of the API server; overrides any value in a kubeconfig."),
        Flag("write-config-to", PATH, None, "Write the effective configuration to this file, and exit."),
    ),
    "Secure serving": (
        Flag("bind-address", ADDRESS, "0.0.0.0", "IP address to serve on."),
        Flag("cert-dir", PATH, None, "Directory that keeps a self-made certificate; without one it is in memory."),
        Flag("disable-http2-serving", BOOL, False, f"HTTP/2 is never served. {_IGNORED}"),
        Flag("http2-max-streams-per-connection", INT, 0, f"HTTP/2 is never served. {_IGNORED}"),
        Flag("permit-address-sharing", BOOL, False, "Listen with SO_REUSEADDR."),
        Flag("permit-port-sharing", BOOL, False, "Listen with SO_REUSEPORT."),
        Flag("secure-port", PORT, 10259, "Port to serve HTTPS on; 0 serves nothing."),
        Flag("tls-cert-file", PATH, None, "Certificate to serve with, its chain after it; self-made if not given."),
        Flag(
            "tls-cipher-suites",
            STRINGS,
            (),
            "Cipher suites up to TLS 1.2, by Go's names; those of TLS 1.3 are always on.",
        ),
        Flag("tls-curve-preferences", INTS, (), "Key exchange group by IANA's number; only a single one has effect."),
        Flag("tls-min-version", one_of("", *TLS_VERSIONS), "", f"Least version of TLS: {', '.join(TLS_VERSIONS)}."),
        Flag("tls-private-key-file", PATH, None, "The key of --tls-cert-file."),
        Flag(
            "tls-sni-cert-key", SNI, (), "certificate,key or certificate,key:name,name, for clients that ask by name."
        ),
    ),
    "Authentication": (
        Flag("authentication-kubeconfig", STRING, "", "Kubeconfig to review tokens with; default: in-cluster."),
        Flag("authentication-skip-lookup", BOOL, False, "Do not ask the cluster whose certificates to believe."),
        Flag("authentication-token-webhook-cache-ttl", DURATION, _seconds(10), "How long token reviews hold."),
        Flag("authentication-tolerate-lookup-failure", BOOL, True, "Start even when the cluster cannot be asked."),
        Flag("client-ca-file", PATH, None, "Authorities that clients' certificates have to come from."),
        Flag("requestheader-allowed-names", STRINGS, (), "Common names of front proxies; none allows all."),
        Flag("requestheader-client-ca-file", PATH, None, "Authorities of front proxies."),
        Flag("requestheader-extra-headers-prefix", STRINGS, ("x-remote-extra-",), "Header prefixes of extra facts."),
        Flag("requestheader-group-headers", STRINGS, ("x-remote-group",), "Headers that name groups."),
        Flag("requestheader-uid-headers", STRINGS, (), "Headers that hold the user's uid."),
        Flag("requestheader-username-headers", STRINGS, ("x-remote-user",), "Headers that name the user."),
    ),
    "Authorization": (
        Flag(
            "authorization-always-allow-paths",
            STRINGS,
            ("/healthz", "/readyz", "/livez"),
            "Paths that anybody may ask for; a trailing * stands for anything.",
        ),
        Flag("authorization-kubeconfig", STRING, "", "Kubeconfig to review access with; default: in-cluster."),
        Flag("authorization-webhook-cache-authorized-ttl", DURATION, _seconds(10), "How long a yes holds."),
        Flag("authorization-webhook-cache-unauthorized-ttl", DURATION, _seconds(10), "How long a no holds."),
    ),
    "Deprecated": (
        Flag("contention-profiling", BOOL, True, f"{_WITH_CONFIG} {_IGNORED}"),
        Flag("kube-api-burst", INT, 100, f"{_WITH_CONFIG} Requests at once; no limit unless --kube-api-qps is given."),
        Flag("kube-api-content-type", STRING, "application/vnd.kubernetes.protobuf", f"{_WITH_CONFIG} {_IGNORED}"),
        Flag("kube-api-qps", FLOAT, 50.0, f"{_WITH_CONFIG} Requests a second; no limit unless it is given."),
        Flag("kubeconfig", STRING, "", f"{_WITH_CONFIG} Kubeconfig; default: as kubectl, or in-cluster."),
        Flag(
            "pod-max-in-unschedulable-pods-duration",
            DURATION,
            _seconds(300),
            "DEPRECATED: how long a refused pod waits for an event before it is tried again without one.",
        ),
        Flag("profiling", BOOL, True, f"{_WITH_CONFIG} {_IGNORED}"),
    ),
    "Leader election": (
        Flag("leader-elect", BOOL, True, "Schedule only while holding a Lease."),
        Flag("leader-elect-lease-duration", DURATION, _seconds(15), "How long others wait for a leader that is gone."),
        Flag("leader-elect-renew-deadline", DURATION, _seconds(10), "How long a leader tries to renew its Lease."),
        Flag("leader-elect-resource-lock", STRING, "leases", "The kind of lock; there is only leases."),
        Flag("leader-elect-resource-name", STRING, "kube-scheduler", "Name of the Lease."),
        Flag("leader-elect-resource-namespace", STRING, "kube-system", "Namespace of the Lease."),
        Flag("leader-elect-retry-period", DURATION, _seconds(2), "How often to try."),
    ),
    "Feature gate": (
        Flag("emulated-version", STRINGS, (), "Only 1.36 (or kube=1.36) is emulated."),
        Flag("emulation-forward-compatible", BOOL, False, _IGNORED),
        Flag("feature-gates", STRINGS, (), "Features as Name=true,Other=false; a name may begin with kube:."),
        Flag("runtime-config-emulation-forward-compatible", BOOL, False, _IGNORED),
    ),
    "Metrics": (
        Flag("allow-metric-labels", MAP, {}, "metric,label='value,value': values of a label that are told apart."),
        Flag("allow-metric-labels-manifest", PATH, None, "A YAML file of the same; --allow-metric-labels goes before."),
        Flag("disabled-metrics", STRINGS, (), "Metrics that are not exposed."),
        Flag("show-hidden-metrics-for-version", one_of("", "1.35"), "", "1.35: no metric of it is hidden in 1.36."),
    ),
    "Logs": (
        Flag("log-flush-frequency", DURATION, _seconds(5), f"Nothing is held back. {_IGNORED}"),
        Flag("log-json-info-buffer-size", STRING, "0", f"[Alpha] {_IGNORED}"),
        Flag("log-json-split-stream", BOOL, False, "[Alpha] JSON: errors to stderr, everything else to stdout."),
        Flag("log-text-info-buffer-size", STRING, "0", f"[Alpha] {_IGNORED}"),
        Flag("log-text-split-stream", BOOL, False, "[Alpha] text: errors to stderr, everything else to stdout."),
        Flag("logging-format", one_of("text", "json"), "text", "text or json."),
        Flag("v", INT, 0, "How much to tell: 0 what an operator must know, 2 each pod, 4 everything.", short="v"),
        Flag("vmodule", MAP, {}, "file=N: another verbosity for files of this name (without .py); * and ? match."),
    ),
    "kubestow": (
        Flag("plugin", STRINGS, (), "module:Class: a plugin to add to the registry; repeatable."),
        Flag("seed", STRING, "", "Seed of the choice among equally good nodes; default: random."),
    ),
}
"""The flags by section."""

BY_NAME: Mapping[str, Flag] = {flag.name: flag for flags in SECTIONS.values() for flag in flags}
"""The flags by name."""
