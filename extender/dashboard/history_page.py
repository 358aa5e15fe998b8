"""Page of history: waits, usage, and the work that evictions lost.

The report covers a day, a week or a month, and has a row for each queue, namespace or user.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from flask import g, request
from werkzeug.exceptions import NotFound, ServiceUnavailable
from werkzeug.wrappers import Response as BaseResponse

from extender.api.summaries import VERSION, Summary
from extender.dashboard.rendering import Renderer, Screen
from extender.dashboard.tables import Column, matching_rows, page
from extender.dashboard.visible_overviews import PODGROUPS, Rights, VisibleOverview
from extender.domain.explain.history import By, Period, Report, ReportRow

History = Callable[[Period], Report]

SPANS = {"1d": "a day", "7d": "a week", "30d": "a month"}
_DEFAULT_SPAN = "7d"
_CACHE_AGE = 60  # seconds for which a report is cached
_PAGE_ROWS = 50


def _sortable(value: float | None) -> float:
    return -1.0 if value is None else value


ROWS = (
    Column[ReportRow]("name", "", lambda row: row.name),
    Column[ReportRow]("gpu", "GPU hours", lambda row: row.gpu_hours),
    Column[ReportRow]("cpu", "CPU hours", lambda row: row.cpu_hours, "number"),
    Column[ReportRow]("share", "Of its share", lambda row: _sortable(row.share), "number"),
    Column[ReportRow]("starts", "Starts", lambda row: row.starts, "number"),
    Column[ReportRow]("median", "Median wait", lambda row: _sortable(row.wait_median), "number"),
    Column[ReportRow]("wait90", "90% waited at most", lambda row: _sortable(row.wait90), "number"),
    Column[ReportRow]("longest", "Longest", lambda row: _sortable(row.wait_longest), "number wide"),
    Column[ReportRow]("evicted", "Pods evicted", lambda row: row.evictions, "number"),
    Column[ReportRow]("lost", "GPU hours lost", lambda row: row.lost_gpu_hours, "number wide"),
)


def groupings_of(rights: Rights) -> list[By]:
    """Return the groupings that a viewer may see. Sums by user need the right to list all groups."""
    sees_all = rights.namespaces is None
    allowed = {By.QUEUE: rights.sees_queues, By.NAMESPACE: sees_all or rights.namespaces, By.USER: sees_all}
    return [by for by, granted in allowed.items() if granted]


class VisibleReport(Summary, frozen=True):
    """Report with the rows that a viewer may see.

    `total` is None if it includes groups that the viewer may not see.
    """

    since: str
    until: str
    by: By
    rows: Sequence[ReportRow]
    total: ReportRow | None
    note: str
    api_version: str = VERSION


def visible_report(report: Report, rights: Rights) -> VisibleReport:
    rows: Sequence[ReportRow] = report.rows
    total: ReportRow | None = report.total
    if report.by is By.NAMESPACE and rights.namespaces is not None:
        rows, total = tuple(row for row in rows if rights.may_see_groups_of(row.name)), None
    return VisibleReport(report.since, report.until, report.by, rows, total, report.note)


class HistoryPage:
    def __init__(self, renderer: Renderer, history: History | None) -> None:
        self._renderer = renderer
        self._history = history
        self._report_lock = Lock()

    def history(self) -> BaseResponse:
        visible, rights, by, since = self._request()

        def make() -> Mapping[str, Any]:
            report = visible_report(self._report(visible, by, since), rights)
            rows = matching_rows(report.rows, request.args, lambda row: row.name)
            return {
                "report": report,
                "page": page(rows, ROWS, request.args, _PAGE_ROWS),
                "columns": [Column("name", by.capitalize(), ROWS[0].order), *ROWS[1:]],
                "most": max((row.gpu_hours for row in report.rows), default=0.0),
                "by": by,
                "groupings": groupings_of(rights),
                "since": since,
                "spans": SPANS,
            }

        state = rights, self._cache_key(visible, by, since)
        return self._renderer.page(visible, Screen("History", "history.html", "history", state, make))

    def history_json(self) -> BaseResponse:
        visible, rights, by, since = self._request()
        state = rights, self._cache_key(visible, by, since)
        return self._renderer.json(
            visible, state, lambda: visible_report(self._report(visible, by, since), rights)
        )

    def _request(self) -> tuple[VisibleOverview, Rights, By, str]:
        """Return the visible overview, the rights, the requested grouping, and the key of the period.

        Raises:
            NotFound: There is no history, or the viewer may see no part of it.
        """
        visible = self._renderer.visible_overview()
        if self._history is None:
            raise NotFound("Only Muster itself has the history: open its dashboard in the cluster.")
        by, since = request.args.get("by", ""), request.args.get("since", _DEFAULT_SPAN)
        since = since if since in SPANS else _DEFAULT_SPAN
        rights = self._rights(visible, since)
        groupings = groupings_of(rights)
        if not groupings:
            raise NotFound("You may not list queues, nor PodGroups where something has happened.")
        return visible, rights, By(by) if by in groupings else groupings[0], since

    def _rights(self, visible: VisibleOverview, since: str) -> Rights:
        """Return the viewer's rights, also in namespaces whose groups do not exist any more."""
        if visible.rights.namespaces is None:
            return visible.rights
        names = [row.name for row in self._report(visible, By.NAMESPACE, since).rows]
        return replace(visible.rights, namespaces=g.viewer.namespaces_with_right("list", *PODGROUPS, names))

    def _report(self, visible: VisibleOverview, by: By, since: str) -> Report:
        """Return the report for all rights.

        Only one report is made at a time, because it may read a long file.
        """
        now = self._renderer.clock()

        def make() -> Report:
            if self._history is None or not self._report_lock.acquire(blocking=False):
                raise ServiceUnavailable("Another report is being made: try again")
            try:
                return self._history(Period.parse(by, since, "", now))
            finally:
                self._report_lock.release()

        return self._renderer.derive(self._cache_key(visible, by, since), make)

    def _cache_key(self, visible: VisibleOverview, by: By, since: str) -> Hashable:
        """Return the cache key of a report.

        The key includes the notes of the overview, because they depend on whether this replica leads.
        """
        return ("report", by, since, tuple(visible.overview.notes), int(self._renderer.clock() // _CACHE_AGE))
