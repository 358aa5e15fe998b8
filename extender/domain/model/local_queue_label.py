"""The LocalQueue that a PodGroup, a pod or a job names by a label."""

from typing import NamedTuple

from extender.api.keys import KUEUE_QUEUE, LOCAL_QUEUE
from extender.api.objects.base import Meta


class LocalQueueLabel(NamedTuple):
    name: str  # of a LocalQueue of its namespace, whether there is one or not
    key: str  # of the label: the user's own choice is kept where the label is copied

    @property
    def is_kueues(self) -> bool:
        """Whether Kueue reads the same label."""
        return self.key == KUEUE_QUEUE


def local_queue_label(meta: Meta) -> LocalQueueLabel | None:
    """Muster's own label counts before Kueue's. None if neither is there; one without a value names
    nothing."""
    labels = meta.labels or {}
    named = (LocalQueueLabel(labels.get(key, ""), key) for key in (LOCAL_QUEUE, KUEUE_QUEUE))
    return next((label for label in named if label.name), None)
