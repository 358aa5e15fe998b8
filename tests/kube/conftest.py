"""Fixtures: a server, and a connection to it by a kubeconfig."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.kube.connection import Connection
from tests.kube.server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def connection(server: Server, tmp_path: Path) -> Iterator[Connection]:
    loaded = Connection.load(str(write_kubeconfig(tmp_path, server.url)))
    yield loaded
    loaded.close()


def write_kubeconfig(
    folder: Path, url: str, user: Any = None, authority: Path | str = "", **cluster: str
) -> Path:
    trusted = {"certificate-authority": str(authority)} if authority else {}
    described = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, **trusted, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(described))
    return path
