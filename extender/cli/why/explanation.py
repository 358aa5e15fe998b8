"""Record of an answer of `muster why`: verdict, reason, numbers, and statements with codes.

A table has, for each code, its sentence or phrase, its remedy, and the purpose and line of its command.
"""

from types import SimpleNamespace

from msgspec.structs import replace

from extender.api.keys import GROUP_ANNOTATION
from extender.api.objects.base import Quantities, Wire
from extender.api.objects.queues import Estimate
from extender.api.summaries import CommandSummary, HolderSummary
from extender.api.units import texts_by_name
from extender.api.workloads.shape import kind_prefix
from extender.domain.model import reasons
from extender.kube.access import Right

# Verdicts of pods and workloads, in addition to the verdicts of groups.
PLACED, ENDING, FOREIGN, EMPTY = "Placed", "Ending", "NotOurs", "NoPods"


class Statement(SimpleNamespace):
    """Code with the values of its fields. A value may be another statement."""

    def __init__(self, code: str, **fields: object) -> None:
        super().__init__(code=code, **fields)

    @property
    def text(self) -> str:
        return self._text_of(SENTENCES[self.code])

    @property
    def remedy(self) -> str:
        """Return the text of the remedy; empty if the code has none."""
        return self._text_of(REMEDIES.get(self.code, ""))

    def shown(self) -> object:
        """Return the value that -o json prints."""
        return self.text

    def _text_of(self, template: str) -> str:
        fields = vars(self)
        texts = {name: item.text if isinstance(item, Statement) else item for name, item in fields.items()}
        reason = fields.get("reason", "")
        remedy = reasons.remedy(reason).replace("minMember", fields.get("number", "minMember"))
        meaning = reasons.sentence(reason)
        return template.format(annotation=GROUP_ANNOTATION, meaning=meaning, remedy=remedy, **texts)


def numbers(message: str) -> Statement | None:
    """Return the message of a condition or an event as a statement; None if it is empty."""
    return Statement("Numbers", message=message) if message else None


class Blocker(Statement):
    """Statement about a group or queue that is ahead of the explained group."""

    holder: HolderSummary

    def shown(self) -> HolderSummary:
        return replace(self.holder, does=self.text)


class Offer(Statement):
    """Command that may help, and the right that the command needs."""

    right: Right
    allowed: bool

    def shown(self) -> CommandSummary:
        purpose, line = map(self._text_of, COMMANDS[self.code].split(" => "))
        return CommandSummary(purpose, line, str(self.right), self.allowed)


class MemberCounts(Wire, frozen=True, omit_defaults=False):
    """Numbers of a group's pods.

    `there` is the number of pods that have not ended. `placed` is the number of these pods that are on nodes.
    """

    needed: int
    there: int
    placed: int
    gated: int
    succeeded: int
    failed: int


class QueueFigures(Wire, frozen=True, omit_defaults=False):
    """Figures of a queue. `share` is the used part of the deserved share, from 0; null if unknown."""

    name: str
    state: str
    weight: int
    share: float | None
    allocated: Quantities
    deserved: Quantities
    capability: Quantities
    pending: int
    inqueue: int
    running: int


class Uncounted(Wire, frozen=True):
    """Pods that were meant for a group and do not count.

    If `misnamed`, a corrected annotation makes them count.
    """

    pods: list[str]
    namespace: str
    cause: Statement
    misnamed: bool = False


class Explanation(Wire, frozen=True):
    """Answer about one object.

    `api_version` is only set for a workload, because kinds of several projects have the same name.
    """

    kind: str
    name: str
    verdict: str
    sentence: list[Statement]
    namespace: str = ""
    group: str = ""
    reason: str = ""
    detail: Statement | None = None
    since: str | None = None
    estimate: Estimate | None = None
    members: MemberCounts | None = None
    queue: QueueFigures | None = None
    uncounted: list[Uncounted] = []
    waiting: list[Blocker] = []
    holders: list[Blocker] = []
    remedies: list[Statement] = []
    commands: list[Offer] = []
    notes: list[Statement] = []
    api_version: str = ""

    @property
    def display_name(self) -> str:
        """Return a name such as `vcjob/train`."""
        return f"{kind_prefix(self.api_version, self.kind)}/{self.name}"


# ---- the table of codes, with the names of fields in braces

