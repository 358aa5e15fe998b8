"""`muster why --what-if`: what would be decided, by what its user may read; and terms that make no sense."""

import re
from urllib.parse import urlencode

import pytest

from extender.api.keys import GATE
from extender.api.setting_kinds import Address
from extender.apimachinery.kinds import DEPLOYMENTS, JOBS, PODS
from extender.cli.access import Flags, open_access
from extender.cli.dashboard import served
from extender.web.sockets import listen
from tests.cli.cluster import Cluster
from tests.cli.test_dashboard import browser
from tests.pages.sample import add_sample
from tests.rows import each_of


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    """Set up two nodes: fit has four of the eight cores of n0, and block has all of n1.

    Sweep wants 8 cores, job/train 16.
    """
    add_sample(cluster).node("n0")
    cluster.node("n1")
    cluster.gang("block", 4, node="n1", phase="Running", reason="Running", queue="reports")
    for namespace in ("team", "other"):
        cluster.namespace(namespace)
    return cluster


def in_one_line(answer: str) -> str:
    return " ".join(answer.split())


def test_a_term_that_helps(sample: Cluster) -> None:
    assert (
        sample.output("why", "podgroup/sweep", "--what-if", "nodes=+1")
        == """\
If nodes=+1, team/sweep would start now. Without that, it waits: NoRoom.

Of others:
  team/job/train would still wait, at position 1 instead of 2: NoRoom.
"""
    )


def test_a_term_that_does_not_help_is_reported(sample: Cluster) -> None:
    answer = in_one_line(sample.output("why", "sweep-0", "--what-if", "queue.priority=research:9"))
    assert answer.startswith("If queue.priority=research:9, team/sweep would still wait: NoRoom. ")
    assert " cpu: 8 needed, 4 left" in answer


def test_a_what_if_names_the_groups_whose_capacity_is_reclaimed(sample: Cluster) -> None:
    answer = in_one_line(sample.output("why", "sweep", "--what-if", "queue.weight=research:9"))
    assert "Reclaiming instead of NoRoom." in answer
    assert answer.endswith(
        "Of others: team/block would go on running, and give up the capacity of 4 of its pods."
    )


def test_terms_apply_together_and_their_cost_to_others_is_listed(sample: Cluster) -> None:
    terms = ("--what-if", "nodes=+1:n0", "--what-if", "delete=podgroup/fit", "--what-if", "priority=9")
    answer = in_one_line(sample.output("why", "job/train", *terms))
    assert answer.startswith("If nodes=+1:n0 and delete=podgroup/fit and priority=9, ")
    assert sample.json("why", "job/train", *terms)["group"]["change"] == "starts"
    found = sample.json("why", "job/train", "--what-if", "priority=9")
    (sweep,) = found["others"]
    assert [found["group"][when]["position"] for when in ("before", "after")] == [2, 1]
    assert (sweep["group"], sweep["after"]["position"]) == ("team/sweep", 2)


def test_json_output_has_the_change_of_the_group_and_of_others(sample: Cluster) -> None:
    found = sample.json("why", "sweep", "--what-if", "nodes=+1")
    assert found["terms"] == ["nodes=+1"]
    assert found["group"]["group"] == "team/sweep"
    assert found["group"]["change"] == "starts"
    assert found["group"]["before"]["reason"] == "NoRoom"
    assert found["group"]["after"] == {"verdict": "Starting"}


def test_a_pod_without_a_group(sample: Cluster) -> None:
    sample.pod(
        "alone", gates=(GATE,), spec={"containers": [{"name": "m", "resources": {"requests": {"cpu": "7"}}}]}
    )
    assert "would start now" in sample.output("why", "pod/alone", "--what-if", "delete=podgroup/fit")


