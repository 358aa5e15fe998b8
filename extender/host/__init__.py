"""Assembles all parts; nothing else knows all of them."""

from extender.host.host import Host, serve

__all__ = ["Host", "serve"]
