"""The commands of development clusters: ``up``, ``apiserver``, ``node`` and ``demo``."""
