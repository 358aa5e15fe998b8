"""A token bucket: never more than its burst at once, nor than its rate in the long run."""

from hypothesis import given
from hypothesis import strategies as st

from extender.domain.model.token_bucket import TokenBucket


class Time:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_and_then_the_rate() -> None:
    time = Time()
    bucket = TokenBucket(3, 2.0, time)
    assert [bucket.take() for _ in range(4)] == [1, 1, 1, 0]
    time.now += 0.4
    assert bucket.take() == 0
    time.now += 0.1
    assert (bucket.left(), bucket.take(), bucket.left()) == (1, 1, 0)


def test_of_several_those_pass_that_may() -> None:
    time = Time()
    bucket = TokenBucket(5, 1.0, time)
    assert bucket.take(7) == 5
    time.now += 2.0
    assert bucket.take(7) == 2


@given(st.lists(st.floats(0.0, 5.0), max_size=100))
def test_in_any_time_no_more_than_burst_and_rate_allow(pauses: list[float]) -> None:
    time, taken = Time(), 0
    bucket, began = TokenBucket(4, 3.0, time), time.now
    for pause in pauses:
        time.now += pause
        taken += bucket.take(10)
        assert taken <= 4.0 + 3.0 * (time.now - began) + 1e-6
