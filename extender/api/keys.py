"""Names that are part of the API: annotations, labels, gates, resources."""

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"  # scheduler-plugins
QUEUE = "scheduling.volcano.sh/queue-name"  # annotation or label of a pod, annotation of a namespace
# Label of a namespace: "true" lets Muster manage its pods. Annotation of a pod there: "false" exempts it.
MANAGED = "kube-muster.io/managed"
LOCAL_QUEUE = "kube-muster.io/local-queue"  # label of a PodGroup, pod or job: the name of a LocalQueue
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"  # Kueue's label for the LocalQueue
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"  # annotation of a queue: "true" if only its parent closes it
HIERARCHY = "volcano.sh/hierarchy"  # annotation of a queue: its path, for hierarchical fair shares
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"  # annotation of a queue: a weight for each part
VOLCANO_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"  # annotation of a controller of pods
MIN_MEMBER = "kube-muster.io/min-member"  # annotation of a job, pod, namespace or queue: "all" or a number
ROLE = "volcano.sh/task-spec"  # annotation or label of a pod: its role in minTaskMember
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"  # label of a JobSet's pods: the name of their Job
FOR_POD_GROUPS = "kube-muster.io/for-podgroups"  # annotation of a PriorityClass: only PodGroups may use it
PREEMPTABLE = "volcano.sh/preemptable"  # annotation or label of a pod or PodGroup: "false" forbids eviction
# Annotations of a pod: the number of pods of its Job that must stay, or that can be evicted. Set only one.
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"

LAST_COMMAND = "kube-muster.io/last-command"  # annotation of a queue: the UID of the last executed Command
QUOTA_SOURCE = "kube-muster.io/quota-source"  # annotation of a queue: the quota that Muster made it from
QUOTA_NAMESPACES = "kube-muster.io/quota-namespaces"  # annotation of a queue: namespaces of the quota
QUOTA_ENDED = "kube-muster.io/quota-ended"  # annotation of a queue: "true" after its quota was deleted
GATE = "kube-muster.io/admission"  # scheduling gate of pods that may not start yet
NUDGE = "kube-muster.io/nudge"  # annotation of a pod: a new value makes the scheduler try the pod again
PLACE_MARK = "kube-muster.io/place"  # marker resource: the scheduler calls filter for the pod
BIND_MARK = "kube-muster.io/bind"  # marker resource: the scheduler calls bind for the pod
MARKERS = frozenset({PLACE_MARK, BIND_MARK})
ASK_MARK = "kube-muster.io/ask"  # marker resource: the scheduler calls filter for a pod from the proxy
HOLD = "kube-muster.io/hold"  # annotation of a PodGroup: "true" keeps it from starting
# Annotation of a PodGroup, a job or a pod: the time of the last checkpoint, or the time between checkpoints.
CHECKPOINT = "kube-muster.io/checkpoint"
RUN_TIME = "kube-muster.io/run-time"  # annotation of a PodGroup or job: its expected run time
STARTED = "kube-muster.io/started"  # annotation of a job: the time at which Muster unsuspended it
PARTIAL_START = "kube-muster.io/partial-start"  # annotation of a job: "3/8" if 3 of 8 pods started
MIN_PARALLELISM = "kube-muster.io/min-parallelism"  # annotation of a job: the minimum of pods to start with
REQUIRED_TOPOLOGY = "kube-muster.io/required-topology"  # annotation of pods: label of their domain
PREFERRED_TOPOLOGY = "kube-muster.io/preferred-topology"  # annotation of pods: label of a preferred domain
KUEUE_PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"  # Kueue's PREFERRED_TOPOLOGY
KUEUE_REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"  # Kueue's REQUIRED_TOPOLOGY
SLICE_TOPOLOGY = "kube-muster.io/slice-topology"  # annotation of pods: node label of a slice's domain
SLICE_SIZE = "kube-muster.io/slice-size"  # annotation of pods: number of pods of a slice
KUEUE_SLICE_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
# Annotation of a PodGroup, job or pod: what to do if lost members no longer fit their domain.
ON_LOST_DOMAIN = "kube-muster.io/on-lost-domain"
WAIT, RESTART = "wait", "restart"  # values of ON_LOST_DOMAIN; the default is to wait
KUEUE_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"  # Kueue's MIN_PARALLELISM
START_TIMEOUTS = "kube-muster.io/start-timeouts"  # annotation of a PodGroup: start timeouts in a row
SPREAD = "Spread"  # spec.placement of a queue
HISTORICAL, INSTANT = "Historical", "Instant"  # spec.fairShare of a queue
STOP_NONE, STOP_HOLD, STOP_DRAIN = "None", "Hold", "HoldAndDrain"  # spec.stopPolicy of a queue
# Annotation "QUEUE/KIND" of a PodGroup, pod or job: the author of this KIND may use the QUEUE.
MAY_USE = "kube-muster.io/may-use"
AUTHOR = "kube-muster.io/author"  # annotation of a job or pod, KIND/USER: the user who made it
SUBMITTER = "kube-muster.io/submitter"  # annotation of a PodGroup: its author, recorded at admission
ADMITTED = "kube-muster.io/admitted"  # annotation of a PodGroup whose start is admitted but not complete
# Annotation of a PodGroup or pod: the UID of the queue that accepted or started it, and the object's own UID.
QUEUE_UID = "kube-muster.io/queue-uid"
LOST_WORK = "kube-muster.io/lost-work"  # annotation of a PodGroup: work lost by evictions, in seconds
STOOD_WHOLE_NOTE = "kube-muster.io/stood-whole"  # the condition StoodWhole as an annotation

