"""Kinds of jobs that the configuration file adds: what they become, and what is said of faults."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from extender.api.configuration import Configuration, InvalidConfiguration, as_document
from extender.api.workloads.further_kinds import further_kinds, with_further
from extender.api.workloads.pod_sets import annotation_paths, pod_sets
from extender.api.workloads.shape import JobOutcome, Json, is_suspended, outcome_of
from extender.api.workloads.table import WORKLOADS
from extender.cli import main
from extender.cli.settings import from_file, resolve
from tests.api.job_files import put
from tests.rows import each_of

HEAD = "apiVersion: config.kube-muster.io/v1alpha1\nkind: MusterConfiguration\n"
TRAINING = """\
jobKinds:
  - apiVersion: example.com/v1
    kind: TrainingRun
    plural: trainingruns
    suspend: spec.control.suspend
    podSets:
      - role: driver
        template: spec.driver.template
      - template: spec.workers[*].pod.template
        count: spec.workers[*].replicas
      - {role: watcher, template: spec.watcher, count: 2}
    succeeded: {conditions: [Done, Skipped]}
    failed: {field: status.phase, values: [Broken, Lost]}
"""
POD: Json = {"spec": {"containers": [{"name": "main"}]}}
RUN: Json = {
    "apiVersion": "example.com/v1",
    "kind": "TrainingRun",
    "metadata": {"name": "run", "uid": "u"},
    "spec": {
        "control": {"suspend": True},
        "driver": {"template": POD},
        "workers": [
            {"name": "a", "replicas": 3, "pod": {"template": POD}},
            {"replicas": 10**9, "pod": {"template": POD}},
        ],
        "watcher": POD,
    },
}


def read(folder: Path, text: str) -> Configuration:
    path = folder / "muster.yaml"
    path.write_text(HEAD + text)
    return resolve(from_file(path))


def entry(**changes: Any) -> Json:
    """Return a valid entry with changes; None removes a field."""
    sound = {
        "apiVersion": "example.com/v1",
        "kind": "TrainingRun",
        "plural": "trainingruns",
        "suspend": "spec.suspend",
        "podSets": [{"template": "spec.template"}],
        "succeeded": {"conditions": ["Done"]},
        "failed": "never",
    }
    return {name: value for name, value in {**sound, **changes}.items() if value is not None}


# ---- what they become


def test_a_kind_of_the_file_is_a_kind_of_the_table(tmp_path: Path) -> None:
    kinds = with_further(read(tmp_path, TRAINING).job_kinds)
    row = kinds["example.com/v1", "TrainingRun"]
    assert (row.plural, row.group, row.manageable) == ("trainingruns", "example.com", True)
    assert kinds.keys() - WORKLOADS.keys() == {row.key}
    assert is_suspended(row, RUN)
    assert not is_suspended(row, put(RUN, row.suspend, False))
    found = [(each.role, each.count) for each in pod_sets(RUN, kinds)]
    assert found == [("driver", 1), ("a", 3), ("1", 10**9), ("watcher", 2)]


def test_the_outcome_of_a_further_kind_is_read_from_its_status(tmp_path: Path) -> None:
    row = read(tmp_path, TRAINING).job_kinds[0].row

    def outcome(**status: Any) -> JobOutcome | None:
        return outcome_of(row, {**RUN, "status": status})

    assert outcome() is outcome(phase="Running") is None
    assert outcome(conditions=[{"type": "Skipped", "status": "True"}]) is JobOutcome.SUCCEEDED
    assert outcome(phase="Lost") is JobOutcome.FAILED


def test_annotations_of_its_pods_have_their_places(tmp_path: Path) -> None:
    kinds = with_further(read(tmp_path, TRAINING).job_kinds)
    row = kinds["example.com/v1", "TrainingRun"]
    templates = ["spec/driver/template", *(f"spec/workers/{n}/pod/template" for n in "01"), "spec/watcher"]
    paths = ["/".join(path) for path in annotation_paths(row, RUN, kinds)]
    assert paths == [f"{path}/metadata/annotations" for path in templates]


def test_sets_may_be_values_of_a_mapping() -> None:
    sets = [{"template": "spec.replicaSpecs[*].template", "count": "spec.replicaSpecs[*].replicas"}]
    kinds, faults = further_kinds([entry(podSets=sets)], "jobKinds")
    assert not faults
    run = {**RUN, "spec": {"replicaSpecs": {"Worker": {"replicas": 4, "template": POD}}}}
    assert [(each.role, each.count) for each in pod_sets(run, with_further(kinds))] == [("worker", 4)]


def test_the_settings_in_force_show_them_as_written(tmp_path: Path) -> None:
    kinds = read(tmp_path, TRAINING)
    shown = as_document(kinds)
    again = tmp_path / "again.yaml"
    again.write_bytes(msgspec.json.encode(shown))
    assert resolve(from_file(again)) == kinds
    assert "jobKinds" not in as_document(Configuration())


# ---- faults

PATHS = "a path in the spec such as spec.template or spec.workers[*].template"
COUNTS = "a whole number from 1 to 2147483647, or a path in the spec, in the same items as the template"
SETS = "a list of sets of pods, each with a template, perhaps count and role"
FIELDS = "apiVersion, kind, plural, suspend, podSets, succeeded, failed"


@each_of(
    (entry(suspended="x"), "[0].suspended: unknown field: did you mean suspend?"),
    (entry(plural=None), "[0].plural: required value: lower-case letters, digits and '-'"),
    (entry(kind="job"), "[0].kind: invalid value 'job': must be a kind such as TrainingRun"),
    (entry(apiVersion="v1"), "[0].apiVersion: invalid value 'v1': must be an API group and version such as"),
    (
        entry(apiVersion="batch/v1", kind="Job"),
        "[0]: invalid value batch/v1 Job: must be a new kind, listed once",
    ),
    (entry(suspend="suspend"), "[0].suspend: invalid value 'suspend': must be a path in the spec such as"),
    (entry(suspend="spec"), "[0].suspend: invalid value 'spec': must be a path in the spec"),
    (entry(suspend="spec.a[*].suspend"), "[0].suspend: invalid value 'spec.a[*].suspend': must be"),
    (entry(podSets=[]), f"[0].podSets: invalid value []: must be {SETS}"),
    (entry(podSets="x"), f"[0].podSets: invalid value 'x': must be {SETS}"),
    (entry(podSets=["x"]), "[0].podSets[0]: invalid value 'x': must be fields: template, count, role"),
    (entry(podSets=[{}]), f"[0].podSets[0].template: required value: {PATHS}"),
    (
        entry(podSets=[{"template": "spec.template", "size": "1"}]),
        "[0].podSets[0].size: unknown field: must be one of template, count, role",
    ),
    (
        entry(podSets=[{"template": "spec.a[*].template"}, {"template": "spec.b", "role": "A b"}]),
        "[0].podSets[1].role: invalid value 'A b': must be lower-case letters, digits and '-'",
    ),
    (
        entry(podSets=[{"template": "spec.a[*].template", "role": "a"}]),
        "[0].podSets[0].role: invalid value 'a': must be absent where the template has [*]",
    ),
    (
        entry(podSets=[{"template": "spec.a"}, {"template": "spec.b"}]),
        "[0].podSets: duplicate role '': roles must differ",
    ),
    (entry(succeeded="Done"), "[0].succeeded: invalid value 'Done': must be never, or conditions, or field"),
    (
        entry(succeeded={"conditions": "Done"}),
        "[0].succeeded.conditions: invalid value 'Done': must be a list",
    ),
    (entry(failed={"field": "status.phase"}), "[0].failed.values: required value: a list of"),
    (
        entry(failed={"field": "spec.phase", "values": ["x"]}),
        "[0].failed.field: invalid value 'spec.phase': must be a path in the status such as status.phase",
    ),
    (
        entry(failed={"conditions": ["A"], "values": ["x"]}),
        "[0].failed.values: unknown field: must be one of conditions",
    ),
    ("x", f"[0]: invalid value 'x': must be fields: {FIELDS}"),
)
def test_a_fault_names_place_value_and_what_is_allowed(given: Any, message: str) -> None:
    _, faults = further_kinds([given], "jobKinds")
    assert len(faults) == 1
    assert f"jobKinds{message}" in faults[0]


@each_of(
    "",
    "spec",
    "spec.",
    "spec..a",
    "spec.a[*]",
    "spec.a[0].b",
    "spec.a[*].b[*].c",
    "spec[].a",
    "$.spec.a",
    "status.a",
    "metadata.a",
    "spec/a",
    "spec.a b",
    "spec.{x}",
    "spec." + "a" * 500,
)
def test_paths_of_another_form_are_refused(path: str) -> None:
    _, faults = further_kinds([entry(podSets=[{"template": path}])], "jobKinds")
    assert faults == [f"jobKinds[0].podSets[0].template: invalid value {printed_path(path)}: must be {PATHS}"]


def printed_path(path: str) -> str:
    return repr(path) if len(path) < 198 else f"{repr(path)[:200]}…"


@each_of("0", "-1", "2147483648", "9" * 5000, "1.5", "many", "spec.b[*].n", "spec.n")
def test_counts_are_numbers_or_next_to_the_template(count: str) -> None:
    _, faults = further_kinds(
        [entry(podSets=[{"template": "spec.a[*].template", "count": count}])], "jobKinds"
    )
    assert faults == [f"jobKinds[0].podSets[0].count: invalid value {printed_path(count)}: must be {COUNTS}"]


def test_a_kind_is_written_once() -> None:
    _, faults = further_kinds([entry(), entry()], "jobKinds")
    assert faults == [
        "jobKinds[1]: invalid value example.com/v1 TrainingRun: must be a new kind, listed once"
    ]


def test_all_faults_are_reported_at_once() -> None:
    _, faults = further_kinds([entry(kind="x"), entry(plural="X", suspend="y")], "jobKinds")
    assert len(faults) == 3


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.text(max_size=5) | st.sampled_from(["spec.a", "status.a", "never"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([*entry(), "template", "count", "role", "conditions", "field", "values"]), inner
    ),
)  # fmt: skip


@given(ANYTHING)
def test_anything_is_kinds_or_faults(value: Any) -> None:
    kinds, faults = further_kinds(value, "jobKinds")
    assert kinds or faults


def test_muster_exits_with_2_and_the_faults(tmp_path: Path) -> None:
    path = tmp_path / "muster.yaml"
    path.write_text(HEAD + TRAINING.replace("spec.control.suspend", "control.suspend"))
    with pytest.raises(InvalidConfiguration):
        resolve(from_file(path))
    done = CliRunner().invoke(main, ["serve", f"--config={path}"])
    assert done.exit_code == 2
    assert "muster.yaml: jobKinds[0].suspend: invalid value 'control.suspend': must be" in done.output
