"""Places in a job for annotations of its pods, so that its controller hands them on."""

from extender.api.workloads.pod_sets import annotation_paths, pod_sets
from tests.api.job_files import NAMES, put, row_of, waiting
from tests.rows import each_of

PATHS = {
    "job": ["spec/template"],
    "jobset": [f"spec/replicatedJobs/{n}/template/spec/template" for n in (0, 1)],
    "rayjob": [
        "spec/rayClusterSpec/headGroupSpec/template",
        "spec/rayClusterSpec/workerGroupSpecs/0/template",
    ],
    "raycluster": ["spec/headGroupSpec/template", "spec/workerGroupSpecs/0/template"],
    "tfjob": [f"spec/tfReplicaSpecs/{role}/template" for role in ("Chief", "PS", "Worker")],
    "mpijob": [f"spec/mpiReplicaSpecs/{role}/template" for role in ("Worker", "Launcher")],
    "leaderworkerset": [f"spec/leaderWorkerTemplate/{role}Template" for role in ("leader", "worker")],
    "trainjob": [],
}


@each_of(*PATHS)
def test_templates_are_at_the_paths_of_the_table(name: str) -> None:
    job = waiting(name)
    paths = ["/".join(path) for path in annotation_paths(row_of(job), job)]
    assert paths == [f"{template}/metadata/annotations" for template in PATHS[name]]


@each_of(*sorted({*NAMES} - {"trainjob"}))
def test_annotations_at_the_paths_reach_all_pods(name: str) -> None:
    job = waiting(name)
    for path in annotation_paths(row_of(job), job):
        job = put(job, path, {"note": "x"})
    for each in pod_sets(job):
        assert each.template["metadata"]["annotations"]["note"] == "x"


def test_an_application_of_spark_has_annotations_next_to_templates() -> None:
    job = waiting("sparkapplication")
    paths = ["/".join(path) for path in annotation_paths(row_of(job), job)]
    assert paths == ["spec/driver/annotations", "spec/executor/annotations"]


def test_the_pods_of_a_train_job_have_no_place_in_it() -> None:
    job = waiting("trainjob")
    assert annotation_paths(row_of(job), job) == []
