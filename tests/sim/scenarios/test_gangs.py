"""Gangs, as on a real control plane.

Left out are tests of kube-scheduler's process, and a member that is lost as soon as its gang runs:
all is so quick here that Muster may not have noticed by then that the gang ran fully.
"""

from tests.e2e.test_gangs import (
    test_a_gang_needs_the_minimum_of_each_role,
    test_a_gang_of_500_starts_whole,
    test_a_gang_of_three_starts_whole,
    test_a_gang_that_does_not_fit_waits_and_starts_when_capacity_is_free,
    test_a_lost_member_is_replaced_and_the_rest_stays,
    test_members_beyond_the_minimum_start_one_by_one,
    test_thirty_of_fifty_gangs_fit_and_the_others_follow,
    test_two_gangs_that_fit_only_alone_start_one_after_the_other,
)

__all__ = [
    "test_a_gang_needs_the_minimum_of_each_role",
    "test_a_gang_of_500_starts_whole",
    "test_a_gang_of_three_starts_whole",
    "test_a_gang_that_does_not_fit_waits_and_starts_when_capacity_is_free",
    "test_a_lost_member_is_replaced_and_the_rest_stays",
    "test_members_beyond_the_minimum_start_one_by_one",
    "test_thirty_of_fifty_gangs_fit_and_the_others_follow",
    "test_two_gangs_that_fit_only_alone_start_one_after_the_other",
]
