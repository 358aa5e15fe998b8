"""Endpoint of the API server: its address, Muster's credentials, and a proxy if there is one.

The `kubernetes` package reads the configuration: kubeconfig files and their merging, service accounts, exec
plugins and rotating tokens. The package reads files only once. It offers the current token through a hook,
which may run a program. Therefore one thread calls the hook every second, and loads everything again when a
file has changed. Meanwhile the other threads continue with the previous token.
"""

import base64
import http.client
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from extender.kube.errors import ApiError, NoConfiguration

log = logging.getLogger(__name__)

_PROXY = "the proxy of the API server (proxy-url in the kubeconfig, or HTTPS_PROXY)"
_REFRESH_PERIOD = 1.0  # seconds between two checks of the files, and between two loads after refusals
_FAULT_PAUSE = 10.0  # further seconds until the next check after a failed load
_MAX_REASON_LENGTH = 300  # most characters of a reason in an error message
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SERVER_FIELDS = ("host", "ssl_ca_cert", "ca_cert_data", "verify_ssl", "tls_server_name", "proxy", "no_proxy")
_PEER_TIMEOUT = 45  # seconds until a silent peer counts as dead, as with Go's HTTP/2 pings
_KEEPALIVE_OPTIONS = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 15,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 1000 * _PEER_TIMEOUT,  # limit for unacknowledged data, when no probes are sent
}


