"""An extender process that uses only the standard library and shares no code with kubestow.

    python extender_process.py '{"allows": ["a"], "scores": {"a": 10}, "apiserver": "http://…"}'

It prints its port, then one line per request: the verb and the body.
"""

import json
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Extender(BaseHTTPRequestHandler):
    """Accepts the nodes in ``allows``, or all nodes without it."""

    settings: dict[str, Any] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb = self.path.strip("/")
        print(json.dumps([verb, body]), flush=True)  # noqa: T201
        result = json.dumps(getattr(self, verb)(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(result)))
        self.end_headers()
        self.wfile.write(result)

    def filter(self, body: dict[str, Any]) -> dict[str, Any]:
        allows = self.settings.get("allows")
        nodes = body["Nodes"]["items"] if body["Nodes"] else [{"metadata": {"name": n}} for n in body["NodeNames"]]
        passed = [node for node in nodes if allows is None or node["metadata"]["name"] in allows]
        failed = {node["metadata"]["name"]: "not allowed" for node in nodes if node not in passed}
        names = [node["metadata"]["name"] for node in passed]
        if body["Nodes"]:
            return {"Nodes": {"metadata": {}, "items": passed}, "NodeNames": None, "FailedNodes": failed, "Error": ""}
        return {"Nodes": None, "NodeNames": names, "FailedNodes": failed, "Error": ""}

    def prioritize(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"Host": name, "Score": score} for name, score in self.settings.get("scores", {}).items()]

    def preempt(self, body: dict[str, Any]) -> dict[str, Any]:
        allows = self.settings["allows"]
        if body["NodeNameToMetaVictims"] is not None:
            kept = body["NodeNameToMetaVictims"]
        else:
            kept = {
                name: {"Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]], "NumPDBViolations": 0}
                for name, victims in body["NodeNameToVictims"].items()
            }
        return {"NodeNameToMetaVictims": {name: victims for name, victims in kept.items() if name in allows}}

    def bind(self, body: dict[str, Any]) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": body["PodName"], "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        headers = {"Content-Type": "application/json"}
        url = self.settings["apiserver"] + path
        request = urllib.request.Request(url, json.dumps(binding).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=10):
            return {"Error": ""}

    def log_message(self, *arguments: Any) -> None:
        pass


def main() -> None:
    Extender.settings = json.loads(sys.argv[1])
    server = HTTPServer(("127.0.0.1", 0), Extender)
    print(server.server_port, flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main()
