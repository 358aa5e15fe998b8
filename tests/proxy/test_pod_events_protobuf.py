"""Pods in protobuf that only protobuf can write."""

import pytest

from extender.domain.model.versioned_pod_watch import Appearance, BrokenPods, PodEvent
from tests.proxy import protobuf_messages as messages
from tests.proxy.pod_forms import PROTOBUF
from tests.proxy.protobuf_messages import field, varint
from tests.proxy.sample_pods import expected, pod
from tests.rows import each_of

CODEC = PROTOBUF.codec
POD = messages.encoded(pod(), messages.POD)
TYPE = field(1, b"ADDED")
NAMED = field(1, field(1, b"v1") + field(2, b"Pod"))


def framed(event: bytes) -> bytes:
    return len(event).to_bytes(4) + event


def holding(obj: bytes) -> bytes:
    return framed(TYPE + field(2, field(1, obj)))


def only(data: bytes) -> PodEvent:
    (event,) = CODEC.events().feed(data)
    return event


@each_of(
    b"",  # empty
    b"\xff",  # number cut
    b"\xff" * 30,  # number too long
    field(2, field(1, b"k8s\0")),  # no type
    TYPE + b"\x12\x7f",  # cut
    field(1, b"\xff") + field(2, b""),  # no text
    TYPE + field(2, b"\x0f"),  # bad object
)
def test_a_malformed_event_ends_the_stream(event: bytes) -> None:
    with pytest.raises(BrokenPods):
        CODEC.events().feed(framed(event))


@each_of(
    b"",  # empty
    b"{}",  # json
    b"k8s\1" + NAMED + field(2, POD),  # prefix
    b"k8s\0" + field(2, POD),  # no kind
    b"k8s\0" + field(1, b"\xff") + field(2, POD),  # bad kind
    b"k8s\0" + NAMED + field(2, POD[:-1]),  # cut
    b"k8s\0" + NAMED + field(2, field(1, field(5, b"\xff") + field(6, b"9"))),  # uid no text
    b"k8s\0" + NAMED + field(2, field(1, b"\x28\x05" + field(6, b"9"))),  # uid a number
    b"k8s\0" + NAMED + field(2, POD + field(2, b"\x51")),  # 64 bits
)
def test_a_pod_that_cannot_be_read_costs_one_event_only(obj: bytes) -> None:
    bad = holding(obj)
    broken, good = CODEC.events().feed(bad + PROTOBUF.frame("ADDED", pod()))
    assert (broken.facts, broken.is_unreadable, broken.frame) == (None, True, bad)
    assert good.facts is not None


def test_of_a_repeated_field_the_last_value_counts_and_messages_are_merged() -> None:
    again = field(1, field(6, b"2000")) + field(2, field(10, b"n-9"))
    event = only(holding(b"k8s\0" + NAMED + field(2, POD[:0] + POD + again)))
    assert event.facts is not None
    assert (event.facts.name, event.facts.version, event.facts.node) == ("train-1", 2000, "n-9")


def test_unknown_fields_stay() -> None:
    unknown = field(99, b"kept") + varint(98 << 3) + varint(2**64 - 1)
    event = only(holding(b"k8s\0" + NAMED + field(2, POD + unknown)))
    frame = CODEC.write("ADDED", event.pod, 5, Appearance("n-1"))
    assert unknown in frame
    assert PROTOBUF.read(frame)[1] == expected(pod(), 5, "n-1")


@each_of(0, 1, 127, 128, 16_383, 16_384, 2_097_152)
def test_lengths_of_any_size(size: int) -> None:
    obj = pod(filler="x" * size)
    event = only(PROTOBUF.frame("ADDED", obj))
    frame = CODEC.write("ADDED", event.pod, 5, Appearance("n" * 200, has_marker=True))
    assert PROTOBUF.read(frame)[1] == expected(obj, 5, "n" * 200, asks=True)


def test_a_pod_with_thousands_of_names() -> None:
    obj = pod(**{f"label-{number}": str(number) for number in range(5000)})
    obj["metadata"]["annotations"] = obj["spec"]["nodeSelector"] = obj["metadata"]["labels"]
    event = only(PROTOBUF.frame("ADDED", obj))
    assert event.facts is not None
    assert PROTOBUF.read(CODEC.write("ADDED", event.pod, 5, Appearance("n")))[1] == expected(obj, 5, "n")


@each_of(b"", b"k8s\0", b"k8s\0\xff", b'{"kind":"PodList"}', b"k8s\0" + NAMED)
def test_malformed_lists_of_pods(body: bytes) -> None:
    with pytest.raises(BrokenPods):
        CODEC.page(body)


def test_a_pod_that_cannot_be_read_costs_the_others_of_its_page_nothing() -> None:
    bad = field(1, field(5, b"\xff") + field(6, b"9"))
    named = field(1, field(1, b"v1") + field(2, b"PodList"))
    page = CODEC.page(b"k8s\0" + named + field(2, field(2, bad) + field(2, POD)))
    assert [item.pod for item in page.pods] == [bad, POD]
    assert [item.facts is None for item in page.pods] == [True, False]
