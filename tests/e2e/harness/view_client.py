"""Client of the scheduler proxy. Its requests are like those of the scheduler next to Muster."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Json = dict[str, Any]
PATIENCE = 20.0  # seconds


class ViewClient:
    """Client of the scheduler proxy: `ViewClient(muster.view_kubeconfig).json("GET", "/api/v1/pods")`."""

    def __init__(self, kubeconfig: Path) -> None:
        (cluster,) = yaml.safe_load(kubeconfig.read_text())["clusters"]
        self.server: str = cluster["cluster"]["server"]  # URL with the secret path
        self.proxy: str = urlsplit(cluster["cluster"]["proxy-url"]).netloc

    def ask(
        self, method: str, path: str, body: Json | None = None, *, server: str = "", **headers: str
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and the body of the answer.

        `server` is another URL, for callers that do not know the secret path.
        """
        connection = http.client.HTTPConnection(self.proxy, timeout=PATIENCE)
        content = None if body is None else json.dumps(body).encode()
        try:
            all_headers = {"Content-Type": "application/json", **headers}
            connection.request(method, f"{server or self.server}{path}", content, all_headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, method: str, path: str) -> Json:
        """Send a request, and return the decoded answer. Fail if the status is not 200."""
        status, body = self.ask(method, path)
        assert status == 200, f"{method} {path}: {status} {body[:500]!r}"
        document: Json = json.loads(body)
        return document