SENTENCES = {"StartApart": reasons.START_WHOLE_HINT} | texts_by_name("""
Reason: {meaning}
Numbers: {message}

GroupStarting: It was admitted, and its members are being placed. None runs before all that it needs can.
GroupRunning: It runs: all members that it needs are on nodes.
GroupEnded: It has ended.
GroupUnknown: Muster has not looked at it yet.
PartlyStarting: It was admitted.
PartlyRunning: It runs. Further members wait:
MembersEnded: Its members have ended: {succeeded} succeeded, {failed} failed.
SomeRun: {placed} of {there} pods run.
PodsRefused: Its controller has created {made} of {needed} pods: {refusal}.
InQueue: It is in queue {queue}.
CountsElsewhere: It is sent to queue {asked}, but has started in queue {queue} and counts there until none of
  its pods holds capacity.

WrongScheduler: schedulerName is {scheduler}, and Muster's is {ours}
OtherGates: other scheduling gates hold it back: {gates}
WrongKey: the group is named by the {key}, not by the annotation {annotation}
NoSuchGroup: it names the group {group}, which does not exist
OtherNamespace: it is in namespace {namespace}, and members are in the namespace of their group
NamesGroupBy: It names podgroup/{group} by the {key}; what counts is the annotation {annotation}.

PodSucceeded: The pod has ended: all its containers succeeded.
PodFailed: The pod has ended: it failed.
PodEnding: The pod is being deleted.
PodEndingOnNode: The pod is being deleted on node {node}.
PodRuns: The pod does not wait: it runs on node {node}.
PodPlaced: The pod is placed on node {node}, which has to start its containers.
PodGatedByOthers: The pod is held back by scheduling gates that are not Muster's: {gates}.
PodForeign: Nothing shows that the pod is Muster's: {scheduler} places it.
PodNotAdopted: The pod is not Muster's, although its namespace is adopted: {scheduler} places it.
GroupNotKept: It names the group {group}, but no scheduler starts that group together.
PodInGroup: The pod waits with its whole group.
PodForItself: The pod does not wait for others.
PodMissing: Its group runs without it.
PodFollows: Its group runs, and the pod starts later.
PodUngated: Its group starts now, and the pod's scheduling gate is about to be opened.
PodToBind: Its group starts now: the pod waits for the others, to be bound with them.
PodNominated: It is planned for node {node}.
AboutGroup: About its group:
NoGroup: The pod belongs to the group {group}, but there is no PodGroup of that name in its namespace.
GatedUntilGroup: It keeps its scheduling gate until the PodGroup exists.
GroupElsewhere: there is one in namespace {namespace}, whose members have to be there, too
InOtherGroup: The pod's group {group} is a PodGroup of {project}.
GroupOfOwner: The pod is in the group of {owner}, which has no PodGroup.
OwnGroup: The pod's group, which is its own, has no PodGroup.
Alone: The pod names no group, so it waits on its own.
Gated: It has Muster's scheduling gate. Its events do not have the reason yet.
NothingSays: It does not show the reason of its wait yet.
MorePods: {pods} in the same state.

QueueDeleted: It is being deleted.
QueueOpen: It accepts new groups.
QueueTakesNone: It accepts no new groups.
QueueClosing: It accepts no new groups; {left} from before continue.
QueueClosed: It is closed: it accepts no new groups.
QueueStopped: It accepts new groups and starts none: its spec.stopPolicy is {policy}.
QueueGuaranteeUnmet: Its guarantee is not met in full: {message}.
QueueValid: But {message}.
QueueFlavorNotFound: But {message}.
QueueIsNotOpen: queue {queue} is {state}
QueueIsDeleted: queue {queue} is {state}, because it is being deleted
QueueIsMissing: queue {queue} does not exist
ShareUnknown: Muster has not written its usage and its deserved share yet.
QueueUses: It uses {share}.
KeepsAbove: It keeps its usage above that.
BorrowsAbove: Its usage above that is borrowed until other queues reclaim it.
HasClaim: Groups that wait have a claim on the rest.
Share: {used} of what it deserves
ShareOfResource: {used} of what it deserves ({resource} {held} of {deserved})
ShareOfFlavor: {used} of what it deserves ({resource} {held} of {deserved} on {flavor})

Uses: uses {share}
HasPending: {pending} of its groups wait, uses {share}
Holds: {does}, needs {needs}
HoldsOnNodes: {does}, {pods} on nodes
Waits: waits: {reason}
WaitsWithNumbers: waits: {reason} ({message})
WaitsUnseen: waits, not looked at yet

WorkloadEnded: It has ended, and its pods are gone.
WorkloadEndedAs: It has ended ({ending}), and its pods are gone.
PodsUnknown: Its groups are found through its pods, and you may not list pods in this namespace.
WorkloadSuspended: It is suspended.
NoReplicas: It wants no pods: spec.replicas is 0.
NoPods: Its controller has made no pods for it.
JobStopped: It was suspended after Muster had started it, and stays out of its queue until it is resumed.
JobWaits: It waits as a job: its {pods} will be made when it starts.
JobSuspendedByOthers: It is suspended, and Muster does not manage it:
JobOfOthers: It has no pods yet, and Muster does not manage it:
JobIsPart: it belongs to {whole}, which starts as a whole.
JobNamesGroup: its pods name a PodGroup, so after its admission they wait in that group.
JobOfScheduler: its pods name another scheduler than {ours}, whose pods Muster places by default. For Muster
  to start it, create it again with schedulerName: muster in the spec of its pods.
JobOfKueue: its label kueue.x-k8s.io/queue-name names no LocalQueue of Muster here, so Kueue starts it.
JobWithoutQueue: it names no queue, and neither does its namespace.
JobNotPermitted: its account may not change {kind}. docs/reference/jobs.md#the-rights says how that is
  granted.
JobNotTaken: no field of the job prevents that. Wait a moment. If it stays so, either Muster does
  not run, or its role for {plural} is not installed, or {off} is off, or --unmanaged-namespace or
  --unmanaged-kind names {namespace} or {kind}.

QueuesNotShown: Shares and limits of queues are not shown: you may not read queues. Queues belong to no
  namespace, so it takes a ClusterRoleBinding to the role kube-muster-view, or to another that may get and
  list them.
OtherGroupsNotShown: Groups of other namespaces are not shown: you may not list podgroups there.
PodsNotShown: Members are not shown: you may not list pods in this namespace.
""")

