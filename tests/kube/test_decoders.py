"""Threads that decode the first objects of a kind at the same time."""

import subprocess
import sys

FIRST_OBJECTS = """
import sys, threading
import msgspec
from extender.kube.decoding import prepare_structs
from extender.api.objects.pods import Pod

sys.setswitchinterval(1e-6)
prepare_structs()
body = msgspec.json.encode({
    "metadata": {"name": "a", "uid": "b", "ownerReferences": [{"kind": "Job", "name": "c", "uid": "d"}]},
    "spec": {"containers": [{"name": "e", "resources": {"requests": {"cpu": "1"}}}], "affinity": {}},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
})
together = threading.Barrier(6)

def decode():
    together.wait()
    msgspec.json.decode(body, type=Pod)

threads = [threading.Thread(target=decode) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
TRIES = 8  # without learning, about every third process ended with SIGSEGV


def test_the_first_objects_of_a_kind_may_be_decoded_at_once() -> None:
    ended = [subprocess.run([sys.executable, "-c", FIRST_OBJECTS], timeout=60) for _ in range(TRIES)]
    assert [each.returncode for each in ended] == [0] * TRIES
