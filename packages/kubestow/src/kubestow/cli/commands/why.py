"""``kubestow why``: why one pod is pending or on its node, or why pods are pending, by cause with what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from kubestow.cli.input.cluster import ClusterInput, cluster_options, read_live
from kubestow.cli.input.pod_names import PodName, namespace_option, optional_pod_name_argument
from kubestow.cli.input.running_scheduler import configured_as_running, read_report
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.cli.output import OUTPUTS, output_option, print_result, with_versions
from kubestow.errors import APIError, InputError, InvalidSelector, KubestowError

if TYPE_CHECKING:
    from kubestow.api.core import Pod
    from kubestow.cli.input.cluster import LiveObjects
    from kubestow.client.rest.transport import Transport
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.job_admission import AdmissionQueues
    from kubestow.engine.job_forecasts import ForecastAnswer
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions

#: The path of each workload controller's collection in the API, and the names that kubectl takes for its kind.
_WORKLOADS = {
    "Job": ("/apis/batch/v1", "jobs", ("job", "jobs")),
    "Deployment": ("/apis/apps/v1", "deployments", ("deployment", "deployments", "deploy")),
    "ReplicaSet": ("/apis/apps/v1", "replicasets", ("replicaset", "replicasets", "rs")),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", ("statefulset", "statefulsets", "sts")),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", ("daemonset", "daemonsets", "ds")),
    "ReplicationController": (
        "/api/v1",
        "replicationcontrollers",
        ("replicationcontroller", "replicationcontrollers", "rc"),
    ),
}
#: The same for jobs of other projects, whose pods are found by their labels.
_JOBS = {
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", ("jobset", "jobsets")),
    "LeaderWorkerSet": (
        "/apis/leaderworkerset.x-k8s.io/v1",
        "leaderworkersets",
        ("leaderworkerset", "leaderworkersets", "lws"),
    ),
    "RayCluster": ("/apis/ray.io/v1", "rayclusters", ("raycluster", "rayclusters")),
    "RayJob": ("/apis/ray.io/v1", "rayjobs", ("rayjob", "rayjobs")),
    "TrainJob": ("/apis/trainer.kubeflow.org/v1alpha1", "trainjobs", ("trainjob", "trainjobs")),
    "Workload": ("/apis/kueue.x-k8s.io/v1beta1", "workloads", ("workload", "workloads", "wl")),
}
_KINDS = {
    "podgroup": "PodGroup",
    "podgroups": "PodGroup",
    **{name: kind for kinds in (_WORKLOADS, _JOBS) for kind, (_, _, names) in kinds.items() for name in names},
}
_NOT_FOUND, _FORBIDDEN = 404, 403


@dataclass(frozen=True, slots=True)
class Workload:
    """The controller of pods as it was given, such as ``job/train-7`` or ``rayjob.ray.io/train``.

    ``kind`` is in lower case for a kind that is not built in, maybe in the plural.
    """

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Workload | None:
        """The workload of TYPE/NAME; None for the name of a pod, maybe with its namespace.

        The name of a type that is not built in has its API group, which no namespace has.
        """
        given, slash, name = text.partition("/")
        kind, _, group = given.lower().partition(".")
        if not slash or "/" in name or not (kind in _KINDS or group):
            return None
        return cls(_KINDS.get(kind, kind), name)

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"

    def owns(self, pod: Pod, controllers: Mapping[tuple[str, str, str], tuple[str, str]]) -> bool:
        """Whether a pod is part of this: by its labels or pod group, or controlled by it.

        That may be by way of the pod's controllers, whose own ``controllers`` are given: kind and name, by the kind,
        namespace and name of the controlled object.
        """
        from kubestow.cluster.pods.pod_groups import KUBERNETES
        from kubestow.plugins.registry import find_pod_group_apis
        from kubestow.rules.jobs import names_job

        if self.kind == "PodGroup":
            apis = (KUBERNETES, *find_pod_group_apis())
            return any(api.group_of(pod) == self.name for api in apis)
        if names_job(pod, self.kind, self.name):
            return True
        reference = pod.metadata.controller
        owner = None if reference is None else (reference.kind, reference.name)
        seen: set[tuple[str, str]] = set()  # an owner reference may be cyclic
        while owner is not None and owner not in seen:
            seen.add(owner)
            kind, name = owner
            if name == self.name and self.kind in (kind, kind.lower(), f"{kind.lower()}s"):
                return True
            owner = controllers.get((kind, pod.metadata.namespace, name))
        return False


@dataclass(frozen=True, slots=True)
class PodSelection:
    """Which pods are asked about: those of a workload, those that a selector selects, or all, of a namespace or all."""

    workload: Workload | None
    #: Empty for all namespaces.
    namespace: str
    selector: str = ""

    def select(self, cluster: ClusterObjects) -> Iterator[Pod]:
        """The pods of a cluster, bound ones included. Raises InputError for a selector that does not parse."""
        from kubestow.api.apps import ReplicaSet
        from kubestow.api.selector_text import parse_selector

        try:
            selector = parse_selector(self.selector)
        except InvalidSelector as error:
            raise InputError("--selector", str(error)) from None
        controllers = {
            ("ReplicaSet", obj.metadata.namespace, obj.metadata.name): (owner.kind, owner.name)
            for obj in cluster.objects
            if isinstance(obj, ReplicaSet) and (owner := obj.metadata.controller) is not None
        }
        for pod in cluster.pods:
            if self.namespace and pod.metadata.namespace != self.namespace:
                continue
            if selector.matches(pod.metadata.labels) and (
                self.workload is None or self.workload.owns(pod, controllers)
            ):
                yield pod

    def resolved(self, state: Mapping[str, Any] | None) -> PodSelection:
        """The pods of the job that a Workload of Kueue stands for, given its object; any other selection as it is.

        Raises InputError for a Workload that does not exist, and for one without an owner.
        """
        if self.workload is None or self.workload.kind != "Workload":
            return self
        subject = f"{self.workload} in namespace {self.namespace}"
        if state is None:
            raise InputError(subject, "not found")
        for owner in (state.get("metadata") or {}).get("ownerReferences") or ():
            return replace(self, workload=Workload(str(owner.get("kind", "")), str(owner.get("name", ""))))
        raise InputError(subject, "has no owner, expected the job that it stands for")


queue_configuration_option = click.option(
    "--queue-configuration",
    default="",
    metavar="FILE",
    help="Configuration of the controller of job queues, such as Kueue's, for a job that waits in one.",
)


@click.command()
@optional_pod_name_argument
@namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="The pending pods of all namespaces.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="The pending pods that it selects, as app=web.")
@cluster_options
@scheduler_options
@queue_configuration_option
@output_option(*OUTPUTS)
def why(
    name: str,
    namespace: str,
    all_namespaces: bool,
    selector: str,
    source: ClusterInput,
    scheduler: SchedulerInput,
    queue_configuration: str,
    output: str,
) -> int:
    """Say in a few lines why POD (namespace/name or pod/name) is pending, or on its node.

    The scheduler's own report if it is reachable, otherwise computed from what the API server holds. `kubestow explain`
    is the long form.

    Without POD, and with -A or -l: all pending pods by cause, with the changes that would help, the one that helps most
    pods first. POD can also be a controller such as job/NAME, deployment/NAME or rayjob.ray.io/NAME: its pending pods
    by cause, its own state, and what it waits for in a queue of Kueue. So can a job of another project (jobset, lws,
    rayjob, trainjob/NAME), podgroup/NAME, and workload/NAME, which stands for the job that Kueue admits.
    """
    if name and (selector or all_namespaces):
        raise click.UsageError("a name excludes --selector and --all-namespaces")
    if namespace and all_namespaces:
        raise click.UsageError("--namespace excludes --all-namespaces")
    workload = Workload.parse(name)
    if name and workload is None:
        return _why_pod(PodName(name, namespace).within(source), source, scheduler, output)
    within = "" if all_namespaces else namespace or source.default_namespace()
    selection = PodSelection(workload, within, selector)
    return _why_pods(selection, source, scheduler, output, queue_configuration)


# -- one pod -----------------------------------------------------------------------------------------------------------


def _why_pod(pod: PodName, source: ClusterInput, scheduler: SchedulerInput, output: str) -> int:
    from kubestow.engine.explanation.explain import explain, reported
    from kubestow.engine.pipeline.offline_scheduler import find_pod

    origin = "the files of the cluster"
    if source.clusters:
        cluster = source.read(scheduler)
    else:
        found = read_live(source, lambda transport: _read_pod(transport, scheduler, *pod.key))
        if isinstance(found, dict):
            click.echo("remark: reported by the scheduler", err=True)
            print_result(lambda: found, _report_text(found), output)
            return 0
        cluster, origin = found.cluster(str(source)), "the objects of the API server"
    options = scheduler.read(cluster)
    try:
        explanation = explain(cluster, str(pod), options)
    except InputError:
        raise
    except KubestowError:  # a plugin fails
        if said := reported(find_pod(cluster, str(pod))):
            click.echo(said)
        raise
    for remark in (*explanation.remarks, f"computed from {origin}"):
        click.echo(f"remark: {remark}", err=True)

    def document() -> dict[str, Any]:
        return {key: value for key, value in explanation.document().items() if key != "byNode"}

    versioned = with_versions(document, options.gates.minor, cluster.server_version)
    print_result(versioned, "\n".join(explanation.summary()), output)
    return 0


async def _read_pod(
    transport: Transport, scheduler: SchedulerInput, namespace: str, name: str
) -> dict[str, Any] | LiveObjects:
    """The scheduler's report about a pod, or else all objects. Raises InputError, APIError and Unreachable."""
    from kubestow.cli.input.cluster import list_objects

    await transport.request("GET", f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}")  # 404 if unknown
    report = await read_report(transport, namespace, name)
    return await list_objects(transport, scheduler.custom_paths()) if report is None else report


