"""What is fuzzed: each reader with its seeds, and the errors by which it rejects an input."""

from __future__ import annotations

import asyncio
import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from core_tests.flight_record.records import small_record
from devcluster_tests.client import Client
from devcluster_tests.protobuf_bodies import envelope
from kubestow import config
from kubestow.api import extender
from kubestow.api.formats import quantity
from kubestow.api.formats.canonical_quantity import canonical
from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.api.json_text import UNDECODABLE, parse_json
from kubestow.api.selector_text import parse_selector
from kubestow.client.rest.kubeconfig import read_kubeconfig
from kubestow.client.rest.server_connection import ConnectionBroken, ServerConnection
from kubestow.client.watch_decoding import LineSplitter, ListPage, ObjectDecoder, WatchLine
from kubestow.config import legacy
from kubestow.config.diagnosis import diagnose
from kubestow.config.diff import annotated
from kubestow.descheduling.defragmentation.plan import read_plan
from kubestow.descheduling.descheduler_policy import load_policy
from kubestow.descheduling.strategies.plugin_registry import find_plugins as find_strategies
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import Problems, parse_objects, read_yaml
from kubestow.errors import InputError, InvalidObject, KubestowError
from kubestow.files import as_utf8
from kubestow.flight_record import segment
from kubestow.flight_record.exact_replay import replay
from kubestow.framework.profile import implements
from kubestow.http.certificates import CertificateAuthority, KeyPair
from kubestow.plugins import in_tree_registry
from kubestow.plugins.configuration_file import convert_foreign, diagnose_foreign
from kubestow.plugins.dynamic_resources.cel import CELDevice, SelectorCache, SelectorError, Version
from kubestow.plugins.registry import find_plugins
from kubestow.scheduling.events.resources import WATCHED
from kubestow_contrib.crane import read_policy
from kubestow_devcluster.apiserver.resources.validation_rules import ValidationRules, rule_errors
from kubestow_devcluster.apiserver.security.authentication import read_token_file
from kubestow_devcluster.apiserver.serialization.media_types import decode_body, field_problems
from kubestow_devcluster.apiserver.statuses import StatusError
from kubestow_devcluster.behaviour.stages import read_stages
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.dump import load as load_dump
from kubestow_lab.capacity.pod_template import PodTemplate
from kubestow_lab.conformance.replay import replay_file
from kubestow_lab.scheduler_perf.benchmark_result import read_result
from kubestow_lab.scheduler_perf.object_templates import ObjectTemplate
from kubestow_lab.scheduler_perf.test_cases import read_test_cases
from kubestow_lab.simulation.other_installation import read_simulation_result
from kubestow_lab.traces import openb
from kubestow_lab.traces.formats import read_trace
from kubestow_lab.tuning.search_space import SearchSpace
from kubestow_lab.what_if.node_pools import read_node_pools

_ROOT = Path(__file__).resolve().parents[3]
_CORPUS = _ROOT / "tests/conformance/corpus"


@dataclass(frozen=True, slots=True)
class Reader:
    """Something that reads bytes. ``rejections`` are the exceptions by which it says that they are invalid.

    ``is_slow`` says that an input takes several milliseconds: it is not only parsed.
    """

    read: Callable[[bytes], object]
    rejections: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]
    is_slow: bool = False


# -- files ---------------------------------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="kubestow-fuzz-"))


def _file(read: Callable[[Path], object], name: str = "file") -> Callable[[bytes], object]:
    """A reader of bytes that writes them into a file, for one of files."""

    def read_bytes(content: bytes) -> object:
        path = _folder() / name
        path.write_bytes(content)
        return read(path)

    return read_bytes


@cache
def _registry() -> Any:
    return find_plugins()


@cache
def _strategies() -> Any:
    return find_strategies()


def _manifests(content: bytes) -> None:
    problems = Problems()
    sources = list(parse_objects(content, "file", problems))
    for source in sources:
        _ = source.manifest
    ClusterObjects.of_sources(sources, problems, subject="file")


def _configuration(content: bytes) -> None:
    document = convert_foreign(content, "file") or content
    errors = diagnose_foreign(content)
    if errors is None:
        errors = diagnose(content, implements=implements(_registry()))
    config.load(document, implements=implements(_registry()))
    assert not errors, f"diagnose() has errors, and load() none: {errors}"


