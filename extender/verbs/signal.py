"""What a coroutine waits for, and any thread may give."""

import asyncio
from contextlib import suppress


class Signal:
    """Given once. To be made in the event loop in which it is waited for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given = self._loop.create_future()

    def give(self) -> None:
        """From any thread; never blocks."""
        with suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            self._loop.call_soon_threadsafe(self._note)

    async def wait(self, seconds: float) -> None:
        """Until it is given, but not longer than so many seconds."""
        await asyncio.wait((self._given,), timeout=max(seconds, 0.0))

    def _note(self) -> None:
        if not self._given.done():
            self._given.set_result(None)
