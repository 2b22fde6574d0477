"""Evaluation of policies that programs write: a Python function or plugin in, metrics and textual feedback out.

:mod:`.evaluation` is what callers use, with the suites. It runs the policy by :mod:`.policy_process` in a process that
:mod:`.confinement` limits, believes nothing that the process says but where each pod went, and checks even that.
"""
