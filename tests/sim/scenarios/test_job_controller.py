"""The job controller that is played, as the real one."""

from tests.e2e.test_job_controller import (
    _cluster,
    test_a_deleted_pod_counts_as_failed,
    test_a_failed_pod_is_made_again_until_the_limit_is_reached,
    test_a_suspended_job_has_no_pods_and_one_that_is_resumed_makes_them,
    test_changed_parallelism_is_followed,
    test_each_index_succeeds_once,
    test_later_pods_come_as_earlier_ones_succeed,
    test_suspended_while_it_runs_a_job_loses_its_pods_without_counting_them,
)

__all__ = [
    "_cluster",
    "test_a_deleted_pod_counts_as_failed",
    "test_a_failed_pod_is_made_again_until_the_limit_is_reached",
    "test_a_suspended_job_has_no_pods_and_one_that_is_resumed_makes_them",
    "test_changed_parallelism_is_followed",
    "test_each_index_succeeds_once",
    "test_later_pods_come_as_earlier_ones_succeed",
    "test_suspended_while_it_runs_a_job_loses_its_pods_without_counting_them",
]
