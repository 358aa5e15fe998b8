"""Connections to close: when there are too many, too many bytes, or too late a request."""

from prometheus_client import REGISTRY

from extender.ports.connections import ConnectionLimits, Connections

PORT = "test"


class Fake:
    """A connection that waits for a request."""

    def __init__(
        self, among: Connections, answered: int = 0, deadline: float = 100.0, address: str = ""
    ) -> None:
        self.state, self.address = "head", address
        self.deadline = deadline
        self.answer_count = answered
        self.size = 0
        self.ended = False
        among.add(self)

    def end(self) -> None:
        self.ended = True


def closed(*fakes: Fake) -> list[bool]:
    return [fake.ended for fake in fakes]


def counted(reason: str) -> float:
    labels = {"port": PORT, "reason": reason}
    return REGISTRY.get_sample_value("muster_connections_dropped_total", labels) or 0.0


def test_the_connection_that_waited_longest_without_an_answer_is_dropped_first() -> None:
    all_of_them = Connections(PORT, ConnectionLimits(max_connections=3, max_body=0, max_unread=1000))
    regular, first, second = Fake(all_of_them, answered=1), Fake(all_of_them), Fake(all_of_them)
    before = counted("full")
    assert all_of_them.admit()
    assert closed(regular, first, second) == [False, True, False]
    assert counted("full") == before + 1


def test_an_address_above_its_limit_loses_its_own_connection() -> None:
    all_of_them = Connections(
        PORT, ConnectionLimits(max_connections=9, max_body=0, max_unread=1000, max_per_address=2)
    )
    regular, first, second = Fake(all_of_them), Fake(all_of_them, address="a"), Fake(all_of_them, address="a")
    assert all_of_them.admit("a")
    assert closed(regular, first, second) == [False, True, False]
    third = Fake(all_of_them, address="a")
    for each in (second, third):
        all_of_them.serve(each)
    assert not all_of_them.admit("a")
    assert all_of_them.admit("b")
    for each in (second, third, third):
        all_of_them.remove(each)
    assert all_of_them.admit("a")


def test_an_answered_connection_is_dropped_when_all_had_answers() -> None:
    all_of_them = Connections(PORT, ConnectionLimits(max_connections=2, max_body=0, max_unread=1000))
    first, second = Fake(all_of_them, answered=5), Fake(all_of_them, answered=1)
    all_of_them.serve(first)
    all_of_them.wait(first)
    assert all_of_them.admit()
    assert closed(first, second) == [False, True]


def test_no_connection_is_admitted_while_all_are_being_served() -> None:
    all_of_them = Connections(PORT, ConnectionLimits(max_connections=1, max_body=0, max_unread=1000))
    one = Fake(all_of_them)
    all_of_them.serve(one)
    assert (all_of_them.admit(), one.ended, all_of_them.is_busy) == (False, False, True)
    all_of_them.remove(one)
    assert (all_of_them.admit(), all_of_them.is_busy) == (True, False)


def test_the_connection_with_most_bytes_is_dropped_above_the_limit() -> None:
    all_of_them = Connections(PORT, ConnectionLimits(max_connections=3, max_body=0, max_unread=1000))
    small, large = Fake(all_of_them), Fake(all_of_them)
    all_of_them.add_unread(large, 700)
    all_of_them.add_unread(small, 300)
    assert closed(small, large) == [False, False]
    all_of_them.add_unread(small, 1)
    assert closed(small, large) == [False, True]
    all_of_them.forget_unread(small)
    all_of_them.add_unread(small, 1000)
    assert not small.ended


def test_a_repeated_end_of_a_connection_counts_once() -> None:
    all_of_them = Connections(PORT, ConnectionLimits(max_connections=2, max_body=0, max_unread=1000))
    gone = Fake(all_of_them)
    all_of_them.add_unread(gone, 900)
    for _ in range(3):
        all_of_them.remove(gone)
    all_of_them.wait(gone)
    left = Fake(all_of_them)
    all_of_them.add_unread(left, 1000)
    assert (left.ended, gone.ended, all_of_them.admit()) == (False, False, True)


def test_connections_past_their_deadline_are_closed_a_few_at_a_time() -> None:
    connections = Connections(PORT, ConnectionLimits(max_connections=1000, max_body=0, max_unread=1000))
    late = [Fake(connections, deadline=1.0) for _ in range(60)]
    patient, served = Fake(connections, deadline=9.0), Fake(connections, deadline=1.0)
    connections.serve(served)
    before = counted("head")
    assert connections.drop_late(2.0)
    assert 0 < sum(closed(*late)) < 60
    while connections.drop_late(2.0):
        pass
    assert (closed(*late), closed(patient, served)) == ([True] * 60, [False, False])
    assert counted("head") == before + 60
