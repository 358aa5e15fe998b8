"""Muster and a stock scheduler, both configured by objects that an install has created."""

from typing import Any

import yaml

from tests.e2e.harness import webhooks
from tests.e2e.harness.access import User
from tests.e2e.harness.resources import CONFIG_MAPS, DEPLOYMENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port

Json = dict[str, Any]


class Pair:
    """Muster and its scheduler. Each start reads the installed objects again."""

    def __init__(self, stage: Stage, user: User) -> None:
        self._stage, self._user, self._port = stage, user, Port()

    def start(self) -> None:
        """Start Muster and its scheduler, and wait until Muster leads and its webhooks are in force."""
        webhooks.move_to_loopback(self._stage.api, self._port)
        config = self._config()
        names = [profile["schedulerName"] for profile in config["profiles"]]
        flags = self._port.flags("self-signed")
        self.muster = self._stage.start_muster(
            *flags,
            user=self._user,
            leader_elect="follow",
            scheduler_names=names,
            view=self._config_name() == "sidecar.yaml",
        )
        self._scheduler = self._stage.start_sidecar(
            self.muster, config=config, user=self._user, leader_elect=True
        )
        wait_for(lambda: self.muster.metric("muster_leader") == 1, what="Muster leads")
        webhooks.wait_in_force(self._stage.api)

    def stop(self) -> None:
        self._scheduler.stop()
        self.muster.stop()

    def forget_webhooks(self) -> None:
        """Delete the webhook configurations, which call loopback.

        Helm can create deleted configurations again, but Helm cannot replace the loopback addresses.
        """
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            self._stage.api.delete_all(resource)

    def wait_reported(self, message: str) -> None:
        """Wait until /readyz has a message."""
        wait_for(lambda: message in self.muster.readyz(), what=f"/readyz reports: {message}")

    def _config(self) -> Json:
        """Return the installed configuration of the scheduler."""
        maps, name = self._stage.api.items(CONFIG_MAPS, "kube-muster"), self._config_name()
        (text,) = [config_map["data"][name] for config_map in maps if name in config_map["data"]]
        config: Json = yaml.safe_load(text)
        return config

    def _config_name(self) -> str:
        """Return the name of the configuration file that the scheduler's container uses."""
        spec = self._stage.api.get(DEPLOYMENTS, "muster", "kube-muster")["spec"]["template"]["spec"]
        (flag,) = [word for word in spec["containers"][0]["command"] if word.startswith("--config=")]
        return str(flag.rpartition("/")[2])
