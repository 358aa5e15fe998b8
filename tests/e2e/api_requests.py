"""Valid and invalid requests that the embedded API server must answer like a real API server."""

from collections.abc import Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]

NAMESPACE = "parity"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
STRICT = "?fieldValidation=Strict"


class ApiRequest(NamedTuple):
    """Request with a title. `body` is a JSON document, or bytes."""

    name: str
    method: str
    path: str
    body: Any = None
    content_type: str = JSON


CONTAINER = {"name": "main", "image": "none"}


def pod(name: str = "bad", meta: Json | None = None, **spec: Any) -> Json:
    """Return a pod. `meta` and `spec` have further fields of the metadata and the spec."""
    metadata = {"name": name, **(meta or {})}
    spec = {"containers": [CONTAINER], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_requesting(requests: Json | None = None, limits: Json | None = None, name: str = "bad") -> Json:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return pod(name, containers=[{**CONTAINER, "resources": resources}])


def queue(name: str = "bad", **spec: Any) -> Json:
    fields = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    return {**fields, "metadata": {"name": name}, "spec": spec}


def with_metadata(obj: Json, **metadata: Any) -> Json:
    """Return a copy of an object with these fields of the metadata."""
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def group(name: str = "bad", **spec: Any) -> Json:
    return {**queue(name, **spec), "kind": "PodGroup"}


def job(name: str, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"a": "1"}}, "spec": {**pod()["spec"], "restartPolicy": "Never"}}
    fields = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return {**fields, "spec": {"template": template, **spec}}


def priority(name: str, **fields: Any) -> Json:
    type_fields = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**type_fields, "metadata": {"name": name}, **fields}


