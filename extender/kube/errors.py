"""What can go wrong between Muster and an API server.

  NoConfiguration              no cluster was named anywhere, or its description makes no sense
  ApiError
   · Fenced                    it was not sent: this replica does not lead now
   · Unreachable               no request left: refused, no route, TLS or proxy failed
   · Ambiguous                 it left, and no answer came back: done or not, nobody knows
   · Refused                   the server answered with a Status
     · Unauthorized            401  credentials expired; they are read again for the next request
     · Forbidden               403
     · NotFound                404
     · Conflict                409
     · Gone                    410
     · Invalid                 422
     · TooManyRequests         429  also an eviction that a disruption budget forbids for now
     · ServerFault             5xx

Two questions matter to callers, so every error answers them: `transient` (is the same request worth trying
again?) and `settled` (is it certain that nothing was done?).
"""

import msgspec


class NoConfiguration(Exception):
    """There is no usable kubeconfig and this is not a pod."""


class ApiError(Exception):
    """Base of everything that a request to the API server raises."""

    transient = False
    settled = True


class Fenced(ApiError):
    transient = True

    def __init__(self) -> None:
        super().__init__("not sent: this replica does not lead")


class Unreachable(ApiError):
    transient = True


class Ambiguous(ApiError):
    transient = True
    settled = False


class Refused(ApiError):
    """An answer of 400 or more, in the words of the server's Status object. `body`: all that it said."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        retry_after: float | None = None,
        fields: tuple[str, ...] = (),
        body: bytes = b"",
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if message else f"{status} {reason}".rstrip())
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after  # seconds, when the server gave advice
        self.fields = fields  # paths of what it found wrong
        self.body = body


class Unauthorized(Refused):
    transient = True


class Forbidden(Refused):
    pass


class NotFound(Refused):
    pass


class Conflict(Refused):
    pass


class Gone(Refused):
    pass


class Invalid(Refused):
    pass


class TooManyRequests(Refused):
    transient = True


class ServerFault(Refused):
    """The server or its store failed, perhaps after the write: 500 and 504 promise nothing."""

    transient = True
    settled = False


_BY_STATUS: dict[int, type[Refused]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: float = 0
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = _Details()


def refused(body: bytes, status: int = 0, retry_after: str = "") -> Refused:
    """The error that a Status object tells of; `status` and `retry_after` are HTTP's own words for it."""
    answer = _read_status(body)
    details = answer.details or _Details()
    code = status or answer.code
    kind = ServerFault if code >= 500 else _BY_STATUS.get(code, Refused)
    advice = _seconds(retry_after) or details.retry_after_seconds or None
    fields = tuple(cause.field for cause in details.causes or ())
    return kind(code, answer.reason, answer.message, advice, fields, body)


def _read_status(body: bytes) -> _Status:
    """Proxies answer in HTML: then the first words of that are the message."""
    try:
        return msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status(message=body[:200].decode("utf-8", "replace").strip())


def _seconds(header: str) -> float | None:
    """A Retry-After in seconds. The form with a date is not one that API servers use."""
    return float(header) if header.isdecimal() else None
