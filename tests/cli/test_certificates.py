"""`muster certificates`: two sides that know each other, and mistakes."""

import ssl
import stat
from pathlib import Path

from click.testing import CliRunner

from extender.cli import main
from extender.webhooks.certificates import has_signed, host_names
from tests.rows import each_of

FILES = {"tls.crt", "tls.key", "ca.crt"}


def test_certificates_of_both_sides_trust_each_other(tmp_path: Path) -> None:
    out = tmp_path / "made"
    done = CliRunner().invoke(main, ["certificates", "--out", str(out), "--name", "10.0.0.1"])
    assert (done.exit_code, str(out) in done.output) == (0, True)
    muster, scheduler = out / "muster", out / "scheduler"
    assert {each.name for each in muster.iterdir()} == {each.name for each in scheduler.iterdir()} == FILES
    authority = (muster / "ca.crt").read_bytes()
    assert authority == (scheduler / "ca.crt").read_bytes()
    for side in (muster, scheduler):
        assert has_signed(authority, (side / "tls.crt").read_bytes(), (side / "tls.key").read_bytes())
        assert stat.S_IMODE((side / "tls.key").stat().st_mode) == 0o600
        ssl.create_default_context(cafile=side / "ca.crt").load_cert_chain(side / "tls.crt", side / "tls.key")
    assert host_names((muster / "tls.crt").read_bytes()) == {"10.0.0.1"}


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["certificates", "--out", str(tmp_path)])
    assert (done.exit_code, f"--out: invalid value '{tmp_path}'" in done.output) == (2, True)
    assert list(tmp_path.iterdir()) == []


@each_of("1y", "1s", "100000h", "")
def test_a_lifetime_that_makes_no_sense(given: str, *, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["certificates", "--out", str(tmp_path / "a"), "--lifetime", given])
    assert done.exit_code == 2
    assert f"{given!r}: must be a duration from 1h" in " ".join(done.output.split())
