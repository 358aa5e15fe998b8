"""Queues, as on a real control plane. What CRDs validate is not played here."""

from tests.e2e.test_queues import (
    test_a_gang_waits_for_its_queue_to_exist,
    test_a_group_from_before_its_queue_was_closed_still_starts,
    test_a_group_in_a_closed_queue_waits_until_it_opens,
    test_a_group_that_comes_before_its_pods_loses_no_time,
    test_a_queue_above_its_share_waits_while_another_could_use_the_capacity,
    test_a_queue_stays_above_its_share_while_no_other_queue_wants_the_capacity,
    test_a_queue_stops_at_its_capability,
    test_pods_wait_for_their_group_to_exist,
    test_two_gangs_above_the_shares_of_their_queues_do_not_leave_the_cluster_idle,
)

__all__ = [
    "test_a_gang_waits_for_its_queue_to_exist",
    "test_a_group_from_before_its_queue_was_closed_still_starts",
    "test_a_group_in_a_closed_queue_waits_until_it_opens",
    "test_a_group_that_comes_before_its_pods_loses_no_time",
    "test_a_queue_above_its_share_waits_while_another_could_use_the_capacity",
    "test_a_queue_stays_above_its_share_while_no_other_queue_wants_the_capacity",
    "test_a_queue_stops_at_its_capability",
    "test_pods_wait_for_their_group_to_exist",
    "test_two_gangs_above_the_shares_of_their_queues_do_not_leave_the_cluster_idle",
]
