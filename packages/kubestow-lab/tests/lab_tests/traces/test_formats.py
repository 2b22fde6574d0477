"""Each published format, in small files with exactly its columns, becomes the nodes and tasks that it describes."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kubestow.errors import InputError
from kubestow_lab.traces.formats import FORMATS, read_trace
from kubestow_lab.traces.trace import ClusterTrace, Requirement, Task


def _folder(path: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".gz"):
            (path / name).write_bytes(gzip.compress(content.encode()))
        else:
            (path / name).write_text(content)
    return path


def _read(name: str, path: Path, *assumed: str) -> ClusterTrace:
    return read_trace(f"{name}={path}", assumed=assumed)[0]


def _tasks(trace: ClusterTrace) -> dict[str, Task]:
    tasks = {task.name: task for task in trace.tasks}
    assert len(tasks) == len(trace.tasks)
    return tasks


def _times(task: Task) -> tuple[float, float | None, int]:
    return task.created, task.duration, task.count


def _amounts(task: Task) -> tuple[int, int, int, int]:
    shape = task.template.shape
    return shape.cpu_milli, shape.memory_mib, shape.gpus, shape.gpu_milli


HASH = "GtXakjpd0CD41fB8pDCvqGA4k9b2Lw=="

GOOGLE_2011 = {
    "machine_events/part-00000-of-00001.csv.gz": "0,5,0,HofLGzk1Or/8Ildj2+Lqv0UGGvY82NLoni8+J/Yy0RU=,0.5,0.2493\n"
    "0,6,0,HofLGzk1Or/8Ildj2+Lqv0UGGvY82NLoni8+J/Yy0RU=,1,1\n"
    "7000000,7,0,HofLGzk1Or/8Ildj2+Lqv0UGGvY82NLoni8+J/Yy0RU=,1,1\n0,5,1,,,\n",
    "machine_attributes/part-00000-of-00001.csv.gz": f"0,5,{HASH},3,0\n0,6,{HASH},1,0\n",
    "task_events/part-00000-of-00500.csv.gz": (
        "0,2,3418309,0,,0,user,3,9,0.125,0.07446,0.0004244,0\n"
        "600000000,,3418309,0,5,1,user,3,9,0.125,0.07446,0.0004244,0\n"
        "660000000,,3418309,0,5,2,user,3,9,0.125,0.07446,0.0004244,0\n"
        "661000000,,3418309,0,,0,user,3,9,0.125,0.07446,0.0004244,0\n"
        "670000000,,3418309,0,6,1,user,3,9,0.125,0.07446,0.0004244,0\n"
    ),
    "task_events/part-00001-of-00500.csv.gz": (
        "710000000,,3418309,0,6,4,user,3,9,,,,0\n"
        "600000000,,42,1,,0,user,0,0,0.01,0.01,0,1\n"
        "630000000,,42,1,,5,user,0,0,0.01,0.01,0,1\n"
        "600000000,,42,2,,0,user,0,0,0.01,0.01,0,1\n"
        "601000000,,42,2,6,1,user,0,0,0.01,0.01,0,1\n"
    ),
    "task_constraints/part-00000-of-00500.csv.gz": f"0,3418309,0,3,{HASH},2\n0,3418309,0,1,other,\n",
}


def test_google_2011(tmp_path: Path) -> None:
    trace = _read("google2011", _folder(tmp_path, GOOGLE_2011), "cpu=32", "memory=128")
    assert [(n.name, n.shape.cpu_milli, n.shape.memory_mib) for n in trace.nodes] == [
        ("machine-5", 16000, 32676),
        ("machine-6", 32000, 131072),
        ("machine-7", 32000, 131072),
    ]
    tasks = _tasks(trace)
    # Evicted after 60 s, and run for 40 s more.
    assert _times(tasks["job-3418309-0"]) == (0, 100, 1)
    assert _amounts(tasks["job-3418309-0"]) == (4000, 9760, 0, 0)
    assert tasks["job-3418309-0"].template.priority == 9
    (label,) = trace.nodes[0].labels
    assert trace.nodes[0].labels[label] == "3"
    greater, exists = tasks["job-3418309-0"].template.requirements
    assert (greater, exists.operator) == (Requirement(label, "Gt", ("2",)), "Exists")
    # Killed before it ran, and one that still runs at the end of the trace.
    assert _times(tasks["job-42-1"]) == (600, 30, 1)
    assert _times(tasks["job-42-2"]) == (600, None, 1)
    assert {tasks[name].template.app for name in ("job-42-1", "job-42-2")} == {"job-42"}
    assert tasks["job-42-1"].template.most_per_node == 1
    assert len(_read("google2011", tmp_path, "machines=start").nodes) == 2


def _lines(*records: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


def _instance(time: int, kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {
        "time": str(time),
        "type": kind,
        "collection_id": "380",
        "scheduling_class": "2",
        "collection_type": "0",
        "priority": "200",
        "instance_index": str(index),
        "resource_request": {"cpus": 0.02, "memory": 0.01},
    } | fields


def test_google_2019(tmp_path: Path) -> None:
    relation = {"name": "o/", "value": "x", "relation": "0"}
    folder = _folder(
        tmp_path,
        {
            "machine_events-000000000000.json.gz": _lines(
                {
                    "time": "0",
                    "machine_id": "23",
                    "type": "1",
                    "switch_id": "s",
                    "capacity": {"cpus": 0.5, "memory": 0.25},
                },
                {"time": "900000000", "machine_id": "23", "type": "2", "capacity": None},
            ),
            "collection_events-000000000000.json": _lines({"collection_id": "380", "max_per_machine": "3"}),
            "instance_events-000000000000.json": _lines(
                _instance(0, "0", 0, constraint=[relation]),
                _instance(1_000_000, "3", 0),
                _instance(5_000_000, "6", 0),
                _instance(9_000_000, "SUBMIT", 1, alloc_collection_id="77"),
                _instance(9_000_000, "SUBMIT", 2, collection_type="1"),
            ),
        },
    )
    trace = _read("google2019", folder, "cpu=100", "memory=100")
    assert [(n.name, n.shape.cpu_milli, n.shape.memory_mib) for n in trace.nodes] == [("machine-23", 50000, 25600)]
    tasks = _tasks(trace)
    assert set(tasks) == {"job-380-0", "job-380-2"}
    assert _times(tasks["job-380-0"]) == (0, 4, 1)
    assert _amounts(tasks["job-380-0"]) == (2000, 1024, 0, 0)
    assert (tasks["job-380-0"].template.priority, tasks["job-380-0"].template.most_per_node) == (200, 3)
    assert [each.operator for each in tasks["job-380-0"].template.requirements] == ["In"]
    assert trace.left_out == {"task inside an alloc instance": 1}
    ignored = _read("google2019", folder, "allocs=ignore")
    assert set(_tasks(ignored)) == {"job-380-0", "job-380-1"}


@pytest.mark.parametrize(
    "line", [b'{"time":"\xe9"}', b"[1]", b'{"type":"DANCE"}', b'{"type":"ADD","capacity":{"cpus":"x"}}']
)
def test_a_wrong_line_of_an_export_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "machine_events.json").write_bytes(b"\n" + line)
    with pytest.raises(InputError, match=r"machine_events\.json: line 2.*: expected"):
        _read("google2019", tmp_path)


def test_alibaba_2018(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        {
            "machine_meta.csv": "m_1932,0,1,677,96,100,USING\nm_1932,87,1,677,96,100,USING\nm_2,0,2,8,96,50,USING\n",
            "container_meta.csv": 2 * "c_1,m_2556,0,app_5052,started,400,400,1.56\n",
            "batch_task.csv": "M1,3,j_1,1,Terminated,419011,419011,100,0.3\n"
            "R2_1,1.0,j_1,1,Terminated,419020,419030,50,0.3\n"
            "task_x,1,j_2,1,Waiting,,,,\n",
        },
    )
    trace = _read("alibaba2018", folder, "memory=1000")
    assert [(n.name, n.shape.cpu_milli, n.shape.memory_mib) for n in trace.nodes] == [
        ("machine-m-1932", 96000, 1024000),
        ("machine-m-2", 96000, 512000),
    ]
    assert trace.nodes[0].labels["trace.kubestow.dev/failure-domain-2"] == "677"
    tasks = _tasks(trace)
    assert (_times(tasks["container-c-1"]), _amounts(tasks["container-c-1"])) == ((0, None, 1), (4000, 15974, 0, 0))
    assert (_times(tasks["j-1-r2-1"]), _amounts(tasks["j-1-r2-1"])) == ((419020, 10, 1), (500, 3072, 0, 0))
    assert tasks["j-1-m1"].count == 3
    assert trace.left_out == {"batch task without a start": 1}
    assert len(_read("alibaba2018", folder, "containers=false").tasks) == 2


def test_alibaba_gpu_2020(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        {
            "pai_machine_spec.csv": "471dda9e,V100,96,512.0,8\nab,CPU,96,512.0,0\n",
            "pai_job_table.csv": "4f05,8cb3,5854,Terminated,1739100.0,1739200.0\n",
            "pai_task_table.csv": (
                "4f05,tensorflow,2.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,V100\n"
                "4f05,ps,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,,\n"
                "beef,worker,1.0,Running,1739163.0,,600.0,29.0,150.0,MISC\n"
                "dead,worker,1.0,Waiting,,,600.0,29.0,100.0,MISC\n"
            ),
        },
    )
    trace = _read("alibaba-gpu2020", folder)
    assert [(n.shape.gpus, n.shape.model) for n in trace.nodes] == [(8, "v100"), (0, "")]
    tasks = _tasks(trace)
    worker = tasks["4f05-tensorflow"]
    assert (_times(worker), _amounts(worker)) == ((1739100, 38, 2), (6000, 30000, 1, 500))
    assert (worker.template.shape.models, worker.is_gang) == (("v100",), True)
    assert _amounts(tasks["4f05-ps"])[2:] == (0, 0)
    assert (_times(tasks["beef-worker"]), _amounts(tasks["beef-worker"])[2:]) == ((1739163, None, 1), (2, 1000))
    assert trace.left_out == {"task that was never submitted": 1}
    assert not _tasks(_read("alibaba-gpu2020", folder, "gpu-type=any"))["4f05-tensorflow"].template.shape.models


DLRM = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
    "instance_7185,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,,,\n"
    "instance_13574,CN,app_130,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,1435629.0,1435629.0,1435760.0\n"
)


def test_alibaba_gpu_2025(tmp_path: Path) -> None:
    trace = _read("alibaba-gpu2025", _folder(tmp_path, {"disaggregated_DLRM_trace.csv": DLRM}))
    tasks = _tasks(trace)
    gpu, cpu = tasks["instance-7185"], tasks["instance-13574"]
    assert (_times(gpu), _amounts(gpu)) == ((0, None, 1), (12000, 122880, 1, 1000))
    assert (gpu.template.app, gpu.template.most_per_node) == ("app-0", 8)
    assert dict(gpu.template.resources)["trace.kubestow.dev/rdma-percent"] == 25
    assert (_times(cpu), cpu.template.most_per_node) == ((1435629, 131, 1), 0)
    assert [(node.name, node.shape.gpus) for node in trace.nodes] == [("hn-0", 8), ("cn-0", 0)]
    assert len(_read("alibaba-gpu2025", tmp_path, "gpu-nodes=7", "cpu-nodes=1").nodes) == 8


def test_alibaba_spot_2026(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        {
            "node_info_df.csv": "gpu_model,gpu_capacity_num,cpu_num,node_name\nA100-SXM4-80GB,8,128,3\n",
            "job_info_df.csv": "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
            "duration,job_type\n437260,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot\n239255,13,A100-SXM4-80GB,20,1,1,0,2764799,HP\n",
        },
    )
    trace = _read("alibaba-spot2026", folder)
    assert [(n.name, n.shape.gpus, n.shape.model) for n in trace.nodes] == [("node-3", 8, "a100-sxm4-80gb")]
    spot, high = _tasks(trace)["job-437260"], _tasks(trace)["job-239255"]
    assert (_times(spot), spot.template.priority, spot.queue) == ((9589663, 41060, 16), 0, "57")
    assert (_times(high), high.template.priority) == ((0, 2764799, 1), 1000)


def test_azure_packing(tmp_path: Path) -> None:
    path = tmp_path / "packing_trace_zone_a_v1.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)")
        database.execute("CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)")
        types = [(1, 8, 16, 0.5, 0.25, None, 0.1, 0.05), (2, 8, 17, 1, 1, 0, 0, 0), (3, 9, 17, 0.1, 0.1, 0, 0, 0)]
        database.executemany("INSERT INTO vmType VALUES (?,?,?,?,?,?,?,?)", types)
        vms = [(0, 0, 8, 0, -138.9, None), (1, 0, 8, 1, 0.5, 1.0), (2, 3, 9, 0, 1.0, 2.0)]
        database.executemany("INSERT INTO vm VALUES (?,?,?,?,?,?)", vms)
    database.close()
    trace = _read("azure-packing", path, "machine=16", "cpu=40", "memory=100", "headroom=1")
    tasks = _tasks(trace)
    assert (_times(tasks["vm-0"]), tasks["vm-0"].template.priority) == ((0, None, 1), 1000)
    assert (_times(tasks["vm-1"]), tasks["vm-1"].template.priority) == ((43200, 43200, 1), 0)
    assert _amounts(tasks["vm-1"]) == (20000, 25600, 0, 0)
    assert dict(tasks["vm-1"].template.resources) == {
        "trace.kubestow.dev/ssd-millionths": 100_000,
        "trace.kubestow.dev/nic-millionths": 50_000,
    }
    assert (len(trace.nodes), sum(trace.left_out.values())) == (1, 1)
    # On machine 17 all three can run: it is the default.
    assert len(_read("azure-packing", tmp_path).tasks) == 3
    with pytest.raises(InputError, match="no machine 5 in"):
        _read("azure-packing", path, "machine=5")
    path.write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match="not the packing trace"):
        _read("azure-packing", path)


def test_azure_vms_of_both_years(tmp_path: Path) -> None:
    row = "yNf/R3X8fyXkOJm3ihXQcT0F52a8cDWPPRzTT6QFW8N+1QPfeKR5,sub,dep,{},{},91.7,0.7,20.6,{},{},{}\n"
    early, late = tmp_path / "2017", tmp_path / "2019"
    _folder(early, {"vmtable.csv.gz": row.format(0, 600, "Delay-insensitive", 1, 1.75)})
    _folder(late, {"vmtable.csv": row.format(300, 900, "Interactive", ">24", ">64")})
    (vm,) = _read("azure-vm", early).tasks
    assert (_times(vm), _amounts(vm), vm.template.shape.qos) == ((0, 600, 1), (1000, 1792, 0, 0), "Burstable")
    (vm,) = _read("azure-vm", late).tasks
    assert (_times(vm), _amounts(vm), vm.template.shape.qos) == ((300, 600, 1), (30000, 71680, 0, 0), "LS")


def test_philly(tmp_path: Path) -> None:
    gpus = [f"gpu{i}" for i in range(8)]
    attempt = {
        "start_time": "2017-10-07 01:12:09",
        "end_time": "2017-10-07 01:13:09",
        "detail": [{"ip": "m47", "gpus": gpus}, {"ip": "m48", "gpus": gpus}, {"ip": "m49", "gpus": gpus[:4]}],
    }
    job = {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1506638472019_14199",
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
        "attempts": [attempt, attempt | {"end_time": "2017-10-07 01:12:19"}],
    }
    running = job | {
        "jobid": "application_1_2",
        "attempts": [attempt | {"end_time": None, "detail": attempt["detail"][:1]}],
    }
    folder = _folder(
        tmp_path,
        {
            "cluster_job_log": json.dumps([job, running, job | {"jobid": "application_1_3", "attempts": []}]),
            "cluster_machine_list": "machineId, number of GPUs, single GPU mem\nm31,8, 24GB\nm32,2, 12GB\n",
        },
    )
    trace = _read("philly", folder)
    assert [(n.name, n.shape.gpus, n.shape.model) for n in trace.nodes] == [
        ("m31", 8, "gpu-24gb"),
        ("m32", 2, "gpu-12gb"),
    ]
    tasks = _tasks(trace)
    eight, four = tasks["job-1506638472019-14199-gpu8"], tasks["job-1506638472019-14199-gpu4"]
    assert _times(eight)[1:] == (70, 2)
    assert (_times(four)[1:], _amounts(four)) == ((70, 1), (16000, 0, 4, 1000))
    assert {(part.is_gang, part.job) for part in (eight, four)} == {(True, "job-1506638472019-14199")}
    assert (tasks["job-1-2"].job, eight.queue) == ("", "ee9e8c")
    assert _times(tasks["job-1-2"])[1:] == (None, 1)
    assert trace.left_out == {"job without an attempt on GPUs": 1}
    (whole,) = [task for task in _read("philly", folder, "pods=gpu").tasks if task.count > 8]
    assert (whole.count, whole.template.shape.gpus) == (20, 1)


def test_helios(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        {
            "cluster_gpu_number.csv": "date,vchbv,vc4om,total\n2020-09-01,64,96,160\n2020-09-02,64,104,168\n",
            "cluster_log.csv": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
            "queue\n"
            "1425511,uXBbc,vcJkd,16,32,2,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,"
            "36848,0\n"
            "1425512,uXBbc,vcJkd,0,4,1,FAILED,2020-06-09 18:42:01,2020-06-09 18:42:01,2020-06-09 18:42:03,2,0\n",
        },
    )
    trace = _read("helios", folder)
    assert len(trace.nodes) == 21
    gpu, cpu = (_tasks(trace)[name] for name in ("job-1425511", "job-1425512"))
    assert (_times(gpu)[1:], _amounts(gpu), gpu.queue) == ((36848, 2), (16000, 0, 8, 1000), "vcJkd")
    assert (cpu.created - gpu.created, _amounts(cpu)) == (60, (4000, 0, 0, 0))


def test_acme(tmp_path: Path) -> None:
    kalos = (
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
        "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
        "dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0\n"
    )
    seren = (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,"
        "2023-03-01 00:20:51+08:00,117,32,936.0\n"
    )
    folder = _folder(tmp_path, {"job_trace/trace_kalos.csv": kalos, "job_trace/trace_seren.csv": seren})
    trace = _read("acme", folder)
    assert (len(trace.nodes), trace.nodes[0].shape.memory_mib) == (286, 1024 * 1024)
    assert _amounts(_tasks(trace)["job-5778432"]) == (128000, 0, 8, 1000)
    trace = _read("acme", folder, "cluster=kalos")
    job = _tasks(trace)["job-dlctk696s0jbvitv"]
    assert (len(trace.nodes), _times(job)[1:], _amounts(job)) == (302, (18, 8), (120000, 1024000, 8, 1000))
    with pytest.raises(InputError, match="expected cluster=seren or cluster=kalos"):
        _read("acme", folder, "cluster=venus")


def test_supercloud(tmp_path: Path) -> None:
    log = (
        "id_job,id_array_job,id_user,nodes_alloc,cpus_req,state,timelimit,time_submit,time_eligible,time_start,time_end,"
        "tres_alloc,tres_req,partition\n"
        '4074251,0,11,2,80,3,1440,1610000000,1610000000,1610000060,1610000160,"1=80","1=80,2=680000,4=2,1002=4",normal\n'
        '4074252,0,11,0,20,4,1440,1610000000,1610000000,0,1610000160,"","1=20,2=170000,4=1",normal\n'
    )
    trace = _read("supercloud", _folder(tmp_path, {"slurm-log.csv": log}))
    assert len(trace.nodes) == 704
    job = _tasks(trace)["job-4074251"]
    assert (_times(job), _amounts(job)) == ((1610000000, 100, 2), (40000, 340000, 2, 1000))
    assert trace.left_out == {"job that never started": 1}


SWF = """\
; Version: 2.2
; Computer: IBM SP2
; MaxNodes: 100
; MaxProcs: 400
    1      0   1000   3600   8  -1  -1   8  7200  2048  1   3  1  -1  2  -1  -1  -1
    2     60     -1     -1  -1  -1  -1  16  7200    -1  0   3  1  -1  2  -1  -1  -1
    3     90     10     20   3  -1  -1  -1    -1    -1  1  -1 -1  -1 -1  -1  -1  -1
