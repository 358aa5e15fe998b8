"""Objects of a Volcano Job besides its pods: its PodGroup, claims of volumes, and objects of plugins.

All these objects belong to the job, exist before its pods are created, and are deleted with the job. If an
object of the same name belongs to another owner, that object is left alone and the job gets no pods. Only a
claim may belong to another owner. Muster cannot read Secrets, so it chooses a random name for the Secret and
records the name after the creation.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

import msgspec

from extender.api.objects.volcano import Json, VolcanoJob
from extender.api.workloads.children import SHAPE_ERRORS
from extender.api.workloads.operators import VOLCANO_COMMANDED
from extender.controllers.events import WARNING, EventRecorder
from extender.controllers.volcano_commands import volcano_job_reference
from extender.domain.model.reasons import EventReason
from extender.domain.snapshot.auto_podgroups import record_submitter
from extender.kube import resources
from extender.kube.calls import ApiClient
from extender.kube.errors import Conflict, NotFound, Refused
from extender.volcano.plan import MAX_NAMED
from extender.volcano.plugins import SshKeys, objects_of, secret_name, ssh_secret
from extender.volcano.pods import group_name, owned_object

_RESOURCES = {
    "Service": resources.SERVICES,
    "ConfigMap": resources.CONFIG_MAPS,
    "NetworkPolicy": resources.NETWORK_POLICIES,
}


class JobObjects:
    """Requests for the objects of Volcano Jobs. Every method may raise ApiError; refusals become Events."""

    def __init__(self, cluster: ApiClient, recorder: EventRecorder) -> None:
        self._cluster, self._recorder = cluster, recorder

    def make_group(self, job: VolcanoJob, author: str) -> None:
        """Create the PodGroup of a job that is not queued, and record the job's author on it.

        If the spec of the PodGroup cannot be derived from the job, the pods of the job wait.
        """
        with suppress(*SHAPE_ERRORS), self._refusals_reported(job, "PodGroup"):
            spec = VOLCANO_COMMANDED.podgroup(msgspec.to_builtins(job))
            group = owned_object(job, resources.POD_GROUPS.version, "PodGroup", group_name(job), spec=spec)
            record_submitter(group, author)
            with suppress(Conflict):  # the PodGroup exists already; the watch will show it
                self._cluster.create_group(job.metadata.namespace, group)

    def apply(self, job: VolcanoJob) -> None:
        """Create the objects of the job's plugins. If the job changes its size, update the lists of hosts."""
        meta = job.metadata
        with self._refusals_reported(job, "plugins"):
            for obj in objects_of(job):
                kind, name = _RESOURCES[obj["kind"]], obj["metadata"]["name"]
                existing = self._cluster.create_owned(kind, meta.namespace, obj, meta.uid)
                if kind is resources.CONFIG_MAPS and existing.get("data") != obj["data"]:
                    changes = difference(existing.get("data") or {}, obj["data"])
                    preconditions = {"uid": existing["metadata"]["uid"]}
                    patch = {"metadata": preconditions, "data": changes}
                    self._cluster.merge_job(kind, meta.namespace, name, patch)

    def make_secret(self, job: VolcanoJob) -> str:
        """Create the Secret of the plugin ssh, unless the job has a Secret already.

        Return the name of the Secret; the name is empty if no Secret was created.
        """
        name = f"{job.metadata.name}-ssh-{token_hex(8)}"
        secret = ssh_secret(job, name, new_keys) if not secret_name(job) else None
        if secret is None:
            return ""
        with self._refusals_reported(job, "Secret"):
            self._cluster.create_secret(job.metadata.namespace, secret)
        return name

    def make_claim(self, job: VolcanoJob, claim: Json) -> bool:
        """Create a claim; return whether the claim now belongs to the job."""
        meta = job.metadata
        try:
            with self._refusals_reported(job, f"PersistentVolumeClaim {claim['metadata']['name']}", Conflict):
                self._cluster.create_owned(resources.VOLUME_CLAIMS, meta.namespace, claim, meta.uid)
        except Conflict:
            return False
        return True

    def existing_claims(self, job: VolcanoJob, names: Iterable[str]) -> dict[str, bool]:
        """Return the names of the given claims that exist, and whether each belongs to the job.

        The look-up stops after a few missing claims: a job may name thousands of claims that never exist, and
        each look-up costs a request.
        """
        meta, existing, missing_count = job.metadata, {}, 0
        for name in names:
            try:
                existing[name] = meta.uid in self._cluster.claim_owners(meta.namespace, name)
            except NotFound:
                missing_count += 1
                if missing_count == MAX_NAMED:
                    break
        return existing

    def report_refusal(self, job: VolcanoJob, message: str) -> None:
        self._recorder.record(volcano_job_reference(job), WARNING, EventReason.FAILED_CREATE, message)

    @contextmanager
    def _refusals_reported(
        self, job: VolcanoJob, action: str, expected: type[Refused] | tuple[()] = ()
    ) -> Iterator[None]:
        """Report a refused write as an Event on the job, except for an `expected` refusal.

        `action` names the refused object in the Event.
        """
        try:
            yield
        except expected:
            raise
        except Refused as fault:
            if not fault.is_transient:
                self.report_refusal(job, f"{action}: {fault.message}")
            raise


def difference(before: Json, after: Json) -> Json:
    """Return the merge patch from `before` to `after`; empty if both are equal."""
    changes: Json = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            if nested_changes := difference(old, value):
                changes[name] = nested_changes
        elif value != old:
            changes[name] = value
    return changes


def new_keys() -> SshKeys:
    """Return a new pair of keys in the format of OpenSSH."""
    # The keys are of type Ed25519, because generating an RSA key would delay other starts.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private = Ed25519PrivateKey.generate()
    private_text = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return SshKeys(private_text, f"{public}\n")