def _converted_configuration(content: bytes) -> None:
    converted = convert_foreign(content, "file")
    data = legacy.convert(content, subject="file").data if converted is None else converted
    configuration = config.load(data, implements=implements(_registry()))
    annotated(config.render(configuration), config.render(config.default_configuration()), {})


def _simulation_result(content: bytes) -> None:
    read_simulation_result(content, ClusterObjects())


def _openb(content: bytes) -> None:
    path = _folder() / "openb_pod_list_default.csv"
    path.write_bytes(content)
    for pods in (openb.read_pods(path, timed=True), openb.read_nodes(path)):
        try:
            list(pods)
        except InputError:
            continue


#: For each format of a trace, its files: the input is one of them in turn, beside empty ones.
_TRACE_FILES = {
    "google2011": ("machine_events.csv", "task_events.csv", "machine_attributes.csv", "task_constraints.csv"),
    "google2019": ("machine_events.json", "instance_events.json", "collection_events.json"),
    "alibaba2018": ("machine_meta.csv", "container_meta.csv", "batch_task.csv"),
    "alibaba-gpu2020": ("pai_machine_spec.csv", "pai_task_table.csv", "pai_job_table.csv"),
    "alibaba-gpu2025": ("disaggregated_DLRM_trace.csv",),
    "alibaba-spot2026": ("node_info_df.csv", "job_info_df.csv"),
    "azure-packing": ("packing_trace.sqlite",),
    "azure-vm": ("vmtable.csv",),
    "philly": ("cluster_machine_list", "cluster_job_log"),
    "helios": ("cluster_gpu_number.csv", "cluster_log.csv"),
    "acme": ("trace_seren.csv",),
    "supercloud": ("slurm-log.csv",),
    "swf": ("log.swf",),
}


def _published_trace(content: bytes) -> None:
    """The input is the first table of each format in turn, and then all of its tables."""
    base = _folder()
    for name, files in _TRACE_FILES.items():
        folder = base / name
        folder.mkdir(exist_ok=True)
        for file in files:
            (folder / file).write_bytes(content)
        try:
            trace, _ = read_trace(f"{name}={folder / files[0] if name == 'swf' else folder}")
        except InputError:
            continue
        assert all(task.count >= 0 for task in trace.tasks)


def _mapped_table(content: bytes) -> None:
    folder = _folder()
    (folder / "jobs.csv").write_bytes(content)
    (folder / "mapping.yaml").write_bytes(content if content.startswith(b"created") else _MAPPING)
    read_trace(f"csv={folder / 'jobs.csv'}", mapping=folder / "mapping.yaml")


_PUBLISHED_TRACES = [
    b"0,5,0,hash,0.5,0.25\n0,6,1,3,0.1,0.1,0.1,1,9\n",
    b'{"time":"0","machine_id":"1","type":"1","capacity":{"cpus":0.5,"memory":0.2},"instance_index":0,"constraint":[{}]}\n',
    b"m_1,0,1,677,96,100,USING\nM1,3,j_1,1,Terminated,419011,419011,100,0.3\n",
    b"instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,max_instance_per_node\ni,HN,a,1,1,1,0,2\n",
    b"machineId,number of GPUs,single GPU mem\nm31,8,24GB\n",
    b'[{"jobid":"a","submitted_time":"2017-10-07 01:11:39","attempts":[{"start_time":"2017-10-07 01:12:09",'
    b'"end_time":"2017-10-07 01:13:09","detail":[{"ip":"m","gpus":["gpu0"]}]}]}]',
    b"job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,duration,date,total\n"
    b"1,u,v,16,32,2,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,3,2020-06-09,168\n",
    b'id_job,id_user,time_submit,time_start,time_end,tres_req\n1,1,1,2,3,"1=20,2=170000,4=1,1002=2"\n',
    b"; MaxNodes: 2\n1 0 1 3600 8 -1 -1 8 7200 2048 1 3 1 -1 2 -1 -1 -1\n",
]
_MAPPING = b"created: {column: t, factor: 60}\ncpu: c\ngpus: g\nnodes: {count: 2, cpu: 4, gpus: 1}\n"


def _pod_template(content: bytes) -> None:
    data = load_yaml(as_utf8(content, "file"), "file")
    if isinstance(data, dict):
        PodTemplate(data, "file").requirements()


def _dump(content: bytes) -> None:
    load_dump(DevCluster(kubelets=False).registry, content, subject="file")


def _template(path: Path) -> None:
    ObjectTemplate.read(path).object(3, 7, {"x": 5})


