"""`muster check`: an installation that is in order, and each way in which one may not be."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner, Result

from extender import __version__
from extender.api.keys import QUEUE
from extender.cli import main
from extender.cli.check.manifests import granted_rights
from extender.webhooks.certificates import make_mutual, make_pair
from tests.cli.installation import (
    MANIFESTS,
    METRICS,
    NAMESPACE,
    PROXY,
    Installation,
    Json,
    gated_installation,
    older,
)
from tests.kube.conftest import write_kubeconfig

DAY = 86400
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
Spoil = Callable[[Installation], object]
Findings = dict[str, list[tuple[str, str, str]]]  # by subject: state, what is said, what to do
Check = Callable[..., Findings]


@pytest.fixture
def site() -> Iterator[Installation]:
    for installation in gated_installation():
        webhook(installation)
        yield installation


HOST = "muster.kube-muster.svc"


def webhook(site: Installation, days: float = 90.5, host: str = HOST, ahead: float = 0.0) -> None:
    """Add a served webhook. `days`: until its certificate ends; `ahead`: days by which its clock is ahead."""
    pair = make_pair([host], days * DAY, time.time() + ahead * DAY)
    meta = {"namespace": NAMESPACE, "name": "muster-webhook-certificate"}
    data = {"tls.crt": base64.b64encode(pair.certificate).decode()}
    site.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    _register(site, base64.b64encode(pair.authority).decode())


def another_webhook(site: Installation, **certificate: Any) -> None:
    """Replace it by one with another certificate, as `webhook` takes it."""
    for plural in ("validatingwebhookconfigurations", "secrets"):
        site.of(plural).clear()
    webhook(site, **certificate)


def _register(site: Installation, bundle: str) -> None:
    service = {"namespace": NAMESPACE, "name": "muster"}
    client = {"service": service, "caBundle": bundle}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    labels = {"app.kubernetes.io/part-of": "kube-muster"}
    hooks = [{"name": "queues.kube-muster.io", "clientConfig": client}]
    site.put({**head, "metadata": {"name": "kube-muster", "labels": labels}, "webhooks": hooks})
    site.put({"apiVersion": "v1", "kind": "Service", "metadata": dict(service)})
    labels = {"kubernetes.io/service-name": "muster"}
    named = {"name": "x", "namespace": NAMESPACE, "labels": labels}
    ends = [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
    slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": named}
    site.put({**slices, "endpoints": ends})


@pytest.fixture
def check(site: Installation, tmp_path: Path) -> Check:
    """Run the command and parse its JSON; the exit status must fit the findings."""

    def run(*flags: str) -> Findings:
        done = printed(site, tmp_path, "-o", "json", *flags)
        assert done.stderr == ""
        found = json.loads(done.stdout)
        states = {each["state"] for each in found}
        assert done.exit_code == (1 if "wrong" in states else 3 if "unseen" in states else 0)
        by_subject: Findings = {}
        for each in found:
            by_subject.setdefault(each["subject"], []).append((each["state"], each["message"], each["todo"]))
        return by_subject

    return run


def printed(site: Installation, folder: Path, *flags: str) -> Result:
    kubeconfig = str(write_kubeconfig(folder, site.url))
    return CliRunner().invoke(main, ["check", "--kubeconfig", kubeconfig, *flags])


def faults(found: Findings) -> dict[str, str]:
    """Return the findings that are not ok, by subject."""
    return {name: message for name, each in found.items() for state, message, _ in each if state != "ok"}


def test_an_installation_that_is_in_order(site: Installation, tmp_path: Path) -> None:
    done = printed(site, tmp_path)
    lines = done.stdout.splitlines()
    assert done.exit_code == 0, done.output
    assert all(line.startswith(("ok       ", "         ")) for line in lines)
    assert "ok       Kubernetes: v1.36.3" in lines
    subjects = {line.split()[1] for line in lines if line.startswith("ok")}
    assert {"workload:", "calls:", "Volcano:"} <= subjects


def test_remedies_follow_their_findings_on_as_many_lines_as_they_need(
    site: Installation, tmp_path: Path
) -> None:
    site.of("customresourcedefinitions").clear()
    site.forbidden.add("leases")
    done = printed(site, tmp_path)
    assert done.exit_code == 1
    assert (
        "wrong    queues.scheduling.volcano.sh: is not installed\n"
        "         -> kubectl apply -f manifests/crds\n"
    ) in done.stdout
    assert (
        "         -> Use the kubeconfig of a user with the right, such as an\n"
        "            administrator of the cluster.\n"
    ) in done.stdout


def test_an_empty_cluster(tmp_path: Path) -> None:
    with Installation() as site:
        done = printed(site, tmp_path, "-o", "yaml")
        wrong = [each["subject"] for each in yaml.safe_load(done.stdout) if each["state"] == "wrong"]
    assert (done.exit_code, wrong) == (1, ["Muster"]), "one cause, one line"


def test_webhooks_with_the_same_fault_share_a_line(site: Installation, check: Check) -> None:
    (configuration,) = site.of("validatingwebhookconfigurations")
    configuration["webhooks"] += [{**configuration["webhooks"][0], "name": f"{n}.io"} for n in range(3)]
    no_endpoint(site)
    (line,) = [message for state, message, _ in check()["webhooks"] if state == "wrong"]
    assert line.startswith("queues.kube-muster.io, 0.io, 1.io and 1 more: the service")


@pytest.fixture
def extending() -> Iterator[Installation]:
    """Yield an installation that extends the cluster's own scheduler, which calls Muster over TLS."""
    with Installation() as installation:
        installation.install("default-scheduler")
        installation.run()
        installation.lease("kube-system", "kube-scheduler", "n0_5ec7")
        webhook(installation)
        mutual(installation)
        yield installation


