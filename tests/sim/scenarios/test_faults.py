"""Nodes taken, requests that fail, members that go, as on a real control plane. Wires are not cut here."""

from tests.e2e.test_faults import (
    muster,
    test_a_burst_of_bindings_with_every_kind_of_failure,
    test_a_gang_that_never_ran_fully_is_completed_by_a_replacement,
    test_a_gang_that_never_ran_fully_is_undone_and_one_that_did_is_not,
    test_a_member_deleted_at_the_barrier_is_replaced,
    test_a_member_deleted_at_the_barrier_without_a_replacement,
    test_a_node_that_goes_while_it_is_held_is_not_bound_to,
    test_a_start_without_free_capacity_is_given_up_for_others_and_retried,
    test_only_the_members_whose_node_was_taken_are_planned_again,
)

__all__ = [
    "muster",
    "test_a_burst_of_bindings_with_every_kind_of_failure",
    "test_a_gang_that_never_ran_fully_is_completed_by_a_replacement",
    "test_a_gang_that_never_ran_fully_is_undone_and_one_that_did_is_not",
    "test_a_member_deleted_at_the_barrier_is_replaced",
    "test_a_member_deleted_at_the_barrier_without_a_replacement",
    "test_a_node_that_goes_while_it_is_held_is_not_bound_to",
    "test_a_start_without_free_capacity_is_given_up_for_others_and_retried",
    "test_only_the_members_whose_node_was_taken_are_planned_again",
]