def _space(path: Path) -> None:
    space = SearchSpace.load(path)
    base = config.default_configuration()
    space.check(base, _registry(), config.FeatureGates())
    if space.size:
        space.document(base, space.candidate(0))


#: Separates the frames of a record, which get their length and checksum here: a fuzzer does not find these.
_FRAME_SEPARATOR = b"\x00<frame>\x00"


def _framed(content: bytes) -> bytes:
    """The file of a record whose frames have this content: kind and payload of each."""
    frames = [frame for frame in content.split(_FRAME_SEPARATOR) if frame]
    beginning = segment._MAGIC + segment._VERSION.pack(segment.FORMAT_VERSION)
    return beginning + b"".join(segment._frame(frame[0], frame[1:]) for frame in frames)


def _frames(content: bytes) -> bytes:
    """What :func:`_framed` makes this file of."""
    offset, parts = len(segment._MAGIC) + segment._VERSION.size, []
    while offset < len(content):
        kind, length, _ = segment._FRAME.unpack_from(content, offset)
        offset += segment._FRAME.size
        parts.append(bytes([kind]) + content[offset : offset + length])
        offset += length
    return _FRAME_SEPARATOR.join(parts)


def _record(path: Path) -> None:
    list(segment.Segment(path).chunks())


def _replayed_record(content: bytes) -> None:
    path = _folder() / "record"
    path.write_bytes(_framed(content))
    replay(segment.Segment(path))


def _certificate(content: bytes) -> None:
    certificate, _, key = content.partition(b"\n\n")
    CertificateAuthority(KeyPair(certificate, key))


# -- responses, requests and messages ------------------------------------------------------------------------------


def _list_and_watch(content: bytes) -> None:
    for resource in WATCHED:
        decoder = ObjectDecoder(resource, lambda subject, problem: None)
        decoder.begin_list()
        try:
            for item in ListPage.parse(content).items or ():
                decoder.decode(item)
        except UNDECODABLE:
            pass
        decoder.end_list()
        for line in LineSplitter().feed(content + b"\n"):
            try:
                event = WatchLine.parse(line)
            except UNDECODABLE:
                continue
            decoder.decode(event.object)
            decoder.decode_deleted(event.object)


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def write(self, data: Any) -> None:
        return

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    def resume_reading(self) -> None:
        return

    def pause_reading(self) -> None:
        return


