"""Pods in JSON and in protobuf: the facts read from them, and the three edits without other changes."""

from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.api.protobuf import MAX_FRAME_BYTES
from extender.domain.model.records import Uid
from extender.domain.model.versioned_pod_watch import (
    AS_STORED,
    Appearance,
    BrokenPods,
    PodEvent,
    PodFacts,
    UnwritablePod,
)
from tests.proxy.pod_forms import JSON, PROTOBUF, PodForm
from tests.proxy.sample_pods import INITIAL_EVENTS_END, Json, bookmark, expected, pod, without_kind
from tests.rows import each_of

FORMS = st.sampled_from([JSON, PROTOBUF])
SEEN = PodFacts(Uid("uid-of-train-1"), "team-a", "train-1", "kube-muster", "", 1001)
STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "reason": "Expired", "code": 410}


@pytest.fixture(params=[JSON, PROTOBUF], ids=["json", "protobuf"])
def form(request: pytest.FixtureRequest) -> PodForm:
    found: PodForm = request.param
    return found


def events(form: PodForm, data: bytes) -> list[PodEvent]:
    return form.codec.events().feed(data)


def only(form: PodForm, type_: str, obj: Json) -> PodEvent:
    (event,) = events(form, form.frame(type_, obj))
    return event


def view_of(form: PodForm, obj: Json, version: int, appearance: Appearance) -> Json:
    """Return a client's view of a pod that came in a watch."""
    frame = form.codec.write("MODIFIED", only(form, "ADDED", obj).pod, version, appearance)
    type_, found = form.read(frame)
    assert type_ == "MODIFIED"
    return found


def test_the_facts_of_a_pod(form: PodForm) -> None:
    event = only(form, "ADDED", pod())
    assert (event.type, event.version, event.facts, event.ends_initial) == ("ADDED", 1001, SEEN, False)
    assert (event.frame, event.is_unreadable) == (form.frame("ADDED", pod()), False)
    bound = only(form, "MODIFIED", pod(node="n-1"))
    assert bound.facts == SEEN._replace(node="n-1")


@each_of(("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True))
def test_whether_a_pod_has_ended(phase: str, ended: bool, *, form: PodForm) -> None:
    obj = pod(node="n-1")
    obj["status"] = {**obj.get("status", {}), "phase": phase}
    assert only(form, "MODIFIED", obj).facts == SEEN._replace(node="n-1", has_ended=ended)


def test_bookmarks_and_errors(form: PodForm) -> None:
    end = only(form, "BOOKMARK", bookmark("77", INITIAL_EVENTS_END))
    assert (end.version, end.facts, end.ends_initial, end.is_unreadable) == (77, None, True, False)
    for notes in (None, {}, {"k8s.io/initial-events-end": "false"}, {"other": "true"}):
        assert only(form, "BOOKMARK", bookmark("78", notes))[:4] == ("BOOKMARK", 78, None, False)
    error = only(form, "ERROR", STATUS)
    assert (error[:4], error.is_unreadable) == (("ERROR", 0, None, False), False)


@each_of("", "nine", "-9", " 9", "1_0", "٩", "9" * 5000)
def test_a_version_that_is_no_number_makes_a_pod_unreadable(version: str, *, form: PodForm) -> None:
    event = only(form, "ADDED", pod(version=version))
    assert (event.facts, event.is_unreadable, event.version) == (None, True, 0)
    assert event.frame == form.frame("ADDED", pod(version=version))


def test_an_object_without_uid_is_passed_on_with_its_version(form: PodForm) -> None:
    table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "9"}}
    event = only(form, "ADDED", table)
    assert (event.facts, event.is_unreadable, event.version) == (None, True, 9)


@pytest.mark.parametrize(
    ("appearance", "edits"),
    [
        (AS_STORED, {}),
        (Appearance("node-7"), {"node": "node-7"}),
        (Appearance(has_marker=True), {"asks": True}),
        (Appearance("node-7", has_marker=True), {"node": "node-7", "asks": True}),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"status": {}},
        {"status": {"nominatedNodeName": "elsewhere", "phase": "Pending"}},
        {"spec": {"initContainers": [{"name": "first"}, {"name": "second"}], "nodeSelector": {"a": "b"}}},
    ],
)
def test_only_the_three_edits_change_a_pod(
    form: PodForm, appearance: Appearance, edits: Json, change: Json
) -> None:
    before = {**pod(), **change}
    assert view_of(form, before, 5000, appearance) == expected(before, 5000, **edits)


