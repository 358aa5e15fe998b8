"""A group whose judging takes too much work waits, is tried seldom, and costs the others nothing."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from extender.api.objects.pods import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from extender.domain.explain.explain import WhyGroup, explain_group
from extender.domain.ledger import affinity
from extender.domain.ledger.affinity import MAX_WEIGHT, WIDE_WEIGHT
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.shapes import Term
from extender.domain.placement import affinity as placed
from extender.domain.placement.affinity import Effort, OverBudget
from extender.domain.scheduling import cycle as cycles
from extender.domain.scheduling import plans
from extender.domain.scheduling.decide import decide
from tests.domain.builders import HOSTNAME, anti_affinity, foreign_pod, pod, queue
from tests.domain.world import World, comparable, gang, key, nodes
from tests.rows import each_of

NAMES = tuple(f"n{n}" for n in range(12))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set budgets that are enough for a gang of three, and for one of twelve only if it is tried alone."""
    monkeypatch.setattr(cycles, "_MAX_GROUP_LOOKS", 3e3)
    monkeypatch.setattr(cycles, "_MAX_NAMESPACE_LOOKS", 6e3)
    monkeypatch.setattr(cycles, "_MAX_RETRY_LOOKS", 10e3)


def expensive(name: str, members: int = 12, queue: str = "", created: str = "") -> list[Any]:
    """Return a gang whose members keep apart from all others; no two have the same terms."""
    similar: dict[str, Any] = {"labels": {"app": name}, "affinity": anti_affinity(app=name)}
    pods = [pod(f"{name}-{n}", name, cpu=f"{250 + n}m", **similar) for n in range(members)]
    return [*gang(name, 0, members, queue, created=created), *pods]


def in_namespace(namespace: str, objects: list[Any]) -> list[Any]:
    return [replace(each, metadata=replace(each.metadata, namespace=namespace)) for each in objects]


def world(*objects: Any) -> World:
    return World(
        nodes(*NAMES), queue("fifo", strategy="fifo"), queue("strict", strategy="priority"), *objects
    )


def looks(work: Callable[[], object]) -> int:
    with patch.object(Effort, "spend", autospec=True, side_effect=Effort.spend) as spend:
        work()
    return spend.call_count


def calls_in(folder: str, work: Callable[[], object]) -> int:
    """Return the number of calls that the work makes of functions defined in a folder."""
    calls = 0

    def record(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and folder in frame.f_code.co_filename

    sys.setprofile(record)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_effort_beyond_the_allowance_is_over_budget() -> None:
    effort = Effort()
    effort.spend(1e12)
    effort.allow(10.0)
    effort.spend(10.0)
    with pytest.raises(OverBudget):
        effort.spend(1.0)


def test_a_group_within_its_budget_starts() -> None:
    assert world(expensive("g", 3)).settle().verdict("g") is Verdict.STARTING


@each_of("", "fifo", "strict")
def test_a_group_over_budget_waits_and_blocks_no_other_group(of: str) -> None:
    here = world(expensive("g", queue=of, created="2025-01-01"), gang("plain", 3, queue=of)).settle()
    assert (here.verdict("g"), here.reason("g")) == (Verdict.WAITING, Reason.TOO_COMPLEX)
    assert here.verdict("plain") is Verdict.STARTING
    assert not here.plan("g")
    here.add(gang("later", 1, queue=of, created="2030-01-01")).settle()
    assert here.verdict("later") is Verdict.STARTING


def test_a_group_over_budget_costs_nothing_until_its_next_try() -> None:
    here = world(expensive("g")).settle()
    assert looks(here.advance(50.0).settle) == 0
    assert looks(here.add(foreign_pod("event", on="n0", cpu="10m")).settle) == 0
    assert here.reason("g") is Reason.TOO_COMPLEX
    here.pass_time(60.0)
    assert here.verdict("g") is Verdict.STARTING


def test_a_group_that_stays_over_budget_is_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "_MAX_RETRY_LOOKS", 4e3)
    here = world(expensive("g")).settle()
    tries = [bool(looks(partial(here.pass_time, 100.0))) for _ in range(12)]
    assert here.reason("g") is Reason.TOO_COMPLEX
    assert sum(tries[:6]) > sum(tries[6:]) > 0


def test_the_groups_of_a_namespace_share_one_budget_of_effort() -> None:
    """Bound the work for any number of groups: together they cost no more than a few."""
    few, many = (world(*(expensive(f"g{n}") for n in range(count))) for count in (3, 30))
    assert looks(many.settle) <= 2 * looks(few.settle)
    assert {many.reason(f"g{n}") for n in range(30)} == {Reason.TOO_COMPLEX}
    tried = [{many.decision(f"g{n}").retry_at} for n in range(30)]
    assert len(set(map(min, tried))) > 10  # not all together