def _response(content: bytes) -> None:
    """The response of an API server in three pieces, then the end of the connection."""

    async def receive() -> None:
        connection = ServerConnection()
        connection.connection_made(_Transport())
        request = asyncio.ensure_future(connection.request(b"GET / HTTP/1.1\r\n\r\n"))
        await asyncio.sleep(0)
        for begin in range(0, len(content), max(1, len(content) // 3)):
            connection.data_received(content[begin : begin + max(1, len(content) // 3)])
        connection.connection_lost(None)
        await request

    asyncio.run(receive())


#: Methods, paths and media types of requests to the embedded API server; the first byte of an input chooses one.
_REQUESTS = [
    (method, path, media_type)
    for path in (
        "/api/v1/namespaces/default/pods",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/batch/v1/namespaces/default/cronjobs",
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    )
    for method, suffixes in (
        ("POST", ("json", "yaml", "vnd.kubernetes.protobuf")),
        ("PUT", ("json",)),
        ("PATCH", ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")),
        ("DELETE", ("json",)),
    )
    for media_type in (f"application/{suffix}" for suffix in suffixes)
]


class _InternalError(Exception):
    """The server answered 500."""


def _request(content: bytes) -> None:
    method, path, media_type = _REQUESTS[content[0] % len(_REQUESTS)] if content else _REQUESTS[0]
    body = content[1:]

    async def send() -> None:
        client = Client(DevCluster(kubelets=False))
        if method != "POST":
            created = next((seed for kind, seed in _OBJECTS if kind in path), None)
            if created is not None:
                await client.post(path, created)
            path_of_object = f"{path}/x?fieldManager=m"
        else:
            path_of_object = f"{path}?fieldValidation=Strict"
        response = await client(method, path_of_object, body, content_type=media_type)
        # kube-apiserver answers 500 to a server-side apply with unknown fields, too.
        if response.status == 500 and "failed to create typed patch object" not in response.message:
            raise _InternalError(response.content[:300])

    asyncio.run(send())


def _body(media_type: str, content: bytes) -> None:
    decode_body(content, media_type, expected="v1.Pod")
    field_problems(content, media_type, ["spec.x"])


def _extender_message(content: bytes) -> None:
    for kind in (extender.ExtenderArgs, extender.PreemptionArgs, extender.BindingArgs, extender.FilterResult):
        try:
            message = extender.read(kind, content)
        except InvalidObject:
            continue
        if isinstance(message, extender.ExtenderArgs):
            extender.name_of(message.pod)
            extender.uid_of(message.pod)
            for node in message.nodes.items if message.nodes else ():
                extender.name_of(node)


# -- expressions and texts -----------------------------------------------------------------------------------------

_DEVICE = CELDevice(
    driver="gpu.example.com",
    attributes={
        "gpu.example.com": {"model": "a", "cores": 9, "ecc": True, "version": Version(1, 2, 3, ("rc", "1"))},
        "example.com": {"x": -1},
    },
    capacity={"gpu.example.com": {"memory": 80 << 60}},
    allow_multiple_allocations=False,
)


def _device_selector(content: bytes) -> None:
    SelectorCache().compile(content.decode(errors="replace")).matches(_DEVICE)


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 64},
        "number": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "any": {"x-kubernetes-preserve-unknown-fields": True, "type": "object"},
    },
}
_OLD = {"text": "aé", "number": 5, "list": ["a", "b"], "map": {"k": 1.5}, "any": {"x": [None, 1]}}
_NEW = {"text": "b" * 60, "number": -(2**63), "list": [], "map": {"": -1.0}, "any": {}}


def _validation_rule(content: bytes) -> None:
    text = content.decode(errors="replace")
    for rule in ({"rule": text}, {"rule": "false", "messageExpression": text, "fieldPath": text[:40]}):
        schema = {**_SCHEMA, "x-kubernetes-validations": [rule]}
        if not list(rule_errors(schema, "schema", is_root=True, correlates=True)):
            rules = ValidationRules(schema, root=True)
            rules.validate(_OLD, None, [])
            rules.validate(_NEW, _OLD, [])


def _json(content: bytes) -> None:
    """Readers agree: what the strict one accepts, the tolerant one reads as the same value."""
    try:
        strict = msgspec.json.decode(content)
    except UNDECODABLE:
        strict = None
    tolerant = parse_json(content)
    assert strict is None or strict == tolerant or b"{" * 200 in content or content.count(b"[") > 200, "readers differ"


def _yaml(content: bytes) -> None:
    load_yaml(content, "file")


def _quantity(content: bytes) -> None:
    text = content.decode(errors="replace")
    value = quantity.nanos(text)
    assert quantity.nanos(canonical(text)) == value, "the canonical form is another amount"


def _selector(content: bytes) -> None:
    parse_selector(content.decode(errors="replace"))


# -- seeds ---------------------------------------------------------------------------------------------------------

_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "x",
        "namespace": "default",
        "uid": "u",
        "labels": {"app": "web"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": True}
        ],
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "imagePullPolicy": "Always",
                "terminationMessagePolicy": "File",
                "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "claims": [{"name": "g"}]},
            }
        ],
        "initContainers": [
            {
                "name": "s",
                "image": "i",
                "imagePullPolicy": "Always",
                "terminationMessagePolicy": "File",
                "restartPolicy": "Always",
            }
        ],
        "nodeName": "n",
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "priority": 7,
        "schedulingGates": [{"name": "g"}],
        "resourceClaims": [{"name": "g", "resourceClaimName": "claim"}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": {}}}
                ]
            },
        },
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    },
    "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "True"}]},
}
_NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "uid": "v", "labels": {"zone": "a", "kubernetes.io/hostname": "n"}},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": False},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "images": [{"names": ["i:1"], "sizeBytes": 5}],
        "conditions": [{"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
    },
}
_CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "x", "namespace": "default", "uid": "w"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "count": 1,
                        "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
                    },
                }
            ],
            "config": [{"opaque": {"driver": "d.example.com", "parameters": {"a": "\ud7ff"}}}],
        }
    },
    "status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "e"}]}}},
}
_DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "x"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}
_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "xs.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "xs", "singular": "x", "kind": "X", "listKind": "XList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"a": {"type": "string", "pattern": "^a+$", "default": "a"}},
                                "x-kubernetes-validations": [{"rule": "self.a.size() < 5", "message": "m"}],
                            }
                        },
                    }
                },
                "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
            }
        ],
    },
}
_REVIEW: dict[str, Any] = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}
_CRON_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "x"},
    "spec": {
        "schedule": "*/5 1-3 * JAN MON",
        "timeZone": "Europe/Berlin",
        "jobTemplate": {
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
        },
    },
}
_AUTOSCALER: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "x"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        "maxReplicas": 5,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}},
            }
        ],
    },
}
#: An object for each collection of _REQUESTS, by a part of its path.
_OBJECTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pods", _POD),
    ("deployments", _DEPLOYMENT),
    ("resourceclaims", _CLAIM),
    ("customresourcedefinitions", _CRD),
    ("selfsubjectaccessreviews", _REVIEW),
    ("cronjobs", _CRON_JOB),
    ("horizontalpodautoscalers", _AUTOSCALER),
)


