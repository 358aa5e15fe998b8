"""TLS for the verbs' port, only for callers with a client certificate, from files."""

import ssl
from pathlib import Path

from extender.web.health import Check
from extender.web.identity import Identity
from extender.webhooks.certificate_files import AUTHORITY, CERTIFICATE, KEY, CertificateFiles


class MutualTls:
    """Without a `folder`, the port is plain HTTP."""

    def __init__(self, folder: str) -> None:
        self.wanted = bool(folder)
        self._identity = Identity()
        self._files = CertificateFiles(
            Path(folder), self._identity.use, (CERTIFICATE, KEY, AUTHORITY), "verbs"
        )

    def start(self) -> None:
        if self.wanted:
            self._files.start()

    def stop(self) -> None:
        self._files.stop()

    def context(self) -> ssl.SSLContext | None:
        """The context made of the newest files; None before they could be read."""
        return self._identity.context

    def checks(self) -> dict[str, Check]:
        """Checks for /readyz."""
        return {"tls-certificate": self._identity.missing} if self.wanted else {}
