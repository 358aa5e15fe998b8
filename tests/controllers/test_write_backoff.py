"""Growing pauses between writes of the same value."""

from extender.controllers.podgroup_status import WriteBackoff


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def written_at(insistence: WriteBackoff, time: Time, seconds: range) -> list[int]:
    """Return the seconds at which a write is due."""
    found = []
    for second in seconds:
        time.now = float(second)
        if insistence.pause("a", "x") == 0:
            found.append(second)
    return found


def test_the_pauses_grow_up_to_half_a_minute() -> None:
    time = Time()
    assert written_at(WriteBackoff(time), time, range(100)) == [0, 1, 2, 4, 8, 16, 32, 62, 92]


def test_another_value_may_be_written_at_once() -> None:
    time = Time()
    insistence = WriteBackoff(time)
    written_at(insistence, time, range(20))
    assert insistence.pause("a", "y") == 0
    assert insistence.pause("b", "x") == 0


def test_after_a_long_rest_the_pauses_start_again() -> None:
    time = Time()
    insistence = WriteBackoff(time)
    written_at(insistence, time, range(40))
    assert written_at(insistence, time, range(200, 204)) == [200, 201, 202]


def test_a_forgotten_value_counts_as_never_written() -> None:
    time = Time()
    insistence = WriteBackoff(time)
    written_at(insistence, time, range(10))
    insistence.forget("a")
    assert insistence.pause("a", "x") == 0