def _in_json(*objects: Any) -> bytes:
    return b"\n".join(json.dumps(obj).encode() for obj in objects)


def _in_yaml(*objects: Any) -> bytes:
    return b"---\n".join(msgspec.yaml.encode(obj) for obj in objects)


def _request_seeds() -> list[bytes]:
    seeds = []
    for number, (_, path, media_type) in enumerate(_REQUESTS):
        obj = next(obj for part, obj in _OBJECTS if part in path)
        body = _in_yaml(obj) if "yaml" in media_type else _in_json(obj)
        if media_type.endswith("json-patch+json"):
            body = _in_json(
                [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, {"op": "test", "path": ""}]
            )
        elif media_type.endswith("protobuf"):
            body = envelope("Pod", b"\x0a\x03\x0a\x01x\x12\x08\x12\x06\x0a\x01c\x12\x01i")
        seeds.append(bytes([number]) + body)
    return seeds


_MANIFESTS = [
    _in_json(_NODE, _POD),
    _in_yaml(_NODE, _CLAIM),
    _in_json({"apiVersion": "v1", "kind": "List", "items": [_NODE, _DEPLOYMENT]}),
    _in_json({"apiVersion": "v1", "kind": "PodList", "items": [_POD]}),
    _in_yaml({"apiVersion": "v1", "kind": "NodeList", "items": [_NODE]}),
    b"a: &a {b: 1}\nc: {<<: *a}\nd: !!binary YQ==\ne: |\n  x\nf: 2001-01-01\n",
    gzip.compress(_in_json(_NODE), mtime=0),
    _in_json(_NODE).decode().encode("utf-16"),
]
_CONFIGURATIONS = [
    b"""apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s}
clientConnection: {kubeconfig: /x, qps: 50, burst: 100}
percentageOfNodesToScore: 50
profiles:
- schedulerName: a
  plugins:
    multiPoint: {enabled: [{name: ImageLocality, weight: 5}], disabled: [{name: "*"}]}
    score: {enabled: [{name: NodeResourcesFit, weight: 2}]}
    queueSort: {enabled: [{name: PrioritySort}]}
    bind: {enabled: [{name: DefaultBinder}]}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 3}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}
extenders:
- {urlPrefix: "http://x/y", filterVerb: filter, weight: 1, httpTimeout: 5s, managedResources: [{name: example.com/x}]}
""",
    _in_json({"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsPorts"}], "priorities": []}),
    b'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: binpack\n    arguments: {binpack.weight: 10}\n',
    _in_yaml({"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": "kind: KubeSchedulerConfiguration\n"}}),
    _in_json({"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": "KubeSchedulerConfiguration"}),
    _in_json(
        {"apiVersion": "kubescheduler.config.k8s.io/v1alpha1", "algorithmSource": {"provider": "DefaultProvider"}}
    ),
    b"""apiVersion: aks.azure.com/v1alpha1
kind: SchedulerConfiguration
metadata: {name: upstream}
spec:
  rawConfig: |
    kind: KubeSchedulerConfiguration
    apiVersion: kubescheduler.config.k8s.io/v1
    profiles: [{schedulerName: a}]
""",
    b"kubeSchedulerConfig: {nodeResourcesFit: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu}]}}}",
    b'{"autoscaling": {"autoscalingProfile": "OPTIMIZE_UTILIZATION"}}',
]
_AMOUNTS = {"requested.cpu": 1, "allocatable.cpu": 4}
_SIMULATION_RESULT = _in_json(
    {
        "run": {"emulatedVersion": "1.36", "seed": 0, "attempts": 1, "preemptions": 0},
        "summary": {"resources": {"cpu": {}}},
        "pods": [
            {"namespace": "d", "name": "p", "owner": "Job/j", "priority": 0, "origin": "Workload", "state": "Running"}
            | {"node": "n", "arrived": 0, "bound": 1.5, "ended": None, "attempts": 1, "message": ""}
        ],
        "nodes": [{"name": "n", "pods": 1, **_AMOUNTS}],
        "timeline": [{"time": 0, "pods": 1, "pending": 0, "nodesUsed": 1, "fragmentation.cpu": 0.5, **_AMOUNTS}],
        "remarks": ["r"],
        "refused": [{"owner": "Job d/k", "count": 2, "message": "m"}],
        "pluginFailures": [{"plugin": "P", "message": "m", "count": 2}],
        "preemptions": [{"time": 1, "pod": "d/p", "priority": 1, "node": "n", "victims": 1}],
    }
)
_KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters:
- {name: c, cluster: {server: "https://x:6443", certificate-authority-data: YQ==, proxy-url: "http://p"}}
users:
- name: u
  user: {token: t, as: x, as-groups: [g], as-user-extra: {k: [v]}, client-certificate-data: YQ==, client-key-data: YQ==}
