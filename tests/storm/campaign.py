"""One campaign from its first gang to the verdict."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from random import Random

from tests.storm.agenda import Agenda
from tests.storm.arena import DEADLINE, SIGHT, Arena
from tests.storm.crowd import TROUBLE, Crowd, Gang
from tests.storm.faults import FAULTS, Field, NoVictim, Standstill
from tests.storm.journal import Journal
from tests.storm.judges import undone
from tests.storm.plan import OUTAGES, Mix, Step, plan, rough
from tests.storm.progress import Progress
from tests.storm.pulse import Watcher
from tests.storm.recovery import Breakage, Recovery
from tests.storm.settling import LONGEST, picture, settle
from tests.storm.verdict import Outcome
from tests.storm.view import stands

PAUSE, TENDED = 0.05, 0.5
# kube-scheduler ends itself where it lists a pod that replaced one of the same name on another node: as the
# pods of a Volcano Job do while its watch is cut twice within a second. No fault of Muster's.
GIVES_UP = {
    "Pod updated on a different node than previously added to": "schedulers that gave up: a name came again",
    "Leaderelection lost": "schedulers that lost their Lease",
}
OWN_START = {
    "kill-muster",
    "stop-muster",
    "freeze-muster",
    "memory-short",
    "disk-full",
    "out-of-memory",
    "lose-leader",
}
EBB = 30.0  # seconds in which what runs may finish
AWAY = (AssertionError, *TROUBLE)  # an assertion: a page of Muster's that does not answer
PAGES = ("podgroups", "nodes", "queues", "held", "decisions?limit=1000", "watches", "bad-objects")


class Campaign:
    """`Campaign(arena, seed, seconds, mix, progress).run()`."""

    def __init__(self, arena: Arena, seed: int, seconds: float, mix: Mix, progress: Progress) -> None:
        self.outcome = Outcome(seed, seconds, mix.name, arena.cluster.folder)
        self._mix = mix
        self._recovery = Recovery()
        self._arena = arena
        arena.when_changed = self._changed
        self._crowd = Crowd(arena.api, arena.namespace, arena.view, arena.stage.kubelet, arena.calm)
        self._journal = Journal(arena.cluster.folder / "journal.log")
        self._agenda = Agenda(AWAY, partial(self._journal.record, "mended"))
        self._progress = progress
        self._watcher = Watcher(arena, self._recovery)
        self._still: list[tuple[Standstill, Step]] = []
        self._began = self._tended = 0.0

    def run(self) -> Outcome:
        self._watcher.start()
        self._storm(plan(self.outcome.seed, self.outcome.seconds, self._mix))
        self._mend_all()
        self._settle("after the storm")
        self._ebb()
        self._settle("after the ebb")
        self._watcher.stop()
        self._judge_all()
        self._crowd.close()
        self._journal.close()
        return self.outcome

    # ---- the storm

    def _storm(self, steps: list[Step]) -> None:
        began = self._began = time.monotonic()
        for step in steps:
            self._live_until(began + step.at)
            self._arrive(step) if step.wish else self._inflict(step)
        self._live_until(began + self.outcome.seconds)
        self.outcome.calm = self._arena.calm(time.monotonic()) - self._arena.calm(began)

    def _live_until(self, instant: float) -> None:
        while True:
            self._agenda.run(time.monotonic())
            self._strike()
            self._tend()
            if (remaining := instant - time.monotonic()) <= 0:
                return
            time.sleep(min(remaining, PAUSE))

    def _arrive(self, step: Step) -> None:
        wish = step.wish
        assert wish is not None
        is_accepted = self._crowd.arrive(wish)
        self._journal.record("arrives" if is_accepted else "turned away", f"{wish.name} {asdict(wish)}")
        if is_accepted and wish.lingers:
            still = Standstill(wish.name, wish.lingers, step.lasting)
            self._arena.proxy.inject(still.fault)
            self._still.append((still, step))

    def _strike(self) -> None:
        """Break gangs that have come to a standstill."""
        for still, step in [each for each in self._still if each[0].fault.hit.is_set()]:
            self._still.remove((still, step))
            assert step.wish is not None
            self.outcome.faults[f"hold-{step.wish.lingers}"] += 1
            self._journal.record(f"hold-{step.wish.lingers}", f"{step.wish.name} for {step.lasting:.1f} s")
            if step.wish.fate and (step.wish.fate not in OUTAGES or rough(time.monotonic() - self._began)):
                struck = replace(step, kind=step.wish.fate)
                self._agenda.strike(min(1.0, step.lasting / 2), partial(self._inflict, struck))

    def _inflict(self, step: Step) -> None:
        """Execute a fault; one that finds no victim, or an API server that is down, is counted as missed."""
        target = self._crowd.gangs.get(step.wish.name) if step.wish else None
        down = set(self._arena.down)
        try:
            broken = FAULTS[step.kind](
                Field(self._arena, self._crowd, Random(step.rng), step.lasting, target)
            )
        except (NoVictim, *AWAY) as why:
            self._arena.give_back(self._arena.down - down)
            self.outcome.missed[step.kind] += 1
            self._journal.record(f"missed {step.kind}", f"{type(why).__name__} {why}")
            return
        self.outcome.faults[step.kind] += 1
        self._journal.record(step.kind, broken.what)
        breakage = self._recovery.begin(step.kind, outage=step.kind in OUTAGES)
        if broken.mend is None:
            return breakage.end()
        mend = partial(_mend, breakage, broken.mend, is_own=step.kind in OWN_START)
        self._agenda.mend(step.lasting, broken.what, mend)

    def _tend(self) -> None:
        """Let the owners act, and check that no process has ended that was not killed."""
        if time.monotonic() - self._tended < TENDED:
            return
        self._crowd.tend()
        self._tended = time.monotonic()
        for part, process in self._arena.processes().items():
            if part not in self._arena.down and not process.alive():
                if reported_reasons := [
                    reported for words, reported in GIVES_UP.items() if words in process.tail()
                ]:
                    self.outcome.counts[reported_reasons[0]] += 1
                else:
                    self._violate(time.monotonic(), part, f"{part} ended by itself, see {process.log}")
                process.start()
        counts = self._crowd.counts + self._arena.view.counts
        self._progress.show(self.outcome.summary(counts, len(self._crowd.gangs)))

    def _changed(self) -> None:
        """Record that another Muster leads, and the incomplete gangs that the previous one left."""
        pieces = [gang.wish.name for gang in list(self._crowd.gangs.values()) if self._in_pieces(gang)]
        self._journal.record(
            "leader", f"{self._arena.leading.name}; in pieces: {', '.join(pieces) or 'none'}"
        )
        self.outcome.counts["changes of the leader"] += 1
        self.outcome.counts["changes of the leader in the middle of a start"] += bool(pieces)

    def _in_pieces(self, gang: Gang) -> bool:
        """Return whether some members are bound, of a gang that was never complete."""
        return (
            gang.started is None
            and 0 < sum(map(stands, self._arena.view.members(gang.wish.name))) < gang.wish.min_member
        )

    # ---- the end

    def _mend_all(self) -> None:
        """Mend everything; from here on nothing is broken any more, and no pod finishes."""
        self._journal.record("the storm ends", "everything is mended")
        for still, _ in self._still:
            still.fault.times = 0
        self._still.clear()
        self._agenda.hurry()
        self._agenda.mend(0, "nodes and queues", self._arena.tidy)
        self._crowd.finishing = False
        self._arena.stage.kubelet.relent()
        end = time.monotonic() + LONGEST
        while self._agenda or not self._arena.ready():
            self._live_until(time.monotonic() + PAUSE)
            if time.monotonic() > end:
                raise TimeoutError(f"not mended: {self._agenda}, down: {self._arena.down}")

    def _settle(self, instant: str) -> None:
        began = time.monotonic()
        complaints = settle(self._arena, self._tend)
        self._journal.record(
            "settled", f"{instant}, {time.monotonic() - began:.0f} s, {len(complaints)} complaints"
        )
        for each in complaints:
            self._violate(time.monotonic(), _subject(each), f"{instant}: {each}")
        if complaints:
            self._dump(instant.replace(" ", "-"))

    def _ebb(self) -> None:
        """Let running pods finish, so that they free capacity for waiting ones."""
        end = time.monotonic() + EBB
        self._crowd.finishing = True
        for gang in self._crowd.gangs.values():
            gang.came = time.monotonic()  # no owner loses patience now
        while self._crowd.gangs and time.monotonic() < end:
            self._live_until(time.monotonic() + PAUSE)
        self._crowd.finishing = False

    def _dump(self, name: str) -> None:
        """Write all current data next to the logs."""
        pages = {page: self._arena.muster.debug(f"/debug/{page}") for page in PAGES}
        everything = {"api": asdict(picture(self._arena)), "debug": pages}
        (self.outcome.folder / f"{name}.json").write_text(json.dumps(everything, indent=1))

    def _judge_all(self) -> None:
        for at, message in self._watcher.pulse.found:
            self._violate(at, "muster", message)
        evictions = [] if self._mix.tree else self._arena.view.evictions  # in a tree, some are paid for
        first = [*undone(evictions, self._crowd.settled)]
        first += [(each.at, each.key, each.what) for each in self._arena.stage.observer.found()]
        witness = self._arena.witness.reviewed(DEADLINE, SIGHT, self._arena.calm)
        second = [(each.at, each.about, f"the second judge: {each.what}") for each in witness.accusations]
        for at, subject, message in [*first, *second]:
            self._violate(at, subject, message)
        self.outcome.judges_agree = bool(first) == bool(second)
        self.outcome.evictions += witness.leaves
        self.outcome.counts += self._crowd.counts + self._arena.view.counts
        self.outcome.recoveries = self._recovery.times(self._arena.view.bindings)

    def _violate(self, at: float, key: str, message: str) -> None:
        self.outcome.violate(self._journal, at, key, message)


def _mend(breakage: Breakage, mend: Callable[[], object], is_own: bool) -> object:
    """End a fault: of Muster's own process when that is started, others when they are mended."""
    if is_own:
        breakage.end()
    result = mend()
    if result is not False:
        breakage.end()
    return result


def _subject(complaint: str) -> str:
    """Return the object of a complaint, its second word: `group g7 of queue …`, `claim HELD of …`."""
    return complaint.split()[1]