def named(kind: str, name: str, **fields: Any) -> Json:
    """Return an object of the core API with a name."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def _pods() -> Iterator[ApiRequest]:
    """Yield requests that create invalid pods."""

    def bad(title: str, body: Any, query: str = "") -> ApiRequest:
        return ApiRequest(f"pod {title}", "POST", PODS + query, body)

    yield bad("with an underscore", pod("x_y"))
    yield bad("in capitals", pod("Train"))
    yield bad("with a long name", pod("x" * 254))
    yield bad("without a name", pod(""))
    yield bad("with a bad generateName", {**pod(), "metadata": {"generateName": "x_"}})
    yield bad("with a bad label key", pod(meta={"labels": {"a b": "1"}}))
    yield bad("with a bad label prefix", pod(meta={"labels": {"A/b": "1"}}))
    yield bad("with two slashes in a label", pod(meta={"labels": {"a/b/c": "1"}}))
    yield bad("with a bad label value", pod(meta={"labels": {"a": "b c"}}))
    yield bad("with a long label value", pod(meta={"labels": {"a": "b" * 64}}))
    yield bad("with a number for a label", pod(meta={"labels": {"a": 1}}))
    yield bad("with a bad annotation", pod(meta={"annotations": {"a b": "1"}}))
    yield bad("with a bad finalizer", pod(meta={"finalizers": ["a b"]}))
    yield bad("with an owner without uid", pod(meta={"ownerReferences": [{"kind": "Job", "name": "j"}]}))
    yield bad("for another namespace", pod(meta={"namespace": "other"}))
    yield ApiRequest("pod in no namespace", "POST", "/api/v1/namespaces/nowhere/pods", pod())
    yield ApiRequest("group in no namespace", "POST", GROUPS.replace(NAMESPACE, "nowhere"), group())
    yield bad("without containers", pod(containers=[]))
    yield bad("with null containers", pod(containers=None))
    yield bad("with two containers of one name", pod(containers=[CONTAINER, CONTAINER]))
    yield bad("with an unnamed container", pod(containers=[{"image": "none"}]))
    yield bad("with a bad container name", pod(containers=[{**CONTAINER, "name": "Main.x"}]))
    yield bad("with a dot in a container name", pod(containers=[{**CONTAINER, "name": "main.x"}]))
    yield bad("without an image", pod(containers=[{"name": "main"}]))
    yield bad("with a bad pull policy", pod(containers=[{**CONTAINER, "imagePullPolicy": "Now"}]))
    yield bad("with init and main of one name", pod(initContainers=[CONTAINER]))
    yield bad("with containers that are text", pod(containers="main"))
    yield bad("with a spec that is a list", {**pod(), "spec": []})
    yield bad("without a spec", named("Pod", "bad"))
    yield bad("with a negative request", pod_requesting({"cpu": "-1"}))
    yield bad("with a negative number", pod_requesting({"cpu": -2}))
    yield bad("with a negative limit", pod_requesting(limits={"memory": "-1Gi"}))
    yield bad("with an amount that is none", pod_requesting({"cpu": "2x"}))
    yield bad("with an amount that is empty", pod_requesting({"cpu": ""}))
    yield bad("that asks for more than its limit", pod_requesting({"cpu": "2"}, {"cpu": "1"}))
    yield bad(
        "that asks for half a device", pod_requesting({"example.com/gpu": "0.5"}, {"example.com/gpu": "0.5"})
    )
    yield bad("that asks for devices without limit", pod_requesting({"example.com/gpu": "1"}))
    yield bad("that asks for other devices than its limit", pod_requesting({"a.b/c": "1"}, {"a.b/c": "2"}))
    yield bad("that asks for an unknown resource", pod_requesting({"gpu": "1"}))
    yield bad("that asks for a badly named thing", pod_requesting({"a b": "1"}))
    yield bad("that asks for pods", pod_requesting({"pods": "1"}))
    yield bad("with a bad restart policy", pod(restartPolicy="Sometimes"))
    yield bad("with a bad DNS policy", pod(dnsPolicy="Mine"))
    yield bad("with a gate twice", pod(schedulingGates=[{"name": "a"}, {"name": "a"}]))
    yield bad("with a bad gate", pod(schedulingGates=[{"name": "a b"}]))
    yield bad("with a gate and a node", pod(schedulingGates=[{"name": "a"}], nodeName="n"))
    yield bad("with a bad selector", pod(nodeSelector={"a b": "1"}))
    yield bad("with a bad value in a selector", pod(nodeSelector={"a": "b c"}))
    yield bad("with a bad node name", pod(nodeName="N_1"))
    yield bad("with a bad toleration", pod(tolerations=[{"operator": "Equal", "value": "x"}]))
    yield bad("with an unknown operator", pod(tolerations=[{"key": "a", "operator": "Is"}]))
    yield bad("with an unknown effect", pod(tolerations=[{"key": "a", "effect": "No"}]))
    yield bad("with a negative grace", pod(terminationGracePeriodSeconds=-1))
    yield bad("with a negative deadline", pod(activeDeadlineSeconds=-1))
    yield bad("with a class that is not there", pod(priorityClassName="none"))
    yield bad("with its own priority", pod(priority=7))
    yield bad("with a text for a number", pod(priority="high"))
    yield bad("with a misspelt field", pod(containres=[]), STRICT)
    yield bad("with a misspelt field inside", pod(containers=[{**CONTAINER, "imagee": "x"}]), STRICT)
    yield bad("of another kind", {**pod(), "kind": "Node"})
    yield bad("of another version", {**pod(), "apiVersion": "v2"})
    yield bad("without a kind", {key: value for key, value in pod().items() if key != "kind"})
    yield bad("that is no JSON", b"{")
    yield bad("that is a list", [])
    yield bad("with much wrong at once", pod("X", labels={"a b": "c d"}, containers=[{}, {}]))
    yield bad("with a bad dry run", pod(), "?dryRun=Some")
    yield bad("with a volume without name", pod(volumes=[{"emptyDir": {}}]))
    yield bad("with a volume twice", pod(volumes=[{"name": "v", "emptyDir": {}}] * 2))
    mounts = [{"name": "none", "mountPath": "/x"}]
    yield bad("with a mount of nothing", pod(containers=[{**CONTAINER, "volumeMounts": mounts}]))
    yield bad("with an unnamed variable", pod(containers=[{**CONTAINER, "env": [{"value": "1"}]}]))


def _other_kinds() -> Iterator[ApiRequest]:
    """Yield requests that create invalid nodes, namespaces, priority classes, queues and groups."""

    def bad(title: str, path: str, body: Json, query: str = "") -> ApiRequest:
        return ApiRequest(title, "POST", path + query, body)

    yield bad("node in capitals", NODES, named("Node", "N1"))
    capacity = {"capacity": {"cpu": "-1"}, "allocatable": {"cpu": "-1"}}
    yield bad("node of less than nothing", NODES, named("Node", "bad", status=capacity))
    taint = {"key": "a b", "effect": "NoSchedule"}
    yield bad("node with a bad taint", NODES, named("Node", "bad", spec={"taints": [taint]}))
    yield bad(
        "node with an unknown effect",
        NODES,
        named("Node", "bad", spec={"taints": [{"key": "a", "effect": "x"}]}),
    )
    yield bad("namespace with a dot", NAMESPACES, named("Namespace", "a.b"))
    yield bad("namespace in capitals", NAMESPACES, named("Namespace", "Team"))
    yield bad("namespace with a long name", NAMESPACES, named("Namespace", "x" * 64))
    yield bad("namespace that is there", NAMESPACES, named("Namespace", NAMESPACE))
    yield bad("class in capitals", CLASSES, priority("High", value=1))
    yield bad("class too high", CLASSES, priority("high", value=2_000_000_000))
    yield bad("class of the system", CLASSES, priority("system-x", value=1))
    yield bad("class with a text", CLASSES, priority("high", value="1"))
    yield bad("class with a bad policy", CLASSES, priority("high", value=1, preemptionPolicy="x"))
    yield bad("queue in capitals", QUEUES, queue("Q"))
    yield bad("queue with a slash", QUEUES, queue("a/b"))
    yield bad("queue without a name", QUEUES, queue(""))
    yield bad("queue of no weight", QUEUES, queue(weight=0))
    yield bad("queue of much weight", QUEUES, queue(weight=70_000))
    yield bad("queue with a text for its weight", QUEUES, queue(weight="2"))
    yield bad("queue with half a weight", QUEUES, queue(weight=1.5))
    yield bad("queue of negative capability", QUEUES, queue(capability={"cpu": "-1"}))
    yield bad("queue of a negative number", QUEUES, queue(capability={"cpu": -1}))
    yield bad("queue of much capability", QUEUES, queue(capability={"cpu": "much"}))
    yield bad("queue of a true capability", QUEUES, queue(capability={"cpu": True}))
    yield bad("queue with an unknown state", QUEUES, queue(state="Closing"))
    yield bad("queue with an unknown strategy", QUEUES, queue(dequeueStrategy="lifo"))
    yield bad("queue with a bad parent", QUEUES, queue(parent="A_B"))
    yield bad("queue with a misspelt field", QUEUES, queue(wieght=1), STRICT)
    yield bad("queue with a list for its spec", QUEUES, {**queue(), "spec": []})
    yield bad("group of too many members", GROUPS, group("many", minMember=2**31))
    yield bad("group of too few members", GROUPS, group("few", minMember=-(2**31) - 1))
    yield bad("queue with two things wrong", QUEUES, queue(weight=0, priority=-1))
    yield bad("queue that deserves too much", QUEUES, queue(deserved={"cpu": 4}, capability={"cpu": 2}))
    yield bad(
        "queue with a large guarantee",
        QUEUES,
        queue(guarantee={"resource": {"cpu": 4}}, capability={"cpu": 2}),
    )
    yield bad(
        "queue with a bad label", QUEUES, {**queue(), "metadata": {"name": "bad", "labels": {"a b": "c"}}}
    )
    yield bad("queue of another version", QUEUES, {**queue(), "apiVersion": "scheduling.volcano.sh/v1"})
    yield bad("group in capitals", GROUPS, group("Train"))
    yield bad("group with a negative minimum", GROUPS, group(minMember=-1))
    yield bad("group with a text", GROUPS, group(minMember="3"))
    yield bad("group with a negative role", GROUPS, group(minTaskMember={"worker": -1}))
    yield bad("group with negative resources", GROUPS, group(minResources={"cpu": "-1"}))
    names = {f"example.com/{number}": 1 for number in range(257)}
    yield bad("group with too many resources", GROUPS, group(minResources=names))
    yield bad("group with too many roles", GROUPS, group(minTaskMember=names))
    yield bad("group with a misspelt field", GROUPS, group(minMembers=1), STRICT)
    yield bad("group with a number for its queue", GROUPS, group(queue=7))


def _changes() -> Iterator[ApiRequest]:
    """Yield invalid changes of existing objects: the pod, the queue and the group with the name `there`."""

    def patch(title: str, path: str, body: Any, content_type: str = MERGE) -> ApiRequest:
        return ApiRequest(title, "PATCH", path, body, content_type)

    existing_pod, existing_queue = f"{PODS}/there", f"{QUEUES}/there"
    yield patch("another scheduler", existing_pod, {"spec": {"schedulerName": "x"}})
    yield patch("another node", existing_pod, {"spec": {"nodeName": "x"}})
    yield patch("a gate more", existing_pod, {"spec": {"schedulingGates": [{"name": "x"}]}}, STRATEGIC)
    yield patch("another name", existing_pod, {"metadata": {"name": "x"}})
    yield patch("another namespace", existing_pod, {"metadata": {"namespace": "x"}})
    yield patch("another uid", existing_pod, {"metadata": {"uid": "x"}})
    yield patch("an old version", existing_pod, {"metadata": {"resourceVersion": "1"}})
    yield patch("a bad label", existing_pod, {"metadata": {"labels": {"a b": "1"}}})
    yield patch("nothing there", f"{PODS}/none", {"metadata": {"labels": {"a": "1"}}})
    yield patch("no weight", existing_queue, {"spec": {"weight": 0}})
    yield patch("a strategic patch of a CRD", existing_queue, {"spec": {"weight": 2}}, STRATEGIC)
    yield patch("an unknown form", existing_pod, {"spec": {}}, "application/else")
    yield patch("a patch that is a list", existing_pod, [])
    yield patch("a JSON patch that is an object", existing_pod, {}, JSON_PATCH)
    yield patch(
        "a test that fails", existing_pod, [{"op": "test", "path": "/spec/x", "value": 1}], JSON_PATCH
    )
    yield patch("a JSON patch to nowhere", existing_pod, [{"op": "remove", "path": "/spec/none"}], JSON_PATCH)
    yield patch("force without apply", existing_pod + "?force=true", {})
    yield patch("a status that is bad", f"{existing_queue}/status", {"status": {"state": "Ajar"}})
    yield patch("a negative count", f"{existing_queue}/status", {"status": {"pending": -1}})
    yield patch("a status of a kind that has none", f"{GROUPS}/there/status", {"status": {}})
    yield patch("a class that changes its value", f"{CLASSES}/there", {"value": 8})
    yield ApiRequest(
        "an old version put",
        "PUT",
        existing_queue,
        {**queue("there"), "metadata": {"name": "there", "resourceVersion": "1"}},
    )
    yield ApiRequest("another name put", "PUT", existing_queue, queue("other"))
    yield ApiRequest("no version put", "PUT", existing_queue, queue("there"))
    yield ApiRequest("absent object put", "PUT", f"{QUEUES}/none", queue("none"))
    yield ApiRequest(
        "a binding without a node",
        "POST",
        f"{existing_pod}/binding",
        named("Binding", "there", target={"kind": "Node"}),
    )
    yield ApiRequest(
        "a binding of an absent pod",
        "POST",
        f"{PODS}/none/binding",
        named("Binding", "none", target={"kind": "Node", "name": "n"}),
    )
    yield ApiRequest("the deletion of an absent pod", "DELETE", f"{PODS}/none")
    yield ApiRequest("the deletion of another", "DELETE", existing_pod, {"preconditions": {"uid": "x"}})
    yield ApiRequest("a namespace that is not there", "GET", f"{NAMESPACES}/nowhere")
    yield ApiRequest("a kind that is not there", "GET", "/api/v1/things")
    yield ApiRequest("a bad label selector", "GET", f"{PODS}?labelSelector=a%20b")
    yield ApiRequest("a bad field selector", "GET", f"{PODS}?fieldSelector=spec.x%3D1")
    yield ApiRequest("a protobuf body that is none", "POST", NAMESPACES, b"namespace", PROTOBUF)
    yield ApiRequest("a body of an unknown form", "POST", NAMESPACES, b"namespace", "text/plain")


def _changes_of_jobs() -> Iterator[ApiRequest]:
    """Yield changes of two Jobs: `going` runs, and `held` is suspended and has never started.

    Writes to `held` are dry runs. Both Jobs therefore keep their state.
    """

    def patch(title: str, name: str, *operations: Json) -> ApiRequest:
        path = f"{JOBS}/{name}" + ("?dryRun=All" if name == "held" else "")
        return ApiRequest(f"Job {name}: {title}", "PATCH", path, list(operations), JSON_PATCH)

    def add_operation(path: str, value: Any) -> Json:
        return {"op": "add", "path": path, "value": value}

    template_metadata = "/spec/template/metadata"
    container = "/spec/template/spec/containers/0"
    resume = {"op": "replace", "path": "/spec/suspend", "value": False}
    for name in ("going", "held"):
        yield patch("of another uid", name, {"op": "test", "path": "/metadata/uid", "value": "x"}, resume)
        yield patch(
            "of an old version",
            name,
            {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
            resume,
        )
        yield patch("not suspended", name, {"op": "test", "path": "/spec/suspend", "value": True}, resume)
        yield patch("a label where none are", name, add_operation("/metadata/labels/a", "1"))
        yield patch("an annotation where none are", name, add_operation("/metadata/annotations/a", "1"))
        yield patch(
            "an annotation of pods where none are",
            name,
            add_operation(f"{template_metadata}/annotations/a", "1"),
        )
        yield patch("a label of its pods", name, add_operation(f"{template_metadata}/labels/a", "2"))
        yield patch(
            "a selector of nodes", name, add_operation("/spec/template/spec/nodeSelector", {"a": "b"})
        )
        yield patch(
            "what its pods ask for", name, add_operation(f"{container}/resources", {"requests": {"cpu": "1"}})
        )
        yield patch("another image", name, add_operation(f"{container}/image", "else"))
        yield patch("another number of completions", name, add_operation("/spec/completions", 5))
        yield patch("another mode", name, add_operation("/spec/completionMode", "Indexed"))
        yield patch("resumed with a label", name, resume, add_operation(f"{template_metadata}/labels/a", "2"))


def _server_side_applies() -> Iterator[ApiRequest]:
    """Yield server-side applies, most of them invalid or in conflict with another field manager."""

    def apply(title: str, path: str, body: Any, query: str = "?fieldManager=me") -> ApiRequest:
        return ApiRequest(f"applied: {title}", "PATCH", path + query, body, APPLY)

    existing_queue = f"{QUEUES}/there"
    yield apply("without a manager", existing_queue, queue("there"), "")
    yield apply("by a long manager", existing_queue, queue("there"), f"?fieldManager={'x' * 129}")
    yield apply("another name", existing_queue, queue("other"))
    yield apply("another version", existing_queue, {**queue("there"), "apiVersion": "v1"})
    yield apply("no kind", existing_queue, {"apiVersion": "scheduling.volcano.sh/v1beta1"})
    yield apply("another kind", existing_queue, group("there"))
    yield apply("no YAML", existing_queue, b"{a")
    yield apply(
        "managed fields",
        existing_queue,
        {**queue("there"), "metadata": {"name": "there", "managedFields": []}},
    )
    yield apply("another's field", existing_queue, queue("there", weight=3))
    yield apply("two of another's fields", existing_queue, queue("there", weight=3, priority=4))
    yield apply("no weight", existing_queue, queue("there", weight=0), "?fieldManager=me&force=true")
    yield apply("a misspelt field", existing_queue, queue("there", wieght=1))
    yield apply(
        "a misspelt field, strictly",
        existing_queue,
        queue("there", wieght=1),
        "?fieldManager=me&fieldValidation=Strict",
    )
    yield apply("a misspelt field of a pod", f"{PODS}/new", pod("new", containres=[]))
    yield apply("a container twice", f"{PODS}/new", pod("new", containers=[CONTAINER, CONTAINER]))
    yield apply("a pod with a text for its containers", f"{PODS}/new", pod("new", containers="x"))
    yield apply("a pod with a bad name", f"{PODS}/x_y", pod("x_y"))
    status = {**queue("none"), "status": {"state": "Open"}}
    yield apply("a status of an absent queue", f"{QUEUES}/none/status", status)
    yield apply(
        "an absent queue's uid",
        f"{QUEUES}/none",
        {**queue("none"), "metadata": {"name": "none", "uid": "x"}},
    )
    yield apply("another uid", existing_queue, with_metadata(queue("there"), uid="x"))
    yield apply(
        "an old version",
        existing_queue,
        {**queue("there"), "metadata": {"name": "there", "resourceVersion": "1"}},
    )


# Titles of requests for which the messages of both servers differ. The messages of the real server name Go
# types, positions in a text, or fields that the embedded server does not store.
WITH_OTHER_MESSAGES = frozenset(
    (
        *("pod that is no JSON", "pod that is a list", "pod of another version"),
        *("pod with a bad generateName", "pod with a bad finalizer", "another scheduler", "another node"),
        *("a gate more", "an unknown form", "a patch that is a list", "a JSON patch that is an object"),
        *("a test that fails", "a JSON patch to nowhere", "a negative count", "the deletion of another"),
        *("a status of a kind that has none", "a bad label selector", "a bad field selector"),
        *("a protobuf body that is none", "applied: no YAML", "queue with half a weight"),
        *("queue of a true capability", "queue with two things wrong"),
        *(request.name for request in _changes_of_jobs()),
    )
)
REFUSED = (*_pods(), *_other_kinds(), *_changes(), *_changes_of_jobs(), *_server_side_applies())
PREPARATION = (
    ApiRequest("the namespace", "POST", NAMESPACES, named("Namespace", NAMESPACE)),
    ApiRequest("the pod", "POST", PODS, pod("there")),
    ApiRequest("the queue", "POST", f"{QUEUES}?fieldManager=other", queue("there", weight=2, priority=1)),
    ApiRequest("the group", "POST", GROUPS, group("there", minMember=1)),
    ApiRequest("the Job", "POST", JOBS, job("going", parallelism=2, completions=4)),
    ApiRequest("the Job that is suspended", "POST", JOBS, job("held", suspend=True)),
    ApiRequest("the class", "POST", CLASSES, priority("there", value=7)),
)


def _writes_of_managers() -> Iterator[ApiRequest]:
    """Yield writes of several field managers to one queue."""
    path = f"{QUEUES}/course"

    def apply(manager: str, body: Json, options: str = "", subresource: str = "") -> ApiRequest:
        url = f"{path}{subresource}?fieldManager={manager}{options}"
        return ApiRequest(f"applied by {manager}{options}{subresource}", "PATCH", url, body, APPLY)

    def patch(body: Any, content_type: str = MERGE, subresource: str = "") -> ApiRequest:
        return ApiRequest(
            f"patched{subresource}", "PATCH", f"{path}{subresource}?fieldManager=editor", body, content_type
        )

    def with_conditions(*conditions: Json, **status: Any) -> Json:
        return {**queue("course"), "status": {"conditions": conditions, **status}}

    condition_a, condition_b = ({"type": name, "status": "True", "reason": "R"} for name in "AB")
    yield apply("one", with_metadata(queue("course", weight=2, capability={"cpu": "4"}), labels={"a": "1"}))
    yield apply("one", with_metadata(queue("course", weight=2, capability={"cpu": "4"}), labels={"a": "1"}))
    yield apply("two", with_metadata(queue("course", weight=2, parent="root"), labels={"b": "2"}))
    yield apply("two", queue("course", weight=3, parent="root"))
    yield apply("two", queue("course", weight=3, parent="root"), "&force=true")
    yield apply("one", queue("course", capability={"memory": "1Gi"}))
    yield patch({"spec": {"capability": {"memory": "2Gi"}}, "metadata": {"labels": {"c": "3"}}})
    yield apply("one", queue("course", capability={"memory": "1Gi"}))
    yield apply("one", queue("course", capability={"memory": "2Gi"}))
    yield patch([{"op": "remove", "path": "/spec/parent"}], JSON_PATCH)
    yield patch({"metadata": {"labels": None}})
    yield apply("one", with_conditions(condition_a, state="Open"), subresource="/status")
    yield apply("two", with_conditions(condition_b), subresource="/status")
    yield apply("two", with_conditions({**condition_a, "reason": "S"}), subresource="/status")
    yield apply("one", with_conditions({"type": "A", "status": "True"}), subresource="/status")
    yield patch({"status": {"state": "Closing", "pending": 1}}, subresource="/status")
    yield apply("one", with_conditions(state="Open"), "&force=true", subresource="/status")
    yield apply("two", with_metadata(queue("course"), finalizers=["a.b/c"]))
    yield apply("one", with_metadata(queue("course"), finalizers=["a.b/d"]))
    yield apply("two", queue("course"))
    yield patch({"metadata": {"finalizers": None}})
    yield patch([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}], JSON_PATCH)


WRITES_OF_MANAGERS = tuple(_writes_of_managers())
