"""The metrics of simulations that the field reports: each defined once, with unit and source.

:mod:`.run_metrics` has those of a run's pods and of its cluster over time, :mod:`.energy_and_cost` those that follow
from what each node had at every moment: power, energy, cost, and finish-time fairness. :mod:`.gpu_fragmentation`
measures the fragments of single GPUs, :mod:`.job_metrics` waits and placements of jobs of several pods, and
:mod:`.intervals` how sure a mean over several seeds is.
"""
