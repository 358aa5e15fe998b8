"""Listening sockets, opened before anything else, and the certificate of a port.

If a port is in use, the start ends with one clear line. While Muster loads, callers wait instead of being
refused; after a refusal, a scheduler would pause for seconds.
"""

import errno
import socket
import ssl
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from extender.api.configuration import Configuration, InvalidConfiguration
from extender.api.setting_kinds import Address
from extender.telemetry import metrics

BACKLOG = 4096  # connections that wait to be accepted; the default limit of Linux


def listen(flag: str, address: Address) -> socket.socket:
    """Return a socket that listens on `address`. `flag` is the flag that sets the address.

    Raises:
        InvalidConfiguration: The address cannot be used.
    """
    try:
        # Without a host, the socket listens on all addresses of both families, as in Go.
        is_dual_stack = not address.host and socket.has_dualstack_ipv6()
        host = "::" if is_dual_stack else address.host
        family, *_ = socket.getaddrinfo(host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if is_dual_stack else 1)
            sock.bind((host or "0.0.0.0", address.port))
            # Only a listening socket keeps other processes from the port; early callers wait in its backlog.
            # Connections inherit TCP_NODELAY. Without it, an answer takes 40 ms (Nagle and delayed ACKs).
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        return sock
    except OSError as fault:
        reasons = {
            errno.EADDRINUSE: "another process listens there: choose a free port",
            errno.EADDRNOTAVAIL: "this machine has no such address",
            errno.EACCES: "ports below 1024 need a privilege",
        }
        reason = reasons.get(fault.errno or 0, fault.strerror or str(fault))
        raise InvalidConfiguration(f"{flag}: invalid value '{address}': {reason}") from fault


class Ports(NamedTuple):
    """Listening sockets of a Muster process. None means that the port is off."""

    verbs: socket.socket
    health: socket.socket
    debug: socket.socket
    webhooks: socket.socket | None
    view: socket.socket | None
    dashboard: socket.socket | None


def open_ports(configuration: Configuration) -> Ports:
    """Open the ports.

    Raises:
        InvalidConfiguration: An address cannot be used.
    """
    has_webhooks, proxy_address = configuration.webhook_certificates != "off", configuration.view_listen
    dashboard_address = configuration.dashboard_listen
    return Ports(
        listen("--listen", configuration.listen),
        listen("--health-listen", configuration.health_listen),
        listen("--debug-listen", configuration.debug_listen),
        listen("--webhook-listen", configuration.webhook_listen) if has_webhooks else None,
        listen("--view-listen", proxy_address) if proxy_address else None,
        listen("--dashboard-listen", dashboard_address) if dashboard_address else None,
    )


class Identity:
    """Certificate of a port, which may be replaced. Each new connection gets the newest certificate.

    `clock` returns the time of the clients, in seconds since the epoch.
    """

    def __init__(self, port: str, clock: Callable[[], float] = time.time) -> None:
        self._port = port
        self._clock = clock
        self._valid_from, self._valid_until = 0.0, 0.0  # validity period of the certificate
        self._current_files: tuple[bytes | None, ...] = ()  # files from which the context was made
        self.context: ssl.SSLContext | None = None

    def use_for(self, client_ca_file: Path, certificate: bytes, key: bytes) -> None:
        """Use this certificate. Serve only clients whose certificate a CA in `client_ca_file` has signed.

        Raises:
            OSError: A file cannot be read, or the files do not match.
            ValueError: A file is invalid.
        """
        self.use(certificate, key, client_ca_file.read_bytes())

    def use(self, certificate: bytes, key: bytes, client_ca: bytes | None = None) -> None:
        """Use this certificate and key, both in PEM, unless they are in use already.

        `client_ca` is a bundle of CAs. If it is given, the port serves only clients whose certificate one of
        these CAs has signed.

        Raises:
            OSError: The files do not match.
        """
        if (certificate, key, client_ca) == self._current_files:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])  # not h2, with which a held call would block all other calls
        if client_ca is not None:  # a bundle without certificates is an error
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_ca.decode("ascii", "replace"))
        with NamedTemporaryFile() as file:  # the library reads only files; only this user can read the file
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
        x509 = import_module("cryptography.x509")  # loaded only if TLS is used
        parsed = x509.load_pem_x509_certificate(certificate)
        self._valid_from = parsed.not_valid_before_utc.timestamp()
        self._valid_until = parsed.not_valid_after_utc.timestamp()
        metrics.certificate_expiry.labels(self._port).set(self._valid_until)
        self.context, self._current_files = context, (certificate, key, client_ca)

    def fault(self) -> str | None:
        """Return the fault for /readyz; None if the certificate is valid."""
        if not self.context:
            return "no certificate yet"
        seconds = self._valid_from - self._clock()
        if seconds > 0:
            return f"the certificate is not valid before {seconds:.0f} s from now: a clock is or was wrong"
        return "the certificate has expired" if self._valid_until <= self._clock() else None
