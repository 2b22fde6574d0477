"""The behaviour that the scheduler requires of every API server.

The same checks run against the embedded server and, when ``KUBESTOW_TEST_KUBECONFIG`` names a kubeconfig, against that
cluster's server instead. There they need the rights of a cluster administrator, and leave nothing behind: each test
has its own namespace, nodes and scheduler name.
"""
