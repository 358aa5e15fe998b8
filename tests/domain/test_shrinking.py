"""Number of members with which shrinkable jobs start."""

from hypothesis import given
from hypothesis import strategies as st

from extender.domain.scheduling.gang_admission import largest_fitting

_COUNTS = st.dictionaries(
    st.sampled_from("abc"), st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1
)


def test_all_roles_give_up_the_same_part() -> None:
    found = largest_fitting(
        {"a": 20, "b": 30, "c": 15}, {"b": 10, "c": 5}, lambda members: sum(members.values()) <= 50
    )
    assert found == {"a": 20, "b": 20, "c": 10}


def test_no_size_is_found_where_the_minimum_does_not_fit_or_no_role_may_shrink() -> None:
    assert largest_fitting({"a": 3}, {"a": 2}, lambda members: members["a"] <= 1) is None
    assert largest_fitting({"a": 3}, {}, lambda _: True) is None


@given(counts=_COUNTS, limit=st.integers(0, 150))
def test_the_found_size_fits_and_one_more_step_does_not(
    counts: dict[str, tuple[int, int]], limit: int
) -> None:
    most = {role: n for role, (n, _) in counts.items()}
    least = {role: n for role, (_, n) in counts.items()}
    found = largest_fitting(most, least, lambda members: sum(members.values()) <= limit)
    if found is None:
        assert sum(min(most[role], least[role]) for role in most) > limit or all(
            least[role] >= most[role] for role in most
        )
        return
    assert sum(found.values()) <= limit
    assert all(min(most[role], least[role]) <= n <= most[role] for role, n in found.items())
    if sum(most.values()) <= limit:
        assert found == most
