"""Turns: the order of answers where more callers ask than can be answered at the same time."""

import asyncio

from extender.ports.connections import TurnsByAddress


class Line:
    """Requests that wait for the one turn that there is, which somebody has."""

    def __init__(self) -> None:
        self.turns = TurnsByAddress(1)
        self.served: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def join(self, *origins: str) -> None:
        for address in origins:
            self.tasks.append(asyncio.create_task(self._wait(address)))
        await asyncio.sleep(0)

    async def _wait(self, address: str) -> None:
        await self.turns.acquire(address)
        self.served.append(address)

    async def next(self, count: int = 1) -> None:
        for _ in range(count):
            self.turns.release()
            await asyncio.sleep(0)


def test_a_flood_from_one_address_delays_another_by_one_turn() -> None:
    async def scenario() -> list[str]:
        line = Line()
        await line.turns.acquire("api")
        await line.join(*["flood"] * 100, "api", "api", "other")
        await line.next(103)
        return line.served

    assert asyncio.run(scenario()) == ["flood", "api", "other", "flood", "api", *["flood"] * 98]


def test_a_caller_that_hangs_up_loses_its_turn() -> None:
    async def scenario() -> list[str]:
        line = Line()
        await line.turns.acquire("a")
        await line.join("b", "c", "d")
        line.tasks[0].cancel()  # while it waits
        await asyncio.sleep(0)
        line.turns.release()
        line.tasks[1].cancel()  # when it has its turn, and does not know it yet
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await line.next()
        await line.turns.acquire("e")  # all are free
        return line.served

    assert asyncio.run(asyncio.wait_for(scenario(), 10)) == ["d"]
