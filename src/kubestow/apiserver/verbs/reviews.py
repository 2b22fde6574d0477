"""Questions about oneself and one's rights. Whoever may talk to this server may do everything, and is told so."""

from __future__ import annotations

from kubestow.apiserver import negotiation
from kubestow.apiserver.messages import Answer
from kubestow.apiserver.resources import Object
from kubestow.apiserver.verbs.call import Call

__all__ = ["may_i", "what_may_i", "who_am_i"]

_ALL = ["*"]


def _answered(call: Call, question: Object, status: Object) -> Answer:
    review: Object = {"kind": call.kind.name, "apiVersion": call.kind.api_version, "metadata": {}}
    if "spec" in question:
        review["spec"] = question["spec"]
    review["status"] = status
    return Answer.json(review, 201)


def _question(call: Call) -> Object:
    return negotiation.decode(call.request.body, call.request.content_type, expected=call.kind.name)


def may_i(call: Call) -> Answer:
    return _answered(call, _question(call), {"allowed": True})


def what_may_i(call: Call) -> Answer:
    rules = {
        "resourceRules": [{"verbs": _ALL, "apiGroups": _ALL, "resources": _ALL}],
        "nonResourceRules": [{"verbs": _ALL, "nonResourceURLs": _ALL}],
        "incomplete": False,
    }
    return _answered(call, _question(call), rules)


def who_am_i(call: Call) -> Answer:
    _question(call)
    user = call.request.user
    info = {"username": user.name, "groups": list(user.groups)}
    return Answer.json(
        {
            "kind": call.kind.name,
            "apiVersion": call.kind.api_version,
            "metadata": {"creationTimestamp": call.registry.now()},
            "status": {"userInfo": info},
        },
        201,
    )
