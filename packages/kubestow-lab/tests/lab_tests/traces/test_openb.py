"""Reading of trace directories, valid and invalid."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.errors import InputError
from kubestow_lab.traces import openb

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\n"
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def _trace(path: Path, *pods: str, header: str = HEADER, nodes: str = NODES) -> Path:
    (path / "openb_node_list_gpu_node.csv").write_text(nodes, encoding="utf-8")
    (path / "openb_pod_list_default.csv").write_text("\n".join([header, *pods]) + "\n", encoding="utf-8")
    return path


def _error(directory: Path, pod_list: str = "default", *, timed: bool = False) -> str:
    with pytest.raises(InputError) as raised:
        openb.read(directory, pod_list=pod_list, timed=timed)
    return str(raised.value).removeprefix(f"{directory}/")


def test_pods_are_sorted_by_creation_time(tmp_path: Path) -> None:
    directory = _trace(tmp_path, "late,1,1,0,0,,LS,Running,9,20,9", "early,1,1,0,0,,LS,Running,3,20,3")
    assert [pod["metadata"]["name"] for pod in openb.read(directory).pods] == ["early", "late"]


def test_a_list_without_times_keeps_the_file_order(tmp_path: Path) -> None:
    directory = _trace(tmp_path, "b,1,1,0,0", "a,1,1,0,0", header="name,cpu_milli,memory_mib,num_gpu,gpu_milli")
    assert [pod["metadata"]["name"] for pod in openb.read(directory).pods] == ["b", "a"]


def test_only_timed_pods_have_a_duration_annotation(tmp_path: Path) -> None:
    directory = _trace(tmp_path, "p,1,1,0,0,,LS,Running,3,20,5")
    assert "annotations" not in openb.read(directory).pods[0]["metadata"]
    assert openb.read(directory, timed=True).pods[0]["metadata"]["annotations"] == {"kubestow.dev/duration": "15s"}


def test_the_duration_of_a_pod_that_never_ran_is_its_waiting_time(tmp_path: Path) -> None:
    pods = openb.read_pods(_trace(tmp_path, "p,1,1,0,0,,LS,Pending,3,20,") / "openb_pod_list_default.csv")
    assert next(pods).duration == 17


def test_gpu_models_are_split_and_deduplicated(tmp_path: Path) -> None:
    directory = _trace(tmp_path, "p,1,1,1,500,V100M16|V100M32|V100M32,LS,Running,3,20,5")
    assert next(openb.read_pods(directory / "openb_pod_list_default.csv")).shape.models == ("V100M16", "V100M32")


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    assert "nowhere: no such directory" in _error(tmp_path / "nowhere")


def test_a_missing_pod_list_is_an_error_with_the_available_lists(tmp_path: Path) -> None:
    assert _error(_trace(tmp_path), "cpu9") == ("openb_pod_list_cpu9.csv: no such file, available lists: default")


def test_a_missing_node_list_is_an_error(tmp_path: Path) -> None:
    assert _error(tmp_path).startswith("openb_node_list_gpu_node.csv: no such file")


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    assert _error(_trace(tmp_path, nodes="")).startswith("openb_node_list_gpu_node.csv: line 1: is empty, expected")


def test_a_file_without_rows_is_an_error(tmp_path: Path) -> None:
    assert _error(_trace(tmp_path)) == "openb_pod_list_default.csv: line 2: has a header but no rows"


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    error = _error(_trace(tmp_path, nodes="sn,cpu_milli,memory_mib,model\nn-0,1,1,P100\n"))
    assert error.startswith("openb_node_list_gpu_node.csv: line 1, column gpu: missing")


def test_timed_pods_need_the_time_columns(tmp_path: Path) -> None:
    directory = _trace(tmp_path, "b,1,1,0,0", header="name,cpu_milli,memory_mib,num_gpu,gpu_milli")
    assert "line 1, column creation_time: missing" in _error(directory, timed=True)


@pytest.mark.parametrize(
    ("row", "place", "expected"),
    [
        ("p,1.5,1,0,0,,LS,Running,3,20,5", "cpu_milli", "an integer, got '1.5'"),
        ("p,1,-1,0,0,,LS,Running,3,20,5", "memory_mib", "an integer, got '-1'"),
        ("p,1,,0,0,,LS,Running,3,20,5", "memory_mib", "an integer, got ''"),
        ("p,1,1,2,500,,LS,Running,3,20,5", "gpu_milli", "0 for a pod without GPUs"),
        ("p,1,1,1,0,,LS,Running,3,20,5", "gpu_milli", "1 to 1000 for one GPU"),
        ("p,1,1,0,0,,Best,Running,3,20,5", "qos", "one of LS, Guaranteed, Burstable, BE, got 'Best'"),
        ("p,1,1,0,0,,LS,Running,3,2,5", "deletion_time", "a time not earlier than scheduled_time"),
        ("P_1,1,1,0,0,,LS,Running,3,20,5", "name", "a name of lower case letters"),
        ("ok,1,1,0,0,,LS,Running,3,20,5", "name", "a unique name, got 'ok'"),
    ],
)
def test_an_invalid_value_is_reported_with_line_and_column(tmp_path: Path, row: str, place: str, expected: str) -> None:
    error = _error(_trace(tmp_path, "ok,1,1,0,0,,LS,Running,3,20,5", row))
    assert error.startswith(f"openb_pod_list_default.csv: line 3, column {place}: expected ")
    assert expected in error


def test_a_row_that_is_too_short_or_too_long_is_an_error(tmp_path: Path) -> None:
    assert _error(_trace(tmp_path, "p,1,1")) == ("openb_pod_list_default.csv: line 2, column num_gpu: missing value")
    assert "line 2: has more values than columns" in _error(_trace(tmp_path, "p,1,1,0,0,,LS,Running,3,20,5,6"))


def test_a_binary_file_is_an_error(tmp_path: Path) -> None:
    (_trace(tmp_path) / "openb_pod_list_default.csv").write_bytes(b"\xff\x00")
    assert _error(tmp_path) == "openb_pod_list_default.csv: not UTF-8 text"


def test_a_gpu_node_without_a_model_is_an_error(tmp_path: Path) -> None:
    error = _error(_trace(tmp_path, nodes="sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,\n"))
    assert error.startswith("openb_node_list_gpu_node.csv: line 2, column model: expected a GPU model")
