"""Read-only client of a registry (OCI distribution), which reads images and charts as anonymous users do."""

import hashlib
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

Json = dict[str, Any]
HOSTS = {"docker.io": "registry-1.docker.io"}
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
MAX_BYTES = 32 * 1024 * 1024
ANSWER_TIMEOUT = 30.0


class NoAnswer(Exception):
    """Error: a server did not return the content. The message describes the answer of the server.

    `challenge` is the header WWW-Authenticate of the answer, which says how clients authenticate.
    """

    def __init__(self, message: str, challenge: str = "") -> None:
        super().__init__(message)
        self.challenge = challenge


class Manifest(NamedTuple):
    """Manifest of an image or chart.

    `digest` is computed from the content of the manifest. `stated` is the digest that the registry states.
    """

    digest: str
    stated: str
    document: Json


class Repository:
    """Repository of a registry, such as registry.example/charts/muster."""

    def __init__(self, name: str) -> None:
        host, _, path = name.partition("/")
        scheme = "http" if is_loopback(host) else "https"
        self._url = f"{scheme}://{HOSTS.get(host, host)}/v2/{path}"
        self._token = ""

    def manifest(self, reference: str) -> Manifest:
        """Return the manifest or index of a tag or digest.

        Raises:
            NoAnswer: The registry does not have the manifest, or anonymous users may not read the manifest.
        """
        content, stated = self._read(f"{self._url}/manifests/{reference}", MANIFESTS)
        return Manifest(sha256(content), stated or sha256(content), _decoded(content))

    def config(self, manifest: Json) -> Json:
        """Return the document that the manifest of an image or chart names as its configuration.

        Raises:
            NoAnswer: The registry does not have the document, or anonymous users may not read the document.
        """
        return _decoded(self._read(f"{self._url}/blobs/{manifest['config']['digest']}", "*/*")[0])

    def _read(self, url: str, accept: str) -> tuple[bytes, str]:
        try:
            return _answer(url, accept, self._token)
        except NoAnswer as refusal:
            if self._token or not refusal.challenge.lower().startswith("bearer "):
                raise
            challenge = refusal.challenge
        self._token = _anonymous_token(challenge)
        return _answer(url, accept, self._token)


def read(url: str) -> bytes:
    """Return the content at a URL.

    Raises:
        NoAnswer: The server does not return the content.
    """
    return _answer(url, "*/*")[0]


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without a port, is this machine.

    A registry on this machine uses plain HTTP.
    """
    return re.fullmatch(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?", host) is not None


def _answer(url: str, accept: str, token: str = "") -> tuple[bytes, str]:
    """Return the content at a URL, and the digest that the server states for the content."""
    if not url.startswith(("http://", "https://")):
        raise NoAnswer(f"no URL of HTTP: {url}")
    request = urllib.request.Request(url, headers={"Accept": accept})
    if token:  # only for the registry, not for the storage that it may redirect to
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT) as answer:
            content: bytes = answer.read(MAX_BYTES + 1)
            stated: str = answer.headers.get("Docker-Content-Digest", "")
    except urllib.error.HTTPError as refusal:
        refusal.close()
        challenge = refusal.headers.get("WWW-Authenticate", "")
        raise NoAnswer(f"HTTP {refusal.code} at {url}", challenge) from None
    except (OSError, ValueError, http.client.HTTPException) as fault:
        raise NoAnswer(f"no answer at {url} ({getattr(fault, 'reason', fault)})") from None
    if len(content) > MAX_BYTES:
        raise NoAnswer(f"more than {MAX_BYTES} bytes at {url}")
    return content, stated


def _anonymous_token(challenge: str) -> str:
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    document = _decoded(read(f"{fields.get('realm', '')}?{query}"))
    return str(document.get("token") or document.get("access_token") or "none")


def _decoded(content: bytes) -> Json:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NoAnswer(f"no JSON object but {content[:40]!r}")
    return document
