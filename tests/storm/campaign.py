"""One campaign from its first gang to the verdict."""

import heapq
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from tests.e2e.harness.process import Process
from tests.storm.arena import Arena
from tests.storm.crowd import TROUBLE, Crowd
from tests.storm.faults import FAULTS, Broken, Field, NoVictim, Standstill
from tests.storm.journal import Journal
from tests.storm.judges import undone
from tests.storm.plan import Step, plan
from tests.storm.progress import Progress
from tests.storm.pulse import Watcher
from tests.storm.settling import picture, settle

PAUSE, TENDED, AGAIN = 0.05, 0.5, 0.5
EBB = 30.0
PAGES = ("podgroups", "nodes", "queues", "held", "decisions?limit=1000", "watches", "bad-objects")


@dataclass
class Outcome:
    """What a campaign has to say."""

    seed: int
    seconds: float
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class Campaign:
    """`Campaign(arena, seed, seconds, progress).run()`."""

    def __init__(self, arena: Arena, seed: int, seconds: float, progress: Progress) -> None:
        self.outcome = Outcome(seed, seconds, arena.cluster.folder)
        self._arena = arena
        self._crowd = Crowd(arena.api, arena.namespace, arena.view, arena.stage.kubelet, arena.calm)
        self._journal = Journal(arena.cluster.folder / "journal.log")
        self._progress = progress
        self._watcher = Watcher(arena)
        self._agenda: list[tuple[float, int, str, Callable[[], object]]] = []
        self._still: list[tuple[Standstill, Step]] = []
        self._numbers = count()
        self._tended = 0.0

    def run(self) -> Outcome:
        self._watcher.start()
        self._storm(plan(self.outcome.seed, self.outcome.seconds))
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
        began = time.monotonic()
        for step in steps:
            self._live_until(began + step.at)
            self._arrive(step) if step.wish else self._inflict(step)
        self._live_until(began + self.outcome.seconds)

    def _live_until(self, moment: float) -> None:
        while True:
            self._mend(time.monotonic())
            self._strike()
            self._tend()
            if (left := moment - time.monotonic()) <= 0:
                return
            time.sleep(min(left, PAUSE))

    def _arrive(self, step: Step) -> None:
        wish = step.wish
        assert wish is not None
        came = self._crowd.arrive(wish)
        self._journal.note("arrives" if came else "turned away", f"{wish.name} {asdict(wish)}")
        if came and wish.lingers:
            still = Standstill(f"{wish.name}-0", wish.lingers, step.lasting)
            self._arena.proxy.inject(still.fault)
            self._still.append((still, step))

    def _strike(self) -> None:
        """Gangs that have come to a standstill meet their fate there."""
        for still, step in [each for each in self._still if each[0].fault.hit.is_set()]:
            self._still.remove((still, step))
            assert step.wish is not None
            self.outcome.faults[f"hold-{step.wish.lingers}"] += 1
            self._journal.note(f"hold-{step.wish.lingers}", f"{step.wish.name}-0 for {step.lasting:.1f} s")
            if fate := step.wish.fate:
                self._later(min(1.0, step.lasting / 2), "", partial(self._inflict, replace(step, kind=fate)))

    def _inflict(self, step: Step) -> None:
        """A fault that finds no victim, or an API server that is down, is counted as missed."""
        try:
            broken = FAULTS[step.kind](self._field(step))
        except (NoVictim, AssertionError, *TROUBLE) as why:
            self.outcome.counts["faults missed"] += 1
            self._journal.note(f"missed {step.kind}", f"{type(why).__name__} {why}")
            return
        self.outcome.faults[step.kind] += 1
        self._remember(step, broken)

    def _field(self, step: Step) -> Field:
        target = self._crowd.gangs.get(step.wish.name) if step.wish else None
        return Field(self._arena, self._crowd, Random(step.luck), step.lasting, target)

    def _remember(self, step: Step, broken: Broken) -> None:
        self._journal.note(step.kind, broken.what)
        if broken.mend is not None:
            self._later(step.lasting, broken.what, broken.mend)

    def _later(self, seconds: float, what: str, action: Callable[[], object]) -> None:
        heapq.heappush(self._agenda, (time.monotonic() + seconds, next(self._numbers), what, action))

    def _mend(self, now: float) -> None:
        while self._agenda and self._agenda[0][0] <= now:
            _, number, what, mend = heapq.heappop(self._agenda)
            if not _succeeds(mend):
                heapq.heappush(self._agenda, (now + AGAIN, number, what, mend))
            elif what:
                self._journal.note("mended", what)

    def _tend(self) -> None:
        """The owners act, and nobody has died that was not killed."""
        if time.monotonic() - self._tended < TENDED:
            return
        self._crowd.tend()
        self._tended = time.monotonic()
        self._check_processes()
        self._progress.show(self._told())

    def _check_processes(self) -> None:
        arena = self._arena
        parts = {"muster": arena.muster.process, "scheduler": arena.scheduler.process}
        for part, process in {**parts, "apiserver": arena.cluster.apiserver}.items():
            if part not in arena.down and not process.alive():
                self._revive(part, process)

    def _revive(self, part: str, process: Process) -> None:
        self._violate(time.monotonic(), part, f"{part} ended by itself, see {process.log}")
        process.start()

    def _told(self) -> dict[str, int]:
        counts = self._crowd.counts + self._arena.view.counts
        return {"faults": self.outcome.faults.total(), **counts, "alive": len(self._crowd.gangs)}

    # ---- the end

    def _mend_all(self) -> None:
        """What was broken is whole again; nothing more is broken from here on."""
        self._journal.note("the storm ends", "everything is mended")
        for still, _ in self._still:
            still.fault.times = 0
        self._still.clear()
        self._agenda = [(0.0, *rest) for _, *rest in self._agenda]  # type: ignore[misc]
        self._crowd.finishing = False
        self._arena.stage.kubelet.relent()
        while self._agenda:
            self._live_until(time.monotonic() + PAUSE)
        while not all((self._arena.muster.ready(), self._arena.cluster._ready())):
            self._live_until(time.monotonic() + PAUSE)

    def _settle(self, moment: str) -> None:
        began = time.monotonic()
        wrong = settle(self._arena, self._tend)
        self._journal.note("settled", f"{moment}, {time.monotonic() - began:.0f} s, {len(wrong)} complaints")
        for each in wrong:
            self._violate(time.monotonic(), each, f"{moment}: {each}")
        if wrong:
            self._dump(moment.replace(" ", "-"))

    def _ebb(self) -> None:
        """What runs finishes, and makes room for what still waits."""
        end = time.monotonic() + EBB
        self._crowd.finishing = True
        for gang in self._crowd.gangs.values():
            gang.came = time.monotonic()  # nobody loses patience now
        while self._crowd.gangs and time.monotonic() < end:
            self._live_until(time.monotonic() + PAUSE)
        self._crowd.finishing = False

    def _dump(self, name: str) -> None:
        """All that is known at this moment, beside the logs."""
        pages = {page: self._arena.muster.debug(f"/debug/{page}") for page in PAGES}
        everything = {"api": asdict(picture(self._arena)), "debug": pages}
        (self.outcome.folder / f"{name}.json").write_text(json.dumps(everything, indent=1))

    def _judge_all(self) -> None:
        for at, what in self._watcher.pulse.found:
            self._violate(at, "muster", what)
        for at, gang, what in undone(self._arena.view.evictions, self._crowd.settled):
            self._violate(at, gang, what)
        for each in self._arena.stage.observer.found():
            self._violate(each.at, each.key, each.what)
        self.outcome.counts += self._crowd.counts + self._arena.view.counts

    def _violate(self, at: float, key: str, what: str) -> None:
        before = "".join(f"\n      {line}" for line in self._journal.before(at, key))
        self.outcome.violations.append(f"{at - self._journal.began:.1f} s: {what}{before}")
        self._journal.note("VIOLATION", what)


def _succeeds(mend: Callable[[], object]) -> bool:
    """Not while what it needs is away; not when it says itself that it is not done yet."""
    try:
        return mend() is not False
    except (AssertionError, *TROUBLE):
        return False