class HttpProxy(NamedTuple):
    """HTTP proxy that opens a tunnel (CONNECT) to the API server."""

    host: str
    port: int
    headers: dict[str, str]  # headers of the CONNECT request, with credentials from the URL

    @property
    def url(self) -> str:
        """Return the URL of the proxy without credentials."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def find_proxy(configuration: Any) -> HttpProxy | None:
    """Return the proxy that the kubeconfig or the environment names; None if there is no proxy.

    Raises:
        NoConfiguration: The proxy is invalid.
    """
    from kubernetes.client.rest import should_bypass_proxies

    if not configuration.proxy or should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        return None
    try:
        url = urlsplit(configuration.proxy)
        port = url.port or 80
    except ValueError as fault:
        raise NoConfiguration(f"{_PROXY}: {fault}") from fault
    if url.scheme != "http" or not url.hostname:
        without_credentials = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
        raise NoConfiguration(f"{_PROXY}: {without_credentials!r} is not supported, only http://HOST:PORT is")
    headers = {}
    if url.username is not None:
        credentials = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return HttpProxy(url.hostname, port, headers)


class ApiEndpoint:
    """Endpoint of one API server. It opens connections, and has the current Authorization header."""

    def __init__(self, load: Callable[[], Any], files: Iterable[str | Path] = ()) -> None:
        """Load the configuration.

        Args:
            load: Returns the current configuration. It is called again when one of `files` changes, and when
                the API server refuses the credentials.
            files: The files that contain the configuration.

        Raises:
            NoConfiguration: The proxy is of an unknown kind, or `load` raises the error.
        """
        self._load, self._files = load, tuple(files)
        self._stamps = _stamps_of(self._files)
        self._tls: tuple[Any, list[_Stamp], ssl.SSLContext] | None = None  # TLS context with its inputs
        self._configuration = configuration = load()
        url = urlsplit(configuration.host)
        self.is_secure = url.scheme == "https"
        self._host = url.hostname or "localhost"
        self._port = url.port or (443 if self.is_secure else 80)
        self._refresh_lock = threading.Lock()
        self._next_check_at = self._forced_load_at = 0.0  # next check of files; last load after a refusal
        self._refused_since: float | None = None
        self.netloc = url.netloc.rpartition("@")[2]
        self.prefix = url.path.rstrip("/")
        self.proxy = find_proxy(configuration)
        self._read_token()
        self.tls()  # report a broken certificate at once

    def for_token(self, token: str) -> "ApiEndpoint":
        """Return an endpoint of the same API server with this token as its only credentials."""
        from kubernetes.client import Configuration

        original = self._configuration

        def load() -> Configuration:
            configuration = Configuration()
            for setting in _SERVER_FIELDS:
                setattr(configuration, setting, getattr(original, setting))
            configuration.api_key = {"BearerToken": f"Bearer {token}"}
            return configuration

        return ApiEndpoint(load)

    @property
    def authorization(self) -> str:
        """Return the value of the Authorization header. If a check is due, reload the token first.

        The value is empty for a client certificate, or without credentials.
        """
        if time.monotonic() >= self._next_check_at and self._refresh_lock.acquire(blocking=False):
            try:
                self._reload_token()
            finally:
                self._refresh_lock.release()
        return self.current_header

    def renew(self, refused_header: str) -> bool:
        """Read all credentials again after the API server refused this header or the certificate.

        This may take as long as a program that returns credentials.

        Returns:
            Whether the header has changed.
        """
        with self._refresh_lock:
            now = time.monotonic()
            self._refused_since = self._refused_since or now
            if self.current_header == refused_header and now >= self._forced_load_at + _REFRESH_PERIOD:
                self._forced_load_at = now
                self._reload_token(reloads_all=True)
            return self.current_header != refused_header

    def record_accepted(self) -> None:
        self._refused_since = None

    @property
    def refused_seconds(self) -> float:
        """Return for how many seconds the API server has refused the credentials of all requests."""
        since = self._refused_since
        return time.monotonic() - since if since is not None else 0.0

    @property
    def url(self) -> str:
        """Return the base URL without a final slash, for example https://10.0.0.1:6443."""
        return f"{'https' if self.is_secure else 'http'}://{self.netloc}{self.prefix}"

    @property
    def server_name(self) -> str:
        """Return the name that the API server's certificate has to contain."""
        return self._configuration.tls_server_name or self._host

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for new connections; None for plain HTTP.

        The context is created again when a file with a certificate has changed, because certificates rotate.
        """
        if not self.is_secure:
            return None
        configuration, default_paths = self._configuration, ssl.get_default_verify_paths()
        files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        stamps = _stamps_of(filter(None, (*files, default_paths.cafile, default_paths.capath)))
        if self._tls is None or self._tls[:2] != (configuration, stamps):
            self._tls = configuration, stamps, _tls_context(configuration)
        return self._tls[2]

    def dial(self, timeout: float) -> socket.socket:
        """Return a connected socket, through the proxy and with TLS if configured.

        If the host has several addresses, each is tried.
        """
        tls, proxy = self.tls(), self.proxy
        host, port = (proxy.host, proxy.port) if proxy else (self._host, self._port)
        dialer = http.client.HTTPConnection(host, port, timeout=timeout)
        if proxy:
            dialer.set_tunnel(self._host, self._port, proxy.headers)
        try:
            dialer.connect()
            sock = dialer.sock
            keep_alive(sock)
            return tls.wrap_socket(sock, server_hostname=self.server_name) if tls else sock
        except BaseException:
            dialer.close()
            raise

    def forward(self, namespace: str, pod: str, port: int) -> socket.socket:
        """Return a socket to a port on the loopback of a pod, by port-forward through the kubelet.

        Raises:
            ApiError: The API server or the kubelet refuses, or does not answer.
        """
        from kubernetes.client import ApiClient, CoreV1Api
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import portforward

        api = CoreV1Api(ApiClient(self._configuration))
        try:
            ports = portforward(api.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
        except ApiException as fault:
            reason = " ".join(str(fault.reason).split())[:_MAX_REASON_LENGTH]
            raise ApiError(f"no port-forward to {port} of pod {namespace}/{pod}: {reason}") from fault
        sock: socket.socket = ports.socket(port)
        return sock

    def _reload_token(self, reloads_all: bool = False) -> None:
        """Read the current token; with `reloads_all`, load the whole configuration again.

        If a plugin fails, or a file is incomplete, the old token stays.
        """
        self._next_check_at = time.monotonic() + _REFRESH_PERIOD
        try:
            stamps = _stamps_of(self._files)
            if reloads_all or stamps != self._stamps:
                loaded = self._load()
                if loaded.host != self._configuration.host:
                    raise NoConfiguration(f"{loaded.host}, another API server, is used only after a restart")
                self._stamps, self._configuration = stamps, loaded
            self._read_token()
        except Exception as fault:
            self._next_check_at += _FAULT_PAUSE
            log.warning("credentials could not be reloaded: %s", fault)

    def _read_token(self) -> None:
        header = self._configuration.get_api_key_with_prefix("BearerToken") or ""
        self.current_header = header.strip()  # a token file may end with a newline


_Stamp = tuple[int, int, int]


def _stamps_of(files: Iterable[str | Path]) -> list[_Stamp]:
    """Return a stamp of each file, which changes when the file changes.

    Raises:
        OSError: A file cannot be read.
    """
    stats = map(os.stat, files)
    return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]


def _tls_context(configuration: Any) -> ssl.SSLContext:
    """Return a TLS context with the CAs and the client certificate of a configuration."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authorities = {"cafile": configuration.ssl_ca_cert, "cadata": configuration.ca_cert_data}
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif any(authorities.values()):
        context.load_verify_locations(**authorities)
    else:
        context.load_default_certs()
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def find_endpoint(kubeconfig: str | None, context: str | None) -> ApiEndpoint:
    """Return the endpoint of the cluster to use.

    The first of these that exists names the cluster:

    1. The file in `kubeconfig`.
    2. $KUBECONFIG.
    3. The service account of the pod, unless `context` is given.
    4. ~/.kube/config.

    Raises:
        NoConfiguration: No cluster is named, or its description is invalid.
    """
    from kubernetes import config
    from kubernetes.client import Configuration
    from kubernetes.config import incluster_config

    may_use_account = not context and "KUBERNETES_SERVICE_HOST" in os.environ
    path = kubeconfig or os.environ.get("KUBECONFIG")
    uses_service_account = may_use_account and not path
    known = None if uses_service_account else contexts(kubeconfig)
    if known and not context and (kubeconfig or not may_use_account):
        _check_current_context(kubeconfig, known)
    cluster = known.clusters.get(context or known.current_context) if known else None
    server = known.servers.get(cluster) if known else None
    if server is not None and not _is_url(server):
        rule = "must be https://HOST or https://HOST:PORT"
        raise NoConfiguration(f"{_files(kubeconfig)}: server: invalid value {server!r:.80}: {rule}")

    def load() -> Configuration:
        loaded = Configuration()
        if uses_service_account:
            config.load_incluster_config(loaded)  # type: ignore[no-untyped-call]
            return loaded
        with _logged_errors() as messages:
            config.load_kube_config(_files(kubeconfig), context, loaded, persist_config=False)  # type: ignore[no-untyped-call]
        if messages and not (loaded.api_key or loaded.cert_file):  # without this check, kubernetes goes on
            reason = f"no credentials from the exec plugin: {messages[-1]:.{_MAX_REASON_LENGTH}}"
            raise NoConfiguration(f"{_files(kubeconfig)}: {reason}")
        return loaded

    try:
        return ApiEndpoint(load, known.files if known else [incluster_config.SERVICE_TOKEN_FILENAME])
    except NoConfiguration:
        raise
    except Exception as fault:  # errors of YAML, files, certificates, plugins and the library have many types
        raise NoConfiguration(_fault_text(path, fault)) from fault