def called() -> str:
    """Return the host that the scheduler's configuration names."""
    path = MANIFESTS.parent / "scheduler-config" / "default-scheduler.yaml"
    (host,) = {urlsplit(each["urlPrefix"]).hostname for each in yaml.safe_load(path.read_text())["extenders"]}
    return str(host)


def mutual(site: Installation, days: float = 3650.5, host: str = "") -> Json:
    """Return the Secret that `muster certificates` makes, as docs/how-to/install.md creates it."""
    host = host or called()
    server, _ = make_mutual([host], days * DAY, time.time())
    data = {"tls.crt": server.certificate, "tls.key": server.key, "ca.crt": server.authority}
    meta = {"namespace": NAMESPACE, "name": "muster-tls"}
    encoded = {name: base64.b64encode(part).decode() for name, part in data.items()}
    without_secret(site)
    return site.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": encoded})


def test_muster_that_extends_the_clusters_scheduler_cannot_be_asked_for_its_calls(
    extending: Installation, tmp_path: Path
) -> None:
    done = printed(extending, tmp_path)
    assert done.exit_code == 0, done.output
    assert "ok       leader: n0_5ec7 holds kube-system/kube-scheduler" in done.stdout
    output = " ".join(done.stdout.split())
    assert "unknown health: muster-1 cannot be asked from here: it listens on 127.0.0.1:8282 only" in output
    assert "the Secret kube-muster/muster-tls is for 127.0.0.1 and expires in 10y" in output


def cleared(plural: str) -> Spoil:
    """Return a function that deletes all objects of a kind."""
    return lambda site: site.of(plural).clear()


def without(plural: str, name: str) -> Spoil:
    """Return a function that deletes one object."""

    def spoil(site: Installation) -> None:
        site.of(plural)[:] = [each for each in site.of(plural) if each["metadata"]["name"] != name]

    return spoil


without_secret = without("secrets", "muster-tls")


def without_key(site: Installation) -> None:
    del mutual(site)["data"]["tls.key"]


def without_keys(site: Installation) -> None:
    mutual(site)["data"] = None


def with_another_key(site: Installation) -> None:
    before = mutual(site)["data"]["tls.key"]
    mutual(site)["data"]["tls.key"] = before


def of_the_scheduler(site: Installation) -> None:
    """Mix up the folders of the two sides."""
    _, client = make_mutual(["127.0.0.1"], DAY * 90, time.time())
    data = mutual(site)["data"]
    data["tls.crt"], data["tls.key"] = (
        base64.b64encode(each).decode() for each in (client.certificate, client.key)
    )


def with_garbage(site: Installation) -> None:
    mutual(site)["data"]["ca.crt"] = base64.b64encode(b"none").decode()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_secret, "does not exist, so the pods of Muster do not start"),
        (without_key, "lacks tls.key"),
        (without_keys, "lacks tls.crt, tls.key, ca.crt"),
        (with_another_key, "has a tls.key that is not of its tls.crt"),
        (of_the_scheduler, "has a certificate for no host, and the scheduler calls 127.0.0.1"),
        (
            lambda site: mutual(site, host="muster.local"),
            "has a certificate for muster.local, and the scheduler calls 127.0.0.1",
        ),
        (lambda site: mutual(site, days=-1), "has a certificate that has expired"),
        (lambda site: mutual(site, days=20.5), "has a certificate that expires in 20d"),
        (with_garbage, "cannot be read: "),
    ],
)
def test_faults_of_mutual_tls_are_found(
    extending: Installation, tmp_path: Path, spoil: Spoil, message: str
) -> None:
    spoil(extending)
    done = printed(extending, tmp_path, "-o", "json")
    (found,) = [each for each in json.loads(done.stdout) if each["subject"] == "mutual TLS"]
    assert (found["state"], done.exit_code) == ("wrong", 1)
    assert found["message"].startswith(f"the Secret kube-muster/muster-tls {message}")
    assert "muster certificates" in found["todo"]


def test_without_tls_there_is_nothing_to_look_at(extending: Installation, tmp_path: Path) -> None:
    (workload,) = extending.of("daemonsets")
    for each in workload["spec"]["template"]["spec"]["containers"][0]["env"]:
        if each["name"] == "MUSTER_TLS_FOLDER":
            each["value"] = ""
    without_secret(extending)
    assert "mutual TLS" not in printed(extending, tmp_path).stdout


# ---- one thing wrong at a time

without_webhooks, no_service = cleared("validatingwebhookconfigurations"), cleared("services")
nothing_runs, no_lease = cleared("deployments"), cleared("leases")
without_policies, unbound = cleared("mutatingadmissionpolicies"), cleared("mutatingadmissionpolicybindings")
without_marks, without_uses, without_authors = (
    without("validatingadmissionpolicies", f"kube-muster-{name}") for name in ("marks", "uses", "authors")
)


