"""Errors of the API server for the user of a command: the message, and what to do."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.kube.errors import ApiError, Refused

_DENIED = re.compile(r"^admission webhook \S+ denied the request: (.+)$", re.DOTALL)
_POLICY = re.compile(r"^.*?ValidatingAdmissionPolicy \S+ with binding \S+ denied request: (.+)$", re.DOTALL)


def api_error_message(fault: "ApiError") -> str:
    from extender.kube.errors import Ambiguous, Refused, Unauthorized, Unreachable

    match fault:
        case Unauthorized():
            return "the API server does not accept the credentials of the kubeconfig; log in again"
        case Refused():
            return _refusal(fault)
        case Unreachable():
            return f"the API server cannot be reached: {fault}"
        case Ambiguous():
            return f"the API server gave no usable answer: {fault}"
    return str(fault)


def _refusal(fault: "Refused") -> str:
    from extender.kube.errors import Conflict, Forbidden

    message = fault.message or str(fault)
    if judged := _DENIED.search(message) or _POLICY.search(message):
        return f"refused: {judged[1]}"
    if "failed calling webhook" in message:
        return f"a webhook does not answer: {message}\nThe administrator runs: muster check"
    match fault:
        case Conflict() if fault.reason == "AlreadyExists":
            return message
        case Conflict():
            return f"{message}\nIt was changed at the same time: run the command again."
        case Forbidden():
            return f"not allowed: {message}"
    return f"the API server refuses: {message}"
