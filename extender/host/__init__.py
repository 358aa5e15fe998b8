"""Everything put together; the only place that knows all parts."""

from extender.host.host import Host, serve

__all__ = ["Host", "serve"]
