"""The flags of ``kubestow run``, in kube-scheduler's sections and with its defaults (semantics 1.1).

Flags without a counterpart here are accepted and ignored, so that existing manifests keep working; their help says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kubestow.cli.flags.values import (
    ADDRESS,
    BOOL,
    DURATION,
    FLOAT,
    FRACTION,
    INT,
    INTS,
    MAP,
    PATH,
    PORT,
    SNI,
    STRING,
    STRINGS,
    FlagType,
    one_of,
)
from kubestow.config import Duration
from kubestow.http.tls import TLS_VERSIONS
from kubestow.rules.minors import NOT_COMPARED


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag. ``short`` is its one-letter shorthand, if any."""

    name: str
    type: FlagType
    default: Any
    help: str
    short: str = ""


@dataclass(frozen=True)
class FlagCatalog:
    """The flags of a command by section. ``removed`` says what to do instead of a flag that ``program`` once had."""

    program: str
    sections: Mapping[str, tuple[Flag, ...]]
    removed: Mapping[str, str]

    @cached_property
    def by_name(self) -> Mapping[str, Flag]:
        """The flags by name."""
        return {flag.name: flag for flags in self.sections.values() for flag in flags}


def _seconds(seconds: int) -> Duration:
    return Duration.of(seconds=seconds)


_IGNORED = "Accepted and ignored."
_WITH_CONFIG = "DEPRECATED: ignored if --config is set."

