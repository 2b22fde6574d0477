"""The comparison of two simulations: pods that land elsewhere, win or lose, metrics that move, and thresholds for CI.

:func:`~kubestow_lab.comparison.comparison.compare` runs a baseline and a candidate, two configurations or plugin
versions, on the same cluster and workload; :class:`~kubestow_lab.comparison.comparison.SimulationComparison` holds two
results and what differs. A threshold is text such as ``pending > baseline * 1.05``.
"""
