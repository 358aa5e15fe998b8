"""Leases by a clock: whether they are held and renewed."""

from extender.api.objects.cluster import LeaseSpec, age_of, is_held
from tests.rows import each_of

AT = 1_767_225_600.0  # 2026-01-01T00:00:00Z
RENEW_TIME = "2026-01-01T00:00:00.000000Z"


@each_of(
    (LeaseSpec("a", 10, RENEW_TIME), AT + 9, 9.0, True),
    (LeaseSpec("a", 10, RENEW_TIME), AT + 10, 10.0, False),
    (LeaseSpec("a", None, RENEW_TIME), AT + 14, 14.0, True),
    (LeaseSpec("a", None, RENEW_TIME), AT + 15, 15.0, False),
    (LeaseSpec("a", 10, RENEW_TIME), AT - 3, -3.0, True),
    (LeaseSpec("", 10, RENEW_TIME), AT, 0.0, False),
    (LeaseSpec("a", 10, None), AT, None, False),
    (LeaseSpec("a", 10, "yesterday"), AT, None, False),
)
def test_a_lease_is_alive_while_its_holder_renews_it(
    lease: LeaseSpec, now: float, age: float | None, alive: bool
) -> None:
    assert (age_of(lease, now), is_held(lease, now)) == (age, alive)
