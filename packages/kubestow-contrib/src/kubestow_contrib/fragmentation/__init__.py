"""GPU sharing with state per device: FragmentationGradientDescent and BestFit, which choose node and GPU of a pod.

Both follow Weng et al., "Beware of Fragmentation" (USENIX ATC 2023). :mod:`.devices` knows how much of each GPU is
idle, :mod:`.gpu_sharing` is what the two plugins share: a pod fits on a node if it fits on the GPUs, it gets particular
GPUs at Reserve, and PreBind records them in an annotation. :mod:`.typical_pods` measures fragmentation.
"""

from kubestow_contrib.fragmentation.best_fit import BestFit, BestFitArgs
from kubestow_contrib.fragmentation.gradient_descent import FragmentationArgs, FragmentationGradientDescent
from kubestow_contrib.fragmentation.typical_pods import TypicalPod, typical_pods

__all__ = [
    "BestFit",
    "BestFitArgs",
    "FragmentationArgs",
    "FragmentationGradientDescent",
    "TypicalPod",
    "typical_pods",
]
