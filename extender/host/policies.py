"""What an administrator has set, as the domain takes it."""

from extender.api.configuration import Configuration
from extender.api.workloads.further import with_further
from extender.api.workloads.shape import WorkloadRow
from extender.domain.decisions.pod_conditions import ConditionPolicy
from extender.domain.jobs.job_record import JobRules
from extender.domain.snapshot.limits import Limits


def conditions(configuration: Configuration, is_viewed: bool) -> ConditionPolicy:
    """`is_viewed`: the scheduler reads its pods through Muster, and writes no conditions of waiting ones."""
    return ConditionPolicy(
        ungated=is_viewed,
        shows_waiting_for_room=configuration.waiting_for_room == "show",
        shows_never_fits=configuration.never_fits == "show",
    )


def managed_kinds(configuration: Configuration) -> list[WorkloadRow]:
    """The kinds of jobs that are watched."""
    rows = with_further(configuration.job_kinds).values()
    return [row for row in rows if row.manageable and configuration.manage_jobs != "off"]


def job_rules(configuration: Configuration) -> JobRules:
    return JobRules(
        configuration.manage_jobs,
        frozenset(configuration.unmanaged_namespaces),
        frozenset(configuration.unmanaged_kinds),
        with_further(configuration.job_kinds),
    )


def limits(configuration: Configuration) -> Limits:
    return Limits(
        oversell=configuration.oversell,
        window=configuration.window,
        start_deadline=configuration.bind_deadline,
        backoff=configuration.start_backoff,
        backoff_max=configuration.start_backoff_max,
    )
