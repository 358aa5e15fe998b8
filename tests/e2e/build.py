"""Builds the control plane of the e2e tests and benchmarks, from Go modules alone.

`controlplane/<minor>/go.mod` pins one Kubernetes release and its etcd. Each supported release has a separate
folder there. The binaries are kept outside the source tree. The name of their folder contains a hash of their
sources, so a second run finds the binaries and starts at once. The same folder has a certificate for
127.0.0.1, which all servers of the tests use.
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
TOOLS = {  # further programs of the tests, keyed by the folder whose go.mod pins them
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
    """Error that makes a build impossible. The message is for the user."""


def supported() -> list[str]:
    """Return the minor versions of Kubernetes that have a Go module here."""
    return sorted(path.parent.name for path in MODULES.glob("*/go.mod"))


def folder(kubernetes: str = DEFAULT) -> Path:
    """Return the folder with the binaries of a minor version. The binaries are built if necessary."""
    module = _module_folder(kubernetes)
    target = _cache_folder() / f"{_release(module)}-{_checksum(module)}"
    if not target.is_dir():
        go = _go_program(module)
        with _one_builder_at_a_time():
            if not target.is_dir():
                _build(go, module, target)
    return target


def release(kubernetes: str = DEFAULT) -> str:
    """Return the exact release of a minor version, such as v1.36.3."""
    return _release(_module_folder(kubernetes))


def tool(module: Path, package: str) -> Path:
    """Return the path of a further program, such as Helm.

    The program is built if necessary from `package`, in the version that the go.mod in the folder `module`
    pins.
    """
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
    """Return the path of an etcd that is two minor releases older than the etcd of the control plane."""
    return tool(MODULES.parent / "etcd", *TOOLS["etcd"])


def sources(release: str, module: Path = MODULES) -> Path:
    """Return the folder of a release's sources in Go's cache. The sources are downloaded if necessary.

    `release` is PATH@VERSION, or only PATH for the version that `module` pins.
    """
    download_result = _output(["go", "mod", "download", "-json", release], module)
    return Path(json.loads(download_result)["Dir"])


def _fingerprint(module: Path) -> str:
    """Return a hash of the Go module's files, which changes when the program must be built again."""
    parts = [
        path.read_bytes() for path in (module / "go.mod", module / "go.sum", *sorted(module.glob("*.go")))
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def _module_folder(kubernetes: str) -> Path:
    """Return the folder of a supported minor version. Raise BuildError for another version."""
    if kubernetes not in supported():
        raise BuildError(f"--kubernetes {kubernetes}: not supported, allowed: {', '.join(supported())}")
    return MODULES / kubernetes


def _release(module: Path) -> str:
    """Return the exact release of Kubernetes that a module pins, such as v1.36.3."""
    return _pinned_version(module, r"^\s*k8s\.io/kubernetes (v\S+)")


def _pinned_version(module: Path, pattern: str) -> str:
    """Return the version that a pattern finds in go.mod. Raise BuildError if nothing matches."""
    match = re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise BuildError(f"{module / 'go.mod'}: nothing matches {pattern}")
    return match.group(1)


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "kube-muster" / "control-plane"


def _checksum(module: Path) -> str:
    """Return a hash of everything that determines the binaries, for the name of their folder."""
    parts = [(module / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts.append(repr((_flags(module), PROGRAMS, CERTIFICATE)).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def _flags(module: Path) -> list[str]:
    """Return the flags of `go build`.

    Without the version flags, the API server would report v0.0.0, which confuses some clients.
    """
    release = _release(module)
    major, minor = release.removeprefix("v").split(".")[:2]
    version_fields = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    linker_flags = [
        "-s",
        "-w",
        *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in version_fields.items()),
    ]
    return ["-trimpath", "-mod=readonly", "-ldflags", " ".join(linker_flags)]


def _go_program(module: Path) -> str:
    """Return the path of Go. Raise BuildError if Go is missing or too old for the module."""
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
    """Lock the build until the context ends, so that concurrent test runs wait for each other."""
    _cache_folder().mkdir(parents=True, exist_ok=True)
    with (_cache_folder() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(go: str, module: Path, target: Path) -> None:
    """Build in a temporary folder and rename it at the end. An interrupted build leaves no target folder."""
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
    """Compile the programs one by one, to show progress. Go compiles shared packages only once."""
    for number, program in enumerate(PROGRAMS, start=1):
        show(f"  {number}/{len(PROGRAMS)} {program}")
        _run([go, "build", *_flags(module), "-o", f"{folder}/", program], module)


def _certificate_program(go: str) -> str:
    """Return the path of Go's program for self-signed certificates, which writes cert.pem and key.pem."""
    return str(Path(_output([go, "env", "GOROOT"])) / "src" / "crypto" / "tls" / "generate_cert.go")


def _run(command: list[str], folder: Path) -> None:
    """Run a command with low priority, and show its output. Raise BuildError if the command fails."""
    low_priority = ["nice", "-n", "10"] if shutil.which("nice") else []
    completed = subprocess.run([*low_priority, *command], cwd=folder, stdout=sys.stderr, check=False)
    if completed.returncode:
        raise BuildError(f"{' '.join(command[:2])} ended with {completed.returncode}, its output is above")


def show(line: str) -> None:
    """Print progress to stderr. stdout is reserved for the name of the folder."""
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
