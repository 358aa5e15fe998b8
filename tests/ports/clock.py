"""Event loop whose clock a test advances."""

import asyncio


class Clock(asyncio.SelectorEventLoop):
    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped
