"""The kubeconfig of the proxy: the way to a scheduler, and the lifetime of its secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from extender.api.configuration import InvalidConfiguration
from extender.api.setting_kinds import Address
from extender.host.scheduler_proxy import write_kubeconfig
from tests.rows import each_of

ADDRESS = Address("127.0.0.1", 8284)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


def cluster(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["clusters"][0]["cluster"]
    return found


def test_the_kubeconfig_names_the_proxy_and_a_secret_path(file: Path) -> None:
    secret = write_kubeconfig(str(file.parent), ADDRESS)
    assert len(secret) >= 43
    assert cluster(file) == {
        "server": f"http://kube-apiserver.muster/{secret}",
        "proxy-url": "http://127.0.0.1:8284",
    }


def test_only_musters_user_can_read_the_kubeconfig(file: Path) -> None:
    write_kubeconfig(str(file.parent), ADDRESS)
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_the_secret_outlives_a_restart_and_a_new_port(file: Path) -> None:
    secret = write_kubeconfig(str(file.parent), ADDRESS)
    assert write_kubeconfig(str(file.parent), Address("::1", 1)) == secret
    assert cluster(file)["proxy-url"] == "http://[::1]:1"


@each_of(
    "",
    "[]",
    "{}",
    '{"clusters": [{"cluster": {"server": 5}}]}',
    '{"clusters": [{"cluster": {"server": "http://kube-apiserver.muster/short"}}]}',
    '{"clusters": [{"cluster": {"server": "http://elsewhere/' + "x" * 43 + '"}}]}',
    "\x00\xff",
)
def test_a_file_of_another_user_is_replaced(text: str, *, file: Path) -> None:
    file.write_text(text)
    file.chmod(0o600)
    secret = write_kubeconfig(str(file.parent), ADDRESS)
    assert cluster(file)["server"].endswith(secret)
    assert "x" * 43 not in secret


def test_a_secret_that_others_could_read_is_replaced(file: Path) -> None:
    secret = write_kubeconfig(str(file.parent), ADDRESS)
    file.chmod(0o640)
    assert write_kubeconfig(str(file.parent), ADDRESS) != secret
    assert file.stat().st_mode & 0o777 == 0o600


def test_each_proxy_has_its_own_secret(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    one, other = (write_kubeconfig(str(folder), ADDRESS) for folder in folders)
    assert one != other


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    folder = str(tmp_path / "nowhere")
    with pytest.raises(InvalidConfiguration, match=f"--view-folder: invalid value '{folder}': No such file"):
        write_kubeconfig(folder, ADDRESS)