def crd_of(site: Installation, plural: str) -> Json:
    (crd,) = [
        each
        for each in site.of("customresourcedefinitions")
        if each["metadata"]["name"].startswith(f"{plural}.")
    ]
    return crd


def no_established(site: Installation) -> None:
    crd_of(site, "podgroups")["status"] = {}


def older_crd(site: Installation) -> None:
    (version,) = [each for each in crd_of(site, "podgroups")["spec"]["versions"] if each["name"] == "v1beta1"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["waiting"]


def old_scheduler(site: Installation, release: str = "v1.33.1") -> None:
    (workload,) = site.of("deployments")
    for container in workload["spec"]["template"]["spec"]["containers"]:
        container["image"] = f"registry.k8s.io/kube-scheduler:{release}"


def volcanos_crd(site: Installation) -> None:
    schema = crd_of(site, "queues")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["state"]


def another_version(site: Installation) -> None:
    crd_of(site, "podgroups")["spec"]["versions"][0]["served"] = False


def adopted(name: str) -> Callable[[Installation], object]:
    meta = {"name": name, "labels": {"kube-muster.io/managed": "true"}}
    return lambda site: site.put({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})


def adopted_without_policy(site: Installation) -> None:
    without("mutatingadmissionpolicies", "kube-muster-adoption")(site)
    adopted("team")(site)


def ill_typed(site: Installation) -> None:
    warnings = {"expressionWarnings": [{"warning": "undefined field 'x'"}]}
    site.of("mutatingadmissionpolicies")[0]["status"] = {"typeChecking": warnings}


def missing_right(site: Installation) -> None:
    site.denied |= {("create", "pods"), ("patch", "podgroups")}


def older_cluster(site: Installation, release: str = "1.35") -> None:
    site.pages["/version"] = older(release)


def no_endpoint(site: Installation) -> None:
    site.of("endpointslices")[0]["endpoints"][0]["conditions"]["ready"] = False


def no_bundle(site: Installation) -> None:
    del site.of("validatingwebhookconfigurations")[0]["webhooks"][0]["clientConfig"]["caBundle"]


def trust(site: Installation, authority: bytes = b"no certificate") -> None:
    client = site.of("validatingwebhookconfigurations")[0]["webhooks"][0]["clientConfig"]
    client["caBundle"] = base64.b64encode(authority).decode()


def trust_another_ca(site: Installation) -> None:
    trust(site, make_pair([HOST], 90 * DAY, time.time()).authority)


def no_certificate(site: Installation) -> None:
    site.of("secrets")[0]["data"] = {"tls.crt": base64.b64encode(b"none").decode()}


def half_ready(site: Installation) -> None:
    site.of("deployments")[0]["spec"]["replicas"] = 2


def led_by(holder: str, age: float = 0.0) -> Spoil:
    """Return a function that replaces the Lease by one of this holder and age."""

    def spoil(site: Installation) -> None:
        site.of("leases").clear()
        site.lease("kube-system", "muster-scheduler", holder, age=age)

    return spoil


def never_called(site: Installation) -> None:
    site.pages[f"{PROXY}/metrics"] = (200, METRICS.replace("called 0.0", "called 1.0"))


def volcano_at_work(site: Installation) -> None:
    site.lease("volcano-system", "volcano", "vc-0_1")


def volcanos_pod(site: Installation, namespace: str = "volcano-system") -> None:
    """Add the pods of Volcano's scheduler; as installed, it holds no Lease."""
    meta = {"name": "volcano-scheduler-1", "namespace": namespace, "labels": {"app": "volcano-scheduler"}}
    ended = {**meta, "name": "volcano-scheduler-0"}
    pods = [
        {"metadata": ended, "spec": {"nodeName": "n0"}, "status": {"phase": "Failed"}},
        {"metadata": meta, "spec": {"nodeName": "n0"}, "status": {"phase": "Running"}},
    ]
    site.objects["/api/v1/pods"] = pods


def volcanos_controllers(site: Installation, *args: str, replicas: int = 1) -> None:
    meta = {
        "name": "volcano-controllers",
        "namespace": "volcano-system",
        "labels": {"app": "volcano-controller"},
    }
    template = {"spec": {"containers": [{"name": "main", "args": ["--logtostderr", *args, "2>&1"]}]}}
    found = {"metadata": meta, "spec": {"replicas": replicas, "template": template}}
    site.objects["/apis/apps/v1/deployments"] = [found]


def other_clock(site: Installation) -> None:
    site.ahead = timedelta(seconds=-90)


def local_queue(name: str, reason: str) -> Json:
    condition = {"type": "Active", "status": "False", "reason": reason, "message": ""}
    meta = {"name": name, "namespace": "team"}
    return {"metadata": meta, "spec": {"queue": "q"}, "status": {"conditions": [condition]}}


def local_queues_astray(site: Installation) -> None:
    found = [local_queue("door", "QueueNotFound"), local_queue("gate", "Stopped")]
    site.objects["/apis/kube-muster.io/v1alpha1/localqueues"] = found


def topology_without_nodes(site: Installation) -> None:
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "rack"}]
    site.objects["/apis/kube-muster.io/v1alpha1/topologies"] = [
        {"metadata": {"name": "net"}, "spec": {"levels": levels}}
    ]
    site.objects["/api/v1/nodes"] = [{"metadata": {"name": "n", "labels": {"block": "1"}}}]


