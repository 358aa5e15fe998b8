"""The name of the queue that is made for a node of a tree, or for a namespace."""

import hashlib
import re

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE

_LONGEST = 63  # as long as a label's value, because pods may name their queue in a label
_VALID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUFFIX = "-quota"


def queue_name(name: str) -> str:
    """`name` itself, if a queue may have it. `root` and `default`, which every cluster has, become
    `root-quota` and `default-quota`. Of another name, what is allowed is kept, and a digest of it is put
    behind that: different names stay different."""
    if name in (ROOT_QUEUE, DEFAULT_QUEUE):
        return name + _SUFFIX
    if len(name) <= _LONGEST and _VALID.fullmatch(name):
        return name
    kept = re.sub("[^a-z0-9]+", "-", name[:_LONGEST].lower()).strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{kept[:40].rstrip('-') or 'queue'}-{digest}"
