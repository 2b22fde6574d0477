"""The versions of this package and of the kube-scheduler that it reproduces.

``VERSION`` is what ``--version``, the User-Agent header and ``/statusz`` show.
"""

VERSION = "0.1.0"

KUBERNETES_VERSION = "v1.36.2"
"""The kube-scheduler release whose decisions kubestow reproduces; the git version in ``kubernetes_build_info``."""
