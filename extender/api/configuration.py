"""What an administrator can set, in one table.

`Configuration` is that table: each field carries its meaning and what it allows. The flags of `muster serve`,
the environment variables, the keys of the file and docs/configuration.md are all made from it, so they cannot
drift apart. Nothing is read here; extender/cli/settings.py does that.
"""

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from extender.api.durations import as_duration
from extender.api.objects.cluster import QuotaKind
from extender.api.setting_kinds import (
    ADDRESS,
    JOB_KIND,
    LOOPBACK,
    NAME,
    OBJECT,
    TEXT,
    Address,
    Kind,
    ObjectName,
    count,
    duration,
    factor,
    one_of,
    some_of,
)
from extender.api.workloads.further import FurtherKind

API_VERSION = "config.kube-muster.io/v1alpha1"
KIND = "MusterConfiguration"


class InvalidConfiguration(ValueError):
    """The settings that an administrator has to correct, one line for each fault."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All settings with their defaults. Durations are in seconds."""

    kubeconfig: Annotated[
        str,
        TEXT,
        "The kubeconfig file for the API server.",
        "$KUBECONFIG, else the pod's service account, else ~/.kube/config",
    ] = ""
    context: Annotated[str, TEXT, "The context of the kubeconfig file.", "the file's current context"] = ""
    listen: Annotated[
        Address, ADDRESS, "The address for the scheduler's calls: filter, prioritize, bind, preempt."
    ] = Address("127.0.0.1", 8281)
    tls_folder: Annotated[
        str,
        TEXT,
        "The folder with tls.crt, tls.key and ca.crt. The scheduler's calls then need TLS and a client "
        "certificate signed by ca.crt. The files are read again when they change.",
        "plain HTTP",
    ] = ""
    health_listen: Annotated[Address, ADDRESS, "The address for probes and /metrics."] = Address(
        "127.0.0.1", 8282
    )
    debug_listen: Annotated[
        Address, ADDRESS, "The address of the debug pages. They show the whole cluster: keep it on loopback."
    ] = Address("127.0.0.1", 8283)
    view_listen: Annotated[
        Address | None,
        LOOPBACK,
        "The address of the scheduler's view: through it the scheduler beside Muster reads and writes. It "
        "has Muster's rights, so it is for loopback only.",
    ] = None
    view_folder: Annotated[
        str,
        TEXT,
        "The folder in which Muster writes the kubeconfig of the scheduler's view. Needed if that is on.",
        "none",
    ] = ""
    scheduler_names: Annotated[
        tuple[str, ...], NAME, "The values of spec.schedulerName whose pods Muster manages."
    ] = ("muster", "volcano")
    volcano_namespace: Annotated[
        str,
        NAME,
        "Volcano's namespace. While its scheduler runs there, pods of schedulerName volcano are left to it.",
    ] = "volcano-system"
    auto_groups: Annotated[
        str,
        one_of("on", "off"),
        "on: pods that name no group share a PodGroup with others of their owner. off: each is on its own.",
    ] = "on"
    window: Annotated[
        int,
        count(1, 20000),
        "How many pods may be between gate and binding at once. Each may take a connection.",
    ] = 1000
    bind_deadline: Annotated[
        float,
        duration("1s", "1h"),
        "How long the held bind calls of a gang wait. Keep it below the httpTimeout of the binder's entry.",
    ] = 120.0
    start_backoff: Annotated[
        float,
        duration("100ms", "1h"),
        "How long a gang waits after a failed start. The time doubles with each failure.",
    ] = 5.0
    start_backoff_max: Annotated[float, duration("100ms", "24h"), "The longest wait after failed starts."] = (
        300.0
    )
    waiting_for_room: Annotated[
        str,
        one_of("show", "hide"),
        "show: pods that lack room say Unschedulable, so that autoscalers add nodes. hide: they never do.",
    ] = "show"
    never_fits: Annotated[
        str,
        one_of("hide", "show"),
        "show: the same for pods that no node could hold even if empty, because larger nodes may come.",
    ] = "hide"
    manage_jobs: Annotated[
        str,
        one_of("suspended", "queue", "off"),
        "suspended: jobs that name a queue and were created suspended wait as jobs, and are let go when all "
        "their pods find room. queue: all jobs that name a queue; others are suspended. off: none.",
    ] = "suspended"
    unmanaged_namespaces: Annotated[
        tuple[str, ...], NAME, "The namespaces whose jobs are never suspended or let go."
    ] = ()
    unmanaged_kinds: Annotated[
        tuple[str, ...], JOB_KIND, "The kinds of jobs that are never suspended or let go."
    ] = ()
    leader_elect: Annotated[
        str,
        one_of("follow", "off"),
        "follow: the replica whose scheduler holds the Lease leads. off: this replica always leads.",
    ] = "follow"
    lease: Annotated[
        ObjectName, OBJECT, "The scheduler's Lease: the replica whose scheduler holds it leads."
    ] = ObjectName("kube-system", "muster-scheduler")
    writers: Annotated[
        int,
        count(1, 256),
        "The number of threads that remove gates, nominate nodes and evict. Statuses have four more.",
    ] = 16
    binders: Annotated[int, count(1, 256), "The number of threads that post bindings."] = 16
    webhook_certificates: Annotated[
        str,
        one_of("off", "files", "self-signed"),
        "Where the webhooks' certificate comes from. files: from two files. self-signed: Muster creates and "
        "renews it. off: no webhooks.",
    ] = "off"
    webhook_listen: Annotated[
        Address, ADDRESS, "The address for the API server's admission reviews, over TLS."
    ] = Address("", 8443)
    webhook_folder: Annotated[
        str, TEXT, "files: the folder with tls.crt and tls.key, which are read again when they change."
    ] = "/etc/kube-muster/webhook"
    webhook_secret: Annotated[
        ObjectName, OBJECT, "self-signed: the Secret that holds the certificate for all replicas."
    ] = ObjectName("kube-muster", "muster-webhook-certificate")
    webhook_names: Annotated[
        tuple[str, ...], NAME, "self-signed: the host names or IP addresses by which the API server calls."
    ] = ("muster-webhook.kube-muster.svc",)
    webhook_lifetime: Annotated[
        float,
        duration("10s", "87600h"),
        "self-signed: how long a certificate is valid. It is renewed when a third of that time is left.",
    ] = 90 * 24 * 3600.0
    max_queue_depth: Annotated[
        int, count(1, 100), "How many levels of queues there may be below root. The webhooks enforce it."
    ] = 5
    oversell: Annotated[
        float,
        factor(100),
        "How many times the capability of a queue may be admitted, where its spec.oversell says nothing.",
    ] = 1.0
    quota_sources: Annotated[
        frozenset[str],
        some_of(*QuotaKind),
        "The kinds of quotas from which queues are made, where the cluster has them and Muster may read "
        "them.",
    ] = frozenset({QuotaKind.ELASTIC_QUOTA_TREE, QuotaKind.ELASTIC_QUOTA})
    log_format: Annotated[
        str, one_of("text", "json"), "The format of log lines.", "text on a terminal, else json"
    ] = ""
    log_level: Annotated[
        str, one_of("debug", "info", "warning", "error"), "The lowest level of log lines that are written."
    ] = "info"
    # Of no row in the table: only the file has room for it.
    job_kinds: tuple[FurtherKind, ...] = ()


