"""Which fields the kinds have, to the depth to which people mistype them.

A mapping lists the fields that are allowed; a list of one form allows any number of that form; a `Leaf` is a
value; ANY is left to whoever reads it, as a real cluster has far more fields than anything here looks at.
The tests compare these names with those of the kubernetes client and of the CRDs in manifests/.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from extender.api.quantities import BadQuantity, at_least
from extender.sim.apiserver.kinds import (
    COMMANDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    ResourceKind,
)
from extender.sim.apiserver.validation.names import dns_label, subdomain


class Leaf(NamedTuple):
    """One value: what is allowed, in words and as a test."""

    allowed: str
    test: Callable[[Any], bool]


class Needed(NamedTuple):
    """A field that must be there and not be empty; the words say why."""

    form: Any
    words: str


Form = Leaf | Needed | list[Any] | dict[str, Any]
OTHERS = "*"  # in the place of a name: all fields that are not listed


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return at_least(str(value)) >= 0
    except BadQuantity:
        return False


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not subdomain(value)


def _each(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


ANY = Leaf("anything", lambda _: True)
TEXT = Leaf("a text; put numbers, true and false in quotes", lambda value: isinstance(value, str))
WHOLE = Leaf("a whole number", _is_whole)
NAME = Leaf(
    "a name of at most 253 small letters, digits, - and ., that begins and ends with a letter or digit",
    _is_name,
)
PREFIX = Leaf("the beginning of such a name", lambda value: isinstance(value, str) and _is_name(f"{value}x"))
SPACE = Leaf(
    "a name of at most 63 small letters, digits and -, that begins and ends with a letter or digit",
    lambda value: isinstance(value, str) and not dns_label(value),
)
COUNT = Leaf("a whole number, 0 or more", _is_count)
TRUTH = Leaf("true or false", lambda value: isinstance(value, bool))
TEXTS = Leaf("texts by name; put numbers, true and false in quotes", _each(lambda v: isinstance(v, str)))
COUNTS = Leaf("whole numbers by name", _each(_is_whole))
QUANTITIES = Leaf("quantities by resource, 0 or more, such as {cpu: 500m, memory: 1Gi}", _each(_is_quantity))


def of(names: str = "", **known: Form) -> dict[str, Any]:
    """Fields by name; those without a form may be anything."""
    return {**dict.fromkeys(names.split(), ANY), **known}


METADATA = of(
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generation managedFields"
    " ownerReferences resourceVersion selfLink uid",
    name=NAME,
    generateName=PREFIX,
    namespace=SPACE,
    labels=TEXTS,
    annotations=TEXTS,
)
_REQUIRED, _PREFERRED = (
    f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred")
)
_REQUIREMENTS = [of("values", key=TEXT, operator=TEXT)]
SELECTOR = of(matchLabels=TEXTS, matchExpressions=_REQUIREMENTS)
POD_TERM = of(
    "matchLabelKeys mismatchLabelKeys namespaces",
    topologyKey=TEXT,
    labelSelector=SELECTOR,
    namespaceSelector=SELECTOR,
)
NODE_SELECTOR = of(nodeSelectorTerms=[of(matchExpressions=_REQUIREMENTS, matchFields=_REQUIREMENTS)])
NODE_AFFINITY = {_REQUIRED: NODE_SELECTOR, _PREFERRED: ANY}
POD_AFFINITY = {_REQUIRED: [POD_TERM], _PREFERRED: ANY}
AFFINITY = of(nodeAffinity=NODE_AFFINITY, podAffinity=POD_AFFINITY, podAntiAffinity=POD_AFFINITY)
RESOURCES = of("claims", requests=QUANTITIES, limits=QUANTITIES)
PORT = of(containerPort=WHOLE, hostPort=WHOLE, hostIP=TEXT, name=TEXT, protocol=TEXT)
CONTAINER = of(
    "args command env envFrom lifecycle livenessProbe readinessProbe resizePolicy restartPolicyRules"
    " securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty"
    " volumeDevices volumeMounts workingDir",
    name=TEXT,
    image=TEXT,
    imagePullPolicy=TEXT,
    restartPolicy=TEXT,
    resources=RESOURCES,
    ports=[PORT],
)
TOLERATION = of(key=TEXT, operator=TEXT, value=TEXT, effect=TEXT, tolerationSeconds=WHOLE)
POD_SPEC = of(
    "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks"
    " ephemeralContainers evictionResponders hostAliases hostIPC hostPID hostUsers hostname hostnameOverride"
    " imagePullSecrets os readinessGates resourceClaims runtimeClassName securityContext serviceAccount"
    " serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain topologySpreadConstraints volumes",
    affinity=AFFINITY,
    containers=Needed([CONTAINER], "a pod has at least one container"),
    initContainers=[CONTAINER],
    hostNetwork=TRUTH,
    nodeName=TEXT,
    nodeSelector=TEXTS,
    overhead=QUANTITIES,
    preemptionPolicy=TEXT,
    priority=WHOLE,
    priorityClassName=TEXT,
    resources=RESOURCES,
    restartPolicy=TEXT,
    schedulerName=TEXT,
    schedulingGates=[of(name=TEXT)],
    schedulingGroup=of(podGroupName=TEXT),
    terminationGracePeriodSeconds=WHOLE,
    tolerations=[TOLERATION],
)
NODE_SPEC = of(
    "configSource externalID podCIDR podCIDRs podPreemptionPolicy providerID",
    taints=[of("timeAdded", key=TEXT, value=TEXT, effect=TEXT)],
    unschedulable=TRUTH,
)
NODE_STATUS = of(
    "addresses conditions config daemonEndpoints declaredFeatures features images nodeInfo phase"
    " runtimeHandlers volumesAttached volumesInUse",
    allocatable=QUANTITIES,
    capacity=QUANTITIES,
)
QUEUE_SPEC = of(
    "affinity extendClusters type",
    weight=WHOLE,
    priority=WHOLE,
    state=Leaf("Open or Closed", lambda value: value in ("Open", "Closed")),
    dequeueStrategy=Leaf(
        "fifo, traverse, priority or rotation",
        lambda value: value in ("fifo", "traverse", "priority", "rotation"),
    ),
    capability=QUANTITIES,
    deserved=QUANTITIES,
    guarantee=of(resource=QUANTITIES),
    reclaimable=TRUTH,
    restricted=TRUTH,
    parent=TEXT,
)
POD_GROUP_SPEC = of(
    "networkTopology subGroupPolicy",
    minMember=COUNT,
    minTaskMember=COUNTS,
    queue=TEXT,
    priorityClassName=TEXT,
    minResources=QUANTITIES,
)


def _object(**parts: Form) -> dict[str, Any]:
    return {"apiVersion": TEXT, "kind": TEXT, "metadata": METADATA, **parts}


FIELDS: dict[ResourceKind, dict[str, Any]] = {
    PODS: _object(spec=POD_SPEC, status=ANY),
    NODES: _object(spec=NODE_SPEC, status=NODE_STATUS),
    NAMESPACES: _object(spec=ANY, status=ANY),
    QUEUES: _object(spec=QUEUE_SPEC, status=ANY),
    POD_GROUPS: _object(spec=POD_GROUP_SPEC, status=ANY),
    COMMANDS: _object(action=TEXT, target=ANY, reason=TEXT, message=TEXT),
    PRIORITY_CLASSES: _object(value=WHOLE, globalDefault=TRUTH, description=TEXT, preemptionPolicy=TEXT),
    LEASES: _object(spec=ANY),
    EVENTS: _object(
        **of(
            "action count eventTime firstTimestamp involvedObject lastTimestamp message reason related"
            " reportingComponent reportingInstance series source type"
        )
    ),
}