def _is_url(text: Any) -> bool:
    """Return whether a value is a valid URL of an API server."""
    try:
        url = urlsplit(text)
        return text.isprintable() and url.scheme in ("http", "https") and bool(url.hostname and url.port != 0)
    except (ValueError, AttributeError, TypeError):  # a number instead of a text, or too high a port
        return False


class _Messages(logging.Handler):
    """Log handler that keeps messages about exec plugins.

    The library only logs that a plugin failed, and continues without credentials.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "root" and record.levelno >= logging.ERROR:
            self.texts.append(record.getMessage())


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Collect the errors that reach the root logger while the context lasts."""
    handler = _Messages()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.texts
    finally:
        logging.getLogger().removeHandler(handler)


def _files_with_credentials(merger: Any) -> list[str]:
    """Return the kubeconfig files, and the token files that they name."""
    users = merger.config.value.get("users") or ()
    tokens = [(Path(user.path).parent, (user.value.get("user") or {}).get("tokenFile")) for user in users]
    return [*merger.paths, *(str(folder / token) for folder, token in tokens if token)]


def _check_current_context(kubeconfig: str | None, all_contexts: "Contexts") -> None:
    """Check that the current context exists.

    The library's own message names no remedy and, in some cases, not even the file.

    Raises:
        NoConfiguration: The context is missing.
    """
    if all_contexts.current_context in all_contexts.namespaces:
        return
    file = _files(kubeconfig)
    if not all_contexts.namespaces:
        raise NoConfiguration(f"{file}: it has no contexts, so it names no cluster")
    fault = "it has no current context"
    if all_contexts.current_context:
        fault = f"its current context {all_contexts.current_context!r} does not exist"
    names = ", ".join(sorted(all_contexts.namespaces))
    flag = f" --kubeconfig {kubeconfig}" if kubeconfig else ""
    raise NoConfiguration(f"{file}: {fault}; choose one of {names}: kubectl config use-context NAME{flag}")