def test_each_namespace_has_something_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many namespaces do not take long together, and what they spend is not lacking elsewhere."""
    for name, looks_ in {"_MAX_GROUP_LOOKS": 1e4, "_MAX_NAMESPACE_LOOKS": 1e4, "_COMMON_LOOKS": 1e4}.items():
        monkeypatch.setattr(cycles, name, looks_)
    monkeypatch.setattr(cycles, "_MIN_NAMESPACE_LOOKS", 4e3)
    here = world(
        *(in_namespace(f"ns{n}", expensive(f"g{n}")) for n in range(20)),
        in_namespace("z", expensive("last", 3)),
    ).settle()
    decided = here.decisions.groups
    assert here.ledger.snapshot().occupancy.namespace_count == 21
    assert decided[GroupKey("z/last")].verdict is Verdict.STARTING
    reasons = [decided[GroupKey(f"ns{n}/g{n}")].reason for n in range(20)]
    assert reasons.count(Reason.TOO_COMPLEX) > 10 > reasons.count(None) > 0


@pytest.mark.parametrize("has_capacity", [True, False])
def test_a_large_gang_of_one_kind_is_no_work(has_capacity: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = tuple(f"m{n}" for n in range(1000))
    here = World(nodes(*names), gang("g", 1000, labels={"app": "x"}, affinity=anti_affinity(app="x")))
    here.add(*(foreign_pod(f"s{n}", on=f"m{n}", cpu="4") for n in range(0 if has_capacity else 900)))
    assert looks(here.settle) < 100  # not as many as it has members
    assert here.reason("g") is (None if has_capacity else Reason.NO_ROOM)


def terms_on(name: str, count: int, *more: Requirement) -> PodAffinity:
    """Return terms that differ from each other, and select all pods with z=u."""
    selectors = [
        LabelSelector(
            None,
            [Requirement(f"k{name}-{n}", "NotIn", ["v"]), Requirement("z", "In", [name, str(n), "u"]), *more],
        )
        for n in range(count)
    ]
    return PodAffinity([PodAffinityTerm(HOSTNAME, each) for each in selectors])


def terms_against(name: str, count: int, *more: Requirement) -> Affinity:
    return Affinity(pod_anti_affinity=terms_on(name, count, *more))


def test_many_terms_that_all_select_the_same_pods_are_looked_at_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counting a pod, and undoing it, is the same work whatever the number of terms that concern it."""
    monkeypatch.undo()

    def calls(terms: int) -> int:
        gangs = (
            gang(f"g{n}", 3, labels={"z": "u"}, affinity=terms_against(f"g{n}", terms)) for n in range(20)
        )
        snapshot = World(nodes(*NAMES), *gangs, gang("plain", 3)).ledger.snapshot()
        return calls_in("placement", lambda: decide(snapshot))

    assert calls(16) < 2 * calls(1)


def test_a_group_over_budget_in_one_namespace_blocks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many terms select many pods with different labels: none of them is compared."""
    monkeypatch.setattr(cycles, "_COMMON_LOOKS", 1e3)
    monkeypatch.setattr(cycles, "_MIN_NAMESPACE_LOOKS", 4e3)
    gangs = (gang(f"g{n}", 3, labels={"z": "q"}, affinity=terms_against(f"g{n}", 64)) for n in range(20))
    plain = (gang(f"p{n}", 3, labels=own(n)) for n in range(20))
    here = world(*gangs, *plain, in_namespace("z", expensive("last", 3))).settle()
    assert {here.reason(f"p{n}") for n in range(20)} == {Reason.TOO_COMPLEX}
    assert here.decisions.groups[GroupKey("z/last")].verdict is Verdict.STARTING


@pytest.mark.parametrize("side", ["pod_affinity", "pod_anti_affinity"])
def test_work_for_affinity_terms_counts_as_effort(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sides: list[dict[str, Any]] = [{side: terms_on(f"g{n}", 64)} for n in range(20)]
    gangs = (gang(f"g{n}", 3, labels={"z": "u"}, affinity=Affinity(**each)) for n, each in enumerate(sides))
    snapshot = World(nodes(*NAMES), *gangs).ledger.snapshot()
    found: list[Any] = []
    calls = calls_in("placement", lambda: found.append(decide(snapshot)))
    assert calls < found[0].memory.evaluation.cycle.spent_effort


def test_the_effort_of_one_evaluation_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are recorded at once: pods with different labels may then be compared with many terms."""
    monkeypatch.setattr(plans, "_MAX_LOOKS", 6e3)
    here = world(gang("g", 0, 40), *(pod(f"g-{n}", "g", cpu=f"{n + 1}m", labels=own(n)) for n in range(40)))
    assert here.settle().verdict("g") is Verdict.STARTING
    others = terms_against("h", 64, Requirement("own", "DoesNotExist"))  # selects none of these pods
    snapshot = here.add(gang("h", 2, affinity=others), gang("plain", 3)).ledger.snapshot()
    with patch.object(Term, "matches", autospec=True, side_effect=Term.matches) as matches:
        decisions = decide(snapshot, here.decisions).groups
    assert matches.call_count * placed._MATCH_COST <= plans._MAX_LOOKS + cycles._MAX_NAMESPACE_LOOKS
    assert decisions[key("plain")].verdict is Verdict.STARTING


