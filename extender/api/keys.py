"""Names that are part of the API: annotations, labels, gates, resources."""

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"  # scheduler-plugins
QUEUE = "scheduling.volcano.sh/queue-name"  # annotation or label of a pod, annotation of a namespace
ROLE = "volcano.sh/task-spec"  # annotation, else label: the role that minTaskMember counts

GATE = "kube-muster.io/admission"
NUDGE = "kube-muster.io/nudge"
PLACE_MARK = "kube-muster.io/place"
BIND_MARK = "kube-muster.io/bind"
MARKS = frozenset({PLACE_MARK, BIND_MARK})

SCHEDULED = "Scheduled"  # the condition of a PodGroup that says whether it may start, and why not
STOOD_WHOLE = "StoodWhole"  # the condition of a PodGroup that once had all it needs running: never undone

DEFAULT_QUEUE = "default"
DEFAULT_SCHEDULER = "default-scheduler"
