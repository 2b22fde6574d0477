"""The gap between a simulation and the optimum: what a global placement of the same pods would have achieved.

:mod:`.end_state` is the simulation's last moment as a placement problem, :mod:`.search` finds the best placement that
the engine accepts, and a bound. The result is a :class:`kubestow_lab.simulation.gap.Gap`.
"""