def test_terms_are_compared_once_for_all_decisions_and_counted_in_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    here = world(gang("g", 3, labels={"z": "u"}, affinity=terms_against("g", 64)))
    spent = [decide(here.ledger.snapshot()).memory.evaluation.cycle.spent_effort]  # type: ignore[attr-defined]
    with patch.object(Term, "matches", autospec=True, side_effect=Term.matches) as matches:
        later = here.add(foreign_pod("event", on="n0", cpu="10m")).ledger.snapshot()
        spent.append(decide(later).memory.evaluation.cycle.spent_effort)  # type: ignore[attr-defined]
    assert matches.call_count == 0
    assert spent[0] == spent[1] > 64 * placed._MATCH_COST


@pytest.mark.parametrize(("mentioned", "comparisons"), [("app", 10), ("index", 701)])
def test_terms_of_one_tenant_do_not_bring_gangs_of_others_over_budget(
    mentioned: str, comparisons: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods that differ in labels that no term mentions, as those of an Indexed Job, are compared once."""
    monkeypatch.undo()
    wide = [
        PodAffinityTerm(
            HOSTNAME, LabelSelector(None, [Requirement(mentioned, "NotIn", [f"v{n}"])]), None, LabelSelector()
        )
        for n in range(MAX_WEIGHT // WIDE_WEIGHT)
    ]
    against_all = Affinity(pod_anti_affinity=PodAffinity(wide))
    others = in_namespace("others", [pod(f"wide-{n}", cpu="1m", affinity=against_all) for n in range(4)])
    members = (pod(f"g-{n}", "g", cpu="1m", labels={"index": f"{n}"}) for n in range(700))
    snapshot = world(*others, *gang("g", 0, 700), *members).ledger.snapshot()
    with patch.object(Term, "matches", autospec=True, side_effect=Term.matches) as matches:
        decisions = decide(snapshot)
    assert decisions.groups[key("g")].reason is Reason.WINDOW_FULL  # the others start first
    assert matches.call_count <= comparisons * len(wide) + len(wide)


def own(number: int) -> dict[str, str]:
    return {"z": "u", "own": str(number)}


def test_a_namespace_with_too_many_terms_makes_its_own_groups_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have their turn as others of it go."""
    monkeypatch.setattr(affinity, "MAX_WEIGHT", 2)
    here = world(*(expensive(f"g{n}", 2) for n in range(4)), gang("plain", 2)).settle()
    assert [here.reason(f"g{n}") for n in range(4)] == [None, None, Reason.TOO_COMPLEX, Reason.TOO_COMPLEX]
    assert here.verdict("plain") is Verdict.STARTING
    assert "10,000 are followed" in here.detail("g3")
    changes = here.changes
    here.add(*(here.pods[f"g3-{n}"] for n in range(2)))  # as it is
    assert here.changes == changes
    here.delete("g0-0", "g0-1").settle()
    assert here.verdicts("g2", "g3") == [Verdict.STARTING, Verdict.WAITING]
    assert here.reason("g3") is Reason.TOO_COMPLEX


def test_explaining_one_of_many_expensive_groups_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the number of nodes that a group needs without evaluating the others again."""
    monkeypatch.setattr(cycles, "_MAX_GROUP_LOOKS", 1e6)
    monkeypatch.setattr(cycles, "_MAX_NAMESPACE_LOOKS", 1e7)
    few, many = (world(*(expensive(f"g{n}", 13) for n in range(count))).settle() for count in (1, 8))

    def explained(here: World) -> WhyGroup | None:
        return explain_group(here.decisions, key("g0"), limit=10_000)

    for here in (few, many):
        found = explained(here)
        assert found is not None
        assert found.change is not None
    assert looks(lambda: explained(many)) <= 2 * looks(lambda: explained(few))


def test_decisions_on_groups_over_budget_do_not_depend_on_memory() -> None:
    here = world(expensive("g"), gang("plain", 3)).settle()
    for _ in range(8):
        snapshot = here.advance(20.0).ledger.snapshot()
        assert comparable(decide(snapshot, here.decisions)) == comparable(decide(snapshot))
        here.settle()
