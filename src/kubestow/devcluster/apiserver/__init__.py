"""The embedded API server: storage, watch, patches, discovery and admission, as kube-apiserver answers.

From the socket down: ``http`` (aiohttp), ``request_handler`` (request to verb), ``verbs`` (what each verb does),
``registry`` (the rules that every write passes), ``storage`` (objects and history, in memory and on disk). Beside
them: ``resources`` (the served kinds), ``schema`` (their fields), ``printing`` (the rows of ``kubectl get``).
"""
