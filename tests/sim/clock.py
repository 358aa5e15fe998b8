"""Clock that a test advances."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.5

    def __call__(self) -> float:
        return self.now
