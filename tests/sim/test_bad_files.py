"""Bad files: any input ends in a report of what ran, what waits and why, and faults by file and line.

The tests use `muster simulate`, which reads files as `muster run` does and takes no time.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from extender.cli import main
from tests.rows import each_of

SPEC = "{schedulerName: muster, containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}"
POD = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {SPEC}\n"
HEAD = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n"
QUEUE = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n"
TOPOLOGY = "apiVersion: kube-muster.io/v1alpha1\nkind: Topology\nmetadata: {name: t}\n"
GROUP = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g}\n"
VOLCANO_JOB = (
    "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: v}\n"
    f"spec:\n  tasks: [{{name: w, replicas: 1, template: {{spec: {SPEC}}}}}]\n"
)
RAY = "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r}\n"
BILLION_LAUGHS = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))


class Outcome(NamedTuple):
    status: int
    report: str
    faults: list[str]  # without the name of the file, where that stands at its beginning


RESTART_NEVER = SPEC.replace("{", "{restartPolicy: Never, ", 1)


def job(spec: str = "", template: str = f"{{spec: {RESTART_NEVER}}}") -> str:
    return f"{HEAD}spec:\n  template: {template}\n{spec}"


def handed_over(path: Path, content: str | bytes, *flags: str) -> Outcome:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return simulated(path, *flags)


def simulated(path: Path, *flags: str, given: str | bytes = "") -> Outcome:
    done = CliRunner().invoke(main, ["simulate", "-f", str(path), *flags], input=given)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    message = done.stderr.partition("Error: ")[2] or done.stderr
    return Outcome(
        done.exit_code, done.stdout, [line.removeprefix(f"{path}:") for line in message.splitlines()]
    )


@each_of(
    ("", " no objects"),
    ("# nothing yet\n---\n", " no objects"),
    ("apiVersion: example.com/v1\nkind: Widget\n", "2: Widget: skipped, nothing is known"),
    (POD.replace("kind: Pod", "kind: Pot"), '2: Pot "p": skipped'),
    ("kind: Pod\n", "1: apiVersion: missing; every object has an apiVersion and a kind"),
    ("just words\n", "1: a document must be an object"),
    ("apiVersion: v1\nkind: List\nitems: [1]\n", "3: a document must be"),
    (f"{HEAD}spec: {{}}\n", "4: spec.template: missing"),
    (job(template="{}"), "5: spec.template.spec: missing"),
    (
        job(template="\n    spec: {restartPolicy: Never}"),
        "6: spec.template.spec.containers: missing; a pod has at least one",
    ),
    (f"{RAY}spec: {{workerGroupSpecs: []}}\n", "4: spec.headGroupSpec"),
    (job("  parallelism: 1000000\n"), '1: Job "j": asks for 1000000 pods; of all'),
    (job("  parallelism: -1\n"), "6: spec.parallelism: invalid value -1: must be a whole"),
    (job("  parallelism: two\n"), "6: spec.parallelism: invalid value 'two': must be"),
    (job("  paralelism: 2\n"), "6: spec.paralelism: unknown field: did you mean parallelism?"),
    (POD.replace("cpu: 1", 'cpu: "-1"'), "4: spec.containers[0].resources.requests"),
    (f"{GROUP}spec: {{minMember: -2}}\n", "4: spec.minMember: invalid value -2"),
    (
        f"{VOLCANO_JOB}  policies: [{{event: PodFailed, action: Explode}}]\n",
        "1: Job \"v\": spec.policies[0].action: invalid value 'Explode': ",
    ),
    (
        f"{TOPOLOGY}spec: {{levels: [{{nodeLabel: a}}, {{nodeLabel: a}}]}}\n",
        "1: Topology \"t\": spec.levels[1].nodeLabel: 'a' is the label of an earlier level",
    ),
    (f"{QUEUE}spec: {{weight: 0}}\n", '1: Queue "q": spec.weight: invalid value 0: must be 1 or more'),
    (
        f"{QUEUE}spec: {{capability: {{cpu: 4}}, deserved: {{cpu: 8}}}}\n",
        '1: Queue "q": spec.deserved[cpu]: invalid value 8: must be the capability, 4, or less',
    ),
    (job("  completionMode: indexed\n"), "6: spec.completionMode: invalid value 'indexed': must be In"),
    (
        f"{QUEUE}spec:\n  flavors: [{{name: a, guarantee: {{resource: {{cpu: 4}}}}}}]\n",
        "5: spec.flavors[0].guarantee: invalid value {'resource': {'cpu': 4}}: must be quantities",
    ),
    (
        f"{QUEUE}spec: {{preemption: {{atMost: 1d}}}}\n",
        "4: spec.preemption.atMost: invalid value '1d': must be a duration such as 90s, 10m or 1h30m",
    ),
    (
        f"{QUEUE}spec: {{preemption: {{after: 600}}}}\n",
        "4: spec.preemption.after: invalid value 600: must be a duration such as",
    ),
    (
        f"{QUEUE}spec: {{preemption: {{withinQueue: Any}}}}\n",
        "4: spec.preemption.withinQueue: invalid value 'Any': must be Never or LowerPriority",
    ),
    (
        f"{QUEUE}spec: {{preemption: {{patience: -1}}}}\n",
        "4: spec.preemption.patience: invalid value -1: must be a number from 0 to 1000",
    ),
    (
        f"{QUEUE}spec: {{oversell: 1.5}}\n",
        '4: spec.oversell: invalid value 1.5: must be a number from 1 to 100; write it in quotes: "1.5"',
    ),
    (job(template="{spec: {containers: [null]}}"), "5: spec.template.spec.cont"),
    (POD.replace("name: p", "name: My_Pod"), "3: metadata.name: invalid value 'My_Pod'"),
    (POD.replace("name: p", "name: 1"), "3: metadata.name: invalid value 1: must be"),
    (POD.replace("name: p", f"name: {'a' * 254}"), "3: metadata.name: invalid value"),
    (POD.replace("name: p", "generateName: P-"), "3: metadata.generateName"),
    (POD.replace("{name: p}", "[]"), "3: metadata: invalid value []"),
    (f"{POD}---\n{POD}", '6: Pod "p" already exists: it is at'),
    (f"{POD}metadata: {{name: q}}\n", "5: metadata stands twice in one object"),
    (POD.replace("\nspec: ", "\nspec:\n\t"), "5: not YAML: found character"),
    (POD.replace("image: x", r'image: "C:\Users"'), "4: not YAML: expected esc"),
    (POD.replace("image: x", "image: [").encode(), "4: not YAML: "),
    (POD.encode() + b"# caf\xe9\n", "5: cannot be read: not UTF-8"),
    (POD.encode() + b"\x00\x01", "5: not YAML: it has a character that is no"),
    ("a: &a [*a]\n", "1: more than 1000000 values"),
    (f"{QUEUE}spec:\n  l0: &l0 [x]\n{BILLION_LAUGHS}", "1: more than 1000000 val"),
    ("[" * 5000, " not YAML: it is nested too deep"),
)
def test_a_manifest_that_cannot_run_is_named_by_line(
    content: str | bytes, message: str, *, tmp_path: Path
) -> None:
    """Nothing runs while a file has errors."""
    outcome = handed_over(tmp_path / "given.yaml", content)
    assert (outcome.status, outcome.report) == (2, "")
    assert outcome.faults[0].startswith(message)


@each_of(
    (
        f"{QUEUE}spec: {{flavors: [{{name: a, nodeLabels: {{}}}}, {{name: b, nodeLabels: {{}}}}]}}\n",
        '1: Queue "q": spec.flavors[1].nodeLabels: ',
    ),  # flavors
    (
        f"{QUEUE}spec: {{flavors: [{{name: a, resourceFlavor: h100}}]}}\n",
        '1: Queue "q": spec.flavors[0].resourceFlavor: ',
    ),  # resource-flavor
    (
        f"{QUEUE}spec: {{parent: later}}\n",
        "1: Queue \"q\": spec.parent: invalid value 'later': ",
    ),
    (
        GROUP.replace("name: g", "name: g, annotations: {kube-muster.io/checkpoint: often}"),
        "1: PodGroup \"g\": metadata.annotations[kube-muster.io/checkpoint]: invalid value 'often', which",
    ),  # checkpoint
    (
        GROUP.replace("name: g", "name: g, annotations: {kube-muster.io/run-time: soon}"),
        "1: PodGroup \"g\": metadata.annotations[kube-muster.io/run-time]: invalid value 'soon', which",
    ),  # run-time
    (
        POD.replace("name: p", "name: r, annotations: {kube-muster.io/min-member: most}"),
        "1: Pod \"r\": annotation kube-muster.io/min-member: invalid value 'most': must be all, or a whole",
    ),  # min-member
)
def test_warnings_of_the_webhooks_are_printed(content: str, record: str, *, tmp_path: Path) -> None:
    outcome = handed_over(tmp_path / "f.yaml", f"{content}---\n{POD}", "--run-seconds", "1")
    assert outcome.faults[0].startswith(record)


@each_of(
    POD.replace("\n", "\r\n"),
    POD.replace("\n", "\r"),
    b"\xef\xbb\xbf" + POD.encode(),
    POD.encode("utf-16"),
    json.dumps(yaml.safe_load(POD), indent="\t"),
    f"---\n---\n{POD}---\n...\n",
    f"{POD}---\nnull\n",
    POD.replace("cpu: 1", "cpu: 0.5, memory: 1e9"),
)
def test_files_of_any_editor_run(content: str | bytes, *, tmp_path: Path) -> None:
    outcome = handed_over(tmp_path / "given.yaml", content)
    assert (outcome.status, outcome.faults) == (0, [])
    assert outcome.report.startswith("1 pod,")


def test_unsupported_kinds_are_named_and_the_rest_runs(tmp_path: Path) -> None:
    others = ("Service", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim")
    left_out = "".join(f"---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: x}}\n" for kind in others)
    none = job("  parallelism: 0\n")
    outcome = handed_over(tmp_path / "given.yaml", f"{POD}{left_out}---\n{none}")
    assert outcome.status == 0
    assert outcome.report.startswith("1 pod,")
    lines = range(7, 7 + 4 * len(others), 4)
    skipped = zip(lines, others, strict=True)
    notes = [f'{line}: {kind} "x": skipped, no pods follow from it' for line, kind in skipped]
    assert outcome.faults[:-1] == notes
    assert outcome.faults[-1].startswith('26: Job "j": ')


def test_a_pending_group_is_named_with_its_reason(tmp_path: Path) -> None:
    outcome = handed_over(tmp_path / "given.yaml", POD.replace("cpu: 1", "cpu: 64"))
    assert outcome.status == 3
    assert "NeverFits" in outcome.report


def test_the_limit_is_for_all_files_together(tmp_path: Path) -> None:
    one = job("  parallelism: 6000\n")
    outcome = handed_over(tmp_path / "given.yaml", f"{one}---\n{one.replace('name: j', 'name: k')}")
    (message,) = outcome.faults
    assert message.startswith('8: Job "k": asks for 6000 pods; of all workloads together at most 10000')


@each_of(
    ("apps/v1\nkind: StatefulSet", f"{{replicas: 1000000000, template: {{spec: {SPEC}}}}}"),
    (
        "leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet",
        f"{{replicas: 1000000000, leaderWorkerTemplate: {{size: 9, workerTemplate: {{spec: {SPEC}}}}}}}",
    ),
    (
        "jobset.x-k8s.io/v1alpha2\nkind: JobSet",
        "{replicatedJobs: [{name: a, replicas: 100000, template: {spec: {parallelism: 100000, template:"
        f" {{spec: {SPEC}}}}}}}}}]}}",
    ),
    (
        "ray.io/v1\nkind: RayCluster",
        f"{{headGroupSpec: {{template: {{spec: {SPEC}}}}}, workerGroupSpecs: [{{groupName: g,"
        f" replicas: 100000, numOfHosts: 100000, template: {{spec: {SPEC}}}}}]}}",
    ),
)
def test_no_count_is_too_large_to_be_refused_at_once(kind: str, spec: str, *, tmp_path: Path) -> None:
    text = f"apiVersion: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"
    outcome = handed_over(tmp_path / "given.yaml", text)
    assert outcome.status == 2
    assert " at most 10000 " in outcome.faults[0]


def test_a_missing_namespace_is_named_once_and_created_on_request(tmp_path: Path) -> None:
    pods = "---\n".join(POD.replace("name: p", f"name: p{n}, namespace: team") for n in range(3))
    outcome = handed_over(tmp_path / "given.yaml", pods)
    message = '1: namespaces "team" not found; --create-namespaces makes those that are missing'
    assert (outcome.status, outcome.faults) == (2, [message])
    outcome = handed_over(tmp_path / "given.yaml", pods, "--create-namespaces")
    assert (outcome.status, outcome.report[:7]) == (0, "3 pods,")


def test_files_in_a_folder_may_have_upper_case_suffixes(tmp_path: Path) -> None:
    (tmp_path / "POD.YAML").write_text(POD)
    assert simulated(tmp_path).report.startswith("1 pod,")


def test_two_objects_of_one_name_in_two_files(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(POD)
    outcome = simulated(tmp_path)
    first, second = (f"{tmp_path}/{name}.yaml:1" for name in "ab")
    (fault,) = outcome.faults
    assert fault.startswith(f'{second}: Pod "p" already exists: ')
    assert first in fault


def test_namespaces_that_every_cluster_has_may_be_in_a_file(tmp_path: Path) -> None:
    default = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n---\n"
    assert handed_over(tmp_path / "given.yaml", default + POD).status == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.yaml", "cannot be read: No such file"),
        ("C:\\me\\a.yaml", "paths are written with / here"),
        ("x" * 5000, "cannot be read: File name too long"),
        ("", "no files in there that end in .yaml, .yml, .json"),
    ],
)
def test_paths_without_objects(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "notes.md").write_text("# no objects\n")
    (tmp_path / "folder.yaml").mkdir()
    outcome = simulated(tmp_path / name)
    assert outcome.status == 2
    assert message in outcome.faults[0]


def test_a_pipe(tmp_path: Path) -> None:
    assert simulated(Path("-"), given=POD.replace("\n", "\r\n")).report.startswith("1 pod,")
    outcome = simulated(Path("-"), given="")
    assert (outcome.status, outcome.faults[0]) == (2, "stdin: no objects in there that run or wait")
    assert simulated(Path("-"), given="kind: [").faults[0].startswith("stdin:1: not YAML")
