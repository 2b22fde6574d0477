"""What a request asks for, one module per kind of verb. Each takes a :class:`Call` and answers it."""

from kubestow.devcluster.apiserver.verbs.call import Call

__all__ = ["Call"]