class Setting(NamedTuple):
    """One row of the table, with the names that it has in the three places where it can be set."""

    field: str
    default: Any
    kind: Kind
    help: str
    unset: str = ""

    @property
    def flag(self) -> str:
        return "--" + (self.field.removesuffix("s") if self.repeatable else self.field).replace("_", "-")

    @property
    def variable(self) -> str:
        return f"MUSTER_{self.field.upper()}"

    @property
    def key(self) -> str:
        first, *rest = self.field.split("_")
        return first + "".join(map(str.capitalize, rest))

    @property
    def repeatable(self) -> bool:
        return type(self.default) is tuple

    def written(self, value: Any) -> str | list[str]:
        """`value` as it is written in a file."""
        return [self.kind.write(item) for item in value] if self.repeatable else self.kind.write(value)


def _settings() -> Iterator[Setting]:
    hints = get_type_hints(Configuration, include_extras=True)
    for field in msgspec.structs.fields(Configuration):
        if meaning := getattr(hints[field.name], "__metadata__", None):
            yield Setting(field.name, field.default, *meaning)


SETTINGS = tuple(_settings())
JOB_KINDS = "jobKinds"  # the key of further kinds of jobs


def as_document(configuration: Configuration) -> dict[str, Any]:
    """`configuration` as the file that would set it."""
    values: dict[str, Any] = {
        setting.key: setting.written(getattr(configuration, setting.field)) for setting in SETTINGS
    }
    if configuration.job_kinds:
        values[JOB_KINDS] = [kind.written for kind in configuration.job_kinds]
    return {"apiVersion": API_VERSION, "kind": KIND, **values}


def contradictions(configuration: Configuration) -> Iterator[str]:
    """Faults of values that are each allowed, but not in combination."""
    listening = {
        "--listen": configuration.listen,
        "--health-listen": configuration.health_listen,
        "--debug-listen": configuration.debug_listen,
    }
    if configuration.webhook_certificates != "off":
        listening["--webhook-listen"] = configuration.webhook_listen
    if configuration.view_listen:
        listening["--view-listen"] = configuration.view_listen
        if not configuration.view_folder:
            yield "--view-folder: got nothing; allowed is a folder, since --view-listen is not off"
    ports = [address.port for address in listening.values() if address.port]
    if len(set(ports)) < len(ports):
        given = ", ".join(map(str, listening.values()))
        yield f"{', '.join(listening)}: got {given}; allowed are different ports"
    first, longest = map(as_duration, (configuration.start_backoff, configuration.start_backoff_max))
    if configuration.start_backoff > configuration.start_backoff_max:
        yield f"--start-backoff: got {first!r}; allowed is at most --start-backoff-max, which is {longest}"
