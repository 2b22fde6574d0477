"""An independent opinion on where pods can run, in plain loops over plain objects.

It verifies the scheduler's decisions and therefore shares no code with the engine or with :mod:`kubestow.rules`.
"""
