"""Terms that select a pod, and pods that a term selects: the same by index as by a comparison with all."""

from collections import Counter
from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from extender.api.objects.pods import LabelSelector, Requirement
from extender.domain.ledger.affinity import MAX_WEIGHT, WIDE_WEIGHT, PodsByLabels, Terms
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Constraints, Shape, Term, TermIndex

NAMESPACES, KEYS, VALUES, NODES = ("a", "b"), ("app", "job"), ("x", "y", "z"), ("n0", "n1", "n2")

labels_ = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "strange"])
requirements = st.builds(
    Requirement, st.sampled_from(KEYS), operators, st.none() | st.lists(st.sampled_from(VALUES), max_size=3)
)
selectors = st.none() | st.builds(
    LabelSelector, st.none() | labels_, st.none() | st.lists(requirements, max_size=2)
)
terms_ = st.builds(
    lambda key, namespaces, selector: Term(key, namespaces, msgspec.json.encode(selector)),
    st.sampled_from(["host", "zone"]),
    st.none() | st.frozensets(st.sampled_from(NAMESPACES)),
    selectors,
)
pods_ = st.lists(st.tuples(st.sampled_from(NAMESPACES), labels_, st.sampled_from(NODES)), max_size=8)


def record(number: int, namespace: str, labels: Mapping[str, str], apart: tuple[Term, ...] = ()) -> PodRecord:
    shape = Shape({"pods": 1}, Constraints(anti_affinity=apart))
    return PodRecord(Uid(f"uid-{number}"), namespace, f"p{number}", shape, labels)


@given(st.lists(terms_, max_size=10, unique=True), pods_, st.data())
def test_the_index_finds_the_terms_that_select_a_pod(
    terms: list[Term], pods: list[tuple[str, dict[str, str], str]], data: st.DataObject
) -> None:
    index = TermIndex()
    for term in terms:
        index.add(term)
    gone = data.draw(st.lists(st.sampled_from(terms), unique=True)) if terms else []
    for term in gone:
        index.remove(term)
    left = [term for term in terms if term not in gone]
    for namespace, labels, _ in pods:
        found = index.terms_selecting(namespace, labels)
        assert len(found) == len(set(found))
        assert set(found) == {term for term in left if term.matches(namespace, labels)}
    for term in left:
        index.remove(term)
    assert not index._terms_at


@given(pods_, st.lists(terms_, min_size=1, max_size=4))
def test_the_pods_that_a_term_selects_are_found_by_their_labels(
    pods: list[tuple[str, dict[str, str], str]], terms: list[Term]
) -> None:
    sets = PodsByLabels()
    records = [(record(n, space, labels), node) for n, (space, labels, node) in enumerate(pods)]
    for number, (pod, node) in enumerate(records):
        sets.add(pod, node, 1)
        term = terms[number % len(terms)]
        there = Counter(at for each, at in records[: number + 1] if term.matches(each.namespace, each.labels))
        assert sets.counts_of(term) == there
    for pod, node in records:
        sets.add(pod, node, -1)
    assert not sets._sets_by_namespace


@given(
    st.lists(st.tuples(st.sampled_from(NAMESPACES), labels_, terms_, st.booleans()), max_size=8), st.data()
)
def test_terms_come_and_go_with_pods_that_stay(
    given_: list[tuple[str, dict[str, str], Term, bool]], data: st.DataObject
) -> None:
    """Pods are counted first or watched first, and removed in any order."""
    terms, standing = Terms(), []
    for number, (namespace, labels, term, counted_first) in enumerate(given_):
        pod = record(number, namespace, labels, (term,))
        if counted_first:
            terms.add(pod, NODES[0], 1)
        terms.follow(pod)
        if not counted_first:
            terms.add(pod, NODES[0], 1)
        standing.append(pod)
        _assert_recounted(terms, standing)
    for pod in data.draw(st.permutations(standing)):
        terms.unfollow(pod.uid)
        terms.add(pod, NODES[0], -1)
        standing.remove(pod)
        _assert_recounted(terms, standing)