def test_a_what_if_deletion_of_a_job_includes_the_podgroup_of_its_pods(sample: Cluster) -> None:
    meta = {"name": "fit", "namespace": "team", "uid": "uid-fit"}
    sample._put(JOBS, meta, {"spec": {"template": {"spec": {"containers": []}}}, "status": {}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "fit", "uid": "uid-fit", "controller": True}
    sample.pod("fit-late", "fit", gates=(GATE,), metadata={"ownerReferences": [owner]})
    assert "would start now" in sample.output("why", "podgroup/sweep", "--what-if", "delete=job/fit")
    assert "there is no job team/fitt" in sample.refuses(
        "why", "sweep", "--what-if", "delete=job/fitt", status=2
    )


def test_no_object_is_written(sample: Cluster) -> None:
    before = sample.store.listing(PODS)[1]
    sample.output("why", "sweep", "--what-if", "nodes=+3", "--what-if", "delete=podgroup/fit")
    assert sample.store.listing(PODS)[1] == before


@each_of(
    ("sweep", "node=1", "--what-if: 'node=1': must be"),
    ("sweep", "queue.weight=lab:2", "--what-if: 'queue.weight=lab:2': "),
    ("sweep", "delete=fit", "--what-if: 'delete=fit': must be delete=KIND/[NAMESPACE/]NAME"),
    ("sweep", "delete=jbo/fit", "--what-if: 'delete=jbo/fit': there is no jbo team/fit"),
    (
        "queue/research",
        "nodes=+1",
        "--what-if: queue/research is no group, and in none: must be one group",
    ),
)
def test_an_invalid_term_is_named(target: str, term: str, says: str, *, sample: Cluster) -> None:
    assert f"Error: {says}" in sample.refuses("why", target, "--what-if", term, status=2)


def test_a_term_that_names_a_missing_object_is_no_wrong_usage(sample: Cluster) -> None:
    message = sample.refuses("why", "sweep", "--what-if", "nodes=+1:nosuch", status=2)
    assert ("there is no node nosuch" in message, "Usage:" in message) == (True, False)


def test_a_term_is_validated_before_the_cluster_is_asked(cluster: Cluster) -> None:
    cluster.kubeconfig.write_text("{}")
    assert "'x': must be" in cluster.refuses("why", "sweep", "--what-if", "x", status=2)


@pytest.mark.parametrize("plural", ["pods", "nodes", "podgroups", "priorityclasses"])
def test_a_user_who_may_not_read_the_whole_cluster_sees_the_needed_rights(
    sample: Cluster, plural: str
) -> None:
    sample.lock((plural, ""))
    says = sample.refuses("why", "podgroup/sweep", "--what-if", "nodes=+1")
    assert says.startswith("--what-if takes the right to list nodes, namespaces")


def test_objects_that_count_as_absent_are_reported(sample: Cluster) -> None:
    sample.lock(("localqueues", ""))
    answer = in_one_line(sample.output("why", "podgroup/sweep", "--what-if", "nodes=+1"))
    assert answer.endswith("You may not list localqueues of all namespaces: they count as absent.")


def test_settings_are_those_of_the_installation(sample: Cluster) -> None:
    """A window of three holds less than sweep's four members."""
    container = {"name": "muster", "image": "i", "args": ["serve", "--window=3"]}
    meta = {
        "name": "muster",
        "namespace": "kube-muster",
        "labels": {"app.kubernetes.io/part-of": "kube-muster"},
    }
    sample._put(DEPLOYMENTS, meta, {"spec": {"template": {"spec": {"containers": [container]}}}})
    found = sample.json("why", "podgroup/sweep", "--what-if", "nodes=+1")
    assert found["group"]["after"]["reason"] == "TooLargeForWindow"


def test_a_user_who_may_not_see_the_installation_gets_the_defaults_and_a_warning(sample: Cluster) -> None:
    sample.lock(("deployments", ""))
    answer = in_one_line(sample.output("why", "podgroup/sweep", "--what-if", "nodes=+1"))
    assert "team/sweep would start now." in answer
    assert "Muster's settings may not be read here, so their defaults are assumed." in answer


def test_the_local_dashboard_answers_a_what_if(sample: Cluster) -> None:
    listener, page_of = listen("--listen", Address("127.0.0.1", 0)), "/groups/team/sweep"
    sample.lock(("replicasets", ""))
    with (
        open_access(Flags(str(sample.kubeconfig), None, "team")) as place,
        served(place, listener, print) as url,
    ):
        client, base = browser(), url.partition("/login")[0]
        client.open(url)
        csrf = re.search(r'name="csrf" value="(\w+)"', client.open(base + page_of).read().decode())
        assert csrf
        form = urlencode({"csrf": csrf[1], "term": "nodes=+", "number": "1"}).encode()
        answer = in_one_line(
            re.sub("<[^>]+>", "", client.open(f"{base}{page_of}/what-if", form).read().decode())
        )
    assert "team/sweep would start now." in answer
    assert "instead of 2: NoRoom." in answer
    assert " replicasets " in answer
