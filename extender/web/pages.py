"""Requests of web pages are answered with 403.

A request with an Origin comes from a page. On loopback, so does one whose Host is another name, because a
page may give its own name the address 127.0.0.1. Over TLS the Host is not checked: a page cannot get past a
certificate for another name.
"""

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from werkzeug.exceptions import Forbidden


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