def queue_with(condition: str) -> Spoil:
    """Return a function that adds a queue `q` with this condition."""
    found = {"type": condition, "status": "True", "reason": "", "message": ""}
    return lambda site: add_queue(site, {"metadata": {"name": "q"}, "status": {"conditions": [found]}})


def add_queue(site: Installation, queue: Json) -> None:
    site.objects.setdefault(QUEUES, []).append(queue)


OVERRULING = (("delete", "pods"), ("overrule", "queues"))


@pytest.mark.parametrize(
    ("honour", "denied", "state", "says"),
    [
        (
            [],
            OVERRULING,
            "wrong",
            "in owing: pods that budgets protect keep borrowed capacity, since the account",
        ),
        ([], OVERRULING, "wrong", "account muster lacks: delete pods, overrule queues"),
        (["Preemptable"], OVERRULING[1:], "wrong", "account muster lacks: overrule queues"),
        ([], (), "ok", "disruption budgets protect no borrowed capacity of owing"),
        (["PodDisruptionBudgets"], OVERRULING, "ok", "no queue leaves disruption budgets out"),
        (None, OVERRULING, "ok", "no queue leaves disruption budgets out"),
    ],
)
def test_queues_that_do_not_honour_budgets_need_the_rights_to_overrule_them(
    site: Installation,
    check: Check,
    honour: list[str] | None,
    denied: tuple[tuple[str, str], ...],
    state: str,
    says: str,
) -> None:
    add_queue(site, {"metadata": {"name": "owing"}, "spec": {"preemption": {"honour": honour}}})
    site.denied |= {*denied}
    ((found, message, todo),) = check()["overruling"]
    assert found == state
    assert says in message
    assert ("manifests/overruling" in todo) is (state == "wrong")


KUEUE = "/apis/kueue.x-k8s.io/v1beta1/localqueues"
OURS = "/apis/kube-muster.io/v1alpha1/localqueues"


def named(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "namespace": "team", "labels": labels}}


def with_kueue(site: Installation, *local_queues: str) -> None:
    crd: Json = {"metadata": {"name": "localqueues.kueue.x-k8s.io"}}
    crd["spec"] = {"versions": [{"name": "v1beta1", "served": True}]}
    site.objects["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"].append(crd)
    site.objects[KUEUE] = [named(queue) for queue in local_queues]


def kueues_job(site: Installation, name: str, local_queue: str, scheduler: str = "muster") -> Json:
    container = {"name": "main", "image": "i"}
    template = {"spec": {"schedulerName": scheduler, "containers": [container]}}
    job = named(name, **{"kueue.x-k8s.io/queue-name": local_queue})
    job |= {"spec": {"suspend": True, "template": template}}
    site.objects.setdefault("/apis/batch/v1/jobs", []).append(job)
    return job


def local_queue_of_both(site: Installation) -> None:
    with_kueue(site, "door")
    site.objects[OURS] = [named("door")]


def local_queue_without_queue(site: Installation) -> None:
    with_kueue(site)
    kueues_job(site, "x", "door")


def test_jobs_of_kueue_are_said_to_be_left_to_it(site: Installation, check: Check) -> None:
    """Report jobs that Muster's scheduler would place; omit jobs with Muster's own label and running jobs."""
    with_kueue(site, "door")
    site.objects[OURS] = [named("own")]
    kueues_job(site, "x", "door")
    kueues_job(site, "mine", "own")
    kueues_job(site, "strange", "door", scheduler="other")
    kueues_job(site, "both", "door")["metadata"]["labels"]["kube-muster.io/local-queue"] = "own"
    kueues_job(site, "going", "door")["spec"]["suspend"] = False
    ((state, message, todo),) = check()["Kueue"]
    assert (state, message) == ("ok", "1 suspended job left to Kueue: team/job/x")
    assert todo.startswith("To let Muster start one, remove its label kueue.x-k8s.io/queue-name")


JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"


def jobset(site: Installation, queue: str = "research", *, suspend: bool = True) -> None:
    template = {"spec": {"schedulerName": "muster", "containers": [{"name": "main", "image": "i"}]}}
    replicated = [{"name": "w", "template": {"spec": {"template": template}}}]
    meta = {"name": "x", "namespace": "team", "uid": "u", "annotations": {QUEUE: queue} if queue else {}}
    job_set = {"metadata": meta, "spec": {"suspend": suspend, "replicatedJobs": replicated}}
    site.objects.setdefault(JOBSETS, []).append(job_set)


def jobset_that_muster_may_not_change(site: Installation) -> None:
    site.denied.add(("patch", "jobsets"))
    jobset(site)
    jobset(site, queue="")
    jobset(site, suspend=False)


def test_rights_for_kinds_of_which_no_job_waits_may_be_missing(site: Installation, check: Check) -> None:
    site.denied |= {("patch", name) for name in ("jobsets", "rayjobs", "rayclusters", "trainjobs")}
    jobset(site, queue="")
    ((state, message, _),) = check()["jobs"]
    assert state == "ok"
    assert message.startswith("the account muster may change jobs.batch, ")
    assert message.endswith("; no others wait for it")
    assert "jobsets" not in message


