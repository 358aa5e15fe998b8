"""What is refused at every port, and how it is told: as {"error": …}.

Requests of web pages get 403: those with an Origin and, on loopback, those whose Host is another name,
because a page may give its own name the address 127.0.0.1. Over TLS a page cannot get past the certificate.
"""

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from werkzeug.exceptions import Forbidden, HTTPException

FAILED = "Muster failed to answer; its log says why"


def readable(data: object) -> bytes:
    """`data` as JSON for a person with curl."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def as_json(fault: HTTPException) -> tuple[bytes, int, dict[str, str]]:
    """The body, status and headers that tell a fault, instead of werkzeug's page of HTML."""
    page = fault.get_response()
    headers = {name: value for name, value in page.headers if name not in ("Content-Type", "Content-Length")}
    body = readable({"error": fault.description or fault.name})
    return body, page.status_code, {**headers, "Content-Type": "application/json"}


def as_bytes(fault: HTTPException) -> bytes:
    """The same as a whole answer, the last of its connection."""
    body, status, headers = as_json(fault)
    headers |= {"Content-Length": str(len(body)), "Connection": "close"}
    lines = (f"HTTP/1.1 {status} {fault.name}", *(f"{name}: {value}" for name, value in headers.items()))
    return "\r\n".join((*lines, "", "")).encode() + body


def refuse_pages(origin: str | None, host: str) -> None:
    """`host` is empty where it is not checked. Raises Forbidden."""
    if origin is not None:
        raise Forbidden("This request has an Origin, and requests of web pages are not answered")
    if host and not _names_loopback(host):
        raise Forbidden("The Host of requests to this port must be localhost or a loopback address")


def is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


@lru_cache(64)  # callers say the same one each time
def _names_loopback(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
