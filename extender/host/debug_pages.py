"""Debug pages for administrators, about the ledger and its decisions."""

import gzip
import time
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from werkzeug.exceptions import BadRequest, ServiceUnavailable

from extender.api.configuration import Configuration, as_document
from extender.api.summaries import domain_summaries
from extender.controllers.cycle import DecisionLog
from extender.controllers.estimates import Estimates
from extender.controllers.history import History
from extender.controllers.queue_status import local_queue_report, reclaims
from extender.controllers.quota_queues import QuotaQueuesController
from extender.dashboard.overviews import DecisionSource
from extender.dashboard.what_if_page import WhatIfTrials
from extender.domain.explain.dump import dump
from extender.domain.explain.explain import WhyGroup, explain_group
from extender.domain.explain.history import InvalidPeriod, Period, Report
from extender.domain.explain.what_if import BadTerm, WhatIf
from extender.domain.ledger.claims import Claim
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.selectors import taint_text
from extender.domain.queues.flavors import Flavor
from extender.domain.snapshot.decisions import GroupDecision
from extender.host.feed import Feed
from extender.verbs.barrier import Barrier
from extender.web.debug import View, version

_DUMP_LOCK, _REPORT_LOCK = Lock(), Lock()


class Views(NamedTuple):
    """Views of the debug port, with a method for each endpoint. Results are encoded as they are."""

    ledger: Ledger
    barrier: Barrier
    feed: Feed
    decision_log: DecisionLog
    configuration: Configuration
    estimates: Estimates
    quota_queues: QuotaQueuesController
    decision_source: DecisionSource
    history_records: History
    trials: WhatIfTrials

    def table(self) -> dict[str, View]:
        """Return the views by the names of their endpoints."""
        return {
            "overview": self.decision_source.overview,
            "queues": self.queues,
            "localqueues": self.local_queues,
            "flavors": self.flavors,
            "topologies": self.topologies,
            "podgroups": self.podgroups,
            "podgroup": self.podgroup,
            "why": self.why,
            "nodes": self.nodes,
            "pod": self.pod,
            "held": self.held,
            "quotas": self.quotas,
            "decisions": self.decisions,
            "history": self.history,
            "watches": self.watches,
            "bad-objects": self.bad_objects,
            "config": lambda: as_document(self.configuration),
            "dump": self.dump,
        }

    def queues(self) -> list[dict[str, Any]]:
        queues = sorted(self.ledger.decisions.queues.items())
        return [{**msgspec.to_builtins(queue), "reclaimed": reclaims(queue)} for _, queue in queues]

    def local_queues(self) -> list[dict[str, Any]]:
        queues, rows = self.ledger.queues, []
        for key in sorted(queues.local_queue_keys()):
            record, report = queues.local_queue(key), local_queue_report(self.ledger, key)
            if record is not None and report is not None:
                fields = {**msgspec.to_builtins(report), "activity": report.activity._asdict()}
                rows.append({"localQueue": key, "queue": record.queue, **fields})
        return rows

    def topologies(self) -> list[dict[str, Any]]:
        overview = self.decision_source.overview()
        return [
            {"levels": levels, "domains": msgspec.to_builtins(domain_summaries(levels, overview.nodes))}
            for levels in overview.topologies
        ]

    def flavors(self) -> dict[str, list[dict[str, Any]]]:
        records = sorted(self.ledger.queues.tree().queues.items())
        return {name: [*map(_flavor, record.flavors)] for name, record in records if record.flavors}

    def podgroups(self) -> list[dict[str, Any]]:
        decisions = self.ledger.decisions.groups
        return [
            {
                "podGroup": key,
                "minMember": info.min_member,
                "placed": len(info.placed_pods),
                **_decision_fields(decisions, key),
                "estimate": self.estimates.get(key),
                "flips": self.decision_log.flip_count(key),
            }
            for key, info in sorted(self.ledger.snapshot().groups.items())
        ]

    def podgroup(self, namespace: str, name: str) -> dict[str, Any] | None:
        key = GroupKey(f"{namespace}/{name}")
        info = self.ledger.snapshot().groups.get(key)
        if info is None:
            return None
        members = sorted(self.ledger.groups.members(key), key=lambda pod: pod.name)
        claims = [(pod, self.ledger.claims.get(pod.uid)) for pod in members]
        return {
            "podGroup": key,
            "queue": info.queue,
            "localQueue": info.local_queue.key if info.local_queue else "",
            "namespaceAllowed": info.is_namespace_allowed,
            "useAllowed": info.is_use_allowed,
            "minMember": info.min_member,
            "minTaskMember": dict(info.min_task_member),
            "priority": info.priority,
            "stoodWhole": info.has_fully_run,
            "entitled": info.history.is_entitled,
            "failures": info.start.failures,
            "lastFailure": info.start.failure,
            "placed": len(info.placed_pods),
            "pinned": len(info.assumed_pods),
            "waiting": len(info.waiting_pods),
            "allocated": dict(info.allocated),
            "pending": dict(info.pending_requests),
            **_decision_fields(self.ledger.decisions.groups, key),
            "estimate": self.estimates.get(key),
            "members": [{**_pod(pod), "claim": _claim(claim) if claim else None} for pod, claim in claims],
        }

    def why(self, namespace: str, name: str, terms: Sequence[str] = ()) -> WhyGroup | WhatIf | None:
        """Return the explanation of a group's wait, computed in the thread of the request.

        The explanation uses the snapshot of the newest decisions.

        Args:
            namespace: The namespace of the group.
            name: The name of the group.
            terms: The terms of a what-if, whose result is returned instead.

        Raises:
            BadRequest: A term is invalid.
            ServiceUnavailable: Another trial is running.
        """
        if terms:
            try:
                result = self.trials.result_of(namespace, name, terms)
            except BadTerm as fault:
                raise BadRequest(f"what-if: {fault}") from fault
            return result.what_if if result else None
        key = GroupKey(f"{namespace}/{name}")
        explanation = explain_group(self.ledger.decisions, key)
        return replace(explanation, estimate=self.estimates.get(key)) if explanation else None

    def dump(self) -> bytes:
        """Return a dump.

        Raises:
            ServiceUnavailable: Another dump is being made, since each dump takes much time and memory.
        """
        if not _DUMP_LOCK.acquire(blocking=False):
            raise ServiceUnavailable("Another dump is being made; try again")
        try:
            content = dump(self.ledger.decisions, version(), as_document(self.configuration))
            if content is None:
                raise ServiceUnavailable("Nothing is decided yet; try again")
            return gzip.compress(content, compresslevel=1)
        finally:
            _DUMP_LOCK.release()

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "allocatable": allocatable,
                "idle": idle,
                "claims": [_claim(claim) for claim in claims],
            }
            for name, allocatable, idle, claims in self.ledger.nodes()
        ]

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        record = self.ledger.pods.find(namespace, name)
        if record is None:
            return None
        claim = self.ledger.claims.get(record.uid)
        decision = self.ledger.decisions.groups.get(record.group)
        return {
            **_pod(record),
            "ours": bool(record.group),
            "podGroup": record.group,
            "claim": _claim(claim) if claim else None,
            "decision": _decision(decision) if decision else None,
        }

    def held(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        return [
            {
                "pod": hold.pod.key,
                "podGroup": hold.pod.group,
                "node": hold.node,
                "posting": not hold.is_waiting,
                "secondsLeft": round(hold.deadline - now, 1),
            }
            for hold in self.barrier.held_calls()
        ]

    def quotas(self) -> dict[str, Any]:
        plan = self.quota_queues.plan
        return {
            "queues": {
                name: {"quota": str(queue.source), "parent": queue.parent, "unreadable": queue.is_unreadable}
                for name, queue in plan.queues.items()
            },
            "namespaces": plan.namespaces,
            "faults": [
                {"quota": str(fault.source), "where": fault.where, "why": fault.why}
                for fault in self.quota_queues.faults()
            ],
        }

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        return [
            {"time": entry.time, "podGroup": entry.decision.key, **_decision(entry.decision)}
            for entry in self.decision_log.latest(limit)
        ]

    def history(self, by: str, since: str, until: str) -> Report:
        """Return a report of the history.

        Raises:
            BadRequest: The period is invalid.
            ServiceUnavailable: Another report is being made.
        """
        try:
            period = Period.parse(by, since, until, time.time())
        except InvalidPeriod as fault:
            raise BadRequest(str(fault)) from fault
        if not _REPORT_LOCK.acquire(blocking=False):
            raise ServiceUnavailable("Another report is being made; try again")
        try:
            return self.history_records.report(period)
        finally:
            _REPORT_LOCK.release()

    def watches(self) -> dict[str, dict[str, Any]]:
        missing = list(self.feed.optional_watches.missing_watches)
        return {
            reflector.resource.path(): {
                "known": not reflector.is_absent and reflector not in missing,
                "synced": reflector.is_synced,
                "objects": len(reflector.inventory),
                "relists": reflector.relist_count,
            }
            for reflector in (*self.feed.reflectors, *missing)
        }

    def bad_objects(self) -> dict[str, dict[str, str]]:
        """Return the faults of unreadable objects, by plural name and by object."""
        faults_by_plural: dict[str, dict[str, str]] = {}
        for reflector in self.feed.reflectors:  # two API groups may have kinds of the same name
            faults = faults_by_plural.setdefault(reflector.resource.plural, {})
            for key, fault in reflector.inventory.faults.copy().items():
                faults["/".join(filter(None, key))] = fault
        return faults_by_plural


def _decision_fields(decisions: Any, key: GroupKey) -> dict[str, Any]:
    decision = decisions.get(key)
    return _decision(decision) if decision else {"verdict": None}


def _decision(decision: GroupDecision) -> dict[str, Any]:
    """Return a decision without empty fields and without times of the monotonic clock of this process."""
    fields: dict[str, Any] = msgspec.to_builtins(decision)
    return {name: value for name, value in fields.items() if name not in ("key", "retry_at") and value}


def _flavor(flavor: Flavor) -> dict[str, Any]:
    return {
        "name": flavor.name,
        "resourceFlavor": flavor.resource_flavor,
        "missing": flavor.is_missing,
        "nodeLabels": {} if flavor.is_missing else dict(flavor.nodes.labels),
        "notWith": [dict(labels) for labels in flavor.nodes.earlier_parts],
        "taints": [taint_text(taint) for taint in flavor.taints],
    }


def _pod(pod: PodRecord) -> dict[str, Any]:
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "phase": pod.phase,
        "node": pod.node,
        "gated": pod.is_gated,
        "requests": dict(pod.shape.requests),
        "schedulerSays": pod.unschedulable,
    }


def _claim(claim: Claim) -> dict[str, str]:
    return {"pod": claim.pod.key, "podGroup": claim.pod.group, "node": claim.node, "stage": claim.stage.name}
