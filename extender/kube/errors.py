"""Errors between Muster and an API server.

      NoConfiguration              no valid kubeconfig or service account names a cluster
      ApiError
       · Fenced                    the request was not sent, because this replica does not lead now
       · ChangeDropped             the server accepted the write, but dropped the changed fields
       · Unreachable               the request was not sent: connection refused, no route, TLS or proxy failed
       · Ambiguous                 the request was sent but not answered; it is unknown whether it took effect
       · Refused                   the server answered with a Status
          · Unauthorized      401  credentials expired; they are read again for the next request
          · Forbidden         403
          · NotFound          404
          · Conflict          409
          · Gone              410
          · Invalid           422
          · TooManyRequests   429  also an eviction that a disruption budget forbids for now
          · ServerFault       5xx

Two fields of each error matter to callers. `is_transient` tells whether the same request should be tried
again. `is_settled` tells whether the request certainly had no effect.
"""

import re

import msgspec
from google.protobuf.message import DecodeError

from extender.api.protobuf import KUBERNETES_PREFIX, status_as_json

_WEBHOOK_DENIAL = re.compile(r"^admission webhook \S+ denied the request: (.+)$", re.DOTALL)
_POLICY = re.compile(r"^.*?ValidatingAdmissionPolicy \S+ with binding \S+ denied request: (.+)$", re.DOTALL)
_MAX_MESSAGE_LENGTH = 2048  # most characters of a message, which may quote a refused value of a megabyte


class NoConfiguration(Exception):
    """Error: there is no usable kubeconfig, and the process does not run in a pod."""


class ApiError(Exception):
    """Base class of all errors of a request to the API server."""

    is_transient = False
    is_settled = True


class Fenced(ApiError):
    is_transient = True

    def __init__(self) -> None:
        super().__init__("not sent: this replica does not lead")


class ChangeDropped(ApiError):
    pass


class Unreachable(ApiError):
    is_transient = True


class Ambiguous(ApiError):
    is_transient = True
    is_settled = False


class Refused(ApiError):
    """Error: the answer has the status 400 or above.

    `body` is the whole answer; the other fields come from the Status in the answer.
    """

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
        self.retry_after = retry_after  # seconds after which the server wants the next try; None if unknown
        self.fields = fields  # paths of the fields that the server considers invalid
        self.body = body


class Unauthorized(Refused):
    is_transient = True


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
    is_transient = True


class ServerFault(Refused):
    """Error of the API server or its storage. With 500 and 504, the write may have taken effect."""

    is_transient = True
    is_settled = False


_ERROR_BY_STATUS: dict[int, type[Refused]] = {
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


def parse_refusal(body: bytes, status: int = 0, retry_after: str = "") -> Refused:
    """Return the error that a Status object describes.

    `status` and `retry_after` come from the HTTP answer.
    """
    try:
        body = status_as_json(body) if body.startswith(KUBERNETES_PREFIX) else body
        answer = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, DecodeError, RecursionError):
        # The answer may come from a proxy, so the beginning of the body is used as the message.
        answer = _Status(message=body[:200].decode("utf-8", "replace").strip())
    details = answer.details or _Details()
    code = status or answer.code
    kind = ServerFault if code >= 500 else _ERROR_BY_STATUS.get(code, Refused)
    # The header is in seconds, because API servers do not send dates.
    header_seconds = float(retry_after) if retry_after.isdecimal() else 0.0
    seconds = header_seconds or details.retry_after_seconds or None
    fields = tuple(cause.field for cause in details.causes or ())
    return kind(code, answer.reason, answer.message[:_MAX_MESSAGE_LENGTH], seconds, fields, body)


def message_for_user(fault: ApiError) -> str:
    """Return an error message for users, with a remedy where possible."""
    answer = fault.message if isinstance(fault, Refused) else ""
    message = answer or str(fault)
    match fault:
        case Unauthorized():
            return "the API server does not accept the credentials of the kubeconfig; log in again"
        case Unreachable():
            return f"the API server cannot be reached: {fault}"
        case Ambiguous():
            return f"the API server gave no usable answer: {fault}"
        case Refused() if denial := _WEBHOOK_DENIAL.search(message) or _POLICY.search(message):
            return f"refused: {denial[1]}"
        case Refused() if "failed calling webhook" in message:
            return f"a webhook does not answer: {message}\nThe administrator runs: muster check"
        case Conflict() if fault.reason == "AlreadyExists":
            return message
        case Conflict():
            return f"{message}\nIt was changed at the same time: try again."
        case Forbidden():
            return f"not allowed: {message}"
        case Refused():
            return f"the API server refuses: {message}"
    return message
