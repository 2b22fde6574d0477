"""Reading a trace folder: small ones written here, good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.errors import InputError
from kubestow.workloads import openb

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\n"
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def _folder(path: Path, *pods: str, header: str = HEADER, nodes: str = NODES) -> Path:
    (path / "openb_node_list_gpu_node.csv").write_text(nodes, encoding="utf-8")
    (path / "openb_pod_list_default.csv").write_text("\n".join([header, *pods]) + "\n", encoding="utf-8")
    return path


def _refusal(folder: Path, pod_list: str = "default", *, timed: bool = False) -> str:
    with pytest.raises(InputError) as refused:
        openb.read(folder, pod_list=pod_list, timed=timed)
    return str(refused.value).removeprefix(f"{folder}/")


def test_pods_come_in_the_order_of_their_creation(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "late,1,1,0,0,,LS,Running,9,20,9", "early,1,1,0,0,,LS,Running,3,20,3")
    assert [pod["metadata"]["name"] for pod in openb.read(folder).pods] == ["early", "late"]


def test_a_list_without_times_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "b,1,1,0,0", "a,1,1,0,0", header="name,cpu_milli,memory_mib,num_gpu,gpu_milli")
    assert [pod["metadata"]["name"] for pod in openb.read(folder).pods] == ["b", "a"]


def test_pods_say_how_long_they_run_only_when_playing_with_time(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "p,1,1,0,0,,LS,Running,3,20,5")
    assert "annotations" not in openb.read(folder).pods[0]["metadata"]
    assert openb.read(folder, timed=True).pods[0]["metadata"]["annotations"] == {"kubestow.dev/duration": "15s"}


def test_a_pod_that_never_ran_runs_for_as_long_as_it_waited(tmp_path: Path) -> None:
    pods = openb.read_pods(_folder(tmp_path, "p,1,1,0,0,,LS,Pending,3,20,") / "openb_pod_list_default.csv")
    assert next(pods).duration == 17


def test_admissible_gpu_models_are_split_and_said_once(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "p,1,1,1,500,V100M16|V100M32|V100M32,LS,Running,3,20,5")
    assert next(openb.read_pods(folder / "openb_pod_list_default.csv")).shape.models == ("V100M16", "V100M32")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert "nowhere: no such folder" in _refusal(tmp_path / "nowhere")


def test_a_missing_pod_list_is_refused_with_the_lists_there_are(tmp_path: Path) -> None:
    assert _refusal(_folder(tmp_path), "cpu9") == (
        "openb_pod_list_cpu9.csv: no such file (lists found in this folder: default)"
    )


def test_a_missing_node_list_is_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path).startswith("openb_node_list_gpu_node.csv: no such file")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    assert _refusal(_folder(tmp_path, nodes="")).startswith("openb_node_list_gpu_node.csv: line 1: is empty (expected")


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    assert _refusal(_folder(tmp_path)) == "openb_pod_list_default.csv: line 2: has a header but no rows"


def test_a_missing_column_is_refused_by_name(tmp_path: Path) -> None:
    refusal = _refusal(_folder(tmp_path, nodes="sn,cpu_milli,memory_mib,model\nn-0,1,1,P100\n"))
    assert refusal.startswith("openb_node_list_gpu_node.csv: line 1, column gpu: missing")


def test_playing_with_time_needs_the_columns_with_times(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "b,1,1,0,0", header="name,cpu_milli,memory_mib,num_gpu,gpu_milli")
    assert "line 1, column creation_time: missing" in _refusal(folder, timed=True)


@pytest.mark.parametrize(
    ("row", "place", "expected"),
    [
        ("p,1.5,1,0,0,,LS,Running,3,20,5", "cpu_milli", "a whole number, found '1.5'"),
        ("p,1,-1,0,0,,LS,Running,3,20,5", "memory_mib", "a whole number, found '-1'"),
        ("p,1,,0,0,,LS,Running,3,20,5", "memory_mib", "a whole number, found ''"),
        ("p,1,1,2,500,,LS,Running,3,20,5", "gpu_milli", "0 for a pod without GPUs"),
        ("p,1,1,1,0,,LS,Running,3,20,5", "gpu_milli", "1 to 1000 for one GPU"),
        ("p,1,1,0,0,,Best,Running,3,20,5", "qos", "one of LS, Guaranteed, Burstable, BE, found 'Best'"),
        ("p,1,1,0,0,,LS,Running,3,2,5", "deletion_time", "a time not before scheduled_time"),
        ("P_1,1,1,0,0,,LS,Running,3,20,5", "name", "a name of lower case letters"),
        ("ok,1,1,0,0,,LS,Running,3,20,5", "name", "a name that no row above has, found 'ok'"),
    ],
)
def test_a_bad_value_is_refused_with_its_line_and_column(tmp_path: Path, row: str, place: str, expected: str) -> None:
    refusal = _refusal(_folder(tmp_path, "ok,1,1,0,0,,LS,Running,3,20,5", row))
    assert refusal.startswith(f"openb_pod_list_default.csv: line 3, column {place}: expected ")
    assert expected in refusal


def test_a_row_that_is_too_short_or_too_long_is_refused(tmp_path: Path) -> None:
    assert _refusal(_folder(tmp_path, "p,1,1")) == (
        "openb_pod_list_default.csv: line 2, column num_gpu: the row ends before it"
    )
    assert "line 2: has more values than the header" in _refusal(_folder(tmp_path, "p,1,1,0,0,,LS,Running,3,20,5,6"))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (_folder(tmp_path) / "openb_pod_list_default.csv").write_bytes(b"\xff\xfe\x00")
    assert _refusal(tmp_path) == "openb_pod_list_default.csv: not a CSV file in UTF-8"


def test_a_gpu_node_without_a_model_is_refused(tmp_path: Path) -> None:
    refusal = _refusal(_folder(tmp_path, nodes="sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,\n"))
    assert refusal.startswith("openb_node_list_gpu_node.csv: line 2, column model: expected a GPU model")
