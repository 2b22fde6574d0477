"""The flags of ``kubestow deschedule``: the descheduler's, with its defaults, and those of the dry run.

Flags without a counterpart here are accepted and ignored, so that existing manifests keep working; their help says so.
"""

from __future__ import annotations

from dataclasses import replace

from kubestow.cli.flags.scheduler import SECTIONS, Flag, FlagCatalog
from kubestow.cli.flags.values import BOOL, DURATION, FLOAT, INT, PATH, STRING, STRINGS, one_of
from kubestow.config import Duration
from kubestow.rules.minors import NOT_COMPARED

_IGNORED = "Accepted and ignored."
#: Flags whose defaults are not kube-scheduler's.
_DEFAULTS = {
    "secure-port": 10258,
    "authorization-always-allow-paths": ("/healthz", "/readyz", "/livez", "/metrics"),
    "leader-elect": False,
    "leader-elect-lease-duration": Duration.of(seconds=137),
    "leader-elect-renew-deadline": Duration.of(seconds=107),
    "leader-elect-retry-period": Duration.of(seconds=26),
    "leader-elect-resource-name": "descheduler",
}


def _section(name: str) -> tuple[Flag, ...]:
    """A section of ``kubestow run``, with the descheduler's defaults."""
    flags = (replace(flag, default=_DEFAULTS.get(flag.name, flag.default)) for flag in SECTIONS[name])
    return tuple(
        replace(flag, help="Deschedule only while holding a Lease.") if flag.name == "leader-elect" else flag
        for flag in flags
    )


DESCHEDULE = FlagCatalog(
    "descheduler",
    {
        "Descheduling": (
            Flag("policy-config-file", PATH, None, "File with the DeschedulerPolicy (descheduler/v1alpha2)."),
            Flag("descheduling-interval", DURATION, Duration(), "Time between two loops; 0 runs one loop and exits."),
            Flag(
                "dry-run", BOOL, False, "Evict nothing: report which pods would be evicted, and where they come back."
            ),
            Flag("disable-metrics", BOOL, False, "Do not serve metrics."),
        ),
        "Defragmentation plan": (
            Flag(
                "plan",
                PATH,
                None,
                "Carry out this plan of `kubestow what-if defragment -o json`, instead of a policy; - is stdin.",
            ),
            Flag(
                "cordon",
                BOOL,
                False,
                "Cordon the nodes that the plan frees, and until their pods are replaced those that pods leave.",
            ),
            Flag(
                "move-timeout",
                DURATION,
                Duration.of(seconds=300),
                "How long a budget may refuse an eviction of the plan, and a replacement be without a node.",
            ),
        ),
        "Dry run": (
            Flag("cluster", STRINGS, (), "Dump or folder with the cluster, instead of a live one; - is stdin."),
            Flag(
                "rescheduling",
                one_of("auto", "refuse", "refuse-pending", "report", "off"),
                "auto",
                "What is done about pods that would come back to the same node or stay pending: refuse their eviction,"
                " refuse it if they stay pending, only report it, or do not ask the scheduler (off). auto: refuse in a"
                " dry run, off otherwise.",
            ),
            Flag("config", PATH, None, "Configuration of the cluster's scheduler (KubeSchedulerConfiguration)."),
            Flag("now", STRING, "", "The time of the dry run, as 2026-07-01T00:00:00Z; default: the present."),
            Flag("seed", STRING, "0", "Seed of the choice between nodes with equal scores."),
            Flag(
                "output",
                one_of("table", "json", "yaml"),
                "table",
                "Form of the report of a dry run: table, json or yaml.",
                short="o",
            ),
        ),
        "Client connection": (
            Flag("client-connection-burst", INT, 0, "Burst of requests; unlimited unless the QPS is set."),
            Flag("client-connection-kubeconfig", STRING, "", "Kubeconfig; default: as kubectl, or in-cluster."),
            Flag("client-connection-qps", FLOAT, 0.0, "Requests per second; 0 for any number."),
            Flag("context", STRING, "", "Context of the kubeconfig; default: its current context."),
            Flag("kubeconfig", STRING, "", "DEPRECATED: use --client-connection-kubeconfig."),
            Flag("master", STRING, "", "URL of the API server; overrides the kubeconfig."),
        ),
        "Leader election": _section("Leader election"),
        "Secure serving": (
            *_section("Secure serving"),
            Flag("enable-http2", BOOL, False, f"HTTP/2 is never served. {_IGNORED}"),
        ),
        "Authentication": _section("Authentication"),
        "Authorization": _section("Authorization"),
        "Feature gate": (
            Flag(
                "feature-gates",
                STRINGS,
                (),
                "Feature gates, as Name=true,Other=false: EvictionsInBackground of the descheduler, which is accepted"
                " without effect, and those of the scheduler.",
            ),
            Flag(
                "emulated-version",
                STRING,
                "",
                "Kubernetes minor that the scheduler is asked as, such as 1.33; default: the cluster's. "
                f"{NOT_COMPARED}.",
            ),
        ),
        "Tracing": (
            Flag("otel-collector-endpoint", STRING, "", f"Traces are not exported. {_IGNORED}"),
            Flag("otel-fallback-no-op-on-error", BOOL, False, _IGNORED),
            Flag("otel-sample-rate", FLOAT, 1.0, _IGNORED),
            Flag("otel-service-name", STRING, "descheduler", _IGNORED),
            Flag("otel-trace-namespace", STRING, "", _IGNORED),
            Flag("otel-transport-ca-cert", STRING, "", _IGNORED),
        ),
        "Logs": _section("Logs"),
        "kubestow": (
            Flag("plugin", STRINGS, (), "Descheduling plugin to register, as module:Class; can be repeated."),
            Flag(
                "scheduler-plugin",
                STRINGS,
                (),
                "Scheduler plugin to register, as module:Class or file.py:Class; can be repeated.",
            ),
        ),
    },
    removed={},
)
"""The flags of ``kubestow deschedule``."""
