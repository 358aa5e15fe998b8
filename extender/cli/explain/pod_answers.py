"""The answer about a pod, without what its group adds."""

from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.cli.explain.case import Case
from extender.cli.explain.commands import commands
from extender.cli.explain.explanation import Explanation
from extender.cli.explain.remedies import remedy
from extender.domain.model.ownership import group_name


def answer_of(
    pod: Pod, verdict: str, sentence: str, advice: str = "", since: str | None = None
) -> Explanation:
    meta = pod.metadata
    return Explanation(
        kind="Pod",
        name=meta.name,
        verdict=verdict,
        sentence=sentence,
        namespace=meta.namespace,
        group=group_name(pod),
        since=since or meta.creation_timestamp,
        remedies=[advice] if advice else [],
    )


def with_reason(answer: Explanation, reason: str, case: Case) -> Explanation:
    remedies = [remedy(reason)] if remedy(reason) else []
    offers = commands(reason, case)
    return replace(answer, reason=reason, detail=case.detail, remedies=remedies, commands=offers)
