"""A certificate that somebody else renews, as cert-manager does: two files in a folder, read again when they
change. Until both fit together the old ones are served.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from extender.telemetry.logs import logger

CERTIFICATE, KEY = "tls.crt", "tls.key"
_PERIOD = 1.0

log = logger(__name__)


class CertificateFiles:
    """`serve` gets the certificate and the key; it raises ValueError or OSError for what it cannot serve."""

    def __init__(self, folder: Path, serve: Callable[[bytes, bytes], None]) -> None:
        self._folder = folder
        self._serve = serve
        self._seen: tuple[bytes, bytes] | None = None
        self._told = ""
        self._stopping = Event()

    def start(self) -> None:
        Thread(target=self._run, name="certificate", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(_PERIOD)

    def look(self) -> None:
        try:
            found = (self._folder / CERTIFICATE).read_bytes(), (self._folder / KEY).read_bytes()
            if found != self._seen:
                self._serve(*found)
                log.info("the webhooks' certificate was read", folder=str(self._folder))
            self._seen, self._told = found, ""
        except (OSError, ValueError) as fault:
            self._tell(str(fault))

    def _tell(self, words: str) -> None:
        """Once for each fault."""
        if words != self._told:
            log.warning("the webhooks' certificate cannot be used", folder=str(self._folder), error=words)
        self._told = words