def _report_text(report: dict[str, Any]) -> str:
    from kubestow.reports.model import counted

    lines = [f"{report.get('pod', '')}: {report['summary']}"]
    queue = report.get("queue", {})
    lines += [f"{plugin} waits for {', '.join(events)}" for plugin, events in queue.get("requeueEvents", {}).items()]
    if "explanation" in report:
        return "\n".join([*lines, "", *report["explanation"]["summary"]])
    now = report.get("now", {})
    if "feasible" in now:
        lines.append(f"now it fits on {now['feasible']:,} of {counted(now['nodes'], 'node')}")
    if now.get("message"):
        lines.append(f"now: {now['message']}")
    return "\n".join(lines)


# -- pods by cause -----------------------------------------------------------------------------------------------------


def _why_pods(
    selection: PodSelection, source: ClusterInput, scheduler: SchedulerInput, output: str, queue_configuration: str
) -> int:
    from kubestow.engine.explanation.pending import pending_by_cause
    from kubestow.reports.model import Paragraph, counted
    from kubestow.reports.text import View

    scheduler = configured_as_running(scheduler, source)
    cluster, state = read_selected(selection, source, scheduler)
    options = scheduler.read(cluster)
    pods = list(selection.resolved(state).select(cluster))
    found = pending_by_cause(cluster, pods, options)
    for remark in found.remarks:
        click.echo(f"remark: {remark}", err=True)
    if selection.workload is None:
        print_result(with_versions(found.document, options.gates.minor, cluster.server_version), found, output)
        return 0
    workload, namespace = selection.workload, selection.namespace
    queued = _why_queued(workload, namespace, cluster, queue_configuration)
    if not pods and state is None and not queued:
        raise InputError(f"{workload} in namespace {namespace}", "has no pod, finished pods aside")
    headline = f"{workload} in namespace {namespace}: {counted(len(pods), 'pod')}, {found.count:,} of them pending"
    described = [Paragraph(headline)]
    if state is not None:
        described.append(Paragraph(workload_state(workload.kind, state)))
    described += [Paragraph(line) for line in queued]
    forecast = _forecast(cluster, pods, options, str(workload)) if found.count else None
    described += [Paragraph(line) for line in _forecast_lines(forecast)]

    def document() -> dict[str, Any]:
        about: dict[str, Any] = {"kind": workload.kind, "namespace": namespace, "name": workload.name}
        if state is not None:
            about["status"] = state.get("status") or {}
        if queued:
            about["queue"] = queued
        if forecast is not None:
            remedies = forecast.would_start_now().items()
            about["notYet"] = dict(forecast.why_not_yet())
            about["wouldStartNow"] = {name: [each.document() for each in some] for name, some in remedies}
        return found.document() | {"workload": about | {"pods": len(pods)}}

    blocks = [*described, *((Paragraph(""), *found.blocks()) if found.causes else ())]
    print_result(with_versions(document, options.gates.minor, cluster.server_version), View(blocks), output)
    return 0


