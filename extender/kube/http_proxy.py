"""The HTTP proxy on the way to the API server, if there is one: an address and credentials."""

import base64
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from extender.kube.errors import NoConfiguration

_WHAT = "the proxy of the API server (proxy-url in the kubeconfig, or HTTPS_PROXY)"


class HttpProxy(NamedTuple):
    """An HTTP proxy that is asked for a tunnel (CONNECT)."""

    host: str
    port: int
    headers: dict[str, str]  # of the request for a tunnel: the credentials, if its URL has some

    @property
    def url(self) -> str:
        """Without the credentials."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def find_proxy(configuration: Any) -> HttpProxy | None:
    """As the `kubernetes` library read it from the kubeconfig or the environment. None: the API server is
    dialled directly. Raises NoConfiguration."""
    from kubernetes.client.rest import should_bypass_proxies

    if not configuration.proxy or should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        return None
    try:
        url = urlsplit(configuration.proxy)
        port = url.port or 80
    except ValueError as fault:
        raise NoConfiguration(f"{_WHAT}: {fault}") from fault
    if url.scheme != "http" or not url.hostname:
        shown = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
        raise NoConfiguration(f"{_WHAT}: {shown!r} is not supported, only http://HOST:PORT is")
    credentials = {} if url.username is None else {"Proxy-Authorization": _basic(url)}
    return HttpProxy(url.hostname, port, credentials)


def _basic(url: SplitResult) -> str:
    credentials = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"