class Contexts(NamedTuple):
    namespaces: dict[str, str]  # namespace of each context; empty if the context names no namespace
    clusters: dict[str, str]  # name of the cluster of each context
    servers: dict[str | None, Any]  # server of each cluster, as it is written
    current_context: str  # name of the current context; empty if there is none
    files: list[str]  # kubeconfig files, and the token files that they name


def contexts(kubeconfig: str | None) -> Contexts:
    """Return the contexts in the files that `find_endpoint` reads.

    Raises:
        NoConfiguration: The files are invalid.
    """
    from kubernetes.config.kube_config import KubeConfigMerger

    source, files = kubeconfig or os.environ.get("KUBECONFIG"), _files(kubeconfig)
    try:
        merger = KubeConfigMerger(files)  # type: ignore[no-untyped-call]
        if merger.config is None:
            raise FileNotFoundError(f"there is no {files}")
        merged = merger.config.value
        nodes = merged["contexts"] if merged.get("contexts") else []
        context_by_name = {node.value["name"]: node.value["context"] for node in nodes}
        namespaces = {name: str(context.get("namespace") or "") for name, context in context_by_name.items()}
        clusters = {name: str(context.get("cluster") or "") for name, context in context_by_name.items()}
        entries = [node.value for node in merged["clusters"]] if merged.get("clusters") else []
        servers = {entry["name"]: (entry.get("cluster") or {}).get("server") for entry in entries}
        current = str(merged.get("current-context") or "")
        return Contexts(namespaces, clusters, servers, current, _files_with_credentials(merger))
    except Exception as fault:  # errors have many types, as in `find_endpoint`
        raise NoConfiguration(_fault_text(source, fault)) from fault


def cluster_name(kubeconfig: str | None, context: str | None) -> tuple[str, str]:
    """Return the names of the cluster and the context; both are empty in a pod without a kubeconfig."""
    try:
        all_contexts = contexts(kubeconfig)
    except NoConfiguration:
        return "", ""
    name = context or all_contexts.current_context
    return all_contexts.clusters.get(name, ""), name


def own_namespace(kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace that the context names, or the namespace of Muster's pod.

    Raises:
        NoConfiguration: The files are invalid.
    """
    may_use_account = not os.environ.get("KUBECONFIG") and "KUBERNETES_SERVICE_HOST" in os.environ
    if not kubeconfig and not context and may_use_account:
        namespace = _NAMESPACE_FILE.read_text() if _NAMESPACE_FILE.exists() else ""
    else:
        all_contexts = contexts(kubeconfig)
        namespace = all_contexts.namespaces.get(context or all_contexts.current_context, "")
    return namespace.strip() or "default"


def _files(kubeconfig: str | None) -> str:
    """Return the paths of the kubeconfig files, as one text."""
    return kubeconfig or os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")


def _fault_text(kubeconfig: str | None, fault: Exception) -> str:
    """Return a message about an error in the kubeconfig files."""
    if kubeconfig and not any(map(os.path.exists, kubeconfig.split(os.pathsep))):
        return f"{kubeconfig}: no such file"
    if kubeconfig:
        is_malformed = isinstance(fault, (TypeError, AttributeError, KeyError))
        reason = "a field is missing, or has another type than in a kubeconfig: " if is_malformed else ""
        return f"{kubeconfig}: {reason}{' '.join(str(fault).split())}"
    return f"no cluster found: give --kubeconfig, set KUBECONFIG, or run in a pod ({fault})"


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel detect a dead peer within about a minute, since a live watch may be silent that long."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE_OPTIONS.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
