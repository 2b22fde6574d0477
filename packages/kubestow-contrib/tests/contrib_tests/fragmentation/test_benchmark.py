"""The benchmark of the published experiment runs, on a trace of a few lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[5]


def test_the_benchmark_compares_the_allocated_share_with_a_published_one(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nnode-a,64000,262144,4,T4\nnode-b,64000,262144,4,G2\n"
    )
    shapes = ("4000,8192,1,500", "8000,16384,1,1000", "16000,32768,2,1000", "2000,4096,0,0")
    pods = [f"pod-{number},{shape},,LS,Running,{number},,{number}" for number, shape in enumerate(shapes * 2)]
    columns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time"
    (tmp_path / "openb_pod_list_default.csv").write_text("\n".join([f"{columns},scheduled_time", *pods, ""]))
    published = tmp_path / "published.csv"
    published.write_text(
        "workload,policy,alloc_pct_at_130\nopenb_pod_list_default,05-BestFit,100\nopenb_pod_list_default,06-FGD,1\n"
    )
    options = ["--folder", str(tmp_path), "--runs", "2", "--expected", str(published)]
    command = [sys.executable, "-m", "benchmarks", "fgd", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
    assert [" ".join(line.split()[:2]) for line in lines] == ["default BestFit", "default FragmentationGradientDescent"]
    assert (found.returncode, found.stderr) == (1, ""), "a difference from the published share is a failure"
