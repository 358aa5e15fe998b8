"""The right to use a restricted queue, asked of the API server's authorizer and remembered for seconds."""

from threading import Lock

from cachetools import TTLCache

from extender.domain.admission.access import Subject
from extender.kube.admission import AdmissionApi
from extender.kube.errors import ApiError
from extender.webhooks.reviews import NotKnown

_REMEMBERED = 5.0  # seconds: as long may somebody be let in, or kept out, after RBAC changed
_MOST = 4096


class AccessReviews:
    def __init__(self, api: AdmissionApi) -> None:
        self._api = api
        self._known: TTLCache[tuple[Subject, str], bool] = TTLCache(_MOST, _REMEMBERED)
        self._lock = Lock()

    def may_use(self, who: Subject, queue: str, timeout: float) -> bool:
        """Whether RBAC grants the verb `use` on the queue. Raises NotKnown."""
        with self._lock:
            known = self._known.get((who, queue))
        if known is not None:
            return known
        try:
            may = self._api.may_use(who, queue, timeout)
        except ApiError as fault:
            raise NotKnown(str(fault)) from fault
        with self._lock:
            self._known[who, queue] = may
        return may
