"""Schedulers in front of a real API server, with a proxy between that loses, delays and fails what passes.

Two processes of ``kubestow run`` with leader election reach the API server only through :mod:`.proxy`, each by a port
of its own. :mod:`.churn` makes and deletes pods and nodes without a proxy, and does what kubelets would. What happens
is observed at the proxy and by watches without one (:mod:`.observation`), and held to the rules that can be seen from
there (:mod:`.rules`). ``python -m tests.fault_proxy --kubeconfig K --minutes 60`` prints the report.
"""
