"""Every operation, on an API server and with the engine alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubestow.errors import KubestowError
from kubestow_lab.scheduler_perf.operations import OPCODES
from kubestow_lab.scheduler_perf.session import ExecutionOptions
from kubestow_lab.scheduler_perf.workload_run import RunOptions, run_workload
from lab_tests.scheduler_perf.workload_runs import NoProgress, plan_in, run_in_memory, run_on_server

CONTAINER = "  containers: [{name: app, image: pause, resources: {requests: {cpu: 10m}}}]\n"
TEMPLATES = {
    "pod": f"kind: Pod\nmetadata: {{generateName: pod-, labels: {{type: plain}}}}\nspec:\n{CONTAINER}",
    "gated": f"metadata: {{generateName: gated-}}\nspec:\n  schedulingGates: [{{name: a/b}}]\n{CONTAINER}",
    "quick": f"metadata: {{generateName: quick-}}\nspec:\n  terminationGracePeriodSeconds: 0\n{CONTAINER}",
    "important": f"metadata: {{generateName: important-}}\nspec:\n  priority: 10\n{CONTAINER}",
    "waiting": f"metadata: {{name: 'waiting-{{{{ .Index }}}}'}}\nspec:\n  nodeSelector: {{ready: 'true'}}\n{CONTAINER}",
    "with_claim": "metadata: {generateName: device-}\nspec:\n  resourceClaims:\n  - {name: d, resourceClaimName: "
    f"'claim-{{{{ .Index }}}}'}}\n{CONTAINER}",
    "node": "kind: Node\napiVersion: v1\nmetadata: {name: 'node-{{ .Index }}'}\n"
    "status: {capacity: {cpu: '4', memory: 32Gi, pods: '110'}}\n",
    "ready": "kind: Node\napiVersion: v1\nmetadata: {name: 'node-{{ .Index }}', labels: {ready: 'true'}}\n"
    "status: {capacity: {cpu: '4', memory: 32Gi, pods: '110'}}\n",
    "namespace": "metadata: {labels: {team: a}}\n",
    "service": "kind: Service\napiVersion: v1\nmetadata: {generateName: service-}\n"
    "spec: {selector: {app: a}, ports: [{port: 80}]}\n",
    "volume": "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: a.b, volumeHandle: x}}\n",
    "volume_claim": "metadata: {annotations: {pv.kubernetes.io/bind-completed: 'true'}}\n"
    "spec: {accessModes: [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Gi}}}\n",
    "device_class": "kind: DeviceClass\napiVersion: resource.k8s.io/v1\nmetadata: {name: all}\nspec: {}\n",
    "device_claim": "kind: ResourceClaim\napiVersion: resource.k8s.io/v1beta2\nmetadata: {name: 'claim-{{ .Index }}'}\n"
    "spec: {devices: {requests: [{name: d, exactly: {deviceClassName: all}}]}}\n",
}

NODES = "{opcode: createNodes, count: 2, nodeTemplatePath: node.yaml}"
MEASURED = "{opcode: createPods, countParam: $pods, podTemplatePath: pod.yaml, collectMetrics: true}"

#: Operations by what they show, with the number of pods that the measured phase should bind.
WORKLOADS = {
    "nodes with a label": (
        [
            "{opcode: createNodes, count: 3, labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}}",
            "{opcode: createNodes, count: 1, uniqueNodeLabelStrategy: {labelKey: id}}",
            MEASURED,
        ],
        3,
    ),
    "pod sets in namespaces": (
        [
            NODES,
            "{opcode: createNamespaces, prefix: init, count: 2, namespaceTemplatePath: namespace.yaml}",
            "{opcode: createPodSets, count: 2, namespacePrefix: init, createPodsOp: {opcode: createPods, count: 2}}",
            MEASURED,
        ],
        3,
    ),
    "a barrier, for pods with a label": (
        [
            NODES,
            "{opcode: startCollectingMetrics, namespaces: [a], labelSelector: {type: plain}, name: plain}",
            "{opcode: createPods, count: 2, podTemplatePath: gated.yaml, namespace: b, skipWaitToCompletion: true}",
            "{opcode: barrier, stageRequirement: Attempted}",
            "{opcode: createPods, count: 4, podTemplatePath: pod.yaml, namespace: a, skipWaitToCompletion: true}",
            "{opcode: barrier, namespaces: [a]}",
            "{opcode: sleep, duration: 1ms}",
            "{opcode: stopCollectingMetrics}",
        ],
        4,
    ),
    "deleted pods": (
        [
            NODES,
            "{opcode: createPods, count: 2, podTemplatePath: quick.yaml, namespace: a}",
            "{opcode: createPods, count: 2, podTemplatePath: quick.yaml, namespace: b}",
            "{opcode: deletePods, namespace: a}",
            "{opcode: deletePods, namespace: b, deletePodsPerSecond: 1000, skipWaitToCompletion: true}",
            MEASURED,
        ],
        3,
    ),
    "churn": (
        [
            NODES,
            "{opcode: churn, mode: create, number: 2, intervalMilliseconds: 1,"
            " templatePaths: [service.yaml, pod.yaml]}",
            "{opcode: churn, mode: recreate, number: 1, intervalMilliseconds: 1, templatePaths: [service.yaml]}",
            "{opcode: createPods, count: 2, podTemplatePath: important.yaml}",
            MEASURED,
        ],
        3,
    ),
    "updated nodes": (
        [
            NODES,
            "{opcode: startCollectingMetrics, namespaces: [a]}",
            "{opcode: createPods, count: 3, podTemplatePath: waiting.yaml, namespace: a, skipWaitToCompletion: true}",
            "{opcode: barrier, stageRequirement: Attempted}",
            "{opcode: updateAny, count: 2, templatePath: ready.yaml, updatePerSecond: 1000}",
            "{opcode: barrier}",
            "{opcode: stopCollectingMetrics}",
        ],
        3,
    ),
    "volumes": (
        [
            "{opcode: createNodes, count: 2, nodeAllocatableStrategy: {csiNodeAllocatable: {a.b: {count: 9}}}}",
            "{opcode: createPods, count: 3, podTemplatePath: pod.yaml, collectMetrics: true,"
            " persistentVolumeTemplatePath: volume.yaml, persistentVolumeClaimTemplatePath: volume_claim.yaml}",
        ],
        3,
    ),
    "devices": (
        [
            NODES,
            "{opcode: createResourceDriver, driverName: a.b, nodes: node-*, maxClaimsPerNode: 3}",
            "{opcode: createAny, templatePath: device_class.yaml}",
            "{opcode: createResourceClaims, count: 3, namespace: init, templatePath: device_claim.yaml}",
            "{opcode: allocResourceClaims, namespace: init}",
            "{opcode: createAny, templatePath: device_claim.yaml, namespace: test, countParam: $pods}",
            "{opcode: createPods, countParam: $pods, namespace: test, podTemplatePath: with_claim.yaml,"
            " collectMetrics: true}",
        ],
        3,
    ),
}


def text(operations: list[str]) -> str:
    lines = "\n".join(f"  - {operation}" for operation in operations)
    return f"- name: Case\n  workloadTemplate:\n{lines}\n  workloads: [{{name: tiny, params: {{pods: 3}}}}]\n"


def test_every_opcode_is_executed_by_a_test() -> None:
    written = " ".join(operation for operations, _ in WORKLOADS.values() for operation in operations)
    assert [opcode for opcode in OPCODES if f"opcode: {opcode}" not in written] == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_an_api_server_executes_the_operations(name: str, tmp_path: Path) -> None:
    operations, pods = WORKLOADS[name]
    phases, left = run_on_server(plan_in(tmp_path, text(operations), **TEMPLATES))
    assert [phase.pods for phase in phases] == [pods]
    assert left == {"Node": [], "PersistentVolume": [], "ResourceSlice": []}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_engine_alone_executes_the_operations(name: str, tmp_path: Path) -> None:
    operations, pods = WORKLOADS[name]
    [phase] = run_in_memory(plan_in(tmp_path, text(operations), **TEMPLATES))
    assert phase.pods == pods
    assert phase.scheduler is not None and phase.scheduler.cpu_seconds > 0
    assert any(row.name == "Filter" for row in phase.durations)


def test_a_steady_state_replaces_scheduled_pods(tmp_path: Path) -> None:
    steady = "{opcode: createPods, count: 2, podTemplatePath: quick.yaml, collectMetrics: true, steadyState: true,"
    plan = plan_in(tmp_path, text([NODES, f"{steady} duration: 300ms}}"]), **TEMPLATES)
    [phase] = run_in_memory(plan)
    assert phase.pods > 2


def test_a_pod_that_never_fits_ends_the_workload_with_its_reason(tmp_path: Path) -> None:
    operations = ["{opcode: createPods, countParam: $pods, podTemplatePath: pod.yaml, collectMetrics: true}"]
    plan = plan_in(tmp_path, text(operations), **TEMPLATES)
    options = RunOptions(core=True, execution=ExecutionOptions(timeout=0.1))
    with pytest.raises(KubestowError, match=r"0 of 3 pods in namespace namespace-0 were scheduled within 0\.1 s"):
        asyncio.run(run_workload(plan, options, NoProgress()))


@pytest.mark.parametrize(
    ("operations", "problem"),
    [
        (["{opcode: stopCollectingMetrics}", MEASURED], "stopCollectingMetrics without a start"),
        (["{opcode: startCollectingMetrics, namespaces: [a]}", MEASURED], "two measured phases overlap"),
        (["{opcode: barrier, namespaces: [b]}", MEASURED], "barrier: unknown namespace b"),
        (["{opcode: createAny, templatePath: service.yaml}", MEASURED], "Service is in namespaces, but the operation"),
        (["{opcode: createAny, templatePath: node.yaml, namespace: a}", MEASURED], "Node is in no namespace, but"),
    ],
)
def test_operations_that_do_not_fit_each_other_are_refused(operations: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(KubestowError, match=problem):
        run_in_memory(plan_in(tmp_path, text(operations), **TEMPLATES))