def _why_queued(workload: Workload, namespace: str, cluster: ClusterObjects, configuration: str) -> list[str]:
    """What job queues in the cluster say about a workload, in lines; none if none of them has it. Raises InputError."""
    from kubestow.engine.job_admission import Owner

    owner = Owner(workload.kind, namespace, workload.name)
    return next((list(lines) for _, queues in _job_queues(cluster, configuration) if (lines := queues.why(owner))), [])


def forecast_queued(
    workload: Workload, namespace: str, cluster: ClusterObjects, configuration: str
) -> tuple[str, ForecastAnswer] | None:
    """When a workload starts that waits in job queues of the cluster before it has pods, after their name.

    None if none of them has it. Raises InputError.
    """
    from kubestow.engine.job_admission import Owner

    owner = Owner(workload.kind, namespace, workload.name)
    answers = ((name, queues.forecast(owner)) for name, queues in _job_queues(cluster, configuration))
    return next(((name, answer) for name, answer in answers if answer is not None), None)


def _job_queues(cluster: ClusterObjects, configuration: str) -> Iterator[tuple[str, AdmissionQueues]]:
    """The queues in the cluster that admit whole jobs, with the names of their projects. Raises InputError."""
    from kubestow.engine.job_admission import admission_systems
    from kubestow.engine.virtual_time import EPOCH

    now = cluster.time(EPOCH).timestamp()
    for name, system in admission_systems().items():
        queues = system.open(cluster, configuration=configuration or None, now=now)
        if queues is not None:
            yield name, queues