def _assert_recounted(terms: Terms, standing: list[PodRecord]) -> None:
    used = {term for pod in standing for term in pod.shape.terms}
    assert terms.selected_counts().keys() == terms.anti_affinity_nodes().keys() == used
    assert len(terms.index()) == len(used)
    for term in used:
        there = sum(term.matches(pod.namespace, pod.labels) for pod in standing)
        assert terms.selected_counts()[term] == ({NODES[0]: there} if there else {})
        assert terms.anti_affinity_nodes()[term] == {
            NODES[0]: sum(term in pod.shape.terms for pod in standing)
        }


@given(
    st.lists(st.tuples(st.sampled_from(NAMESPACES), labels_, terms_, st.booleans()), max_size=8), st.data()
)
def test_terms_of_other_pods_count_where_they_select_a_pod_of_muster(
    given_: list[tuple[str, dict[str, str], Term, bool]], data: st.DataObject
) -> None:
    terms, ours, others = Terms(), list[PodRecord](), list[PodRecord]()

    def check() -> None:
        terms_there = {term for pod in others for term in pod.shape.terms}
        selecting = {term for term in terms_there for pod in ours if term.matches(pod.namespace, pod.labels)}
        assert selecting <= terms.anti_affinity_nodes().keys() <= terms_there
        for pod in ours:
            found = terms.index().terms_selecting(pod.namespace, pod.labels)
            assert set(found) == {term for term in selecting if term.matches(pod.namespace, pod.labels)}
        for term in terms.anti_affinity_nodes():
            assert terms.anti_affinity_nodes()[term] == {
                NODES[0]: sum(term in pod.shape.terms for pod in others)
            }

    for number, (namespace, labels, term, is_ours) in enumerate(given_):
        pod = record(number, namespace, labels, () if is_ours else (term,))
        (ours if is_ours else others).append(pod)
        if is_ours:
            terms.follow(pod)
        else:
            terms.add(pod, NODES[0], 1)
            terms.follow_other(pod)
        check()
    for pod in data.draw(st.permutations([*ours, *others])):
        terms.unfollow(pod.uid)
        (ours if pod in ours else others).remove(pod)
        if pod.shape.terms:
            terms.add(pod, NODES[0], -1)
        check()
    assert not terms._pod_counts
    assert not terms._foreign_terms._members


def wide(number: int) -> Term:
    return Term("host", None, msgspec.json.encode(LabelSelector({"app": f"{number}"})))


def test_a_namespace_may_have_so_many_terms_and_wide_ones_count_for_many() -> None:
    terms, most = Terms(), MAX_WEIGHT // WIDE_WEIGHT
    for number in range(most):
        pod = record(number, "a", {}, (wide(number),))
        assert terms.is_within_limit(pod)
        terms.follow(pod)
    one_more = record(most, "a", {}, (wide(most),))
    narrow = Term("host", frozenset({"a"}), msgspec.json.encode(LabelSelector({"app": "x"})))
    assert not terms.is_within_limit(one_more)
    assert not terms.is_within_limit(record(most, "a", {}, (narrow,)))
    assert terms.is_within_limit(record(most, "a", {}, (wide(3),)))  # which is followed anyway
    assert terms.is_within_limit(record(most, "b", {}, (wide(most),)))
    terms.unfollow(Uid("uid-0"))
    assert terms.is_within_limit(one_more)
    for number in range(1, most):
        terms.unfollow(Uid(f"uid-{number}"))
    assert not terms._weights
    assert not terms._first_namespace


def test_a_copy_stays_as_it_is() -> None:
    terms = Terms()
    term = Term("host", None, msgspec.json.encode(LabelSelector({"app": "x"})))
    first = record(0, "a", {"app": "x"}, (term,))
    terms.follow(first)
    terms.add(first, "n0", 1)
    index, selected = terms.index(), terms.selected_counts()
    terms.add(record(1, "a", {"app": "x"}), "n0", 1)
    terms.unfollow(first.uid)
    assert selected == {term: {"n0": 1}}
    assert index.terms_selecting("a", {"app": "x"}) == [term]
    assert terms.index().terms_selecting("a", {"app": "x"}) == []
