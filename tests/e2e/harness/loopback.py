"""Loopback address of all servers of a test: 127.0.0.1, or ::1 if MUSTER_E2E_LOOPBACK is ::1."""

import os
import socket

SETTING = "MUSTER_E2E_LOOPBACK"


def host() -> str:
    return os.environ.get(SETTING, "127.0.0.1")


def is_v6() -> bool:
    return ":" in host()


def at(port: int) -> str:
    """Return address and port as URLs and flags spell them: `127.0.0.1:8281`, `[::1]:8281`."""
    return f"[{host()}]:{port}" if is_v6() else f"{host()}:{port}"


def family() -> socket.AddressFamily:
    return socket.AF_INET6 if is_v6() else socket.AF_INET


def listener(port: int = 0) -> socket.socket:
    """Return a listening socket on loopback. With port 0, the kernel chooses the port."""
    return socket.create_server((host(), port), family=family(), backlog=512)
