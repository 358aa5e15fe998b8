"""The right to use a restricted queue: the API server's authorizer is asked, and its answer kept briefly."""

from threading import Lock

from cachetools import TTLCache

from extender.domain.admission.access import Subject
from extender.kube.admission import AdmissionApi
from extender.kube.errors import ApiError
from extender.webhooks.reviews import NotKnown

_REMEMBERED = 5.0  # seconds for which a changed RBAC rule may have no effect yet
_MOST = 4096  # answers kept


class AccessReviews:
    def __init__(self, api: AdmissionApi) -> None:
        self._api = api
        self._known: TTLCache[tuple[Subject, str], bool] = TTLCache(_MOST, _REMEMBERED)
        self._lock = Lock()

    def may_use(self, subject: Subject, queue: str, timeout: float) -> bool:
        """Whether RBAC grants the verb `use` on the queue. Raises NotKnown."""
        with self._lock:
            known = self._known.get((subject, queue))
        if known is not None:
            return known
        try:
            may = self._api.may_use(subject, queue, timeout)
        except ApiError as fault:
            raise NotKnown(str(fault)) from fault
        with self._lock:
            self._known[subject, queue] = may
        return may
