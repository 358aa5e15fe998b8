"""What the dashboard shows, where it comes from, and who looks at it."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from extender.api.summaries import GroupDetails, Overview


class Unsure(Exception):
    """Whether a viewer has a right cannot be found out now; says why."""


class Viewer(Protocol):
    """Whoever looks, with rights of their own. What takes a question to the API server is remembered for
    seconds."""

    @property
    def name(self) -> str:
        """By which the API server knows them; empty where that is not known."""

    @property
    def secret(self) -> str:
        """Known only to this viewer's browser, or what stands before it, and to us: it proves that a form is
        ours."""

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Whether the API server grants it; an empty namespace means all. Raises Unsure."""

    def where(self, verb: str, group: str, resource: str, namespaces: Collection[str]) -> frozenset[str]:
        """Those of the namespaces in which they have the right, asked for all at once. Raises Unsure."""

    def patch(self, resource: str, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Change `queues` or `podgroups` with the viewer's own credentials. Raises ApiError."""


class Source(Protocol):
    """Called by threads of the dashboard's port; both keep what they made while nothing changes."""

    def overview(self) -> Overview:
        """Everything. What of it a viewer may see is for the dashboard to say."""

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        """None where there is no such group. It may cost more than a page: who asks keeps it."""
