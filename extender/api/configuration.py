"""Configuration of an administrator, in one table.

The fields of `Configuration` and their meanings make the flags of `muster serve`, the environment variables,
the keys of the file and docs/reference/configuration.md. extender/cli/settings.py reads the values.
"""

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from extender.api import setting_kinds as allowed
from extender.api.objects.cluster import QuotaKind
from extender.api.setting_kinds import Address, Kind, LogicalResource, ObjectName
from extender.api.units import as_duration, texts_by_name
from extender.api.workloads.further_kinds import FurtherKind

API_VERSION = "config.kube-muster.io/v1alpha1"
KIND = "MusterConfiguration"

_MEANINGS = texts_by_name("""
kubeconfig: The kubeconfig file for the API server.
context: The context of the kubeconfig file.
listen: The address for the scheduler's calls: filter, prioritize, bind, preempt.
tls_folder: The folder with tls.crt, tls.key and ca.crt, read again on changes. With this folder, the
  scheduler's calls need TLS and a client certificate signed by ca.crt.
health_listen: The address for probes and /metrics.
debug_listen: The address of the debug pages. The pages show the whole cluster: keep it on loopback.
view_listen: The address of the scheduler proxy, through which the scheduler in Muster's pod reads and
  writes, with Muster's rights.
view_folder: The folder for the kubeconfig of the scheduler proxy. Required with --view-listen.
dashboard_listen: The address of the dashboard. Users see the objects that kubectl would show them.
dashboard_tls_folder: The folder with tls.crt and tls.key of the dashboard, read again on changes. Needed
  beyond loopback.
cluster_name: The name of the cluster on the pages of the dashboard.
scheduler_names: The values of spec.schedulerName whose pods Muster manages.
volcano_namespace: While Volcano's scheduler runs in this namespace, Muster does not start pods of
  schedulerName volcano.
volcano_jobs: on: Muster runs Volcano Jobs (batch.volcano.sh) itself, unless Volcano does. off: never.
auto_groups: on: pods of one owner that name no group share a PodGroup. off: each pod starts on its own.
podgroups_for_plain_pods: Pods without group and controller that get a PodGroup. waiting: pods that have
  waited for 2 s. always: all. never: none.
window: The maximum number of pods that start at the same time. Each pod can use a connection.
bind_deadline: The longest time that Muster holds a gang's bind calls. Keep it below the httpTimeout of the
  extender.
start_backoff: The wait of a gang after a failed start. The wait doubles with each failure.
start_backoff_max: The longest wait after failed starts.
waiting_for_room: show: pods that lack capacity get the reason Unschedulable, so autoscalers add nodes.
  hide: these pods do not.
never_fits: show: pods that fit on no node, even an empty one, also get the reason Unschedulable.
  hide: these pods do not.
manage_jobs: suspended: jobs with a queue that were created suspended start when all their pods fit.
  queue: all jobs with a queue; Muster first suspends unsuspended jobs. off: no jobs.
unmanaged_namespaces: The namespaces whose jobs Muster does not manage.
unmanaged_kinds: The kinds of jobs that Muster does not manage.
leader_elect: follow: the replica whose scheduler holds the Lease leads. off: this replica always leads.
lease: The scheduler's Lease.
writers: The number of threads that remove gates, nominate nodes and evict. Muster has four more for
  statuses, and eight for pods of Volcano Jobs.
binders: The number of threads that post bindings.
webhook_certificates: The webhooks' certificate. files: from two files. self-signed: Muster creates and renews
  it. off: no webhooks.
webhook_listen: The address for the API server's admission reviews, over TLS.
webhook_folder: files: the folder with tls.crt and tls.key, read again on changes.
webhook_client_ca: The file with the CA of the API server's client certificate. Other callers get no answer.
webhook_secret: self-signed: the Secret that holds the certificate for all replicas.
webhook_names: self-signed: the host names or IP addresses by which the API server calls.
webhook_lifetime: self-signed: the lifetime of a certificate. Muster renews it after two thirds of this time.
max_queue_depth: The maximum of levels of queues below root, checked by the webhooks.
oversell: The factor on the capability of queues at admission, unless spec.oversell sets another.
reservations: The maximum part of the cluster that is reserved; a single reservation can be larger. 0: none.
logical_resources: Resources that are sums of other resources, so that queues limit the sum. An AMOUNT can be
  capacity.NAME: the capacity NAME of each device of a DeviceClass.
usage_half_life: The time after which past usage of queues and users counts half. 0s: it is ignored.
quota_sources: The kinds of quotas from which queues are made, if Muster can read them.
history: The file for the history of waits, runs and evictions. Each replica needs its own file.
history_retention: The time for which history is stored. Above 1 GiB, the oldest records are removed earlier.
log_format: The format of log lines.
log_level: The lowest level of log lines that are written.
""")
_UNSET = {  # values for unset settings
    "kubeconfig": "$KUBECONFIG, else the pod's service account, else ~/.kube/config",
    "context": "the file's current context",
    "tls_folder": "plain HTTP",
    "view_folder": "none",
    "dashboard_tls_folder": "plain HTTP",
    "cluster_name": "none",
    "history": "memory only, the latest 10,000 records",
    "log_format": "text on a terminal, else json",
}