@pytest.mark.parametrize(("runs", "reported"), [("on", "wrong"), ("off", "ok")])
def test_volcano_jobs_need_rights_where_muster_runs_them(
    site: Installation, check: Check, runs: str, reported: str
) -> None:
    site.denied.add(("patch", "jobs"))
    template = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    spec = {"schedulerName": "volcano", "tasks": [{"name": "a", "replicas": 1, "template": template}]}
    meta = {"name": "x", "namespace": "team", "uid": "u"}
    site.objects["/apis/batch.volcano.sh/v1alpha1/jobs"] = [{"metadata": meta, "spec": spec}]
    (container,) = site.of("deployments")[0]["spec"]["template"]["spec"]["initContainers"]
    container["args"].append(f"--volcano-jobs={runs}")
    ((state, message, _),) = check()["jobs"]
    assert (state, "jobs.batch.volcano.sh cannot start" in message) == (reported, reported == "wrong")


def test_jobs_that_are_not_managed_need_no_rights(site: Installation, check: Check) -> None:
    jobset_that_muster_may_not_change(site)
    (container,) = site.of("deployments")[0]["spec"]["template"]["spec"]["initContainers"]
    container["args"].append("--manage-jobs=off")
    assert check()["jobs"] == [("ok", "they are left alone (--manage-jobs=off)", "")]


def native_groups(*versions: str) -> Spoil:
    """Return a function that serves the native groups in these versions; v1 has none."""

    def serve(site: Installation) -> None:
        group = "/apis/scheduling.k8s.io"
        named = [f"scheduling.k8s.io/{version}" for version in ("v1", *versions)]
        site.pages[group] = (200, json.dumps({"versions": [{"groupVersion": each} for each in named]}))
        site.pages[f"{group}/v1"] = (200, json.dumps({"resources": [{"name": "priorityclasses"}]}))
        for version in versions:
            kinds = [{"name": "podgroups"}, {"name": "podgroups/status"}]
            site.pages[f"{group}/{version}"] = (200, json.dumps({"resources": kinds}))

    return serve


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ((), "are not served (feature gate GenericWorkload)"),
        (("v1alpha2",), "are served and read as scheduling.k8s.io/v1alpha2"),
        (("v1alpha3", "v1beta1"), "are served and read as scheduling.k8s.io/v1beta1"),
    ],
)
def test_the_version_of_native_groups_is_reported(
    site: Installation, check: Check, versions: tuple[str, ...], message: str
) -> None:
    native_groups(*versions)(site)
    assert check()["groups"] == [("ok", f"PodGroups of Kubernetes itself {message}", "")]


TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/elasticquotatrees"


def tree(site: Installation, *leaves: str, namespace: str = "kube-system") -> Json:
    children = [{"name": name, "max": {"cpu": 4}, "namespaces": [name]} for name in leaves]
    root = {"name": "root", "max": {"cpu": 8}, "children": children}
    tree = {"metadata": {"name": "quotas", "namespace": namespace}, "spec": {"root": root}}
    site.objects.setdefault(TREES, []).append(tree)
    return tree


def quota_queue(site: Installation, name: str, source: str = "quotas", **notes: str) -> Json:
    """Add a queue as Muster makes it of the tree."""
    is_leaf = name != "root-quota"
    parent, amount = ("root-quota", 4) if is_leaf else ("root", 8)
    tree = f"ElasticQuotaTree/kube-system/{source}"
    notes = {"kube-muster.io/quota-source": tree} | notes
    notes |= {"kube-muster.io/quota-namespaces": name} if is_leaf else {}
    spec = {"weight": 1, "reclaimable": True, "parent": parent, "capability": {"cpu": amount}}
    obj = {"metadata": {"name": name, "uid": name, "annotations": notes}, "spec": spec}
    add_queue(site, obj)
    return obj


def quotas_unread(site: Installation) -> None:
    tree(site, "a")
    site.denied.add(("watch", "elasticquotatrees"))


def quota_of_another_namespace(site: Installation) -> None:
    tree(site, "a", namespace="team")


def quota_whose_queue_is_taken(site: Installation) -> None:
    tree(site, "a")
    quota_queue(site, "root-quota")
    del quota_queue(site, "a")["metadata"]["annotations"]


def quota_that_was_not_applied(site: Installation) -> None:
    tree(site, "a")
    quota_queue(site, "root-quota")


def quota_that_was_changed(site: Installation) -> None:
    tree(site, "a")
    quota_queue(site, "root-quota")
    quota_queue(site, "a")["spec"]["capability"] = {"cpu": 64}


def queue_of_a_quota_that_is_gone(site: Installation) -> None:
    quota_queue(site, "a", "older")


def test_queues_that_are_as_quotas_say_are_in_order(site: Installation, check: Check) -> None:
    """Accept a queue that Muster is closing, because its quota is gone."""
    tree(site, "a", "b")
    for name in ("root-quota", "a", "b"):
        quota_queue(site, name)
    quota_queue(site, "c", **{"kube-muster.io/quota-ended": "true"})
    assert check()["quotas"] == [("ok", "3 queues made from them", "")]


