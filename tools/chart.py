"""Generator of the Helm chart's templates from manifests/, so that kustomize and Helm install the same.

A template has the text of its manifest, including comments. tools/chart_changes.py lists the texts that are
replaced by values of the chart. If a manifest lacks such a text, the generator fails, so no change of a
manifest leaves the chart out of date. Every file of manifests/ becomes a template. The folder of the file
determines the condition under which Helm renders the template.

    python -m tools.chart            writes install/chart/templates/manifests and install/chart/files
    python -m tools.chart --check    prints the files that differ; exit status 1 if there are any
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.chart_changes import (
    ALSO_WHEN,
    CHANGES,
    DASHBOARD,
    EVERYWHERE,
    PROFILE_BODIES,
    PROFILES,
    SCHEDULER_CONFIG,
    WHEN,
)

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "manifests"
CHART = ROOT / "install" / "chart"
GENERATED_PATHS = ("templates/manifests", "files")
# Helm creates the namespace itself, and does not read kustomize's files.
LEFT_OUT_FILES = ("namespace.yaml", "kustomization.yaml")

Files = Mapping[Path, str]  # text of files, by path in the chart


class ChangesMismatch(Exception):
    """Error: a manifest lacks a text that the chart replaces."""


def generated_files() -> Files:
    """Generate the files of the chart; return their texts by path."""
    return dict(_iterate_generated())


def _iterate_generated() -> Iterator[tuple[Path, str]]:
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        if path.name not in LEFT_OUT_FILES:
            source = path.relative_to(MANIFESTS)
            yield Path(GENERATED_PATHS[0]) / source, template(str(source), path.read_text())
    yield Path(GENERATED_PATHS[0]) / "sidecar" / "scheduler-config.yaml", _scheduler_config()
    dashboard = "monitoring/dashboard.json"
    yield Path(GENERATED_PATHS[1]) / "dashboard.json", (MANIFESTS / dashboard).read_text()
    yield (
        Path(GENERATED_PATHS[0]) / "monitoring" / "dashboard.yaml",
        _with_condition(f"manifests/{dashboard}", WHEN["monitoring"], _with_common_changes(DASHBOARD)),
    )


def template(source: str, text: str) -> str:
    """Return the template of a manifest. `source` is its path below manifests/."""
    text = text.replace("{{", '{{ "{{" }}')  # these are templates of Prometheus, not of Helm
    for old, new in CHANGES.get(source, ()):
        if old not in text:
            raise ChangesMismatch(
                f"manifests/{source}: lacks {old.strip()!r}, which tools/chart_changes.py changes"
            )
        text = text.replace(old, new)
    text = _with_common_changes(text)
    if "\nkind: CustomResourceDefinition\n" in text:
        text = _with_retention(text)
    return _with_condition(f"manifests/{source}", _condition(source), text)


def _with_common_changes(text: str) -> str:
    for old, new in EVERYWHERE:
        text = text.replace(old, new)
    return text


def _condition(source: str) -> str:
    folder = str(Path(source).parent)
    if folder not in WHEN:
        raise ChangesMismatch(
            f"manifests/{folder}: WHEN in tools/chart_changes.py does not say when it is rendered"
        )
    own, inherited = ALSO_WHEN.get(source, ""), WHEN[folder]
    return f"and ({inherited}) ({own})" if own and inherited else own or inherited


def _with_retention(text: str) -> str:
    """Return the CRD with an annotation, so that `helm uninstall` deletes neither the CRD nor its objects."""
    with_annotations = "metadata:\n  annotations:\n"
    head = with_annotations if with_annotations in text else "metadata:\n"
    return text.replace(head, f"{with_annotations}    helm.sh/resource-policy: keep\n", 1)


def _with_condition(source: str, condition: str, text: str) -> str:
    head = f'{{{{- /* Made from {source} by "make chart". */ -}}}}\n'
    return head + (f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text)


def _scheduler_config() -> str:
    text = SCHEDULER_CONFIG + "".join(map(_scheduler_file, PROFILE_BODIES))
    return _with_condition("scheduler-config/*.yaml", WHEN["sidecar"], _with_common_changes(text))


def _scheduler_file(name: str) -> str:
    """Return one file of the ConfigMap, with a profile for each scheduler name."""
    source, body = f"scheduler-config/{name}", PROFILE_BODIES[name]
    head, _, rest = (ROOT / source).read_text().partition("  - schedulerName: muster\n")
    _, separator, tail = rest.partition(f"  - schedulerName: volcano\n{body}")
    if not separator:
        raise ChangesMismatch(f"{source}: lacks the profiles that tools/chart_changes.py changes")
    lines = f"{head}{PROFILES.format(body=body)}{tail}".splitlines()
    return f"  {name}: |\n" + "".join(f"    {line}\n" if line else "\n" for line in lines)


def current_files() -> Files:
    """Return the texts of the existing generated files, by path."""
    paths = (path for folder in GENERATED_PATHS for path in (CHART / folder).rglob("*") if path.is_file())
    return {path.relative_to(CHART): path.read_text() for path in paths}


def differing_files() -> list[Path]:
    generated, current = generated_files(), current_files()
    return sorted(
        path for path in generated.keys() | current.keys() if generated.get(path) != current.get(path)
    )


def write() -> None:
    generated = generated_files()
    for path in current_files().keys() - generated.keys():
        (CHART / path).unlink()
    for path, text in generated.items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        (CHART / path).write_text(text)


def check() -> int:
    for path in differing_files():
        sys.stderr.write(f"install/chart/{path} is not what its manifest makes it; run: make chart\n")
    return 1 if differing_files() else 0


COMMANDS: dict[tuple[str, ...], Callable[[], int | None]] = {(): write, ("--check",): check}

if __name__ == "__main__":
    command = COMMANDS.get(tuple(sys.argv[1:]))
    if command is None:
        sys.exit("usage: python -m tools.chart [--check]")
    try:
        sys.exit(command())
    except ChangesMismatch as fault:
        sys.exit(str(fault))
