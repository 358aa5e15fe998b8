"""The kubeconfig with which the scheduler reads through the view.

Its server is plain HTTP behind a proxy, and the proxy is the view. Without `proxy-url` client-go falls back
to a transport that keeps two idle connections, and dials anew for most Events. Over plain HTTP it reads no
credential; what lets it in is the first segment of the path, which only a reader of the file knows.
"""

import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

from extender.api.configuration import InvalidConfiguration
from extender.api.setting_kinds import Address

FILE = "kubeconfig"
_SERVER = "http://kube-apiserver.muster/"
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


def write_kubeconfig(folder: str, address: Address) -> str:
    """Write the file for a view that listens on `address`, and return the secret of its path.

    The secret of a file that is there stays, so that a running scheduler goes on when Muster restarts. Raises
    InvalidConfiguration.
    """
    path = Path(folder) / FILE
    secret = _kept(path) or secrets.token_urlsafe(32)
    try:
        _replace(path, json.dumps(_document(secret, address), indent=1))
    except OSError as fault:
        allowed = "allowed is a folder in which Muster can write"
        raise InvalidConfiguration(f"--view-folder: got {folder!r}: {fault.strerror}; {allowed}") from fault
    return secret


def _document(secret: str, address: Address) -> dict[str, Any]:
    cluster = {"server": f"{_SERVER}{secret}", "proxy-url": f"http://{address}"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "view", "cluster": cluster}],
        "users": [{"name": "view", "user": {}}],
        "contexts": [{"name": "view", "context": {"cluster": "view", "user": "view"}}],
        "current-context": "view",
    }


def _kept(path: Path) -> str | None:
    """The secret of a file that we wrote and that nobody else could read."""
    try:
        state = path.stat()
        if state.st_uid != os.geteuid() or state.st_mode & 0o077:
            return None
        server = json.loads(path.read_bytes())["clusters"][0]["cluster"]["server"]
        found = _SECRET.fullmatch(server.removeprefix(_SERVER))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found[0] if found else None


def _replace(path: Path, text: str) -> None:
    """Whoever reads the file sees the old text or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)
