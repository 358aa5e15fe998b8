"""A token bucket: never more than its burst at once, nor than its rate in the long run."""

from hypothesis import given
from hypothesis import strategies as st

from extender.kube.writers import TokenBucket


def test_a_burst_and_then_the_rate() -> None:
    tokens = TokenBucket(rate=2.0, burst=3.0, now=10.0)
    assert [tokens.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert not tokens.take(10.4)
    assert tokens.take(10.5)
    assert not tokens.take(10.5)


def test_several_tokens_are_taken_all_or_none() -> None:
    tokens = TokenBucket(rate=1.0, burst=5.0, now=0.0)
    assert not tokens.take(0.0, 6.0)
    assert tokens.take(0.0, 5.0)
    assert tokens.tokens_at(2.0) == 2.0


@given(st.lists(st.floats(0.0, 5.0), max_size=100))
def test_in_any_time_no_more_than_burst_and_rate_allow(pauses: list[float]) -> None:
    tokens, now, taken = TokenBucket(rate=3.0, burst=4.0, now=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken += sum(tokens.take(now) for _ in range(10))
        assert taken <= 4.0 + 3.0 * now + 1e-6