def test_quotas_of_a_kind_that_is_not_a_source_are_not_looked_at(site: Installation, check: Check) -> None:
    """Ignore quotas of Kubernetes by default."""
    quota = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"cpu": "many"}}}
    site.objects["/api/v1/resourcequotas"] = [quota]
    assert check()["quotas"] == [("ok", "there are none from which queues would be made", "")]
    (workload,) = site.of("deployments")
    for container in workload["spec"]["template"]["spec"]["initContainers"]:
        container.setdefault("args", []).append("--quota-sources=resourcequota")
    ((state, message, _),) = check()["quotas"]
    assert state == "wrong"
    assert "ResourceQuota/team/q" in message


@pytest.mark.parametrize(
    ("spoil", "subject", "message"),
    [
        (quotas_unread, "quotas", "since the account muster lacks: watch elasticquotatrees"),
        (
            quota_of_another_namespace,
            "quotas",
            "ElasticQuotaTree/team/quotas, metadata.namespace: invalid value team",
        ),
        (quota_whose_queue_is_taken, "quotas", "queue 'a' exists and is not made from this quota"),
        (quota_that_was_not_applied, "quotas", "1 queue not as the quotas say: a"),
        (quota_that_was_changed, "quotas", "1 queue not as the quotas say: a"),
        (queue_of_a_quota_that_is_gone, "quotas", "not read: a (ElasticQuotaTree/kube-system/older)"),
        (local_queue_of_both, "Kueue", "team/door: LocalQueues of both, so both start and suspend the jobs"),
        (local_queue_without_queue, "Kueue", "missing LocalQueues: team/job/x (team/door)"),
        (topology_without_nodes, "topologies", "no node has the label of some levels: rack of net"),
        (queue_with("FlavorNotFound"), "flavors", "queues name ResourceFlavors that do not exist: q"),
        (queue_with("GuaranteeUnmet"), "guarantees", "nodes offer less than queues are guaranteed: q"),
        (local_queues_astray, "LocalQueues", "1 of 2 admit no groups: team/door (QueueNotFound)"),
        (older_crd, "podgroups.scheduling.volcano.sh", "lacks status.waiting, status.waiting.ahead"),
        (no_established, "podgroups.scheduling.volcano.sh", "is not established"),
        (another_version, "podgroups.scheduling.volcano.sh", "does not serve v1beta1"),
        (volcanos_crd, "queues.scheduling.volcano.sh", "lacks spec.state: it is another project's"),
        (unbound, "policies", "kube-muster-gate has no binding, so it does nothing"),
        (without_marks, "policies", "kube-muster-marks is missing, so Muster's records on PodGroups"),
        (without_uses, "policies", "kube-muster-uses is missing, so nothing starts in restricted queues"),
        (without_authors, "policies", "kube-muster-authors is missing, so no user is known"),
        (without_policies, "policies", "no policy puts gates on pods"),
        (adopted_without_policy, "adoption", "no policy gives pods in team Muster's scheduler"),
        (adopted("kube-system"), "adoption", "pods in kube-system stay with the cluster's scheduler"),
        (ill_typed, "policies", "kube-muster-gate does not fit this API server: undefined field 'x'"),
        (missing_right, "rights", "create pods/binding, create pods/eviction, patch podgroups"),
        (
            jobset_that_muster_may_not_change,
            "jobs",
            "1 of jobsets.jobset.x-k8s.io cannot start: the account muster may not change that kind",
        ),
        (native_groups("v2"), "groups", "are served as scheduling.k8s.io/v2, which is not read"),
        (without_webhooks, "webhooks", "none is registered"),
        (older_cluster, "webhooks", "kube-muster-pods is missing: pods get no gate"),
        (no_service, "webhooks", "queues.kube-muster.io: the service kube-muster/muster does not exist"),
        (no_endpoint, "webhooks", "the service kube-muster/muster has no endpoint that is ready"),
        (no_bundle, "webhooks", "queues.kube-muster.io: caBundle is empty"),
        (trust, "webhooks", "queues.kube-muster.io: caBundle cannot be read: "),
        (no_certificate, "certificates", "the Secret kube-muster/muster-webhook-certificate holds none: "),
        (half_ready, "workload", "deployment/muster has 1 of 2 replicas ready"),
        (old_scheduler, "scheduler", "kube-scheduler:v1.33.1 runs next to an API server of 1.36"),
        (nothing_runs, "workload", "nothing runs Muster in namespace kube-muster"),
        (no_lease, "leader", "the lease kube-system/muster-scheduler does not exist"),
        (
            led_by("muster-1_5ec7", age=3700),
            "leader",
            "kube-system/muster-scheduler has not been renewed for 61m",
        ),
        (led_by("muster-1_5ec7", age=-40), "leader", "the clock of muster-1_5ec7 is 4"),
        (
            led_by("elsewhere_5ec7"),
            "leader",
            "elsewhere_5ec7 holds kube-system/muster-scheduler, and no Muster runs there",
        ),
        (never_called, "calls", "muster-1 leads, and the scheduler has never called it"),
        (volcano_at_work, "Volcano", "its scheduler is running (vc-0_1)"),
        (volcanos_pod, "Volcano", "its scheduler is running (volcano-scheduler-1)"),
        (
            lambda site: volcanos_pod(site, "batch"),
            "Volcano",
            "is at work in namespace batch (volcano-scheduler-1), and Muster",
        ),
        (
            volcanos_controllers,
            "Volcano",
            "its queue-controller and pg-controller run (volcano-system/volcano-c",
        ),
        (lambda site: older_cluster(site, "1.33"), "Kubernetes", "v1.33.3 is too old"),
        (other_clock, "clocks", "s ahead of the API server's"),
    ],
)
def test_each_fault_of_an_installation_is_found(
    site: Installation,
    check: Check,
    spoil: Spoil,
    subject: str,
    message: str,
) -> None:
    spoil(site)
    found = check()
    wrong = [each for each in found[subject] if each[0] == "wrong"]
    assert any(message in each[1] for each in wrong), found
    assert all(todo for _, _, todo in wrong)


