"""A connection to a server that answers from a script."""

from tests.kube.conftest import connection, server

__all__ = ["connection", "server"]