"""


def test_swf(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    trace = _read("swf", path)
    assert (len(trace.nodes), trace.nodes[0].shape.cpu_milli) == (100, 4000)
    tasks = _tasks(trace)
    assert (_times(tasks["job-1"]), _amounts(tasks["job-1"])) == ((0, 3600, 2), (4000, 8, 0, 0))
    assert (_times(tasks["job-3"]), _amounts(tasks["job-3"])) == ((90, 20, 1), (3000, 0, 0, 0))
    assert [tasks[name].requested_time for name in ("job-1", "job-3")] == [7200, None]
    assert trace.left_out == {"job without a run time": 1}
    assert "IBM SP2" in trace.attribution
    path.write_text(f"{SWF}1 2 3\n")
    with pytest.raises(InputError, match="line 8: expected 18 fields, got 3"):
        _read("swf", path)


MAPPING = """\
name: id
created: {column: submit, factor: 60}
duration: {column: ran, factor: 60}
count: workers
cpu: cores
memory: {column: mb, factor: 0.0009765625}
gpus: {value: 0.5}
priority: prio
queue: team
gang: true
nodes: {file: machines.csv, name: host, cpu: cores, memory: {value: 64}, gpus: {value: 2}}
"""


def test_csv_with_a_mapping(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        {
            "jobs.csv": "id,submit,ran,workers,cores,mb,prio,team\nA 1,1,2,3,0.5,512,7,red\n",
            "mapping.yaml": MAPPING,
            "machines.csv": "host,cores\nh1,16\nh2,32\n",
        },
    )
    trace, _ = read_trace(f"csv={folder / 'jobs.csv'}", mapping=folder / "mapping.yaml")
    (job,) = trace.tasks
    assert (job.name, _times(job), _amounts(job), job.queue) == ("a-1", (60, 120, 3), (500, 512, 1, 500), "red")
    assert (job.template.priority, job.is_gang) == (7, True)
    assert [(n.name, n.shape.cpu_milli, n.shape.gpus) for n in trace.nodes] == [("h1", 16000, 2), ("h2", 32000, 2)]
    with pytest.raises(InputError, match="needs --mapping"):
        read_trace(f"csv={folder / 'jobs.csv'}")
    (folder / "mapping.yaml").write_text("cpu: cores\ncreated: submit\nnodes: {cpu: cores}\n")
    with pytest.raises(InputError, match=r"nodes\.cpu: expected count and fixed amounts"):
        read_trace(f"csv={folder / 'jobs.csv'}", mapping=folder / "mapping.yaml")
    (folder / "mapping.yaml").write_text("cpu: kernels\ncreated: submit\nnodes: {cpu: 4, count: 1}\n")
    with pytest.raises(InputError, match="line 1, column kernels: missing"):
        read_trace(f"csv={folder / 'jobs.csv'}", mapping=folder / "mapping.yaml")


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_file_and_an_unknown_assumption_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=str(tmp_path)):
        _read(name, tmp_path / "absent" if name == "swf" else tmp_path)
    with pytest.raises(InputError, match="expected KEY=VALUE with one of gangs, namespaces, joint-start"):
        _read(name, tmp_path, "colour=red")
    with pytest.raises(InputError, match="expected true or false for gangs"):
        _read(name, tmp_path, "gangs=perhaps")


@pytest.mark.parametrize("setting", ["cpu=-1", "cpu=nan", "cpu=many"])
def test_amounts_that_are_assumed_must_be_numbers(setting: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a number of at least 0 for cpu"):
        _read("google2011", tmp_path, setting)
    with pytest.raises(InputError, match="no format gogle, expected one of openb, csv, google2011"):
        _read("gogle", tmp_path)
