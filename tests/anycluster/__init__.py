"""What must hold of every API server that we schedule for.

The same checks run against the embedded server and, when ``KUBESTOW_TEST_KUBECONFIG`` names a kubeconfig, against that
cluster's server instead. There they need the rights of an administrator, and leave nothing behind: each test works in a
namespace, on nodes and with a scheduler's name of its own.
"""
