"""What policies of a Volcano Job and its tasks ask for: of the task before the job, the first that fits."""

from typing import NamedTuple

from extender.api.objects.volcano import VolcanoJob
from extender.volcano.pods import JobPod
from extender.volcano.states import Action


class JobRequest(NamedTuple):
    """An action from a Command or a policy. `at`: not before, in seconds since 1970."""

    action: Action
    task: str = ""
    pod: str = ""
    partition: str = ""
    reason: str = ""  # the event
    message: str = ""
    at: float = 0.0


def request_of(job: VolcanoJob, before: JobPod | None, now: JobPod | None, at: float) -> JobRequest | None:
    """What the end of a pod's object asks for: only this cannot be seen later. All other events are
    found by plan() in the pods as they are, so that no restart loses one.

    To be asked when a pod that is not deleted by Muster itself has gone (`now` is None)."""
    raise NotImplementedError
