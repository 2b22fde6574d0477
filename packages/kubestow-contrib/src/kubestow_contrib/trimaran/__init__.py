"""The load-aware plugins of scheduler-plugins ("trimaran").

TargetLoadPacking               packs nodes up to a target utilization of CPU, and spreads above it
LoadVariationRiskBalancing      balances the risk of high load: its average plus its deviation
LowRiskOverCommitment           avoids nodes where limits above capacity meet high load
Peaks                           prefers nodes whose power consumption rises least

They use the capacity and the measured usage of nodes (:mod:`kubestow_contrib.node_load`), in percent. A node without
usable metrics scores 0.
"""
