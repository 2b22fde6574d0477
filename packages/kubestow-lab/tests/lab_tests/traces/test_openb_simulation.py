"""A trace gives a cluster and pods that arrive and depart at its times."""

from __future__ import annotations

from pathlib import Path

from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.traces.loading import load_trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,8000,32768,1,T4\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p-1,4000,1024,1,1000,,LS,Succeeded,10,60,20
p-0,4000,1024,0,0,,LS,Running,5,25,5
p-2,4000,1024,1,1000,,LS,Succeeded,15,95,55
"""


def test_pods_arrive_and_run_as_in_the_trace(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    cluster, arrivals = load_trace(tmp_path)
    assert [(a.pod.metadata.name, a.time, a.duration) for a in arrivals.pods] == [
        ("p-0", 5, 20),
        ("p-1", 10, 40),
        ("p-2", 15, 40),
    ]
    outcomes = {o.name: o for o in Simulation(cluster, arrivals).run().outcomes}
    assert {name: round(o.bound or 0) for name, o in outcomes.items()} == {"p-0": 5, "p-1": 10, "p-2": 50}
    assert {name: round(o.ended or 0) for name, o in outcomes.items()} == {"p-0": 25, "p-1": 50, "p-2": 90}
