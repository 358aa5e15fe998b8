"""Page of what-ifs about a pending job: the decisions if some values of the cluster were different.

The decisions are computed only when the form is sent. Nothing is written.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from flask import g, make_response, render_template, request, url_for
from werkzeug.exceptions import Forbidden, ServiceUnavailable
from werkzeug.wrappers import Response as BaseResponse

from extender.api.summaries import GroupSummary
from extender.api.units import may_be_name
from extender.dashboard.actions import Button, group_address
from extender.dashboard.job_pages import find_details, job_index, missing_group
from extender.dashboard.rendering import Renderer
from extender.dashboard.texts import short_resource
from extender.dashboard.visible_overviews import VisibleOverview
from extender.domain.explain.what_if import BadTerm, WhatIf, future, suppositions, what_if
from extender.domain.model.reasons import sentence
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.snapshot import Snapshot

_MAX_RESOURCES = 4  # maximum of resources in the menu


class WhatIfBase(NamedTuple):
    """Snapshot for a what-if.

    `notes` name the parts of the cluster that cannot be read, and the effect of these gaps on the result.
    """

    snapshot: Snapshot
    notes: Sequence[str] = ()


class WhatIfResult(NamedTuple):
    what_if: WhatIf
    notes: Sequence[str]


class WhatIfTrials:
    """Runner of what-ifs on the newest snapshot.

    `read_base` returns the snapshot, or None before the first decisions.

    Only one what-if runs at a time, because a what-if takes as long as two scheduling cycles.
    """

    def __init__(self, read_base: Callable[[], WhatIfBase | None]) -> None:
        self._read_base, self._lock = read_base, Lock()

    def result_of(self, namespace: str, name: str, texts: Sequence[str]) -> WhatIfResult | None:
        """Return the effect of some terms on a group; None if the group does not exist.

        Raises:
            BadTerm: A term is invalid.
            ServiceUnavailable: Another what-if is running.
        """
        terms, key = suppositions(texts), GroupKey(f"{namespace}/{name}")
        if not self._lock.acquire(blocking=False):
            raise ServiceUnavailable("Another what-if is being worked out; try again")
        try:
            base = self._read_base()
            if base is None or key not in base.snapshot.groups:
                return None
            return WhatIfResult(what_if(base.snapshot, terms, key), base.notes)
        finally:
            self._lock.release()


class WhatIfPage:
    """Page of what-ifs. Without `trials`, the page does not exist."""

    def __init__(self, renderer: Renderer, trials: WhatIfTrials | None) -> None:
        self._renderer, self._trials = renderer, trials

    def buttons(self, visible: VisibleOverview, group: GroupSummary) -> Sequence[Button]:
        if self._trials is None or not group.wait or not self._sees_everything(visible):
            return ()
        url = url_for("pages.what_if", **group_address(group))
        return (Button("What if?", url, field="number", title="Number", menu=_menu(group)),)

    def what_if(self, namespace: str, name: str, kind: str = "") -> BaseResponse:
        """Return the page with the effect of the form's term.

        Raises:
            HTTPException: The group does not exist, or the viewer does not have the rights for a what-if.
        """
        visible = self._renderer.visible_overview()
        if self._trials is None or not self._sees_everything(visible):
            raise Forbidden("What if: you may not list all pods, nodes, queues and PodGroups.")
        group = find_details(self._renderer, visible, namespace, name, kind).group
        term, number = (request.form.get(field, "").strip() for field in ("term", "number"))
        result, fault = None, ""
        try:
            result = self._trials.result_of(namespace, group.name, [f"{term}{number}"])
            if result is None:
                raise missing_group(namespace, name)
        except BadTerm as unknown:
            fault = f"What if: {unknown}"
        page = render_template(
            "what_if.html",
            group=group.display_name,
            menu=_menu(group),
            term=term,
            number=number,
            fault=fault,
            result=result,
            future=future,
            reason_sentence=sentence,
            display_name=job_index(self._renderer, visible).display_name,
        )
        return make_response(page, 400 if fault else 200)

    def _sees_everything(self, visible: VisibleOverview) -> bool:
        """Return whether the viewer may see everything.

        Only such a viewer may ask, because a what-if may name any group, queue, node and pod.
        """
        rights = visible.rights
        sees_all = rights.sees_queues and rights.sees_nodes and rights.namespaces is None
        return sees_all and bool(g.viewer.may("list", "", "pods"))


def _menu(group: GroupSummary) -> Sequence[tuple[str, str]]:
    """Return the terms of the menu with their labels. The user's number is added to a term."""
    menu = {"nodes=+": "more nodes", "minMember=": "needed pods", "priority=": "priority"}
    if may_be_name(group.queue):
        menu |= {
            f"queue.weight={group.queue}:": f"weight of {group.queue}",
            f"queue.priority={group.queue}:": f"priority of {group.queue}",
        }
        resources = sorted(name for name in group.asks if "/" in name or name == "cpu")[:_MAX_RESOURCES]
        for field, title in (("capability", "ceiling"), ("deserved", "deserved")):
            for resource in resources:
                label = f"{title} {short_resource(resource)} of {group.queue}"
                menu[f"queue.{field}.{resource}={group.queue}:"] = label
    return tuple(menu.items())