def test_an_older_cluster_has_a_webhook_in_place_of_the_policy(site: Installation, check: Check) -> None:
    older_cluster(site)
    old_scheduler(site, "v1.34.4")
    site.of("mutatingadmissionpolicies").clear()
    path = MANIFESTS / "older-kubernetes" / "pod-webhook.yaml"
    registered = site.put(yaml.safe_load(path.read_text()))
    (served,) = site.of("validatingwebhookconfigurations")[0]["webhooks"]
    for webhook in registered["webhooks"]:
        webhook["clientConfig"] = served["clientConfig"]
    assert faults(check()) == {}


def test_a_scheduler_of_volcano_with_another_name_is_in_order(site: Installation, check: Check) -> None:
    volcanos_pod(site)
    (workload,) = site.of("deployments")
    for container in workload["spec"]["template"]["spec"]["initContainers"]:
        container["args"] = [each for each in container["args"] if each != "--scheduler-name=volcano"]
    (finding,) = check()["Volcano"]
    assert finding[:2] == ("ok", "its scheduler is at work, and Muster leaves its name alone")


@pytest.mark.parametrize(
    ("flag", "on"),
    [
        ("--controllers=*,-queue-controller", "its pg-controller run"),
        ("--controllers=+queue-controller,+job-controller", "its queue-controller run"),
        ("--controllers=*,-sharding-controller,-queue-controller,-pg-controller", ""),
        ("--controllers=+job-controller", ""),
    ],
)
def test_controllers_of_volcano_that_overlap_with_muster_are_named(
    site: Installation, check: Check, flag: str, on: str
) -> None:
    volcanos_controllers(site, flag)
    wrong = [message for state, message, _ in check()["Volcano"] if state == "wrong"]
    assert [message.partition(" (")[0] for message in wrong] == ([on] if on else [])


def test_controllers_of_volcano_that_are_stopped_do_nothing(site: Installation, check: Check) -> None:
    volcanos_controllers(site, replicas=0)
    assert all(state == "ok" for state, _, _ in check()["Volcano"])


@pytest.mark.parametrize(("days", "says"), [(2.99, "expires in 2d23h"), (-1, "has expired")])
def test_a_certificate_that_ends_soon_or_has_ended(
    site: Installation, check: Check, days: float, says: str
) -> None:
    another_webhook(site, days=days)
    found = faults(check())
    assert found["webhooks"] == f"queues.kube-muster.io: its authority {says}"
    assert found["certificates"].endswith(f"muster-webhook-certificate {says}")


def test_a_certificate_of_a_short_life_is_renewed_later(site: Installation, check: Check) -> None:
    container = site.of("deployments")[0]["spec"]["template"]["spec"]["initContainers"][0]
    container["args"].append("--webhook-lifetime=240h")
    for days, found in ((2.99, False), (1.5, True)):
        another_webhook(site, days=days)
        assert ("certificates" in faults(check())) == found


def test_a_certificate_of_a_clock_that_was_ahead(site: Installation, check: Check) -> None:
    another_webhook(site, ahead=2.01)
    message = "muster-webhook-certificate is not valid before 2d from now: a clock is or was wrong"
    assert faults(check())["certificates"].endswith(message)


def test_a_bundle_that_is_not_of_the_certificates_ca(site: Installation, check: Check) -> None:
    trust_another_ca(site)
    ((state, message, todo),) = check()["webhooks"]
    assert (state, message) == (
        "wrong",
        "queues.kube-muster.io: caBundle is not of the CA that made the certificate in the Secret"
        " kube-muster/muster-webhook-certificate, so the API server refuses it",
    )
    assert todo.startswith("Muster writes its CA there within seconds")


def test_a_certificate_for_another_host(site: Installation, check: Check) -> None:
    another_webhook(site, host="elsewhere.svc")
    ((state, message, todo),) = check()["webhooks"]
    assert state == "wrong"
    assert message.endswith(f"is for elsewhere.svc, and the API server calls {HOST}")
    assert todo == "Name it by --webhook-name."


def in_files(site: Installation, *, mounted: bool = True) -> None:
    """Put the certificate into files, mounted from a Secret that is not Muster's."""
    (secret,) = site.of("secrets")
    secret["metadata"]["name"] = "of-cert-manager"
    pod = site.of("deployments")[0]["spec"]["template"]["spec"]
    container = pod["initContainers"][0]
    container["args"].append("--webhook-certificates=files")
    if mounted:
        container["volumeMounts"].append({"name": "certificate", "mountPath": "/etc/kube-muster/webhook"})
        pod["volumes"].append({"name": "certificate", "secret": {"secretName": "of-cert-manager"}})


