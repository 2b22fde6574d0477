"""The served kinds and their rules.

``built_in`` lists the built-in kinds, whose defaulting and validation is in ``strategies``. ``definitions`` makes the
kinds of CustomResourceDefinitions, with the ``validation_rules`` of their schemas.
"""
