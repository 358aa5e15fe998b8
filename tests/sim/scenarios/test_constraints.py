"""Pods that are particular about nodes. Topology spread, volumes and policies are not played here."""

from tests.e2e.test_constraints import (
    test_gated_and_ungated_members_start_together,
    test_members_that_do_not_tolerate_a_taint,
    test_members_that_keep_apart,
    test_members_whose_node_selector_no_node_has,
    test_members_with_a_host_port,
    test_more_members_that_keep_apart_than_nodes,
)

__all__ = [
    "test_gated_and_ungated_members_start_together",
    "test_members_that_do_not_tolerate_a_taint",
    "test_members_that_keep_apart",
    "test_members_whose_node_selector_no_node_has",
    "test_members_with_a_host_port",
    "test_more_members_that_keep_apart_than_nodes",
]