SECTIONS: Mapping[str, tuple[Flag, ...]] = {
    "Misc": (
        Flag("config", PATH, None, "Path of the configuration file (KubeSchedulerConfiguration)."),
        Flag("master", STRING, "", "URL of the API server; overrides the kubeconfig."),
        Flag("write-config-to", PATH, None, "Write the effective configuration to this file and exit."),
    ),
    "Secure serving": (
        Flag("bind-address", ADDRESS, "0.0.0.0", "IP address to serve on."),
        Flag("cert-dir", PATH, None, "Directory of the self-signed certificate; default: kept in memory."),
        Flag("disable-http2-serving", BOOL, False, f"HTTP/2 is never served. {_IGNORED}"),
        Flag("http2-max-streams-per-connection", INT, 0, f"HTTP/2 is never served. {_IGNORED}"),
        Flag("permit-address-sharing", BOOL, False, "Listen with SO_REUSEADDR."),
        Flag("permit-port-sharing", BOOL, False, "Listen with SO_REUSEPORT."),
        Flag("secure-port", PORT, 10259, "Port to serve HTTPS on; 0 disables serving."),
        Flag("tls-cert-file", PATH, None, "Serving certificate with its chain; default: self-signed."),
        Flag(
            "tls-cipher-suites",
            STRINGS,
            (),
            "Cipher suites up to TLS 1.2, by their Go names; those of TLS 1.3 are always enabled.",
        ),
        Flag("tls-curve-preferences", INTS, (), "Key exchange group (IANA number); at most one is supported."),
        Flag("tls-min-version", one_of("", *TLS_VERSIONS), "", f"Minimum TLS version: {', '.join(TLS_VERSIONS)}."),
        Flag("tls-private-key-file", PATH, None, "Private key of --tls-cert-file."),
        Flag("tls-sni-cert-key", SNI, (), "SNI certificates, as certificate,key or certificate,key:name,name."),
    ),
    "Authentication": (
        Flag("authentication-kubeconfig", STRING, "", "Kubeconfig for token reviews; default: in-cluster."),
        Flag("authentication-skip-lookup", BOOL, False, "Do not read the client CAs from the cluster."),
        Flag("authentication-token-webhook-cache-ttl", DURATION, _seconds(10), "How long token reviews are cached."),
        Flag(
            "authentication-tolerate-lookup-failure",
            BOOL,
            True,
            "Start even if the client CAs cannot be read from the cluster.",
        ),
        Flag("client-ca-file", PATH, None, "CAs of client certificates."),
        Flag("requestheader-allowed-names", STRINGS, (), "Common names of front proxies; empty allows all."),
        Flag("requestheader-client-ca-file", PATH, None, "CAs of front proxies."),
        Flag(
            "requestheader-extra-headers-prefix",
            STRINGS,
            ("x-remote-extra-",),
            "Prefixes of headers with extra user information.",
        ),
        Flag("requestheader-group-headers", STRINGS, ("x-remote-group",), "Headers with group names."),
        Flag("requestheader-uid-headers", STRINGS, (), "Headers with the UID of the user."),
        Flag("requestheader-username-headers", STRINGS, ("x-remote-user",), "Headers with the user name."),
    ),
    "Authorization": (
        Flag(
            "authorization-always-allow-paths",
            STRINGS,
            ("/healthz", "/readyz", "/livez"),
            "Paths that need no authorization; a trailing * matches any suffix.",
        ),
        Flag("authorization-kubeconfig", STRING, "", "Kubeconfig for subject access reviews; default: in-cluster."),
        Flag(
            "authorization-webhook-cache-authorized-ttl",
            DURATION,
            _seconds(10),
            "How long positive access reviews are cached.",
        ),
        Flag(
            "authorization-webhook-cache-unauthorized-ttl",
            DURATION,
            _seconds(10),
            "How long negative access reviews are cached.",
        ),
    ),
    "Deprecated": (
        Flag("contention-profiling", BOOL, True, f"{_WITH_CONFIG} {_IGNORED}"),
        Flag("kube-api-burst", INT, 100, f"{_WITH_CONFIG} Burst of requests; unlimited unless --kube-api-qps is set."),
        Flag("kube-api-content-type", STRING, "application/vnd.kubernetes.protobuf", f"{_WITH_CONFIG} {_IGNORED}"),
        Flag("kube-api-qps", FLOAT, 50.0, f"{_WITH_CONFIG} Requests per second; unlimited unless it is set."),
        Flag("kubeconfig", STRING, "", f"{_WITH_CONFIG} Path of a kubeconfig; default: as kubectl, or in-cluster."),
        Flag(
            "pod-max-in-unschedulable-pods-duration",
            DURATION,
            _seconds(300),
            "DEPRECATED: time after which an unschedulable pod is retried without an event.",
        ),
        Flag("profiling", BOOL, True, f"{_WITH_CONFIG} {_IGNORED}"),
    ),
    "Leader election": (
        Flag("leader-elect", BOOL, True, "Schedule only while holding a Lease."),
        Flag(
            "leader-elect-lease-duration",
            DURATION,
            _seconds(15),
            "How long standbys wait after the last renewal before they acquire the Lease.",
        ),
        Flag("leader-elect-renew-deadline", DURATION, _seconds(10), "How long the leader retries to renew the Lease."),
        Flag("leader-elect-resource-lock", STRING, "leases", "Type of the lock; only leases is supported."),
        Flag("leader-elect-resource-name", STRING, "kube-scheduler", "Name of the Lease."),
        Flag("leader-elect-resource-namespace", STRING, "kube-system", "Namespace of the Lease."),
        Flag(
            "leader-elect-retry-period",
            DURATION,
            _seconds(2),
            "Interval between attempts to acquire or renew the Lease.",
        ),
    ),
    "Feature gate": (
        Flag(
            "emulated-version",
            STRINGS,
            (),
            f"Kubernetes minor to emulate, as 1.33 or kube=1.33; default: that of the API server. {NOT_COMPARED}.",
        ),
        Flag("emulation-forward-compatible", BOOL, False, _IGNORED),
        Flag("feature-gates", STRINGS, (), "Feature gates, as Name=true,Other=false; names can have the prefix kube:."),
        Flag("runtime-config-emulation-forward-compatible", BOOL, False, _IGNORED),
    ),
    "Metrics": (
        Flag("allow-metric-labels", MAP, {}, "Allowed values of a metric label, as metric,label='value,value'."),
        Flag(
            "allow-metric-labels-manifest",
            PATH,
            None,
            "YAML file of allowed label values; --allow-metric-labels takes precedence.",
        ),
        Flag("disabled-metrics", STRINGS, (), "Metrics to disable."),
        Flag(
            "show-hidden-metrics-for-version",
            one_of("", "1.35"),
            "",
            "Only 1.35; it has no metrics that are hidden in 1.36.",
        ),
    ),
    "Logs": (
        Flag("log-flush-frequency", DURATION, _seconds(5), f"Logs are not buffered. {_IGNORED}"),
        Flag("log-json-info-buffer-size", STRING, "0", f"[Alpha] {_IGNORED}"),
        Flag("log-json-split-stream", BOOL, False, "[Alpha] JSON: write errors to stderr, all else to stdout."),
        Flag("log-text-info-buffer-size", STRING, "0", f"[Alpha] {_IGNORED}"),
        Flag("log-text-split-stream", BOOL, False, "[Alpha] text: write errors to stderr, all else to stdout."),
        Flag("logging-format", one_of("text", "json"), "text", "Log format, text or json."),
        Flag(
            "v", INT, 0, "Log verbosity: 0 for operators, 2 with the result of each pod, 4 with all details.", short="v"
        ),
        Flag("vmodule", MAP, {}, "Verbosity per file, as file=N; the name is without .py and can contain * and ?."),
    ),
    "kubestow": (
        Flag("context", STRING, "", "Context of the kubeconfig; default: its current context."),
        Flag("flight-record", PATH, None, "Folder of a flight record for kubestow replay; default: none is kept."),
        Flag("flight-record-size", STRING, "", "Limit of the flight record in bytes; default: 256Mi."),
        Flag("otlp-endpoint", STRING, "", "URL of an OpenTelemetry collector to export traces to; default: no traces."),
        Flag(
            "partitions",
            INT,
            0,
            "Number of partitions that the active schedulers of the cluster share; 0: one scheduler is active.",
        ),
        Flag("plugin", STRINGS, (), "Plugin to register, as module:Class or file.py:Class; can be repeated."),
        Flag("seed", STRING, "", "Seed for the choice between nodes with equal scores; default: random."),
        Flag("trace-sampling", FRACTION, 0.1, "Fraction of scheduling attempts to trace with --otlp-endpoint."),
    ),
}
"""The flags by section."""

