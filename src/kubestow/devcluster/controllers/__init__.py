"""The controllers of a cluster in miniature: what turns a deployment into pods and a deleted owner into nothing.

:class:`Controllers` is the way in: one task that reads the store's history and lets each controller bring one object at
a time to where its spec wants it. Each controller is a module; what they share: ``controller`` (the contract),
``work`` (what is to be done, and when), ``owners`` and ``pods`` (who controls what).
"""

from kubestow.devcluster.controllers.manager import Controllers

__all__ = ["Controllers"]
