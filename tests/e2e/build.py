"""Builds the control plane that the e2e tests and benchmarks run, from Go modules alone.

`controlplane/<minor>/go.mod` pins one Kubernetes release and its etcd; a further release is a
further folder. The binaries are kept outside the tree, under a name with a hash of their sources, so a
second run starts at once. Next to them lies a certificate for 127.0.0.1, which all servers of the tests use.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULES = Path(__file__).parent / "controlplane"
DEFAULT = "1.37"
PROGRAMS = (
    "go.etcd.io/etcd/server/v3",
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-scheduler",
    "k8s.io/kubernetes/cmd/kubectl",
)
TOOLS = {  # further programs that tests use, by the folder whose go.mod pins them
    "cert-manager": ("kube-muster.io/cert-manager",),
    "client-go": ("kube-muster.io/client-go",),
    "etcd": ("kube-muster.io/etcd",),
    "helm": ("helm.sh/helm/v3/cmd/helm",),
    "jobset": ("sigs.k8s.io/jobset",),
    "krew": ("sigs.k8s.io/krew/cmd/krew",),
    "kubelet": ("kube-muster.io/kubelet",),
    "lws": ("sigs.k8s.io/lws/cmd",),
    "registry": ("github.com/google/go-containerregistry/cmd/crane",),
    "volcano": ("volcano.sh/volcano/cmd/cli",),
    "volcano/installed": ("volcano.sh/volcano/cmd/scheduler", "volcano.sh/volcano/cmd/controller-manager"),
}
CERTIFICATE = ("--host=127.0.0.1,localhost", "--ca", "--rsa-bits=2048", "--duration=87600h")


class BuildError(Exception):
    """Error: a build is impossible. The message is for the user."""


def supported() -> list[str]:
    """Return the minor versions that have a module here."""
    return sorted(path.parent.name for path in MODULES.glob("*/go.mod"))


def folder(kubernetes: str = DEFAULT) -> Path:
    """Return the folder with the binaries of a minor version, which are built if necessary."""
    module = _module_folder(kubernetes)
    target = _cache_folder() / f"{_release(module)}-{_checksum(module)}"
    if not target.is_dir():
        go = _go_program(module)
        with _one_builder_at_a_time():
            if not target.is_dir():
                _build(go, module, target)
    return target


def release(kubernetes: str = DEFAULT) -> str:
    """Return the exact release of one minor version, such as v1.36.3."""
    return _release(_module_folder(kubernetes))


def tool(module: Path, package: str) -> Path:
    """Return a further program for tests, such as Helm, built if necessary from the module in its folder."""
    name = package.rpartition("/")[2]
    target = _cache_folder().parent / "tools" / f"{name}-{_fingerprint(module)}"
    if not (target / name).is_file():
        go = _go_program(module)
        with _one_builder_at_a_time():
            if not (target / name).is_file():
                show(f"building {name} (a minute or two the first time)")
                flags = ["-trimpath", "-mod=readonly", "-ldflags", "-s -w"]
                _run([go, "build", *flags, "-o", f"{target}/", package], module)
    return target / name


def older_etcd() -> Path:
    """Return etcd two minor releases behind that of the control plane."""
    return tool(MODULES.parent / "etcd", *TOOLS["etcd"])


def sources(release: str, module: Path = MODULES) -> Path:
    """Return the folder of a release's sources in Go's cache, downloaded if necessary.

    `release`: PATH@VERSION, or PATH for the version that `module` pins.
    """
    downloaded = _output(["go", "mod", "download", "-json", release], module)
    return Path(json.loads(downloaded)["Dir"])


def _fingerprint(module: Path) -> str:
    parts = [
        path.read_bytes() for path in (module / "go.mod", module / "go.sum", *sorted(module.glob("*.go")))
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def _module_folder(kubernetes: str) -> Path:
    if kubernetes not in supported():
        raise BuildError(f"--kubernetes {kubernetes}: not supported, allowed: {', '.join(supported())}")
    return MODULES / kubernetes


def _release(module: Path) -> str:
    """Return the exact release that the module pins, such as v1.36.3."""
    return _pinned_version(module, r"^\s*k8s\.io/kubernetes (v\S+)")


def _pinned_version(module: Path, pattern: str) -> str:
    match = re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise BuildError(f"{module / 'go.mod'}: nothing matches {pattern}")
    return match.group(1)


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "kube-muster" / "control-plane"


def _checksum(module: Path) -> str:
    parts = [(module / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts.append(repr((_flags(module), PROGRAMS, CERTIFICATE)).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def _flags(module: Path) -> list[str]:
    """Return the build flags.

    Without the version flags, the API server's version would be v0.0.0, which confuses some clients.
    """
    release = _release(module)
    major, minor = release.removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    linker = [
        "-s",
        "-w",
        *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items()),
    ]
    return ["-trimpath", "-mod=readonly", "-ldflags", " ".join(linker)]


def _go_program(module: Path) -> str:
    required = _pinned_version(module, r"^go (\S+)")
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"go: not found on PATH, allowed: Go {required} or newer (https://go.dev/dl/)")
    version = _output([go, "env", "GOVERSION"]).removeprefix("go")
    if _numbers(version) < _numbers(required):
        raise BuildError(
            f"go {version} ({go}): too old, allowed: Go {required} or newer (https://go.dev/dl/)"
        )
    return go


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _output(command: list[str], folder: Path | None = None) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def _one_builder_at_a_time() -> Iterator[None]:
    """Lock the build, so that concurrent test runs wait for each other."""
    _cache_folder().mkdir(parents=True, exist_ok=True)
    with (_cache_folder() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(go: str, module: Path, target: Path) -> None:
    """Build in a temporary folder and rename it, so that an interrupted build leaves no partial folder."""
    show(f"building the control plane {_release(module)} (about 5 minutes on 2 cores the first time)")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as name:
        folder = Path(name) / "made"
        folder.mkdir()
        _compile(go, module, folder)
        (folder / "server").rename(folder / "etcd")
        show("  a certificate for 127.0.0.1")
        _run([go, "run", _certificate_program(go), *CERTIFICATE], folder)
        folder.rename(target)
    show(f"built {target}")


def _compile(go: str, module: Path, folder: Path) -> None:
    """Compile one program after the other, to show progress. Shared packages are compiled once."""
    for number, program in enumerate(PROGRAMS, start=1):
        show(f"  {number}/{len(PROGRAMS)} {program}")
        _run([go, "build", *_flags(module), "-o", f"{folder}/", program], module)


def _certificate_program(go: str) -> str:
    """Return Go's program for self-signed certificates, which writes cert.pem and key.pem."""
    return str(Path(_output([go, "env", "GOROOT"])) / "src" / "crypto" / "tls" / "generate_cert.go")


def _run(command: list[str], folder: Path) -> None:
    low_priority = ["nice", "-n", "10"] if shutil.which("nice") else []
    completed = subprocess.run([*low_priority, *command], cwd=folder, stdout=sys.stderr, check=False)
    if completed.returncode:
        raise BuildError(f"{' '.join(command[:2])} ended with {completed.returncode}, its output is above")


def show(line: str) -> None:
    """Print progress to stderr, since stdout is for the name of the folder."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.build", description="Build the test control plane."
    )
    parser.add_argument(
        "--kubernetes", default=DEFAULT, help=f"minor version, one of {', '.join(supported())}"
    )
    parser.add_argument(
        "--tools",
        action="store_true",
        help="build the programs of other projects as well, so that no test waits for a compiler",
    )
    arguments = parser.parse_args()
    try:
        print(folder(arguments.kubernetes))  # noqa: T201
        if arguments.tools:
            for folder_name, packages in TOOLS.items():
                for package in packages:
                    tool(Path(__file__).parent / folder_name, package)
    except BuildError as error:
        show(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