def _forecast(cluster: ClusterObjects, pods: list[Pod], options: SchedulerOptions, name: str) -> ForecastAnswer | None:
    """When the jobs of some pods start, as what holds them back says; None if nothing does."""
    from kubestow.engine.gangs.group_forecast import forecast_start

    try:
        return forecast_start(cluster, pods, options, name)[1]
    except InputError:
        return None


def _forecast_lines(forecast: ForecastAnswer | None) -> Iterator[str]:
    """Why jobs do not start yet, and with which changes they would start now."""
    if forecast is None:
        return
    for job, reason in forecast.why_not_yet().items():
        yield f"{job} does not start yet: {reason}"
    for job, remedies in forecast.would_start_now().items():
        for remedy in remedies:
            yield f"{job} would start now with {remedy.change}" + (f", on {remedy.where}" if remedy.where else "")


def read_selected(
    selection: PodSelection, source: ClusterInput, scheduler: SchedulerInput
) -> tuple[ClusterObjects, dict[str, Any] | None]:
    """The cluster, and the object of the selected workload if it is a live one that has built-in workloads.

    Raises InputError, also for a workload that does not exist, APIError and Unreachable.
    """
    from kubestow.cli.input.cluster import list_objects

    if source.clusters:
        cluster = source.read(scheduler)
        return cluster, _find_workload(cluster, selection)

    async def read(transport: Transport) -> tuple[LiveObjects, dict[str, Any] | None]:
        workload = await _read_workload(transport, selection)
        objects = await list_objects(transport, scheduler.custom_paths())
        if selection.workload is not None:
            await _add_queues(transport, selection.workload, objects)
        return objects, workload

    objects, workload = read_live(source, read)
    return objects.cluster(str(source)), workload


