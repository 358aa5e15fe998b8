"""Muster's webhooks as in the manifests, but on loopback instead of behind a Service."""

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread
from typing import Any

from tests.e2e.harness import loopback, manifests, objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.process import free_ports
from tests.e2e.harness.resources import MUTATING_WEBHOOKS, POD_GROUPS, SECRETS, VALIDATING_WEBHOOKS
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

Json = dict[str, Any]
FILES = ("webhooks/validating.yaml", "webhooks/mutating.yaml")
POD_WEBHOOK = "older-kubernetes/pod-webhook.yaml"
SECRET = ("muster-webhook-certificate", "kube-muster")
NO_QUEUE = "there-is-none"
SAMPLE_GROUP = objects.pod_group("sample", namespace="default", min_member=1, queue=NO_QUEUE)


class Port:
    """Webhook port of a process of Muster, with the flags for the port."""

    def __init__(self) -> None:
        (self.number,) = free_ports(1)

    def flags(self, certificates: str, *further_flags: str) -> tuple[str, ...]:
        """Return Muster's flags for this port. `certificates` is the value of --webhook-certificates."""
        return (
            f"--webhook-certificates={certificates}",
            f"--webhook-listen={loopback.at(self.number)}",
            f"--webhook-name={loopback.host()}",
            *further_flags,
        )

    def url(self, path: str) -> str:
        return f"https://{loopback.at(self.number)}{path}"


@contextmanager
def configured(client: Client, port: Port, *files: str, bundle: bytes = b"") -> Iterator[None]:
    """Install the webhook configurations of the manifests and of `files` while the context is active.

    `bundle` is the CA of the webhooks in PEM. Without a bundle, Muster must write its own CA into the
    configurations.
    """
    documents = [
        _loopback_configuration(document, port, bundle) for document in manifests.documents(*FILES, *files)
    ]
    try:
        for configuration in documents:
            manifests.apply_one(client, configuration)
        yield
    finally:
        manifests.remove(client, documents)
        wait_for(lambda: not refusal(client, SAMPLE_GROUP), what="webhooks out of force")
        if client.find(SECRETS, *SECRET):
            client.delete(SECRETS, *SECRET)


def move_to_loopback(client: Client, port: Port) -> None:
    """Change the installed webhook configurations so that they call Muster on loopback.

    The Service that the manifests name has no address in the tests.
    """
    for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
        for configuration in client.items(resource):
            for webhook in configuration["webhooks"]:
                config = webhook["clientConfig"]
                config["url"] = port.url(config.pop("service")["path"])
            client.replace(resource, configuration)


def wait_in_force(client: Client) -> None:
    wait_for(lambda: in_force(client), what="webhooks in force")


def in_force(client: Client) -> bool:
    """Return whether Muster's webhook refuses an invalid group."""
    return f"there is no queue '{NO_QUEUE}'" in refusal(client, SAMPLE_GROUP)


def refusal(client: Client, group: Json) -> str:
    """Return the message with which the API server would refuse a group, or "" for a valid group."""
    try:
        client.request("POST", f"{POD_GROUPS.path(group['metadata']['namespace'])}?dryRun=All", group)
    except ApiError as error:
        return str(error)
    return ""


@contextmanager
def load(client: Client) -> Iterator[list[str]]:
    """Create groups in two threads until the context ends, and yield the growing list of refusals."""
    refusals: list[str] = []
    has_ended, numbers = Event(), count()

    def create() -> None:
        while not has_ended.is_set():
            group = objects.pod_group(f"load-{next(numbers)}", namespace="default", min_member=1)
            if message := refusal(client, group):
                refusals.append(message)
            time.sleep(0.01)

    threads = [Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield refusals
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()


def _loopback_configuration(configuration: Json, port: Port, bundle: bytes) -> Json:
    """Return a webhook configuration whose webhooks call Muster on loopback."""

    def loopback_webhook(webhook: Json) -> Json:
        config: Json = {"url": port.url(webhook["clientConfig"]["service"]["path"])}
        if bundle:
            config["caBundle"] = base64.b64encode(bundle).decode()
        return {**webhook, "clientConfig": config}

    return {**configuration, "webhooks": [loopback_webhook(webhook) for webhook in configuration["webhooks"]]}