class InvalidConfiguration(ValueError):
    """Error: invalid settings, with one line for each fault."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """All settings with their defaults. Durations are in seconds."""

    kubeconfig: Annotated[str, allowed.TEXT] = ""
    context: Annotated[str, allowed.TEXT] = ""
    listen: Annotated[Address, allowed.ADDRESS] = Address("127.0.0.1", 8281)
    tls_folder: Annotated[str, allowed.TEXT] = ""
    health_listen: Annotated[Address, allowed.ADDRESS] = Address("127.0.0.1", 8282)
    debug_listen: Annotated[Address, allowed.ADDRESS] = Address("127.0.0.1", 8283)
    view_listen: Annotated[Address | None, allowed.LOOPBACK] = None
    view_folder: Annotated[str, allowed.TEXT] = ""
    dashboard_listen: Annotated[Address | None, allowed.ADDRESS_OR_OFF] = None
    dashboard_tls_folder: Annotated[str, allowed.TEXT] = ""
    cluster_name: Annotated[str, allowed.TEXT] = ""
    scheduler_names: Annotated[tuple[str, ...], allowed.NAME] = ("muster", "volcano")
    volcano_namespace: Annotated[str, allowed.NAME] = "volcano-system"
    volcano_jobs: Annotated[str, allowed.one_of("off", "on")] = "off"
    auto_groups: Annotated[str, allowed.one_of("on", "off")] = "on"
    podgroups_for_plain_pods: Annotated[str, allowed.one_of("waiting", "always", "never")] = "waiting"
    window: Annotated[int, allowed.whole_number(1, 20000)] = 1000
    bind_deadline: Annotated[float, allowed.duration("1s", "1h")] = 120.0
    start_backoff: Annotated[float, allowed.duration("100ms", "1h")] = 5.0
    start_backoff_max: Annotated[float, allowed.duration("100ms", "24h")] = 300.0
    waiting_for_room: Annotated[str, allowed.one_of("show", "hide")] = "show"
    never_fits: Annotated[str, allowed.one_of("hide", "show")] = "hide"
    manage_jobs: Annotated[str, allowed.one_of("suspended", "queue", "off")] = "suspended"
    unmanaged_namespaces: Annotated[tuple[str, ...], allowed.NAME] = ()
    unmanaged_kinds: Annotated[tuple[str, ...], allowed.JOB_KIND] = ()
    leader_elect: Annotated[str, allowed.one_of("follow", "off")] = "follow"
    lease: Annotated[ObjectName, allowed.OBJECT] = ObjectName("kube-system", "muster-scheduler")
    writers: Annotated[int, allowed.whole_number(1, 256)] = 16
    binders: Annotated[int, allowed.whole_number(1, 256)] = 16
    webhook_certificates: Annotated[str, allowed.one_of("off", "files", "self-signed")] = "off"
    webhook_listen: Annotated[Address, allowed.ADDRESS] = Address("", 8443)
    webhook_folder: Annotated[str, allowed.TEXT] = "/etc/kube-muster/webhook"
    webhook_client_ca: Annotated[str, allowed.TEXT] = ""
    webhook_secret: Annotated[ObjectName, allowed.OBJECT] = ObjectName(
        "kube-muster", "muster-webhook-certificate"
    )
    webhook_names: Annotated[tuple[str, ...], allowed.HOST] = ("muster-webhook.kube-muster.svc",)
    webhook_lifetime: Annotated[float, allowed.duration("10s", "87600h")] = 90 * 24 * 3600.0
    max_queue_depth: Annotated[int, allowed.whole_number(1, 100)] = 5
    oversell: Annotated[float, allowed.factor(100)] = 1.0
    reservations: Annotated[float, allowed.fraction()] = 0.1
    logical_resources: Annotated[tuple[LogicalResource, ...], allowed.LOGICAL] = ()
    usage_half_life: Annotated[float, allowed.duration("0s", "8760h")] = 1200.0
    quota_sources: Annotated[frozenset[str], allowed.some_of(*QuotaKind)] = frozenset(
        {QuotaKind.ELASTIC_QUOTA_TREE, QuotaKind.ELASTIC_QUOTA}
    )
    history: Annotated[str, allowed.TEXT] = ""
    history_retention: Annotated[float, allowed.duration("1h", "87600h")] = 30 * 24 * 3600.0
    log_format: Annotated[str, allowed.one_of("text", "json")] = ""
    log_level: Annotated[str, allowed.one_of("debug", "info", "warning", "error")] = "info"
    # This setting is a key of the file only: it has no flag and no row in the table.
    job_kinds: tuple[FurtherKind, ...] = ()


class Setting(NamedTuple):
    """Row of the table: a setting with its flag, its environment variable and its key in the file."""

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
        first_word, *other_words = self.field.split("_")
        return first_word + "".join(map(str.capitalize, other_words))

    @property
    def repeatable(self) -> bool:
        return type(self.default) is tuple

    def file_form(self, value: Any) -> str | list[str]:
        """Return a value in the form that a configuration file has."""
        return [self.kind.write(item) for item in value] if self.repeatable else self.kind.write(value)


_HINTS = get_type_hints(Configuration, include_extras=True)
SETTINGS = tuple(
    Setting(field.name, field.default, kinds[0], _MEANINGS[field.name], _UNSET.get(field.name, ""))
    for field in msgspec.structs.fields(Configuration)
    if (kinds := getattr(_HINTS[field.name], "__metadata__", ()))
)
JOB_KINDS = "jobKinds"  # the key of `job_kinds` in the file


def as_document(configuration: Configuration) -> dict[str, Any]:
    """Return the configuration file that would set `configuration`."""
    values: dict[str, Any] = {row.key: row.file_form(getattr(configuration, row.field)) for row in SETTINGS}
    if configuration.job_kinds:
        values[JOB_KINDS] = [kind.document for kind in configuration.job_kinds]
    return {"apiVersion": API_VERSION, "kind": KIND, **values}


def contradictions(configuration: Configuration) -> Iterator[str]:
    """Yield the faults of settings that are valid alone, but not in combination."""
    addresses_by_flag = {
        "--listen": configuration.listen,
        "--health-listen": configuration.health_listen,
        "--debug-listen": configuration.debug_listen,
    }
    if configuration.webhook_certificates != "off":
        addresses_by_flag["--webhook-listen"] = configuration.webhook_listen
    if configuration.view_listen:
        addresses_by_flag["--view-listen"] = configuration.view_listen
        if not configuration.view_folder:
            yield "--view-folder: required value: a folder, since --view-listen is not off"
    if dashboard := configuration.dashboard_listen:
        addresses_by_flag["--dashboard-listen"] = dashboard
        if not dashboard.is_on_loopback and not configuration.dashboard_tls_folder:
            folder_rule = f"a folder with tls.crt and tls.key, since {dashboard} is not on loopback"
            yield f"--dashboard-tls-folder: required value: {folder_rule}: eavesdroppers could read tokens"
    ports = [address.port for address in addresses_by_flag.values() if address.port]
    if len(set(ports)) < len(ports):
        addresses = ", ".join(map(str, addresses_by_flag.values()))
        yield f"{', '.join(addresses_by_flag)}: invalid value {addresses}: must be different ports"
    logical_names = [name for name, _ in configuration.logical_resources]
    parts = {part.resource for _, parts in configuration.logical_resources for part in parts}
    for name in sorted({name for name in logical_names if name in parts or logical_names.count(name) > 1}):
        yield f"--logical-resource: invalid value {name!r}: must be a new name, and of no part"
    first, longest = map(as_duration, (configuration.start_backoff, configuration.start_backoff_max))
    if configuration.start_backoff > configuration.start_backoff_max:
        yield f"--start-backoff: invalid value {first!r}: must be at most {longest}, --start-backoff-max"
