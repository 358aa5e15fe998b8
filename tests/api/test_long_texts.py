"""Texts that tenants write and Muster parses: each has a length limit, also if it is valid otherwise."""

from collections.abc import Callable

import pytest

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.objects.cluster import LeaseSpec, age_of
from extender.api.units import as_seconds, as_time, rounded_up, unix_seconds
from extender.api.workloads.gangs import Defaults, MadePods, gang_size_of, requested_sizes
from extender.api.workloads.pod_sets import pod_sets
from extender.domain.model.run_history import NO_CHECKPOINT, checkpoint_of, run_time_of
from extender.domain.model.selectors import as_number
from extender.domain.queues.records import duration_of
from extender.domain.snapshot.snapshot import clock_time_of
from extender.volcano.cron import Schedule
from tests.rows import each_of

MANY = 100_000
NUMBER = "0" * MANY + "2"
TIME = f"2026-11-01T08:00:00.{'0' * MANY}Z"
DURATION = "1s" * MANY
MINUTES = f"0{',1' * MANY} * * * *"


def annotated(key: str, text: str) -> Meta:
    return Meta(annotations={key: text})


def spark(memory: str) -> dict[str, object]:
    part = {"instances": 1, "memory": memory}
    spec = {"type": "Scala", "driver": part, "executor": part}
    return {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "spec": spec}


@each_of(
    lambda: as_seconds(DURATION),
    lambda: as_time(TIME, 0.0),
    lambda: rounded_up(NUMBER),
    lambda: Schedule(MINUTES, None),
    lambda: Schedule("* * * * *", "./" * MANY + "UTC"),
    lambda: pod_sets(spark(NUMBER + "m")),
)
def test_a_text_that_is_too_long_is_refused(read: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        read()
    assert len(str(refused.value)) < 300


@each_of(
    (lambda: duration_of(DURATION, None), None),
    (lambda: run_time_of(annotated(keys.RUN_TIME, DURATION)), None),
    (lambda: checkpoint_of(annotated(keys.CHECKPOINT, DURATION)), NO_CHECKPOINT),
    (lambda: checkpoint_of(annotated(keys.CHECKPOINT, TIME)), NO_CHECKPOINT),
    (lambda: unix_seconds(TIME), 0.0),
    (lambda: clock_time_of(TIME, 0.0), float("inf")),
    (lambda: age_of(LeaseSpec(renew_time=TIME), 0.0), None),
    (lambda: as_number(NUMBER), None),
    (lambda: requested_sizes({keys.VOLCANO_MIN_MEMBER: NUMBER}), ("", 1)),
    (lambda: gang_size_of(MadePods(pods=5, requested=NUMBER), "", Defaults(), waits=False).members, 1),
)
def test_a_text_that_is_too_long_counts_as_absent(read: Callable[[], object], default: object) -> None:
    assert read() == default
