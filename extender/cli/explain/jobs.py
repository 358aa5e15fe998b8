"""Why a job that is suspended waits: by its PodGroup; without one, why Muster leaves it alone."""

from msgspec.structs import replace

from extender.cli.access_reviews import right_to
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import EMPTY, WAITING, Explanation
from extender.cli.explain.groups import explain_group
from extender.cli.explain.left_alone import why_left_alone
from extender.cli.explain.offers import Offer, offered
from extender.cli.observed import ObservedGroup
from extender.cli.observed_jobs import JobState, ObservedJob
from extender.terminal.counts import many


def explain_job(evidence: Evidence, job: ObservedJob) -> Explanation | None:
    """None for a job that is not suspended, or has ended: its pods and groups tell how it stands."""
    if not job.is_suspended or job.state is JobState.FINISHED:
        return None
    if job.state is JobState.SUSPENDED:
        return _stopped(evidence, job)
    return _queued(evidence, job, job.unit) if job.unit else _left_alone(evidence, job)


def _queued(evidence: Evidence, job: ObservedJob, unit: ObservedGroup) -> Explanation:
    answer = explain_group(evidence, unit)
    count = many(unit.spec.min_member, "pod")
    text = f"{answer.sentence} It waits as a job: its {count} will be made when it starts."
    sentence = text if answer.verdict == WAITING else answer.sentence
    return replace(answer, kind=job.row.kind, name=job.meta.name, group=unit.name, sentence=sentence)


def _stopped(evidence: Evidence, job: ObservedJob) -> Explanation:
    offer = Offer(
        "let it queue again, at its old place",
        f"muster job resume {job.spoken_name} -n {job.meta.namespace}",
        right_to("patch", job.resource, job.meta.namespace, job.meta.name),
    )
    sentence = "It was suspended after Muster had started it, and stays out of its queue until it is resumed."
    return _without_pods(evidence, job, sentence, [offer])


def _without_pods(evidence: Evidence, job: ObservedJob, sentence: str, offers: list[Offer]) -> Explanation:
    return Explanation(
        kind=job.row.kind,
        name=job.meta.name,
        namespace=job.meta.namespace,
        group=job.unit.name if job.unit else "",
        verdict=EMPTY,
        sentence=sentence,
        commands=[offered(evidence, each) for each in offers],
        notes=evidence.notes,
    )


# ---- those that Muster leaves alone


def _left_alone(evidence: Evidence, job: ObservedJob) -> Explanation:
    why, offers = why_left_alone(evidence, job)
    sentence = f"It is suspended, and Muster does not manage it: {why}"
    return _without_pods(evidence, job, sentence, offers)