def test_a_certificate_in_another_secret_or_of_another_ca(site: Installation, check: Check) -> None:
    site.of("secrets")[0]["metadata"]["name"] = "another"
    assert "muster-webhook-certificate does not exist" in faults(check())["certificates"]
    in_files(site)
    site.denied |= {(verb, "secrets") for verb in ("get", "create", "patch")}
    found = check()
    ((state, message, _),) = found["certificates"]
    assert (state, message) == ("ok", "that of the Secret kube-muster/of-cert-manager expires in 90d")
    assert faults(found) == {}
    trust_another_ca(site)
    ((state, message, todo),) = check()["webhooks"]
    assert (state, "kube-muster/of-cert-manager" in message) == ("wrong", True)
    assert todo.startswith("Put the CA of that Secret there; cert-manager does")


def test_files_that_come_from_elsewhere_are_not_known(site: Installation, check: Check) -> None:
    in_files(site, mounted=False)
    assert "certificates" not in check()


def test_the_certificate_of_the_dashboard_is_looked_at(site: Installation, check: Check) -> None:
    """It has nothing to do with the webhooks, nor with the bundle by which the API server trusts theirs."""
    pod = site.of("deployments")[0]["spec"]["template"]["spec"]
    container, name = pod["initContainers"][0], "muster-dashboard-tls"
    container["env"].append({"name": "MUSTER_DASHBOARD_TLS_FOLDER", "value": "/dashboard"})
    container["volumeMounts"].append({"name": "dashboard", "mountPath": "/dashboard"})
    pod["volumes"].append({"name": "dashboard", "secret": {"secretName": name, "optional": True}})
    ((state, message, todo),) = check()["certificates"][1:]
    assert (state, f"kube-muster/{name}" in message) == ("wrong", True)
    assert todo.endswith("docs/how-to/dashboard.md#in-the-cluster")
    own = make_pair(["dashboard.example"], 90.5 * DAY, time.time()).certificate
    data = {"tls.crt": base64.b64encode(own).decode()}
    meta = {"namespace": NAMESPACE, "name": name}
    site.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    found = check()
    assert f"kube-muster/{name}" in found["certificates"][1][1]
    assert faults(found) == {}


def test_each_part_that_is_not_ready_is_a_line(site: Installation, check: Check) -> None:
    message = (
        "[+]ping ok\n[-]pods-synced failed: not read yet\n[-]webhook-certificate failed: no certificate yet\n"
    )
    site.pages[f"{PROXY}/readyz"] = (500, f"{message}readyz check failed\n")
    found = check()
    assert [(state, message) for state, message, _ in found["health"]] == [
        ("wrong", "muster-1 is not ready, pods-synced: not read yet"),
        ("wrong", "muster-1 is not ready, webhook-certificate: no certificate yet"),
    ]
    assert all(
        todo.endswith("kubectl -n kube-muster logs muster-1 -c muster") for *_, todo in found["health"]
    )
    assert found["calls"] == [("ok", "muster-1 leads, and the scheduler calls it", "")]


def test_unreadable_objects_are_reported_as_unseen(site: Installation, check: Check) -> None:
    site.forbidden |= {"leases", "customresourcedefinitions"}
    found = check()
    assert "wrong" not in {state for each in found.values() for state, *_ in each}
    seen = ("unseen", "not allowed to look: you may not")
    assert [each[:2] for subject in ("kinds", "leader") for each in found[subject]] == [seen, seen]


def test_a_pod_that_the_api_server_cannot_reach(site: Installation, check: Check) -> None:
    site.pages[f"{PROXY}/readyz"] = (503, "no route to host")
    ((state, message, todo),) = check()["health"]
    assert (state, "503" in message) == ("unknown", True)
    assert "curl '127.0.0.1:8282/readyz?verbose'" in todo


def test_a_replica_of_another_release_is_reported(site: Installation, check: Check) -> None:
    (workload,) = site.of("deployments")
    workload["spec"]["template"]["spec"]["initContainers"][0]["image"] = "registry.example/kube-muster:9.9"
    ((state, message, _),) = check()["version"]
    assert (state, message) == (
        "unknown",
        f"registry.example/kube-muster:9.9 runs; this command is {__version__}",
    )


def test_the_flag_namespace_selects_the_installation(check: Check) -> None:
    assert faults(check("-n", "elsewhere"))["workload"].endswith(" elsewhere")


def test_every_right_of_the_manifests_is_asked_for() -> None:
    paths = (MANIFESTS / "rbac.yaml", MANIFESTS / "webhooks" / "rbac.yaml")
    documents = [each for path in paths for each in yaml.safe_load_all(path.read_text()) if each]
    checked_rights = {str(each) for each in granted_rights(documents)}
    assert "patch secrets muster-webhook-certificate in kube-muster" in checked_rights
    assert {"create pods/binding", "patch podgroups", "watch nodes"} <= checked_rights
    assert "get leases muster-scheduler in kube-system" in checked_rights
    assert not any("deletecollection" in each for each in checked_rights)  # those of people are not Muster's
