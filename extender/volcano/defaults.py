"""What the admission of Volcano Jobs fills in, for jobs that came past it."""

from extender.api.objects.volcano import VolcanoJob


def with_defaults(job: VolcanoJob) -> VolcanoJob:
    raise NotImplementedError