REMEDIES = texts_by_name("""
Reason: {remedy}
ReasonOfGroups: {reason}: {remedy}
Message: {message}.
GroupUnknown: Wait a moment. If it stays so, Muster does not run, or does not lead.
NothingSays: Wait a moment. If it stays so, Muster does not run, or does not lead.
PodsRefused: Raise the quota that it names, or ask the owner of the webhook.
WrongScheduler: The schedulerName of a pod cannot be changed: create the pods again with schedulerName:
  {ours}.
OtherGates: Scheduling gates are removed by those who set them.
WrongKey: Correct it in the template that the pods are made from: the pods have to name the group by the
  annotation {annotation}.
NoSuchGroup: Correct it in the template that the pods are made from: there is no group {group}.
OtherNamespace: The namespace of a pod cannot be changed: create the pods again in the namespace of the group.
PodGatedByOthers: Their owner must remove them. Until then the pod does not count as a member of a group.
PodForeign: For Muster to place it, create it with schedulerName: {likeliest} (or another name that your
  administrator gave it).
PodNotAdopted: A pod from before the adoption, of a DaemonSet, with another scheduler or with the annotation
  {key}: "false" keeps its scheduler. Otherwise create it again.
ReadItsEvents: Its events will have the reason of its wait.
NameAGroup: The administrator sees the reason in the debug pages. To see it here, create a PodGroup with
  minMember: 1, and name it in the pod's annotation {annotation}.
Reclaims: Capacity above the shares of other queues is reclaimed for groups within the share of this queue:
  after {after} if little work is lost, after {most} at any loss, unless disruption budgets protect it
  (spec.preemption of the queues).
""")

COMMANDS = texts_by_name("""
CheckMuster: check that Muster works => muster check
NameGroup: name the group {group} =>
  kubectl -n {namespace} annotate --overwrite pod {pod} {annotation}={group}
CreateGroup: create it, which {pods} => echo '{manifest}' | kubectl -n {namespace} create -f -
AnnotatePods: name the group on {count} =>
  kubectl -n {namespace} annotate --overwrite pod {pods} {annotation}={group}
NameQueue: name the queue {queue} => kubectl -n {namespace} patch {what} --type merge -p '{patch}'
CreateQueue: create it => muster queue create {queue}
Edit: correct it => kubectl -n {namespace} edit {what}
EditQueue: correct the queue => kubectl edit queue.scheduling.volcano.sh {queue}
RecordUse: record that you may use it =>
  kubectl -n {namespace} annotate {what} kube-muster.io/may-use={queue}/{kind}
PatchNumber: start with the existing {pods} => kubectl -n {namespace} patch {what} --type merge -p '{patch}'
AnnotateNumber: start with the existing {pods} =>
  kubectl -n {namespace} annotate --overwrite {what} kube-muster.io/min-member={member_count}
Resume: let it start => muster {command} {name} -n {namespace}
Describe: see what failed => muster {command} {name} -n {namespace}
DescribePod: read the scheduler's message => kubectl -n {namespace} describe pod {pod}
FollowPod: see its progress => kubectl -n {namespace} describe pod {pod}
OpenQueue: open queue {queue} => muster queue open {queue}
ResumeQueue: let it admit groups again => muster queue resume {queue}
ResumeLocalQueue: let its LocalQueue admit groups again =>
  kubectl -n {namespace} patch localqueues.kube-muster.io {name} --type merge -p '{patch}'
LabelNamespace: let the queue accept the namespace => kubectl label namespace {namespace} {labels}
RaiseCapability: raise the capability of queue {queue} => muster queue update {queue} --capability {amounts}
RaiseWeight: give it a larger share => muster queue update {queue} --weight {weight}
LetOvertake: let groups overtake => muster queue update {queue} --dequeue-strategy traverse
AskFirst: see what the first one waits for => muster why podgroup/{group} -n {namespace}
AskWhole: ask about that => muster why {whole} -n {namespace}
QueueAgain: let it queue again, at its old place => muster job resume {name} -n {namespace}
Unsuspend: let it continue => kubectl -n {namespace} patch {what} --type merge -p '{patch}'
NameLocalQueue: have Muster start it, by a LocalQueue of Muster =>
  kubectl -n {namespace} label {what} kueue.x-k8s.io/queue-name- kube-muster.io/local-queue=NAME
NameItsQueue: let it wait in a queue =>
  kubectl -n {namespace} annotate {what} scheduling.volcano.sh/queue-name={queue}
DescribeOwner: see what its controller says => kubectl -n {namespace} describe {what}
""")
