"""Shows planned pods to the scheduler that reads its pods through Muster. Nothing is written to the API."""

from collections.abc import Callable
from functools import partial

from extender.controllers.guard import Guard
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions


class Releaser:
    """Listens to the cycle. While another replica `leads`, nothing is shown."""

    def __init__(self, ledger: Ledger, leads: Callable[[], bool]) -> None:
        self._shown = ledger.shown
        self._leads = leads
        self._guard = Guard("releases")

    def look(self, _: Decisions) -> None:
        if not self._leads():
            self._shown.take_all_back()
            return
        for key in self._shown.due():
            if not self._guard.run(key, partial(self._shown.release, key)):
                self._shown.postpone(key)
