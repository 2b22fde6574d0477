"""The formats of traces by the name that ``--trace NAME=PATH`` gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubestow.errors import InputError
from kubestow_lab.traces import alibaba, azure, google, mapped_csv, swf, training_clusters
from kubestow_lab.traces.trace import Assumptions, ClusterTrace


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A published format: what it is, what is assumed of it, where the data is, and its reader.

    ``download`` is a command that gets the data, as the publisher documents it.
    """

    name: str
    title: str
    assumptions: type[Assumptions]
    read: Callable[[Path, Any], ClusterTrace]
    download: str


_CLUSTERDATA = "git clone --depth 1 https://github.com/alibaba/clusterdata"

FORMATS: dict[str, TraceFormat] = {
    each.name: each
    for each in (
        TraceFormat(
            "google2011",
            "Google's cluster of May 2011, 12,500 machines",
            google.GoogleAssumptions,
            google.read_2011,
            "gsutil -m cp -R gs://clusterdata-2011-2/{machine,task}_events gs://clusterdata-2011-2/machine_attributes"
            " gs://clusterdata-2011-2/task_constraints .",
        ),
        TraceFormat(
            "google2019",
            "a cell of Google's Borg in May 2019",
            google.Google2019Assumptions,
            google.read_2019,
            "bq extract --destination_format NEWLINE_DELIMITED_JSON --compression GZIP"
            " google.com:google-cluster-data:clusterdata_2019_a.instance_events gs://BUCKET/instance_events-*.json.gz",
        ),
        TraceFormat(
            "alibaba2018",
            "4,000 machines with online containers and batch tasks",
            alibaba.Alibaba2018Assumptions,
            alibaba.read_2018,
            f"{_CLUSTERDATA} && sh clusterdata/cluster-trace-v2018/fetchData.sh",
        ),
        TraceFormat(
            "alibaba-gpu2020",
            "PAI, 6,500 GPUs in July and August 2020",
            alibaba.Gpu2020Assumptions,
            alibaba.read_gpu_2020,
            f"{_CLUSTERDATA} && cd clusterdata/cluster-trace-gpu-v2020/data && sh download_data.sh",
        ),
        TraceFormat(
            "alibaba-gpu2025",
            "23,871 instances that serve recommendation models, on GPU and CPU nodes",
            alibaba.Gpu2025Assumptions,
            alibaba.read_gpu_2025,
            f"{_CLUSTERDATA} && cd clusterdata/cluster-trace-gpu-v2025",
        ),
        TraceFormat(
            "alibaba-spot2026",
            "jobs of high priority and on spot GPUs, 4,278 nodes",
            alibaba.Spot2026Assumptions,
            alibaba.read_spot_2026,
            f"{_CLUSTERDATA} && cd clusterdata/cluster-trace-v2026-spot-gpu && git lfs pull",
        ),
        TraceFormat(
            "azure-packing",
            "5.5 million VM requests of a zone, 2020",
            azure.PackingAssumptions,
            azure.read_packing,
            "curl -LO https://github.com/Azure/AzurePublicDataset/releases/download/dataset-packing-2020/"
            "azurevmallocation_dataset2020_AzurePackingTraceV1.zip",
        ),
        TraceFormat(
            "azure-vm",
            "VMs of a region, 2017 and 2019",
            azure.VmAssumptions,
            azure.read_vms,
            "curl -LO https://azurecloudpublicdataset2.z19.web.core.windows.net/azurepublicdatasetv2/trace_data/vmtable/"
            "vmtable.csv.gz",
        ),
        TraceFormat(
            "philly",
            "Microsoft's Philly, 117,325 training jobs of 2017",
            training_clusters.PhillyAssumptions,
            training_clusters.read_philly,
            "git clone https://github.com/msr-fiddle/philly-traces && cd philly-traces && git lfs pull"
            " && tar xf trace-data.tar.gz",
        ),
        TraceFormat(
            "helios",
            "SenseTime's Helios, a cluster of 2020",
            training_clusters.HeliosAssumptions,
            training_clusters.read_helios,
            "git clone https://github.com/S-Lab-System-Group/HeliosData && cd HeliosData/data/Venus",
        ),
        TraceFormat(
            "acme",
            "Seren or Kalos of Shanghai AI Laboratory, 2023",
            training_clusters.AcmeAssumptions,
            training_clusters.read_acme,
            "git clone https://github.com/InternLM/AcmeTrace && cd AcmeTrace/data",
        ),
        TraceFormat(
            "supercloud",
            "MIT's TX-GAIA, 460,497 jobs of 2021",
            training_clusters.SupercloudAssumptions,
            training_clusters.read_supercloud,
            "aws s3 cp --no-sign-request s3://mit-supercloud-dataset/datacenter-challenge/202201/slurm-log.csv .",
        ),
        TraceFormat(
            "swf",
            "a log in the Standard Workload Format",
            swf.SwfAssumptions,
            swf.read,
            "curl -LO https://www.cs.huji.ac.il/labs/parallel/workload/l_ctc_sp2/CTC-SP2-1996-3.1-cln.swf.gz",
        ),
    )
}


def read_trace(
    source: str, *, assumed: Sequence[str] = (), mapping: Path | None = None
) -> tuple[ClusterTrace, Assumptions]:
    """Read ``FORMAT=PATH``; ``assumed`` are settings of the format's assumptions, ``mapping`` the file for ``csv``.

    Raises InputError for an unknown format, an unknown assumption and for invalid files.
    """
    name, _, path = source.partition("=")
    if name == "csv":
        if mapping is None:
            raise InputError("--trace", "csv=FILE needs --mapping FILE")
        settings = mapped_csv.CsvAssumptions.parse(assumed)
        return mapped_csv.read(Path(path), mapping, settings), settings
    if mapping is not None:
        raise InputError("--mapping", f"is for csv=FILE, not for {name}")
    if name not in FORMATS:
        raise InputError("--trace", f"no format {name}, expected one of openb, csv, {', '.join(FORMATS)}")
    of_format = FORMATS[name].assumptions.parse(assumed)
    return FORMATS[name].read(Path(path), of_format), of_format
