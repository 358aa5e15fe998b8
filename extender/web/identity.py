"""Who a TLS server says it is: a certificate that may be replaced while it serves.

Each new connection gets the newest one; those that are open keep what they began with.
"""

import ssl
from tempfile import NamedTemporaryFile


class Identity:
    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None

    def use(self, certificate: bytes, key: bytes, callers: bytes = b"") -> None:
        """Serve with these, PEM all. With `callers`, a bundle of CAs, nobody is served who does not show a
        certificate of one of them. Raises ssl.SSLError, an OSError, when they do not fit together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])  # not h2: a held call would block all others
        if callers:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=callers.decode("ascii", "replace"))
        with NamedTemporaryFile() as file:  # the library reads from files only; this one is for our eyes
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
        self.context = context

    def missing(self) -> str | None:
        """For /readyz."""
        return None if self.context else "no certificate yet"
