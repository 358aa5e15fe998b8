"""One campaign from its first gang to its result."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from random import Random

from tests.storm.agenda import Agenda
from tests.storm.faults import FAULTS, FaultContext, NoVictim, Standstill
from tests.storm.gang_owners import API_ERRORS, Gang, GangOwners
from tests.storm.journal import Journal
from tests.storm.judges import evicted_gangs
from tests.storm.liveness import LivenessProber
from tests.storm.plan import OUTAGES, Mix, Step, is_rough, plan
from tests.storm.progress import Progress
from tests.storm.recovery import Breakage, Recovery
from tests.storm.settling import MAX_SECONDS, cluster_state, settle
from tests.storm.storm_cluster import DEADLINE, SIGHT_SECONDS, StormCluster
from tests.storm.verdict import Outcome
from tests.storm.view import is_complete_member

STEP_SECONDS, OWNER_SECONDS = 0.05, 0.5  # seconds
# kube-scheduler exits if it lists a pod that replaced one of the same name on another node. The pods of a
# Volcano Job do that, if the watch is cut twice within a second. This is no fault of Muster.
SCHEDULER_EXITS = {
    "Pod updated on a different node than previously added to": "schedulers that exited: a name was reused",
    "Leaderelection lost": "schedulers that lost their Lease",
}
FAULTS_OF_OWN_PROCESS = {
    "kill-muster",
    "stop-muster",
    "freeze-muster",
    "memory-short",
    "disk-full",
    "out-of-memory",
    "lose-leader",
}
DRAIN_SECONDS = 30.0  # seconds in which running pods may finish
UNREACHABLE = (AssertionError, *API_ERRORS)  # a debug page that does not answer fails an assertion
PAGES = ("podgroups", "nodes", "queues", "held", "decisions?limit=1000", "watches", "bad-objects")


class Campaign:
    """Storm on a cluster, and the checks after it."""

    def __init__(
        self, storm_cluster: StormCluster, seed: int, seconds: float, mix: Mix, progress: Progress
    ) -> None:
        self.outcome = Outcome(seed, seconds, mix.name, storm_cluster.cluster.folder)
        self._mix = mix
        self._recovery = Recovery()
        self._storm_cluster = storm_cluster
        storm_cluster.on_leader_change = self._record_leader_change
        self._owners = GangOwners(
            storm_cluster.api,
            storm_cluster.namespace,
            storm_cluster.view,
            storm_cluster.stage.kubelet,
            storm_cluster.undisturbed_time,
        )
        self._journal = Journal(storm_cluster.cluster.folder / "journal.log")
        self._agenda = Agenda(UNREACHABLE, partial(self._journal.record, "repaired"))
        self._progress = progress
        self._prober = LivenessProber(storm_cluster, self._recovery)
        self._standstills: list[tuple[Standstill, Step]] = []
        self._began = self._last_acted = 0.0

    def run(self) -> Outcome:
        self._prober.start()
        self._run_steps(plan(self.outcome.seed, self.outcome.seconds, self._mix))
        self._repair_all()
        self._settle("after the storm")
        self._drain()
        self._settle("after the last pods")
        self._prober.stop()
        self._check_all()
        self._owners.close()
        self._journal.close()
        return self.outcome

    # ---- the storm

    def _run_steps(self, steps: list[Step]) -> None:
        began = self._began = time.monotonic()
        for step in steps:
            self._run_until(began + step.at)
            if step.gang_spec:
                self._add_gang(step)
            else:
                self._inflict(step)
        self._run_until(began + self.outcome.seconds)
        undisturbed_time = self._storm_cluster.undisturbed_time
        self.outcome.calm = undisturbed_time(time.monotonic()) - undisturbed_time(began)

    def _run_until(self, instant: float) -> None:
        while True:
            self._agenda.run(time.monotonic())
            self._break_incomplete_gangs()
            self._act_as_owners()
            if (remaining := instant - time.monotonic()) <= 0:
                return
            time.sleep(min(remaining, STEP_SECONDS))

    def _add_gang(self, step: Step) -> None:
        gang_spec = step.gang_spec
        assert gang_spec is not None
        is_accepted = self._owners.add(gang_spec)
        self._journal.record(
            "arrives" if is_accepted else "turned away", f"{gang_spec.name} {asdict(gang_spec)}"
        )
        if is_accepted and gang_spec.hangs_at:
            standstill = Standstill(gang_spec.name, gang_spec.hangs_at, step.lasting)
            self._storm_cluster.proxy.inject(standstill.fault)
            self._standstills.append((standstill, step))

    def _break_incomplete_gangs(self) -> None:
        """Add a fault for each gang that a hanging request keeps incomplete."""
        hanging = [
            (standstill, step) for standstill, step in self._standstills if standstill.fault.hit.is_set()
        ]
        for standstill, step in hanging:
            self._standstills.remove((standstill, step))
            assert step.gang_spec is not None
            self.outcome.faults[f"hold-{step.gang_spec.hangs_at}"] += 1
            self._journal.record(
                f"hold-{step.gang_spec.hangs_at}", f"{step.gang_spec.name} for {step.lasting:.1f} s"
            )
            if step.gang_spec.fate and (
                step.gang_spec.fate not in OUTAGES or is_rough(time.monotonic() - self._began)
            ):
                fault_step = replace(step, kind=step.gang_spec.fate)
                self._agenda.add_fault(min(1.0, step.lasting / 2), partial(self._inflict, fault_step))

    def _inflict(self, step: Step) -> None:
        """Execute a fault. It counts as missed if it finds no victim, or the API server is down."""
        target = self._owners.gangs.get(step.gang_spec.name) if step.gang_spec else None
        down = set(self._storm_cluster.down)
        try:
            inflicted = FAULTS[step.kind](
                FaultContext(self._storm_cluster, self._owners, Random(step.seed), step.lasting, target)
            )
        except (NoVictim, *UNREACHABLE) as error:
            self._storm_cluster.mark_up(self._storm_cluster.down - down)
            self.outcome.missed[step.kind] += 1
            self._journal.record(f"missed {step.kind}", f"{type(error).__name__} {error}")
            return
        self.outcome.faults[step.kind] += 1
        self._journal.record(step.kind, inflicted.description)
        breakage = self._recovery.begin(step.kind, outage=step.kind in OUTAGES)
        if inflicted.repair is None:
            return breakage.end()
        repair = partial(
            _repair, breakage, inflicted.repair, is_own_process=step.kind in FAULTS_OF_OWN_PROCESS
        )
        self._agenda.add_repair(step.lasting, inflicted.description, repair)

    def _act_as_owners(self) -> None:
        """Let the owners of gangs act, and check that no process has ended without a fault."""
        if time.monotonic() - self._last_acted < OWNER_SECONDS:
            return
        self._owners.act()
        self._last_acted = time.monotonic()
        for part, process in self._storm_cluster.processes().items():
            if part not in self._storm_cluster.down and not process.alive():
                if reported_reasons := [
                    reported for words, reported in SCHEDULER_EXITS.items() if words in process.tail()
                ]:
                    self.outcome.counts[reported_reasons[0]] += 1
                else:
                    self._record_violation(
                        time.monotonic(), part, f"{part} ended by itself, see {process.log}"
                    )
                process.start()
        counts = self._owners.counts + self._storm_cluster.view.counts
        self._progress.show(self.outcome.summary(counts, len(self._owners.gangs)))

    def _record_leader_change(self) -> None:
        """Record the new leader, and the gangs that the previous leader left incomplete."""
        incomplete = [
            gang.spec.name for gang in list(self._owners.gangs.values()) if self._is_incomplete(gang)
        ]
        self._journal.record(
            "leader",
            f"{self._storm_cluster.leading.name}; incomplete gangs: {', '.join(incomplete) or 'none'}",
        )
        self.outcome.counts["changes of the leader"] += 1
        self.outcome.counts["changes of the leader in the middle of a start"] += bool(incomplete)

    def _is_incomplete(self, gang: Gang) -> bool:
        """Return whether a gang that was never complete has bound members."""
        members = sum(map(is_complete_member, self._storm_cluster.view.members(gang.spec.name)))
        return gang.started is None and 0 < members < gang.spec.min_member

    # ---- the end

    def _repair_all(self) -> None:
        """Repair all faults, and stop faults and the ends of pods."""
        self._journal.record("the storm ends", "everything is repaired")
        for standstill, _ in self._standstills:
            standstill.fault.times = 0
        self._standstills.clear()
        self._agenda.repair_now()
        self._agenda.add_repair(0, "nodes and queues", self._storm_cluster.restore_objects)
        self._owners.finishing = False
        self._storm_cluster.stage.kubelet.refuse_none()
        end = time.monotonic() + MAX_SECONDS
        while self._agenda or not self._storm_cluster.ready():
            self._run_until(time.monotonic() + STEP_SECONDS)
            if time.monotonic() > end:
                raise TimeoutError(f"not repaired: {self._agenda}, down: {self._storm_cluster.down}")

    def _settle(self, instant: str) -> None:
        began = time.monotonic()
        violations = settle(self._storm_cluster, self._act_as_owners)
        self._journal.record(
            "settled", f"{instant}, {time.monotonic() - began:.0f} s, {len(violations)} complaints"
        )
        for violation in violations:
            self._record_violation(time.monotonic(), _subject(violation), f"{instant}: {violation}")
        if violations:
            self._dump(instant.replace(" ", "-"))

    def _drain(self) -> None:
        """Let running pods finish, so that they free capacity for waiting ones."""
        end = time.monotonic() + DRAIN_SECONDS
        self._owners.finishing = True
        for gang in self._owners.gangs.values():
            gang.arrived_at = time.monotonic()  # no owner gives up now
        while self._owners.gangs and time.monotonic() < end:
            self._run_until(time.monotonic() + STEP_SECONDS)
        self._owners.finishing = False

    def _dump(self, name: str) -> None:
        """Write all current data next to the logs."""
        pages = {page: self._storm_cluster.muster.debug(f"/debug/{page}") for page in PAGES}
        dumped = {"api": asdict(cluster_state(self._storm_cluster)), "debug": pages}
        (self.outcome.folder / f"{name}.json").write_text(json.dumps(dumped, indent=1))

    def _check_all(self) -> None:
        for at, message in self._prober.liveness.failures:
            self._record_violation(at, "muster", message)
        # Queues of a tree reclaim capacity.
        evictions = [] if self._mix.tree else self._storm_cluster.view.evictions
        first = [*evicted_gangs(evictions, self._owners.settled)]
        first += [
            (violation.at, violation.key, violation.message)
            for violation in self._storm_cluster.stage.observer.found()
        ]
        second_judge = self._storm_cluster.recorder.reviewed(
            DEADLINE, SIGHT_SECONDS, self._storm_cluster.undisturbed_time
        )
        second = [
            (accusation.at, accusation.about, f"the second judge: {accusation.message}")
            for accusation in second_judge.accusations
        ]
        for at, subject, message in [*first, *second]:
            self._record_violation(at, subject, message)
        self.outcome.judges_agree = bool(first) == bool(second)
        self.outcome.evictions += second_judge.evictions
        self.outcome.counts += self._owners.counts + self._storm_cluster.view.counts
        self.outcome.recoveries = self._recovery.times(self._storm_cluster.view.bindings)

    def _record_violation(self, at: float, key: str, message: str) -> None:
        self.outcome.violate(self._journal, at, key, message)


def _repair(breakage: Breakage, repair: Callable[[], object], is_own_process: bool) -> object:
    """Repair a fault. The fault of a process of Muster ends when that is started, others after the repair."""
    if is_own_process:
        breakage.end()
    result = repair()
    if result is not False:
        breakage.end()
    return result


def _subject(violation: str) -> str:
    """Return the object of a complaint, its second word: `group g7 of queue …`, `claim HELD of …`."""
    return violation.split()[1]
