"""FragmentationGradientDescent as a policy for `kubestow evaluate`, with the typical pods of openb."""

from kubestow_contrib.fragmentation import FragmentationArgs, FragmentationGradientDescent, TypicalPod, typical_pods
from kubestow_lab.workloads.openb_shapes import PODS

TYPICAL_PODS = typical_pods(
    TypicalPod(cpu=shape.cpu_milli, gpus=shape.gpus, gpu_milli=shape.gpu_milli or 1000, count=count)
    for shape, count in PODS.items()
)


class FgdArgs(FragmentationArgs, rename="camel", frozen=True, kw_only=True):
    """The GPUs of a pod are not recorded: this is for simulations."""

    typical_pods: tuple[TypicalPod, ...] = tuple(TYPICAL_PODS)
    index_annotation: str = ""


class Fgd(FragmentationGradientDescent):
    """The same plugin under another name, with arguments of its own."""

    name = "Fgd"
    Args = FgdArgs
