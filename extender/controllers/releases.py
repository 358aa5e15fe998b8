"""Shows planned pods to the scheduler that reads its pods through Muster. Nothing is written to the API."""

from collections.abc import Callable

from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions


class Releaser:
    """Listens to the cycle. While another replica `leads`, nothing is shown."""

    def __init__(self, ledger: Ledger, leads: Callable[[], bool]) -> None:
        self._shown = ledger.shown
        self._leads = leads

    def look(self, _: Decisions) -> None:
        if self._leads():
            self._shown.release()
        else:
            self._shown.take_all_back()
