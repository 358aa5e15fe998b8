"""Subjects that may use a queue: asked once within a few seconds, and never guessed."""

import pytest

from extender.domain.admission.access import Subject
from extender.kube.access import AdmissionApi
from extender.kube.errors import Unreachable
from extender.webhooks.lookups import access_reviews
from extender.webhooks.reviews import NotKnown

ALICE, BOB = Subject("alice"), Subject("bob")


class Api(AdmissionApi):
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.away = False

    def may_use(self, subject: Subject, queue: str, timeout: float = 10) -> bool:
        self.asked.append((subject.user, queue))
        if self.away:
            raise Unreachable("away")
        return subject is ALICE


def test_an_answer_is_cached_by_user_and_action() -> None:
    api = Api()
    may_use = access_reviews(api)
    for _ in range(3):
        assert may_use(ALICE, "a", 1)
        assert not may_use(BOB, "a", 1)
    assert may_use(ALICE, "b", 1)
    assert api.asked == [("alice", "a"), ("bob", "a"), ("alice", "b")]


def test_users_with_other_groups_are_cached_separately() -> None:
    api = Api()
    may_use = access_reviews(api)
    may_use(Subject("carol", groups=("dev",)), "a", 1)
    may_use(Subject("carol"), "a", 1)
    assert len(api.asked) == 2


def test_a_failed_review_is_not_cached() -> None:
    api = Api()
    may_use = access_reviews(api)
    api.away = True
    with pytest.raises(NotKnown, match="away"):
        may_use(ALICE, "a", 1)
    api.away = False
    assert may_use(ALICE, "a", 1)
