"""Dashboard in the cluster: holders of a token see and change as themselves what kubectl would allow."""

import http.client
import json
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from extender.api.keys import HOLD
from extender.dashboard.token_login import COOKIE
from extender.webhooks.certificates import make_mutual
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import ADMIN, User, issued, service_account
from tests.e2e.harness.audit import Audit
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import PROGRAM, Muster
from tests.e2e.harness.process import free_ports
from tests.e2e.harness.resources import POD_GROUPS, QUEUES, Resource
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDINGS = Resource(RBAC, "rolebindings")
ACCOUNTS = Resource("/api/v1", "serviceaccounts")
SOON = 10.0  # seconds in which a right that was withdrawn has gone
OTHER = "other"


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def cluster(audit: Audit) -> Iterator[ControlPlane]:
    users = manifests.service_accounts()
    with ControlPlane(kubernetes=KUBERNETES, users=users, apiserver_flags=audit.flags) as started:
        manifests.apply(started.admin, *manifests.INSTALLED, "dashboard/rbac.yaml")
        yield started


class Browser:
    """Browser that keeps the cookie and follows no redirect."""

    def __init__(self, connect: Callable[[], http.client.HTTPConnection], token: str = "") -> None:
        self._connect = connect
        self._token = token
        self.cookie = ""

    def ask(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> tuple[int, str]:
        sent = {"Cookie": self.cookie} if self.cookie else {}
        sent |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        sent |= {"Content-Type": "application/x-www-form-urlencoded"} if fields is not None else {}
        connection = self._connect()
        try:
            body = None if fields is None else urlencode(fields)
            connection.request("GET" if fields is None else "POST", path, body, sent | headers)
            answer = connection.getresponse()
            self.cookie = (answer.getheader("Set-Cookie") or self.cookie).partition(";")[0]
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def status(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> int:
        return self.ask(path, fields, **headers)[0]

    def groups(self, below: str = "") -> set[str]:
        status, body = self.ask(f"{below}/api/v1/overview")
        assert status == 200, body
        return {f"{each['namespace']}/{each['name']}" for each in json.loads(body)["groups"]}

    def do(self, group: str, path: str, **fields: str) -> tuple[int, str]:
        """Send the form on the page of a group."""
        _, page = self.ask(group)
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
        assert found, page
        return self.ask(path, {"csrf": found[1], "confirmed": "yes", **fields})


class DashboardSite:
    """Two namespaces with a group each; a tenant with the role edit in one of them."""

    def __init__(self, stage: Stage, muster_user: User, folder: Path) -> None:
        self.stage = stage
        (self.port,) = free_ports(1)
        server, _ = make_mutual(["127.0.0.1"], 3600.0, time.time())
        files = {"tls.crt": server.certificate, "tls.key": server.key, "ca.crt": server.authority}
        for name, content in files.items():
            (folder / name).write_bytes(content)
        self.authority = folder / "ca.crt"
        flags = (f"--dashboard-listen=0.0.0.0:{self.port}", f"--dashboard-tls-folder={folder}")
        stage.queue("q")
        stage.group("train", 1, queue="q")
        manifests.apply_one(stage.api, objects.pod_group(OTHER, namespace=OTHER, min_member=1))
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        meta = {"name": "tenant", "namespace": stage.namespace}
        manifests.apply_one(stage.api, {**account, "metadata": meta})
        self.tenant = service_account(stage.namespace, "tenant").name
        stage.grant_edit(self.tenant)
        self.issued = issued(stage.api, stage.namespace, "tenant")
        self.token = self.issued.token
        self.muster: Muster = stage.start_muster(*flags, user=muster_user)

    def browser(self, token: str = "") -> Browser:
        trust = ssl.create_default_context(cafile=self.authority)
        return Browser(
            lambda: http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=trust), token
        )

    @contextmanager
    def local(self) -> Iterator[tuple[Browser, str]]:
        """Yield a logged in browser on the tenant's `muster dashboard`, and the path it serves below."""
        file = self.stage.cluster.kubeconfig(self.issued)
        flags = ["--listen=127.0.0.1:0", f"--kubeconfig={file}", "-n", self.stage.namespace]
        with subprocess.Popen([PROGRAM, "dashboard", *flags], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                url = urlsplit(process.stdout.readline().removeprefix("Open ").strip())
                browser = Browser(lambda: http.client.HTTPConnection(url.netloc, timeout=30))
                assert browser.status(f"{url.path}?{url.query}") == 303
                yield browser, url.path.removesuffix("/login")
            finally:
                process.kill()

    def logged_in(self) -> Browser:
        browser = self.browser()
        assert browser.status("/login", {"token": self.token}) == 303
        return browser


@pytest.fixture
def site(stage: Stage, muster_user: User, tmp_path: Path) -> Iterator[DashboardSite]:
    made = DashboardSite(stage, muster_user, tmp_path)
    try:
        yield made
    finally:
        stage.api.delete_all(POD_GROUPS, OTHER)


def annotations(api: Client, namespace: str, name: str = "train") -> Json:
    found: Json = api.get(POD_GROUPS, name, namespace)["metadata"].get("annotations", {})
    return found


def test_without_a_token_there_is_a_page_to_log_in_and_nothing_else(site: DashboardSite) -> None:
    browser = site.browser()
    for path in ("/", "/queues", "/nodes", "/api/v1/overview", f"/groups/{OTHER}/{OTHER}", "/nothing"):
        status, body = browser.ask(path)
        assert (status, "Log in" in body, OTHER in body.replace(path, "")) == (401, True, False)
    assert browser.status("/login", {"token": "no token"}) == 401
    assert browser.status("/login", {"token": site.token[:-4] + "AAAA"}) == 401
    assert browser.cookie == ""
    assert site.browser(site.token[:-4] + "AAAA").status("/") == 401


def test_a_tenant_sees_what_kubectl_would_show(site: DashboardSite) -> None:
    own = f"{site.stage.namespace}/train"
    admin = site.browser(ADMIN.token)
    wait_for(lambda: {own, f"{OTHER}/{OTHER}"} <= admin.groups(), what="both groups shown")
    for tenant in (site.logged_in(), site.browser(site.token)):
        assert tenant.groups() == {own}
        assert tenant.status(f"/groups/{own}") == 200
        for path in (f"/groups/{OTHER}/{OTHER}", f"/groups/{OTHER}/none", f"/api/v1/groups/{OTHER}/{OTHER}"):
            assert tenant.status(path) == 404
        for path in (f"/groups/{OTHER}/{OTHER}/hold", "/queues/q/close"):
            status, said = tenant.do(f"/groups/{own}", path)
            assert (status, "not patch" in said) == (403, True)


def test_a_right_that_is_withdrawn_has_gone_within_seconds(site: DashboardSite) -> None:
    own, tenant = f"{site.stage.namespace}/train", site.logged_in()
    wait_for(lambda: tenant.groups() == {own}, what="its group shown")
    site.stage.api.delete(BINDINGS, site.tenant, site.stage.namespace)
    wait_for(lambda: tenant.groups() == set(), SOON, what="nothing shown")
    assert tenant.status(f"/groups/{own}") == 404


def test_an_account_that_is_gone_is_logged_out(site: DashboardSite) -> None:
    tenant = site.logged_in()
    assert tenant.status("/") == 200
    site.stage.api.delete(ACCOUNTS, "tenant", site.stage.namespace)
    wait_for(lambda: tenant.status("/") == 401, 3 * SOON, what="the login page shown")


def test_a_tenant_holds_and_resumes_as_themselves(site: DashboardSite, audit: Audit) -> None:
    stage, own = site.stage, f"/groups/{site.stage.namespace}/train"
    tenant, mark = site.logged_in(), audit.mark()
    wait_for(lambda: tenant.status(own) == 200, what="its group shown")
    assert tenant.do(own, f"{own}/hold")[0] == 303
    assert annotations(stage.api, stage.namespace)[HOLD] == "true"
    stage.wait_reason("train", "Held")
    assert tenant.do(own, f"{own}/resume")[0] == 303
    assert HOLD not in annotations(stage.api, stage.namespace)

    writes = [each for each in audit.since(mark) if each.resource == "podgroups"]
    held = [write for write in writes if HOLD in write.body.get("metadata", {}).get("annotations", {})]
    assert [each.user for each in held] == ["tenant", "tenant"]
    forged = {"csrf": "0" * 64, "confirmed": "yes"}
    assert tenant.status(f"{own}/hold", forged) == 403
    assert tenant.do(own, f"{own}/hold", csrf="")[0] == 403
    assert HOLD not in annotations(stage.api, stage.namespace)


@pytest.mark.usefixtures("job_rights")
def test_a_tenant_who_may_only_look_at_podgroups_gets_no_action_and_no_yaml_of_the_job(
    site: DashboardSite,
) -> None:
    """Muster itself may read and change jobs; nothing of that reaches the page."""
    stage, looks = site.stage, {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"]}
    stage.api.delete(BINDINGS, site.tenant, stage.namespace)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    meta = {"name": "looks", "namespace": stage.namespace}
    rules = [{**looks, "verbs": ["get", "list", "watch"]}]
    manifests.apply_one(stage.api, {**role, "metadata": meta, "rules": rules})
    binding = objects.binding("looks", site.tenant, namespace=stage.namespace, role_kind="Role")
    manifests.apply_one(stage.api, binding)
    stage.jobs.create("secret-job", queue="q", suspend=True, cpu="1k", annotations={"note": "do-not-show"})
    own, tenant = f"/namespaces/{stage.namespace}/job/secret-job", site.logged_in()
    wait_for(lambda: tenant.status(own) == 200, what="its group shown")
    page, text = tenant.ask(own)[1], tenant.ask(f"{own}/yaml")[1]
    assert [each for each in ("hold", "stop", "priority") if f'"{own}/{each}"' in page] == []
    assert [each in text for each in ("kind: PodGroup", "parallelism", "do-not-show")] == [True, False, False]


def test_the_local_dashboard_uses_the_rights_of_its_user(site: DashboardSite, audit: Audit) -> None:
    name, mark = f"{site.stage.namespace}/train", audit.mark()
    with site.local() as (browser, below):
        wait_for(lambda: browser.groups(below) == {name}, what="its group shown")
        own = f"{below}/groups/{name}"
        assert browser.do(own, f"{own}/hold")[0] == 303
        assert browser.status(f"{below}/groups/{OTHER}/{OTHER}") == 404
        assert browser.do(own, f"{below}/groups/{OTHER}/{OTHER}/hold")[0] == 403
        assert browser.status("/api/v1/overview") == 404
        browser.cookie = ""
        assert browser.status(f"{below}/api/v1/overview") == 401
    writes = [each for each in audit.since(mark) if each.resource == "podgroups"]
    held = [write for write in writes if HOLD in write.body.get("metadata", {}).get("annotations", {})]
    assert [each.user for each in held] == ["tenant"]


def test_an_administrator_closes_a_queue_as_themselves(site: DashboardSite, audit: Audit) -> None:
    admin, mark = site.browser(ADMIN.token), audit.mark()
    wait_for(lambda: admin.status("/queues/q") == 200, what="the queue shown")
    assert admin.do("/queues/q", "/queues/q/close")[0] == 303
    assert site.stage.api.get(QUEUES, "q")["spec"]["state"] == "Closed"
    writes = [each for each in audit.since(mark) if each.resource == "queues"]
    assert [write.user for write in writes if write.body.get("spec") == {"state": "Closed"}] == ["admin"]


def test_a_what_if_is_answered_to_users_who_see_everything_and_written_nowhere(
    site: DashboardSite, audit: Audit
) -> None:
    own, others = f"/groups/{site.stage.namespace}/train", f"/groups/{OTHER}/{OTHER}"
    admin, tenant, mark = site.browser(ADMIN.token), site.logged_in(), audit.mark()
    wait_for(lambda: {admin.status(others), tenant.status(own)} == {200}, what="both groups shown")
    status, said = admin.do(others, f"{others}/what-if", term="minMember=", number="3")
    assert (status, "would still wait" in said) == (200, True), said
    assert admin.do(others, f"{others}/what-if", term="minMember=", number="many")[0] == 400
    assert tenant.do(own, f"{own}/what-if", term="minMember=", number="3")[0] == 403
    assert {"admin", "tenant"}.isdisjoint(
        each.user for each in audit.since(mark) if each.resource == "podgroups"
    )


def test_tricks_of_a_tenant_open_nothing(site: DashboardSite) -> None:
    """Paths, names and headers that other servers trip over."""
    own, tenant = f"{site.stage.namespace}/train", site.logged_in()
    wait_for(lambda: tenant.groups() == {own}, what="its group shown")
    paths = (
        f"//groups/{OTHER}/{OTHER}",
        f"/groups/{site.stage.namespace}/../{OTHER}/{OTHER}",
        f"/groups/{site.stage.namespace}%2f..%2f{OTHER}/{OTHER}",
        f"/groups/{site.stage.namespace}/%2e%2e/{OTHER}",
        f"/groups/{OTHER}%00/{OTHER}",
        f"/groups/{OTHER.upper()}/{OTHER}",
        f"/groups/{OTHER}%E2%80%8B/{OTHER}",
        f"/groups/*/{OTHER}",
        f"/groups//{OTHER}",
        f"/api/v1/groups/{OTHER}/{OTHER}?namespace={site.stage.namespace}",
        "/static/../templates/base.html",
        "/static/..%2f..%2fapp.py",
        "/static/%2e%2e/app.py",
    )
    for path in paths:
        status, body = tenant.ask(path)
        assert status in (404, 400), (path, status)
        assert "minMember" not in body
    headers = (
        {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
        {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
        {"X-Forwarded-User": "admin", "X-Forwarded-Access-Token": ADMIN.token},
        {"X-Original-URL": f"/groups/{OTHER}/{OTHER}", "X-HTTP-Method-Override": "POST"},
        {"Host": "evil.example"},
    )
    for header in headers:
        status, body = tenant.ask("/api/v1/overview", None, **header)
        assert (status, OTHER in body) == (200, False), header
    assert tenant.ask("/", None, **{"X-Large": "x" * 9000})[0] == 431
    assert tenant.status(f"/?{'x' * 9000}") == 414
    assert tenant.status("/login", {"token": "x" * 40_000}) == 413
    stolen = site.browser()
    stolen.cookie = f"{COOKIE}={'A' * 43}"
    assert stolen.status("/") == 401
