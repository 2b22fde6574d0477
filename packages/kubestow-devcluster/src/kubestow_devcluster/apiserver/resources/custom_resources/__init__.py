"""CustomResourceDefinitions and the kinds they define.

``definitions`` is the strategy of definitions, ``naming`` their conditions, and ``kinds`` makes the kinds that an
established definition serves. The registry adds these kinds to the scheme.
"""