SCHEDULED = "Scheduled"  # the condition of a PodGroup that says whether it may start, and if not, why
DISRUPTION_TARGET = "DisruptionTarget"  # the condition of a pod that says why it is being evicted
STOOD_WHOLE = "StoodWhole"  # the condition of a PodGroup whose needed members once all ran: it stays True

INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"  # the condition of a Kubernetes PodGroup
COMPOSITE_SCHEDULED = f"Composite{INITIALLY_SCHEDULED}"  # the condition of a composite of PodGroups
POD_SCHEDULED = "PodScheduled"  # the condition of a pod that says whether it has a node, and if not, why
UNSCHEDULABLE = "Unschedulable"  # reason of POD_SCHEDULED if capacity is lacking: autoscalers add nodes
SCHEDULING_GATED = "SchedulingGated"  # reason of POD_SCHEDULED on a pod with scheduling gates

ENDED_PHASES = ("Succeeded", "Failed")  # phases of a pod that never runs again

SYSTEM_NAMESPACE = "kube-system"
NEVER_ADOPTED = (SYSTEM_NAMESPACE, "kube-muster")  # namespaces whose pods Muster itself may need
SYSTEM_PRIORITY = 2_000_000_000  # the lowest priority of Kubernetes' own classes
NEVER = "Never"  # a preemptionPolicy
BUDGETS, PREEMPTABLE_WORD = "PodDisruptionBudgets", "Preemptable"  # in spec.preemption.honour of a queue
LOWER_PRIORITY = "LowerPriority"  # policy in spec.preemption of a queue: only victims of lower priority

DEFAULT_QUEUE = "default"
ROOT_QUEUE = "root"  # the parent of every queue that names none
DEFAULT_SCHEDULER = "default-scheduler"

GPU = "nvidia.com/gpu"  # the extended resource of Nvidia's device plugin

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"  # files of a folder, and keys of a Secret
VIEW_KUBECONFIG = "kubeconfig"  # the file in --view-folder, for a scheduler that uses the scheduler proxy

VOLCANO_LEASE = "volcano"  # name of the Lease of Volcano's own scheduler
VOLCANO_SCHEDULER = ("app", "volcano-scheduler")  # label of the pods of Volcano's scheduler
VOLCANO_CONTROLLERS_LEASE = "vc-controller-manager"  # name of the Lease of Volcano's controllers
VOLCANO_CONTROLLERS = ("app", "volcano-controller")  # label of the pods of Volcano's controllers