def _find_workload(cluster: ClusterObjects, selection: PodSelection) -> dict[str, Any] | None:
    """The object of the selected job of another project, if the cluster has it."""
    workload = selection.workload
    if workload is None or workload.kind not in _JOBS:
        return None
    group = _JOBS[workload.kind][0].split("/")[2]
    for source in cluster.custom_resources:
        if source.kind == workload.kind and source.api_version.startswith(f"{group}/"):
            metadata = source.manifest.get("metadata") or {}
            if (metadata.get("namespace"), metadata.get("name")) == (selection.namespace, workload.name):
                return source.manifest
    return None


async def _add_queues(transport: Transport, workload: Workload, objects: LiveObjects) -> None:
    from kubestow.cli.input.cluster import list_admission_objects
    from kubestow.engine.job_admission import admission_systems

    for name, system in admission_systems().items():
        try:
            await list_admission_objects(transport, system.resources, objects)
        except APIError as error:
            if error.code != _FORBIDDEN:
                raise
            click.echo(f"remark: what {workload} waits for in a queue of {name} is not shown: {error}", err=True)


async def _read_workload(transport: Transport, selection: PodSelection) -> dict[str, Any] | None:
    from kubestow.api.json_text import UNDECODABLE, parse_json

    workload = selection.workload
    if workload is None or workload.kind not in (known := {**_WORKLOADS, **_JOBS}):
        return None
    root, plural, _ = known[workload.kind]
    path = f"{root}/namespaces/{quote(selection.namespace)}/{plural}/{quote(workload.name)}"
    try:
        found = parse_json(await transport.request("GET", path))
    except APIError as error:
        if error.code == _FORBIDDEN:
            click.echo(f"remark: the state of {workload} is not shown: {error}", err=True)
            return None
        if error.code == _NOT_FOUND and workload.kind in _JOBS:
            return None  # maybe of another version
        if error.code == _NOT_FOUND:
            raise InputError(f"{workload} in namespace {selection.namespace}", "not found") from None
        raise
    except UNDECODABLE as error:
        raise InputError(path, f"not the JSON of an object: {error}") from None
    return found if isinstance(found, dict) else None


def workload_state(kind: str, workload: Mapping[str, Any]) -> str:
    """What a workload itself reports: its numbers of pods, whether it is suspended, and its conditions.

    Of a job of another project all conditions, those included that do not hold, and no numbers.
    """
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    numbers = {
        "Job": (("active", "active"), ("ready", "ready"), ("succeeded", "succeeded"), ("failed", "failed")),
        "DaemonSet": (
            ("desiredNumberScheduled", "desired"),
            ("currentNumberScheduled", "scheduled"),
            ("numberReady", "ready"),
        ),
    }.get(kind, (("replicas", "exist"), ("readyReplicas", "ready"), ("availableReplicas", "available")))
    wanted = {
        "Job": f"{spec.get('completions') or 1} completions with parallelism {spec.get('parallelism', 1)}",
        "DaemonSet": "one pod on each node that matches",
    }.get(kind, f"{spec.get('replicas', 1)} replicas")
    parts = [f"wants {wanted}", ", ".join(f"{status.get(field) or 0} {word}" for field, word in numbers)]
    if kind in _JOBS:
        parts = [] if status.get("conditions") else ["reports no conditions"]
    if spec.get("suspend"):
        parts.append("suspended, so it creates no pods")
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" or condition.get("type") in ("Available", "Progressing") or kind in _JOBS:
            holds = "" if condition.get("status") == "True" else "not "
            why = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
            parts.append(f"{holds}{condition.get('type')}" + (f" ({why})" if why else ""))
    return "; ".join(parts)
