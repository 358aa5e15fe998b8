"""TLS files that another program renews, for example cert-manager, and mutual TLS of the port for the verbs.

Changed files are read again. Until the new certificate and the new key match, the old pair is served.
"""

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from extender.api.keys import AUTHORITY, CERTIFICATE, KEY
from extender.kube.writers import Poller
from extender.telemetry.logs import logger
from extender.web.side_ports import Check
from extender.web.sockets import Identity

log = logger(__name__)

_CHECK_PERIOD = 1.0  # seconds between two checks of the files


class CertificateFiles(Poller):
    """TLS files that are read again after a renewal.

    `serve` gets the contents of the files `names`. It raises ValueError or OSError if the files are unusable.
    """

    def __init__(
        self,
        folder: Path,
        serve: Callable[..., None],
        names: Sequence[str] = (CERTIFICATE, KEY),
        port: str = "webhooks",
    ) -> None:
        self._folder = folder
        self._serve = serve
        self._names = names
        self._port = port
        self._served_contents: list[bytes] | None = None
        self._logged_fault = ""  # last logged fault
        super().__init__("certificate", _CHECK_PERIOD, self.reload)

    def reload(self) -> None:
        """Serve the files if they have changed and are usable."""
        try:
            contents = [(self._folder / name).read_bytes() for name in self._names]
            if contents != self._served_contents:
                self._serve(*contents)
                log.info("a certificate was read", whose=self._port, folder=str(self._folder))
            self._served_contents, self._logged_fault = contents, ""
        except (OSError, ValueError) as fault:
            if str(fault) != self._logged_fault:  # a repeated fault is logged once
                self._logged_fault, where = str(fault), str(self._folder)
                log.warning("a certificate cannot be used", whose=self._port, folder=where, error=str(fault))


class MutualTls:
    """Mutual TLS of the port for the verbs. If `folder` is empty, the port is plain HTTP."""

    def __init__(self, folder: str) -> None:
        self.is_enabled = bool(folder)
        self._identity = Identity("verbs")
        names = (CERTIFICATE, KEY, AUTHORITY)
        self._files = CertificateFiles(Path(folder), self._identity.use, names, port="verbs")

    def start(self) -> None:
        if self.is_enabled:
            self._files.start()

    def stop(self) -> None:
        self._files.stop()

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context with the newest files; None before the first successful read."""
        return self._identity.context

    def checks(self) -> dict[str, Check]:
        """Return the checks for /readyz."""
        return {"tls-certificate": self._identity.fault} if self.is_enabled else {}
