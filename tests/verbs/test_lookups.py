"""Pods read for calls that cannot be answered without: no call waits long, and only a few threads wait."""

import asyncio
from threading import Event
from typing import Any

import pytest

from extender.api.objects.pods import Pod
from extender.kube.errors import Forbidden, Unreachable
from extender.verbs import verbs
from extender.verbs.verbs import Lookups
from tests.controllers.api import Api
from tests.domain.builders import pod
from tests.verbs.stage import PATIENCE


class Slow(Api):
    """Reader that answers no read before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = Event()

    def pod(self, namespace: str, name: str, timeout: float = 10) -> Pod:
        self._record("pod", name)
        self.released.wait(PATIENCE)
        return pod(name)


async def answers(asked: Lookups, count: int) -> list[Any]:
    return await asyncio.gather(*(asked.pod("team", "p") for _ in range(count)), return_exceptions=True)


def test_a_look_up_returns_the_pod_or_the_refusal() -> None:
    api = Api()
    api.pods["p"] = pod("p")
    api.fail("pod", Forbidden(403))
    refused, found = asyncio.run(answers(Lookups(api), 1)) + asyncio.run(answers(Lookups(api), 1))
    assert isinstance(refused, Forbidden)
    assert found.metadata.name == "p"


def test_many_look_ups_in_a_slow_api_server_share_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "_LOOKUP_TIMEOUT", 0.1)
    api = Slow()
    found = asyncio.run(answers(Lookups(api), 500))
    assert {type(each) for each in found} == {Unreachable}
    assert len(api.done("pod")) == verbs._THREAD_COUNT
    api.released.set()