_POLICY = "convert the Policy with kubestow config convert, and use the result with --config"
_SECURE = "use --bind-address and --secure-port; the port serves HTTPS only"

REMOVED: Mapping[str, str] = {
    "address": _SECURE,
    "algorithm-provider": "remove it for DefaultProvider; for ClusterAutoscalerProvider set the scoringStrategy of"
    " NodeResourcesFit to MostAllocated in a file for --config",
    "alsologtostderr": "remove it, logs are written to standard error",
    "azure-container-registry-config": "remove it",
    "cloud-config": "remove it",
    "cloud-provider": "remove it",
    "experimental-logging-sanitization": "remove it",
    "failure-domains": "remove it, each pod names its topology keys",
    "hard-pod-affinity-symmetric-weight": "set hardPodAffinityWeight of InterPodAffinity in a file for --config",
    "lock-object-name": "use --leader-elect-resource-name",
    "lock-object-namespace": "use --leader-elect-resource-namespace",
    "log-backtrace-at": "remove it",
    "log-dir": "redirect standard error instead",
    "log-file": "redirect standard error instead",
    "log-file-max-size": "redirect standard error instead",
    "logtostderr": "remove it, logs are written to standard error",
    "one-output": "remove it",
    "policy-config-file": _POLICY,
    "policy-configmap": _POLICY,
    "policy-configmap-namespace": _POLICY,
    "port": _SECURE,
    "scheduler-name": "set profiles[0].schedulerName in a file for --config",
    "skip-headers": "remove it",
    "skip-log-headers": "remove it",
    "stderrthreshold": "remove it, logs are written to standard error",
    "use-legacy-policy-config": _POLICY,
}
"""What to do instead of using a flag that earlier versions of kube-scheduler had, by its name."""

RUN = FlagCatalog("kube-scheduler", SECTIONS, REMOVED)
"""The flags of ``kubestow run``."""