@pytest.mark.parametrize("appearance", [AS_STORED, Appearance("node-7", has_marker=True)])
def test_the_group_that_a_pod_names_is_hidden_from_the_scheduler(
    form: PodForm, appearance: Appearance
) -> None:
    """Hide it in watches and in lists; a similar text stays."""
    before = pod()
    before["metadata"]["annotations"] = {"schedulingGroup": "\xda\x02"}
    named = {**before, "spec": {**before["spec"], "schedulingGroup": {"podGroupName": "g"}}}
    plain, similar = view_of(form, before, 9, appearance), view_of(form, named, 9, appearance)
    assert similar["spec"].pop("schedulingGroup", None) is None
    plain["spec"].pop("schedulingGroup", None)
    assert similar == plain
    writer = form.codec.list_writer(form.codec.list_metadata(9))
    (item,) = form.codec.page(form.listed({}, [named])).pods
    body = b"".join([writer.start(), writer.item(item.pod, appearance), writer.end()])
    (listed,) = form.read_list(body)["items"]
    assert listed["spec"].get("schedulingGroup") is None


@pytest.mark.parametrize("group", [{"schedulingGroup": {"podGroupName": "g"}}, {}])
def test_claims_of_a_hidden_group_have_their_own_names(form: PodForm, group: Json) -> None:
    """The scheduler would refuse them by their template; other pods keep theirs."""
    by_template = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("made", "missing")]
    named = {"name": "named", "resourceClaimName": "c"}
    before = pod()
    before["spec"] |= {"resourceClaims": [*by_template, named], **group}
    before["status"]["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": "g-made-x"}]
    first = {"name": "made", "resourceClaimName": "g-made-x"} if group else by_template[0]
    assert view_of(form, before, 9, AS_STORED)["spec"]["resourceClaims"] == [first, by_template[1], named]


def test_missing_parts_of_a_pod_are_added(form: PodForm) -> None:
    bare = {key: value for key, value in pod().items() if key not in ("spec", "status")}
    assert view_of(form, bare, 9, Appearance("n", has_marker=True)) == expected(bare, 9, "n", asks=True)


def test_a_changed_pod_can_be_read_and_changed_again(form: PodForm) -> None:
    frame = form.codec.write("ADDED", only(form, "ADDED", pod()).pod, 2000, Appearance("n-1"))
    (event,) = events(form, frame)
    assert event.facts == SEEN._replace(version=2000)
    assert view_of(form, form.read(frame)[1], 3000, Appearance("n-2")) == expected(pod(), 3000, "n-2")


def test_a_deletion_has_the_names_of_the_pod_and_the_version_of_the_stream(form: PodForm) -> None:
    frame = form.codec.deleted(SEEN._replace(node="n-1"), 6000)
    (event,) = events(form, frame)
    assert (event.type, event.facts) == ("DELETED", SEEN._replace(version=6000))
    type_, obj = form.read(frame)
    assert (type_, obj["kind"], obj["status"]) == ("DELETED", "Pod", {})
    assert obj["metadata"] == {
        "name": "train-1",
        "namespace": "team-a",
        "uid": "uid-of-train-1",
        "resourceVersion": "6000",
    }


def test_a_page_of_a_list(form: PodForm) -> None:
    metadata = {"resourceVersion": "900", "continue": "c"}
    page = form.codec.page(form.listed(metadata, [pod(), pod(version="x"), pod("b", node="n")]))
    assert (page.version, page.continue_token) == (900, "c")
    first, second, third = (item.facts for item in page.pods)
    assert (first, second) == (SEEN, None)
    assert third == SEEN._replace(uid=Uid("uid-of-b"), name="b", node="n")
    assert form.codec.page(form.listed({}, []))[:2] == (0, "")


def test_a_pod_out_of_a_list_is_written_with_its_kind(form: PodForm) -> None:
    item = form.codec.page(form.listed({}, [pod()])).pods[0].pod
    frame = form.codec.write("ADDED", item, 1200, Appearance("n-1"))
    assert form.read(frame) == ("ADDED", expected(pod(), 1200, "n-1"))


def test_a_list_of_another_kind_is_refused(form: PodForm) -> None:
    with pytest.raises(BrokenPods, match="another kind"):
        form.codec.page(form.listed({"resourceVersion": "9"}, [], kind="Table"))


