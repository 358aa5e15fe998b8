"""The certificate of a TLS server, which may be replaced while it serves.

Each new connection gets the newest one; open connections keep theirs.
"""

import ssl
from tempfile import NamedTemporaryFile


class Identity:
    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None

    def use(self, certificate: bytes, key: bytes, callers: bytes = b"") -> None:
        """Serve with this certificate and key, all PEM. With `callers`, a bundle of CAs, only clients with a
        certificate of one of them are served. Raises ssl.SSLError, an OSError, if the files do not match."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])  # not h2: a held call would block all others
        if callers:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=callers.decode("ascii", "replace"))
        with NamedTemporaryFile() as file:  # the library reads only files; this one is readable only by us
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
        self.context = context

    def missing(self) -> str | None:
        """A check for /readyz."""
        return None if self.context else "no certificate yet"
