"""Retries of refused pods: as rare as on a real control plane."""

from tests.e2e.test_hot_loops import (
    test_a_gang_that_lacks_capacity_evicts_no_pod_and_costs_nothing,
    test_refused_pods_do_not_come_again_and_again,
)

__all__ = [
    "test_a_gang_that_lacks_capacity_evicts_no_pod_and_costs_nothing",
    "test_refused_pods_do_not_come_again_and_again",
]