@each_of(*product([0, 1, 3], [True, False]))
def test_a_list_is_written_piece_by_piece(count: int, one_page: bool, *, form: PodForm) -> None:
    metadata = {"resourceVersion": "900", "continue": "c"}
    pods = [pod(f"p-{number}") for number in range(count)]
    page = form.codec.page(form.listed(metadata, pods))
    writer = form.codec.list_writer(form.codec.list_metadata(page.version) if one_page else page.metadata)
    pieces = [writer.start(), *(writer.item(item.pod, AS_STORED) for item in page.pods), writer.end()]
    assert form.read_list(b"".join(pieces)) == {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "900"} if one_page else metadata,
        "items": [without_kind(obj) for obj in pods],
    }


def test_a_pod_of_a_list_keeps_its_own_version(form: PodForm) -> None:
    item = form.codec.page(form.listed({}, [pod()])).pods[0].pod
    writer = form.codec.list_writer(form.codec.list_metadata(900))
    body = writer.start() + writer.item(item, Appearance("n-1", has_marker=True)) + writer.end()
    (written,) = form.read_list(body)["items"]
    assert written == without_kind(expected(pod(), node="n-1", asks=True))


def test_a_frame_without_end_is_an_error_before_it_fills_the_memory(form: PodForm) -> None:
    stream, piece = form.codec.events(), b"\0\xff" * (1 << 19)  # as a length: 16 MiB less 64 KiB
    for _ in range((MAX_FRAME_BYTES >> 20) - 1):
        assert stream.feed(piece) == []
    with pytest.raises(BrokenPods):
        stream.feed(piece * 2)


@each_of((MAX_FRAME_BYTES + 1).to_bytes(4), b"\xff\xff\xff\xff")
def test_a_length_above_the_bound_is_an_error_at_once(begun: bytes) -> None:
    with pytest.raises(BrokenPods, match="longer than"):
        PROTOBUF.codec.events().feed(begun)


def test_the_largest_pod_is_read_and_changed(form: PodForm) -> None:
    large = pod(**{f"label-{number}": "<" * 60 for number in range(20_000)})
    assert only(form, "ADDED", large).facts == SEEN
    assert view_of(form, large, 5, Appearance("n-1")) == expected(large, 5, "n-1")


@given(form=FORMS, data=st.data())
def test_wherever_the_bytes_are_cut_the_events_are_the_same(form: PodForm, data: st.DataObject) -> None:
    stream = form.frame("ADDED", pod()) + form.frame("BOOKMARK", bookmark("7", INITIAL_EVENTS_END))
    stream += form.frame("ADDED", pod(version="x")) + form.frame("MODIFIED", pod("☃", node="n"))
    stream += form.frame("ERROR", STATUS) + form.frame("DELETED", pod())[:-1]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    splitter = form.codec.events()
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found = [event for piece in pieces for event in splitter.feed(piece)]
    assert found == events(form, stream)
    assert b"".join(event.frame for event in found) == stream[: -len(form.frame("DELETED", pod())) + 1]
    assert len(found) == 5


TEXTS = st.text(max_size=12)
LIKE_FIELDS = st.sampled_from(
    ["resourceVersion", "nodeName", "uid", "metadata", "type", "k8s\0", "}\n", "2\x00"]
)


@given(
    form=FORMS,
    names=st.dictionaries(TEXTS | LIKE_FIELDS, TEXTS | LIKE_FIELDS, min_size=1, max_size=8),
    node=TEXTS,
    asks=st.booleans(),
    version=st.integers(1, 2**63),
)
def test_any_texts_of_a_pod_stay_as_they_are(
    form: PodForm, names: dict[str, str], node: str, asks: bool, version: int
) -> None:
    obj = pod()
    obj["metadata"] = {**obj["metadata"], "labels": names, "annotations": names}
    obj["spec"] = {**obj["spec"], "nodeSelector": names}
    assert only(form, "ADDED", obj).facts == SEEN
    assert view_of(form, obj, version, Appearance(node, asks)) == expected(obj, version, node, asks)


@given(form=FORMS, data=st.binary(max_size=200), at=st.integers(0, 400), keep=st.integers(0, 400))
def test_hostile_bytes_raise_the_declared_errors_alone(
    form: PodForm, data: bytes, at: int, keep: int
) -> None:
    good, body = form.frame("ADDED", pod()), form.listed({"resourceVersion": "9"}, [pod()])
    for hostile in (data, good[:at] + data + good[at + keep :]):
        with suppress(BrokenPods, UnwritablePod):
            for event in events(form, hostile):
                form.codec.write("ADDED", event.pod, 1, Appearance("n", has_marker=True))
    for hostile in (data, body[:at] + data + body[at + keep :]):
        with suppress(BrokenPods, UnwritablePod):
            for item in form.codec.page(hostile).pods:
                form.codec.list_writer(b"").item(item.pod, Appearance("n", has_marker=True))