"""
_STAGES = b"""apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: s}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: '.metadata.labels["a"]', operator: In, values: [b]}], matchLabels: {a: b}}
  delay: {durationMilliseconds: 100, jitterDurationMilliseconds: 200}
  weight: 1
  next: {statusTemplate: "phase: Running", event: {type: Normal, reason: r, message: m}, delete: false}
---
apiVersion: kubestow.dev/v1alpha1
kind: PodBehaviour
spec: {selector: {matchLabels: {a: b}}, duration: 5s}
"""
_POLICY = b"""apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: a=b
maxNoOfPodsToEvictPerNode: 5
profiles:
- name: p
  pluginConfig:
  - {name: DefaultEvictor, args: {nodeFit: true, priorityThreshold: {value: 100}}}
  - {name: LowNodeUtilization, args: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}}
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 5, states: [Pending], labelSelector: {matchLabels: {a: b}}}}
  plugins: {balance: {enabled: [LowNodeUtilization]}, deschedule: {enabled: [PodLifeTime]}}
"""
_PLAN = b"""{"kind": "DefragmentationPlan", "gang": "g", "pods": 1, "problem": "", "fewestMoves": 1, "cordon": ["a"],
"free": {"count": 1, "topologyKey": "rack", "domains": ["x"]}, "staying": [{"pod": "d/s", "node": "a"}],
"moves": [{"step": 1, "pod": "d/p", "uid": "u", "controller": "ReplicaSet/web", "from": "a", "to": "b"}]}"""
_SPACE = b"""profile: default-scheduler
weights: {NodeResourcesFit: {min: 0, max: 9, step: 3}, ImageLocality: [1, 5]}
args: {NodeResourcesFit: {scoringStrategy.type: [LeastAllocated, MostAllocated]}}
settings: {percentageOfNodesToScore: [0, 50]}
prices: {label: type, values: {a: 1.5}}
"""
_TEST_CASES = b"""- name: A
  featureGates: {X: true}
  defaultPodTemplatePath: p.yaml
  labels: [performance]
  workloadTemplate:
  - {opcode: createNodes, countParam: $n, nodeTemplatePath: n.yaml}
  - {opcode: createPods, count: 5, collectMetrics: true, namespace: x}
  - {opcode: barrier, stageRequirement: Scheduled}
  - {opcode: churn, mode: recreate, number: 1, templatePaths: [c.yaml], intervalMilliseconds: 500}
  workloads:
  - {name: s, labels: [short], params: {n: 5}, threshold: 10}
"""
_TEMPLATE = b"""apiVersion: v1
kind: Pod
metadata: {generateName: "p-{{.Index}}-", labels: {a: "{{ AddInt 1 (MultiplyInt .Index 3) }}", b: '{{ .Count }}'}}
spec: {containers: [{name: c, image: i}]}
"""
_CRANE = b"""apiVersion: scheduler.policy.crane.io/v1alpha1
kind: DynamicSchedulerPolicy
spec:
  syncPolicy: [{name: cpu_usage_avg_5m, period: 3m}]
  predicate: [{name: cpu_usage_avg_5m, maxLimitPecent: 0.65}]
  priority: [{name: cpu_usage_avg_5m, weight: 0.2}]
  hotValue: [{timeRange: 5m, count: 5}]
