"""A certificate that another program renews: read again when it changes, and only as a matching pair."""

from pathlib import Path

import pytest

from extender.host.certificate_files import CertificateFiles

Served = list[tuple[bytes, bytes]]  # certificate and key


@pytest.fixture
def served() -> Served:
    return []


@pytest.fixture
def files(tmp_path: Path, served: Served) -> CertificateFiles:
    def serve(certificate: bytes, key: bytes) -> None:
        if certificate[-1:] != key[-1:]:
            raise OSError("they do not fit together")
        served.append((certificate, key))

    return CertificateFiles(tmp_path, serve)


def write(folder: Path, certificate: str, key: str) -> None:
    (folder / "tls.crt").write_text(certificate)
    (folder / "tls.key").write_text(key)


def test_missing_files_are_waited_for(files: CertificateFiles, tmp_path: Path, served: Served) -> None:
    files.reload()
    write(tmp_path, "c1", "k1")
    files.reload()
    assert served == [(b"c1", b"k1")]


def test_a_changed_certificate_is_served_once_both_files_match(
    files: CertificateFiles, tmp_path: Path, served: Served
) -> None:
    write(tmp_path, "c1", "k1")
    files.reload()
    files.reload()
    write(tmp_path, "c2", "k1")
    files.reload()
    assert served == [(b"c1", b"k1")]
    write(tmp_path, "c2", "k2")
    files.reload()
    assert served == [(b"c1", b"k1"), (b"c2", b"k2")]
