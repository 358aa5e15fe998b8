"""A certificate that somebody else renews, as cert-manager does: files in a folder, read again when they
change. Until they fit together the old ones are served.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from extender.kube.polling import Poller
from extender.telemetry.logs import logger

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
_PERIOD = 1.0

log = logger(__name__)


class CertificateFiles:
    """`serve` gets the certificate and the key, or what else the files `names` hold; it raises ValueError or
    OSError for what it cannot serve. `whose` is for the log."""

    def __init__(
        self,
        folder: Path,
        serve: Callable[..., None],
        names: Sequence[str] = (CERTIFICATE, KEY),
        whose: str = "webhooks",
    ) -> None:
        self._folder = folder
        self._serve = serve
        self._names = names
        self._whose = whose
        self._seen: list[bytes] | None = None
        self._told = ""
        self._poller = Poller("certificate", _PERIOD, self.look)

    def start(self) -> None:
        self._poller.start()

    def stop(self) -> None:
        self._poller.stop()

    def look(self) -> None:
        try:
            found = [(self._folder / name).read_bytes() for name in self._names]
            if found != self._seen:
                self._serve(*found)
                log.info("a certificate was read", whose=self._whose, folder=str(self._folder))
            self._seen, self._told = found, ""
        except (OSError, ValueError) as fault:
            self._tell(str(fault))

    def _tell(self, text: str) -> None:
        """Once for each fault."""
        if text != self._told:
            where = str(self._folder)
            log.warning("a certificate cannot be used", whose=self._whose, folder=where, error=text)
        self._told = text
