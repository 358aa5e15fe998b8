"""The command line and what it makes of flags, environment variables and a file."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from extender import __version__
from extender.api.configuration import SETTINGS, Configuration, as_document
from extender.api.setting_kinds import Address, ObjectName
from extender.cli import main, settings
from tests.cli.cluster import Cluster
from tests.e2e.harness.process import free_ports
from tests.rows import each_of
from tools.reference import DOCUMENT, document

ROOT = Path(__file__).parents[2]
HEAD = "apiVersion: config.kube-muster.io/v1alpha1\nkind: MusterConfiguration\n"


def configured(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, environment: dict[str, str] | None = None
) -> Configuration:
    """Return the configuration that `muster serve` would be started with."""
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)
    with settings.serve.make_context("serve", list(arguments)) as context:
        parameters: dict[str, Any] = dict(context.params)
        return settings.read_configuration(parameters.pop("config"), parameters)


def refused(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """Return the message with which `muster serve` refuses to start."""
    result: Result = CliRunner().invoke(main, ["serve", *arguments], env=environment)
    assert result.exit_code == 2
    return result.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "muster.yaml"


def test_without_settings_the_defaults_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(monkeypatch) == Configuration()


def test_flag_beats_variable_beats_file_beats_default(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text(HEAD + "window: 1\nwriters: 1\nbinders: 1\n")
    configuration = configured(
        monkeypatch,
        f"--config={file}",
        "--window=3",
        environment={"MUSTER_WINDOW": "2", "MUSTER_WRITERS": "2"},
    )
    assert (
        configuration.window,
        configuration.writers,
        configuration.binders,
        configuration.start_backoff,
    ) == (3, 2, 1, 5.0)


def test_every_kind_of_value_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = configured(
        monkeypatch,
        *("--listen=[::1]:8000", "--health-listen=:8001", "--debug-listen=localhost:0"),
        *("--scheduler-name=a", "--scheduler-name=b.c", "--bind-deadline=1m30s", "--start-backoff=500ms"),
        *("--lease=ns/some.lease", "--log-format=json"),
    )
    assert configuration.listen == Address("::1", 8000)
    assert configuration.health_listen == Address("", 8001)
    assert configuration.scheduler_names == ("a", "b.c")
    assert (configuration.bind_deadline, configuration.start_backoff) == (90.0, 0.5)
    assert configuration.lease == ObjectName("ns", "some.lease")


def test_several_kinds_of_quotas_or_none(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    assert configured(monkeypatch).quota_sources == {"elasticquotatree", "elasticquota"}
    assert configured(monkeypatch, "--quota-sources=off").quota_sources == frozenset()
    assert as_document(configured(monkeypatch, "--quota-sources=off"))["quotaSources"] == "off"
    file.write_text(HEAD + "quotaSources: resourcequota,elasticquota\n")
    assert configured(monkeypatch, f"--config={file}").quota_sources == {"resourcequota", "elasticquota"}


def test_the_view_has_an_address_on_loopback_and_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(monkeypatch, "--view-listen=off").view_listen is None
    configuration = configured(monkeypatch, "--view-listen=[::1]:8284", "--view-folder=/run/x")
    assert (configuration.view_listen, configuration.view_folder) == (Address("::1", 8284), "/run/x")
    assert "--view-folder: required value: a folder" in refused("--view-listen=127.0.0.1:8284")
    assert "different ports" in refused("--view-listen=127.0.0.2:8281", "--view-folder=/run/x")


def test_beyond_loopback_the_dashboard_has_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(monkeypatch).dashboard_listen is None
    assert configured(monkeypatch, "--dashboard-listen=localhost:8285").dashboard_tls_folder == ""
    configuration = configured(monkeypatch, "--dashboard-listen=:8285", "--dashboard-tls-folder=/run/x")
    assert (configuration.dashboard_listen, configuration.dashboard_tls_folder) == (
        Address("", 8285),
        "/run/x",
    )
    for address in (":8285", "0.0.0.0:8285", "[::]:8285", "10.0.0.1:8285", "muster.example:8285"):
        needed = f"a folder with tls.crt and tls.key, since {address} is not on loopback"
        assert f"--dashboard-tls-folder: required value: {needed}" in refused(f"--dashboard-listen={address}")
    assert "different ports" in refused("--dashboard-listen=127.0.0.1:8281")


def test_the_api_server_may_call_by_an_address_of_either_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare addresses as certificates write them."""
    flags = [f"--webhook-name={name}" for name in ("muster.x.svc", "10.0.0.1", "FD00:0::1")]
    assert configured(monkeypatch, *flags).webhook_names == ("muster.x.svc", "10.0.0.1", "fd00::1")
    for name in ("fe80::1%eth0", "[::1]", "Muster"):
        assert "an IP address" in refused(f"--webhook-name={name}")


