"""The messages of refused calls. All are constant: a message that changes makes the scheduler try again."""

from extender.domain.model.reasons import REFUSAL_PREFIX, Reason

# ---- filter

NODE_CACHE_NEEDED = f"{REFUSAL_PREFIX}the extender must be configured with nodeCacheCapable: true"
LEFT = f"{REFUSAL_PREFIX}the pod is left to Volcano's own scheduler, which is running"

# ---- bind, before it is held

ALREADY_BOUND = f"{REFUSAL_PREFIX}the pod is already bound"
ANOTHER_UID = f"{REFUSAL_PREFIX}the pod was replaced by another of the same name"
NOT_OURS = f"{REFUSAL_PREFIX}the pod is not managed by Muster"
NOT_SEEN = f"{REFUSAL_PREFIX}{Reason.NOT_READY}"
UNKNOWN_NODE = f"{REFUSAL_PREFIX}the node is unknown"
UNREADABLE = f"{REFUSAL_PREFIX}the pod could not be read"
UNSUITABLE_NODE = f"{REFUSAL_PREFIX}the node's labels or taints do not admit the pod"

# ---- bind, while it is held

ABANDONED = f"{REFUSAL_PREFIX}the caller hung up"
NODE_TAKEN = f"{REFUSAL_PREFIX}the node was taken before the group was complete"
START_ENDED = f"{REFUSAL_PREFIX}the start of the group was given up"
STOPPING = f"{REFUSAL_PREFIX}Muster is stopping"
SUPERSEDED = f"{REFUSAL_PREFIX}another bind call came for the same pod"
TOO_LATE = f"{REFUSAL_PREFIX}the group was not complete in time"

# ---- bind, once it is posted

BOUND_ELSEWHERE = f"{REFUSAL_PREFIX}the pod is already bound to another node"
POD_GONE = f"{REFUSAL_PREFIX}the pod is gone"
POSTING_FAILED = f"{REFUSAL_PREFIX}the binding failed"
