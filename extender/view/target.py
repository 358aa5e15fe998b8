"""What a request asks for: below the secret first segment of its path."""

import hmac
import re
from typing import NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlencode

# No percent signs, empty segments or dots: what is judged here has to be what the API server reads.
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._:~-]+)+/?")
_QUERY = re.compile(r"[!-\"$-~]*")  # visible ASCII without '#'
_ABSOLUTE = re.compile(r"https?://[^/?#]+")  # as clients write it that take us for a proxy


class MalformedTarget(ValueError):
    """No request target of the Kubernetes API."""


class ViewTarget(NamedTuple):
    """What the client wants of the API server."""

    method: str
    path: str  # such as /api/v1/pods
    query: str  # as it was sent, without the question mark

    def parameter(self, name: str) -> str | None:
        """A parameter of the query, the first if there are several."""
        if name not in self.query:
            return None
        return parse_qs(self.query, keep_blank_values=True).get(name, [None])[0]

    def asking(self, **changed: str | None) -> "ViewTarget":
        """The same with other parameters; None: without that one."""
        kept = [(name, value) for name, value in parse_qsl(self.query, True) if name not in changed]
        put = [(name, value) for name, value in changed.items() if value is not None]
        return self._replace(query=urlencode([*kept, *put]))

    @property
    def watches(self) -> bool:
        """Whether the API server takes it for a watch: for it, whatever does not say false says true."""
        asked = self.parameter("watch")
        return asked is not None and asked.lower() not in ("0", "false")


def read_target(method: str, sent: str, secret: str) -> ViewTarget | None:
    """Raises MalformedTarget; None if the first segment is not the secret."""
    if absolute := _ABSOLUTE.match(sent):
        sent = sent[absolute.end() :]
    path, _, query = sent.partition("?")
    first, _, rest = path.removeprefix("/").partition("/")
    if not hmac.compare_digest(first.encode(), secret.encode()):
        return None
    if not _PATH.fullmatch(f"/{rest}") or not _QUERY.fullmatch(query):
        raise MalformedTarget("the request target is no path of the Kubernetes API")
    return ViewTarget(method, f"/{rest}", query)
