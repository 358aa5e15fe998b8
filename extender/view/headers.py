"""Which headers are passed on: of a request to the API server, and of its answer to the client."""

from aiohttp import hdrs
from multidict import CIMultiDict, CIMultiDictProxy

# These are not passed on; all others go through as they came, repeated ones too.
_OF_ONE_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
# Who asks is Muster, whatever the client says; aiohttp writes Host. A compressed answer could not be edited,
# and would only cost time on loopback.
_OF_THE_CLIENT = _OF_ONE_HOP | {"host", "authorization", "accept-encoding", "expect", "cookie"}
_CLAIMS = ("impersonate-", "x-remote-")


def for_upstream(sent: CIMultiDictProxy[str], authorization: str) -> CIMultiDict[str]:
    """The headers of a request, with the credentials that Muster has."""
    dropped = _OF_THE_CLIENT | _named_by(sent)
    passed = CIMultiDict[str]()
    for name, value in sent.items():
        if (lower := name.lower()) not in dropped and not lower.startswith(_CLAIMS):
            passed.add(name, value)
    if authorization:
        passed[hdrs.AUTHORIZATION] = authorization
    return passed


def for_client(answered: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The headers of an answer."""
    dropped = _OF_ONE_HOP | _named_by(answered)
    passed = CIMultiDict((name, value) for name, value in answered.items() if name.lower() not in dropped)
    passed.setdefault(hdrs.SERVER, "muster")  # else aiohttp names itself
    return passed


def _named_by(headers: CIMultiDictProxy[str]) -> frozenset[str]:
    """What the header Connection declares to be of one hop."""
    named = headers.getall(hdrs.CONNECTION, ())
    return frozenset(name.strip().lower() for line in named for name in line.split(","))