"""
_SELECTORS = [
    b"device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].cores >= 4",
    b"device.capacity['gpu.example.com'].memory.compareTo(quantity('10Gi')) > 0 && quantity('1k').add(5).isInteger()",
    b"device.attributes['gpu.example.com'].version.isGreaterThan(semver('v1.2', true)) || semver('1.2.3').minor() == 2",
    b"device.attributes['gpu.example.com'].?model.orValue('').matches('^(a|b)*c{1,50}$')",
    b"[1, 2, 3].exists(i, i in [4, 5]) || {'a': 1}.all(k, k.startsWith('a')) || 'x'.replace('x', 'yy').size() > 1",
    b"cel.bind(x, device.attributes, has(x['example.com'].x)) ? timestamp('2026-01-01T00:00:00Z') > timestamp(0) : 1",
    b"duration('1h').getSeconds() > 5 && int('5') + uint(7) == 12u && double('1.5') / 0.0 > 1.0 && b'a' == bytes('a')",
    b"'%s %d'.format(['a', 1]) == \"a\" && ['b', 'a'].join('-') == 'x' && 'a,b'.split(',', 1) == [] && 5 % 0 == 1",
    b"dyn(device.attributes) == null || type(1) == int && -9223372036854775807 < 0 && device.driver.charAt(99) == ''",
]
_RULES = [
    b"self.number >= 0 && self.text.matches('^[a-z]+$')",
    b"self.list.all(x, x.size() < 5) && self.map.all(k, self.map[k] > 0.0)",
    b"!has(oldSelf.number) || self.number >= oldSelf.number",
    b"math.greatest(self.number, 5) > 3 && self.list.map(x, x + 'a').join(',').size() > 0",
    b"'number is %d'.format([self.number]) == 'x' || has(self.any.x) && self.any.x[0] == null",
    *_SELECTORS[4:],
]


@cache
def _record_seed() -> bytes:
    return small_record().content()


def _short_record() -> bytes:
    """The frames of a record: the header, a chunk and the end, as short as possible."""
    header, *chunks, end = _frames(_record_seed()).split(_FRAME_SEPARATOR)
    return _FRAME_SEPARATOR.join((header, min(chunks, key=len), end))


@cache
def _certificate_seed() -> bytes:
    pair = CertificateAuthority.generate("kubestow").pair
    return pair.certificate.strip() + b"\n\n" + pair.key


def _cases() -> list[bytes]:
    """The shortest case of each area of the conformance corpus."""
    shortest = (min(gzip.decompress(path.read_bytes()).splitlines(), key=len) for path in sorted(_CORPUS.glob("*.gz")))
    return [case for case in shortest if len(case) < 9000]


def _events() -> list[bytes]:
    objects = (_POD, _NODE, _CLAIM)
    return [
        *(_in_json({"type": "ADDED", "object": obj}) for obj in objects),
        _in_json({"kind": "List", "metadata": {"resourceVersion": "5", "continue": "x"}, "items": list(objects)}),
        b'{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"b"},"spec":{"nodeName":"n","x":"\\ud800"}}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}',
    ]


def _messages() -> list[bytes]:
    return [
        _in_json({"Pod": _POD, "Nodes": {"items": [_NODE]}, "NodeNames": None}),
        _in_json({"pod": _POD, "nodenames": ["n"]}),
        _in_json({"PodName": "x", "PodNamespace": "y", "PodUID": "z", "Node": "n"}),
        _in_json({"Pod": _POD, "NodeNameToVictims": {"n": {"Pods": [_POD], "NumPDBViolations": 1}}}),
    ]


_RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    b"HTTP/1.0 500 x\r\nSet-Cookie: a\r\nUpgrade: y\r\nConnection: Upgrade\r\n\r\nbody until the end",
]
_TRACE = [
    b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    b"p-0,100,256,1,500,V100M16|T4,LS,Running,0,10,1\np-1,100,256,0,0,,BE,Running,5,,\n",
    b"sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,V100M16\nn-1,64000,262144,0,\n",
]
_QUANTITIES = [b"1", b"1.5Gi", b"-100m", b"1e3", b"12E-2", b"+5n", b".5", b"9223372036854775807Ei"]
_LABEL_SELECTORS = [b"a=b,c!=d", b"a in (b,c),d notin (e)", b"!a, b", b"x.y/z == w , a>5"]

_INPUT = (InputError,)
_OBJECT = (InvalidObject,)

READERS: dict[str, Reader] = {
    "manifests": Reader(_manifests, _INPUT, lambda: _MANIFESTS),
    "dump": Reader(_dump, _INPUT, lambda: _MANIFESTS, is_slow=True),
    "configuration": Reader(_configuration, _INPUT, lambda: _CONFIGURATIONS, is_slow=True),
    "converted-configuration": Reader(_converted_configuration, _INPUT, lambda: _CONFIGURATIONS, is_slow=True),
    "kubeconfig": Reader(_file(lambda path: read_kubeconfig([path])), _INPUT, lambda: [_KUBECONFIG]),
    "certificates": Reader(_certificate, _INPUT, lambda: [_certificate_seed()]),
    "record": Reader(_file(_record), _INPUT, lambda: [_framed(_short_record())]),
    "replay": Reader(_replayed_record, _INPUT, lambda: [_short_record()], is_slow=True),
    "recorded-cases": Reader(
        _file(lambda path: list(replay_file(path, in_tree_registry))), (KubestowError,), _cases, is_slow=True
    ),
    "trace": Reader(_openb, _INPUT, lambda: _TRACE),
    "published-trace": Reader(_published_trace, _INPUT, lambda: _PUBLISHED_TRACES, is_slow=True),
    "mapped-table": Reader(_mapped_table, _INPUT, lambda: [b"t,c,g\n1,2,0.5\n", _MAPPING]),
    "stages": Reader(_file(read_stages), _INPUT, lambda: [_STAGES]),
    "descheduler-policy": Reader(
        lambda content: load_policy(content, registry=_strategies()), _INPUT, lambda: [_POLICY]
    ),
    "defragmentation-plan": Reader(lambda content: read_plan(content, "plan.json"), _INPUT, lambda: [_PLAN]),
    "search-space": Reader(_file(_space), _INPUT, lambda: [_SPACE], is_slow=True),
    "node-pools": Reader(
        _file(read_node_pools),
        _INPUT,
        lambda: [_in_yaml(_NODE), b"nodePools: [{name: a, allocatable: {cpu: 4, pods: 9}, labels: {a: b}}]"],
    ),
    "test-cases": Reader(_file(read_test_cases), _INPUT, lambda: [_TEST_CASES]),
    "object-templates": Reader(_file(_template), _INPUT, lambda: [_TEMPLATE]),
    "benchmark-result": Reader(
        _file(read_result), _INPUT, lambda: [b'{"format":"kubestow-benchmark/v1","workloads":[]}']
    ),
    "simulation-result": Reader(_simulation_result, _INPUT, lambda: [_SIMULATION_RESULT]),
    "pod-template": Reader(_pod_template, _INPUT, lambda: [_in_yaml(_POD), _in_json(_POD)]),
    "token-file": Reader(_file(read_token_file), _INPUT, lambda: [b't,u,1,"g,h"\nt2,"v",2\n']),
    "crane-policy": Reader(_file(read_policy), _INPUT, lambda: [_CRANE]),
    "yaml": Reader(_yaml, _INPUT, lambda: [*_MANIFESTS, _STAGES, _POLICY]),
    "yaml-file": Reader(_file(read_yaml), _INPUT, lambda: [_SPACE]),
    "json": Reader(_json, UNDECODABLE, lambda: [*_events(), b'{"a":[1.5e3,-0,true,null,"\\ud83d\\ude00\\u0000"]}']),
    "list-and-watch": Reader(_list_and_watch, (), _events),
    "response": Reader(_response, (ConnectionBroken,), lambda: _RESPONSES),
    "extender-message": Reader(_extender_message, _OBJECT, _messages),
    "json-body": Reader(partial(_body, "application/json"), (StatusError,), lambda: [_in_json(_POD)]),
    "yaml-body": Reader(partial(_body, "application/yaml"), (StatusError,), lambda: [_in_yaml(_POD), _MANIFESTS[5]]),
    "protobuf-body": Reader(
        partial(_body, "application/vnd.kubernetes.protobuf"),
        (StatusError,),
        lambda: [seed[1:] for seed in _request_seeds() if b"k8s\x00" in seed],
    ),
    "request": Reader(_request, (), _request_seeds, is_slow=True),
    "device-selector": Reader(_device_selector, (SelectorError,), lambda: _SELECTORS),
    "validation-rule": Reader(_validation_rule, (), lambda: _RULES, is_slow=True),
    "quantity": Reader(_quantity, _OBJECT, lambda: _QUANTITIES),
    "label-selector": Reader(_selector, _OBJECT, lambda: _LABEL_SELECTORS),
}
"""The readers by name."""
