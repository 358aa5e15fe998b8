"""Lists, whole or in pages."""

import base64
import json

from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.requests import Request
from extender.sim.apiserver.selectors import selecting
from extender.sim.apiserver.status_errors import bad_request
from extender.sim.apiserver.store import Store, key_of


def list_page(store: Store, request: Request) -> Json:
    """All pages of one list show the same moment. Raises StatusError 400."""
    kind, namespace, *_ = request.target
    query = request.query
    version, after = _continued(query.get("continue", ""))
    test = selecting(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    items, version = store.listing(kind, namespace, version)
    meant = [item for item in items if test(item) and list(key_of(item)) > after]
    shown = meant[: int(query.get("limit") or 0) or None]
    metadata: Json = {"resourceVersion": str(version)}
    if left := len(meant) - len(shown):
        metadata |= {"continue": _token(version, list(key_of(shown[-1]))), "remainingItemCount": left}
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
    return {**head, "items": shown}


def _token(version: int, last: list[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, last]).encode()).decode()


def _continued(token: str) -> tuple[int, list[str]]:
    """The version and the last object of the page before."""
    if not token:
        return 0, []
    try:
        version, last = json.loads(base64.urlsafe_b64decode(token))
        return int(version), list(last)
    except ValueError as fault:
        raise bad_request("continue key is not valid") from fault
