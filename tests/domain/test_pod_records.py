"""Records of pods are the same whether others of their template have been read before or not."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Condition, OwnerReference
from extender.api.objects.pods import Pod
from extender.domain.model import wire_records
from extender.domain.model.ownership import group_name_of
from extender.domain.model.records import PodRecord
from extender.domain.model.shapes import Shapes
from extender.domain.model.wire_records import PodRecordReader, pod_record
from tests.domain.builders import pod
from tests.rows import each_of

UIDS = ("uid-a", "uid-b", "uid-c")
TEXTS = ("", "g", "2", *map(group_name_of, UIDS))
ANNOTATIONS = (
    *(keys.GROUP_ANNOTATION, keys.MIN_MEMBER, keys.QUEUE, keys.ROLE, keys.PREEMPTABLE, keys.MAY_USE),
    *(keys.CHECKPOINT, keys.RUN_TIME, keys.QUEUE_UID, "example.com/other"),
)
LABELS = (
    *(keys.GROUP_LABEL, keys.QUEUE, keys.LOCAL_QUEUE, keys.KUEUE_QUEUE, keys.ROLE, keys.PREEMPTABLE),
    *("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index", "index"),
)
STATEFUL_SET = OwnerReference("apps/v1", "StatefulSet", "s", "uid-s", controller=True)
WAITS = Condition(keys.POD_SCHEDULED, "False", keys.UNSCHEDULABLE, "0/3 nodes")

pods_ = st.builds(
    lambda uid, annotations, labels, owned, namespace, version, waits, **options: _pod(
        pod(f"p-{uid}", uid=uid, annotations=annotations, labels=labels, **options),
        owned=owned,
        namespace=namespace,
        version=version,
        waits=waits,
    ),
    uid=st.sampled_from(UIDS),
    annotations=st.dictionaries(st.sampled_from(ANNOTATIONS), st.sampled_from((*TEXTS, "false")), max_size=2),
    labels=st.dictionaries(st.sampled_from(LABELS), st.sampled_from(TEXTS), max_size=2),
    owned=st.booleans(),
    namespace=st.sampled_from(["team", keys.SYSTEM_NAMESPACE]),
    version=st.sampled_from(["1", "2"]),
    waits=st.booleans(),
    cpu=st.sampled_from(["1", "2"]),
    on=st.sampled_from(["", "n"]),
    gated=st.booleans(),
    priority=st.sampled_from([None, 2 * 10**9]),
    foreign_gate=st.sampled_from(["", "example.com/gate"]),
    run_limit=st.sampled_from([None, 60]),
)


def _pod(made: Pod, owned: bool, namespace: str, version: str, waits: bool) -> Pod:
    owners = [STATEFUL_SET] if owned else None
    meta = replace(made.metadata, namespace=namespace, owner_references=owners, resource_version=version)
    return replace(made, metadata=meta, status=replace(made.status, conditions=[WAITS] if waits else None))


@given(
    st.lists(pods_, min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(UIDS), st.booleans()), min_size=2, max_size=8),
    st.booleans(),
)
def test_a_cache_of_records_changes_no_record(
    templates: list[Pod], made: list[tuple[int, str, bool]], auto_groups: bool
) -> None:
    shapes = Shapes()
    read, reserved = PodRecordReader(shapes, auto_groups), list[PodRecord]()
    for number, uid, ours in made:
        template = templates[number % len(templates)]
        each = replace(template, metadata=replace(template.metadata, name=f"p-{uid}", uid=uid))
        reserved.append(read.record_of(each, ours))
        assert reserved[-1] == pod_record(each, shapes, ours, auto_groups)


def members(count: int, **options: Any) -> list[PodRecord]:
    read = PodRecordReader(Shapes())
    return [read.record_of(pod(f"p-{number}", "g", **options), is_ours=True) for number in range(count)]


def test_records_of_pods_of_one_template_share_equal_parts() -> None:
    one, other = members(2, queue="q", annotations={keys.CHECKPOINT: "60s"})
    assert one.own_group is other.own_group
    assert one.queue is other.queue
    assert one.checkpoint is other.checkpoint
    assert (one.name, other.name) == ("p-0", "p-1")


def test_only_the_pod_itself_can_name_the_group_that_would_be_its_own() -> None:
    read, name = PodRecordReader(Shapes(), auto_groups=True), group_name_of("uid-a")
    other, own = (read.record_of(pod(f"p-{uid}", name, uid=f"uid-{uid}"), is_ours=True) for uid in ("b", "a"))
    assert other.own_group == own.own_group == f"team/{name}"
    assert (other.is_auto, own.is_auto) == (False, True)


@each_of(
    (True, ["team/podgroup-uid-p-0", "team/podgroup-uid-p-1"]), (False, ["team/pod:p-0", "team/pod:p-1"])
)
def test_each_plain_pod_is_a_group(auto_groups: bool, groups: list[str]) -> None:
    read = PodRecordReader(Shapes(), auto_groups)
    records = [read.record_of(pod(f"p-{number}"), is_ours=True) for number in range(2)]
    assert [record.group for record in records] == [record.own_group for record in records] == groups


def test_a_shape_goes_with_the_last_pod_that_has_it() -> None:
    shapes = Shapes()
    read = PodRecordReader(shapes)
    first = read.record_of(pod("p", "g", cpu="3"), is_ours=True)
    assert len(shapes) == 1
    del first
    assert len(shapes) == 0
    assert read.record_of(pod("p", "g", cpu="3"), is_ours=True).shape.requests["cpu"] == 3000


def test_shapes_of_a_namespace_are_shared_with_its_later_pods() -> None:
    shapes = Shapes()
    read = PodRecordReader(shapes)
    first = read.record_of(pod("p-0", "g"), is_ours=True)
    own = shapes.separate(first.namespace, first.shape)
    assert read.record_of(pod("p-1", "g"), is_ours=True).shape is own


def test_few_templates_are_cached_and_no_long_ones() -> None:
    read = PodRecordReader(Shapes())
    most = wire_records._MAX_TEMPLATES
    reserved = [read.record_of(pod(f"p-{number}", f"g-{number}"), is_ours=True) for number in range(most + 9)]
    assert {record.own_group for record in reserved} == {f"team/g-{number}" for number in range(most + 9)}
    assert len(read._templates) == most
    selector = {f"label-{number}": "x" * 60 for number in range(100)}
    read.record_of(pod("p", "long", selector=selector), is_ours=True)
    assert all(len(key) < 5000 for key in read._templates)
