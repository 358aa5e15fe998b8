"""Preemption, as on a real control plane: after a failed filter, with the extender's say."""

from tests.e2e.test_preemption import (
    scheduler,
    test_a_member_that_its_gang_can_spare_gives_way,
    test_an_urgent_member_evicts_no_pod,
    test_an_urgent_pod_takes_the_place_of_another_pod_and_of_no_gang,
    test_an_urgent_pod_waits_where_only_gangs_could_give_way,
    test_two_urgent_pods_evict_no_more_members_than_a_gang_can_spare,
    urgent,
)

__all__ = [
    "scheduler",
    "test_a_member_that_its_gang_can_spare_gives_way",
    "test_an_urgent_member_evicts_no_pod",
    "test_an_urgent_pod_takes_the_place_of_another_pod_and_of_no_gang",
    "test_an_urgent_pod_waits_where_only_gangs_could_give_way",
    "test_two_urgent_pods_evict_no_more_members_than_a_gang_can_spare",
    "urgent",
]