def test_a_variable_takes_several_values_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = configured(monkeypatch, environment={"MUSTER_SCHEDULER_NAMES": "a,b"})
    assert configuration.scheduler_names == ("a", "b")


def test_the_file_may_be_named_by_a_variable(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text(
        HEAD + "leaderElect: off\nschedulerNames: [a]\n"
    )  # `off` is a boolean to most readers of YAML
    configuration = configured(monkeypatch, environment={"MUSTER_CONFIG": str(file)})
    assert (configuration.leader_elect, configuration.scheduler_names) == ("off", ("a",))


def test_variables_that_kubernetes_sets_for_a_service_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"MUSTER_PORT": "tcp://10.0.0.1:80", "MUSTER_SERVICE_HOST": "10.0.0.1"}
    assert configured(monkeypatch, environment=links) == Configuration()


def test_the_configuration_in_effect_is_a_file_that_makes_it(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    formula = "x.com/memory=80Gi*deviceclass/gpu+capacity.memory*deviceclass/b"
    configuration = configured(
        monkeypatch,
        "--start-backoff=1500ms",
        "--scheduler-name=x",
        "--listen=[::1]:1",
        f"--logical-resource={formula}",
    )
    lines = [f"{key}: {value!r}" for key, value in as_document(configuration).items()]
    file.write_text("\n".join(lines))
    assert configured(monkeypatch, f"--config={file}") == configuration


@each_of(
    ("--window", "0 1_000 ٣", "a whole number from 1 to 20000"),
    ("--bind-deadline", "120 999ms -5s", "a duration from 1s to 1h"),
    ("--listen", "8281 127.0.0.1:65536", "an address such as 127.0.0.1:8281"),
    ("--leader-elect", "on", "follow or off"),
    (
        "--view-listen",
        "0.0.0.0:8284 :8284 [::]:8284 10.0.0.1:8284 localhost:8284 on",
        "off, or an address on loopback such as 127.0.0.1:8284",
    ),
    (
        "--quota-sources",
        "elasticquotas elasticquota,elasticquota",
        "off, or one or more of elasticquotatree, elasticquota",
    ),
    ("--lease", "muster", "the namespace and name of an object"),
    ("--log-level", "INFO", "debug or info or warning or error"),
)
def test_the_error_for_a_bad_value_names_its_flag(flag: str, values: str, allowed: str) -> None:
    for value in values.split():
        assert f"{flag}: invalid value {value!r}: must be {allowed}" in refused(f"{flag}={value}")


@each_of(
    "memory=1*x.com/gpu",
    "x.com/memory",
    "x.com/memory=1*gpu",
    "x.com/memory=1*x.com/gpu+",
    "x.com/memory=0*x.com/gpu",
    "x.com/memory=many*x.com/gpu",
    "x.com/memory=capacity.memory*x.com/gpu",
    "x.com/memory=capacity.*deviceclass/a",
)
def test_a_bad_formula_of_a_logical_resource_is_refused(formula: str) -> None:
    error = refused(f"--logical-resource={formula}")
    assert f"invalid value ['{formula}']: must be one or more different values, each NAME=AMOUNT*RES" in error


@each_of("x.com/a=2*x.com/b", "x.com/c=1*x.com/a")
def test_the_name_of_a_logical_resource_is_new(other: str) -> None:
    error = refused("--logical-resource=x.com/a=1*x.com/b", f"--logical-resource={other}")
    assert "--logical-resource: invalid value 'x.com/a': must be a new name" in error


def test_the_error_for_a_bad_variable_names_it() -> None:
    assert "MUSTER_WRITERS: invalid value 'many': must be" in refused(environment={"MUSTER_WRITERS": "many"})


@each_of(
    (HEAD + "window: 0", "muster.yaml: window: invalid value '0': must be a whole number from 1 to 20000"),
    (HEAD + "windw: 1", "muster.yaml: windw: unknown field: did you mean window?"),
    (HEAD + "window: [1]", "muster.yaml: window: invalid value ['1']: must be a whole number"),
    (HEAD + "schedulerNames: a", "schedulerNames: invalid value 'a': must be one or more different values"),
    (HEAD + "schedulerNames: []", "schedulerNames: invalid value []: must be one or more different values"),
    (HEAD + "listen:", "muster.yaml: listen: invalid value '': must be an address"),
    (
        "kind: MusterConfiguration",
        "apiVersion: invalid value 'nothing': must be config.kube-muster.io/v1alpha1",
    ),
    (
        HEAD.replace("Muster", "Kubelet"),
        "kind: invalid value 'KubeletConfiguration': must be MusterConfiguration",
    ),
    ("- a", "muster.yaml: must hold keys and values"),
    ("a: {", "muster.yaml: cannot be read: "),
)
def test_the_error_for_a_bad_file_names_path_and_key(text: str, message: str, *, file: Path) -> None:
    file.write_text(text)
    assert message in refused(f"--config={file}")


def test_a_missing_file_is_an_error(file: Path) -> None:
    assert "muster.yaml: cannot be read: " in refused(f"--config={file}")


def test_all_errors_are_shown_at_once() -> None:
    error = refused("--window=0", environment={"MUSTER_BINDERS": "0"})
    assert "--window: invalid value" in error
    assert "MUSTER_BINDERS: invalid value" in error


@each_of(
    (["--listen=:8282"], "must be different ports"),
    (["--start-backoff=10m"], "--start-backoff: invalid value '600s': must be at most 300s"),
    (["--scheduler-name=a", "--scheduler-name=a"], "--scheduler-name: invalid value ['a', 'a']: must be"),
    (["--windw=1"], "No such option '--windw'"),
)
def test_values_that_contradict_each_other_are_refused(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_ports_that_the_system_chooses_never_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    free = "127.0.0.1:0"
    configuration = configured(
        monkeypatch, f"--listen={free}", f"--health-listen={free}", f"--debug-listen={free}"
    )
    assert configuration.listen == configuration.health_listen == Address("127.0.0.1", 0)


def test_the_document_is_in_step_with_the_table() -> None:
    assert (ROOT / DOCUMENT).read_text() == document()
    for setting in SETTINGS:
        assert re.search(rf"^(# )?{setting.key}: ", document(), re.MULTILINE)


def test_flags_and_variables_follow_from_the_keys_as_the_document_says() -> None:
    for setting in SETTINGS:
        words = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", setting.key)
        assert setting.variable == f"MUSTER_{words.upper()}"
        assert setting.flag == "--" + (words[:-1] if setting.repeatable else words).replace("_", "-")
        assert setting.key.endswith("s") or not setting.repeatable


def test_the_ports_are_open_before_slow_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let early callers wait: if they were refused, the scheduler's watches would back off for seconds."""
    flags = ("--listen", "--health-listen", "--debug-listen", "--view-listen")
    numbers = free_ports(len(flags))
    addresses = [f"{flag}=127.0.0.1:{number}" for flag, number in zip(flags, numbers, strict=True)]

    def load(_: str) -> SimpleNamespace:
        for number in numbers:
            socket.create_connection(("127.0.0.1", number)).close()
        return SimpleNamespace(serve=lambda _, ports: [port.close() for port in ports if port])

    monkeypatch.setattr(settings, "import_module", load)
    assert CliRunner().invoke(main, ["serve", "--view-folder=/", *addresses]).exit_code == 0


def test_the_example_of_the_document_sets_the_defaults(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text(document().split("```yaml\n")[1].split("```")[0])
    assert configured(monkeypatch, f"--config={file}") == Configuration()


def test_help_shows_each_flag_with_its_default_and_variable() -> None:
    shown = " ".join(CliRunner().invoke(main, ["serve", "--help"]).stdout.split())
    for setting in SETTINGS:
        assert f"{setting.flag} VALUE" in shown
        assert f"${setting.variable}]" in shown


def test_version() -> None:
    assert CliRunner().invoke(main, ["version"]).stdout == f"muster {__version__}\n"


@pytest.mark.parametrize(
    ("loaded", "without"),
    [
        ("extender.cli", "flask gunicorn kubernetes numpy prometheus_client structlog yaml extender.kube"),
        (
            "extender.cli.why.answers, extender.cli.describe, extender.kube.connection",
            "aiohttp flask gunicorn numpy prometheus_client structlog",
        ),
        ("extender.host.host", "cryptography extender.proxy.pods extender.webhooks.rules"),
    ],
    ids=["the help", "a command on a cluster", "a server whose view and webhooks are off"],
)
def test_commands_import_no_slow_modules(loaded: str, without: str) -> None:
    program = f"import sys, {loaded}; print(sorted(set({without.split()}) & sys.modules.keys()))"
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert shown.stdout == "[]\n"


def commands_of(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield (*path, name), command


def test_empty_names_are_refused_by_every_command(cluster: Cluster) -> None:
    """As those of unset variables; an empty one meant another object, or all."""
    tried = set[str]()
    for path, command in commands_of(main):
        if path != ("serve",):  # its settings have empty defaults
            for parameter in command.params:
                if parameter.name in ("name", "names", "named", "target", "targets", "namespace", "context"):
                    arguments = (parameter.opts[0], "") if isinstance(parameter, click.Option) else ("",)
                    result = cluster.muster(*path, *arguments)
                    assert (result.exit_code, result.stdout) == (2, ""), (path, arguments, result.output)
                    tried.add(" ".join((*path, *arguments)))
    assert {"podgroup describe ", "queue close ", "namespace adopt ", "job stop --name ", "why -n "} <= tried


def test_the_version_is_a_flag_as_well() -> None:
    by_command, by_flag = (CliRunner().invoke(main, [each]) for each in ("version", "--version"))
    assert by_flag.exit_code == 0
    assert by_flag.output == by_command.output
