"""A fact about the cluster that is looked up at intervals, and that Muster can start without."""

from extender.kube.errors import ApiError
from extender.kube.polling import Poller
from extender.telemetry.logs import logger

log = logger(__name__)

PERIOD = 30.0  # seconds between two looks
_SOON = 2.0  # seconds after a look that failed, while nothing is known
_PATIENCE = 1.0  # seconds that the start waits for the first look


class PolledFact:
    """Subclasses say what it is. `name`: of the thread; `unknown`: what is logged when a look fails."""

    name: str
    unknown: str

    def __init__(self) -> None:
        self.holds: bool | None = None  # None: no look has succeeded yet
        self._poller = Poller(self.name, PERIOD, self._poll)

    def ask(self) -> bool:
        """Whether it holds now. Raises ApiError."""
        raise NotImplementedError

    def learn(self, before: bool | None) -> None:
        """What follows from `holds`, after each look that succeeded; it was `before` until then."""
        raise NotImplementedError

    def start(self) -> None:
        self._poller.start(_PATIENCE)

    def stop(self) -> None:
        self._poller.stop()

    def look(self) -> None:
        try:
            holds = self.ask()
        except ApiError as fault:
            log.warning(self.unknown, error=str(fault))
            return
        before, self.holds = self.holds, holds
        self.learn(before)

    def _poll(self) -> float | None:
        self.look()
        return _SOON if self.holds is None else None
