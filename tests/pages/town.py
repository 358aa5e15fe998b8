"""The queues and groups that the pages show."""

from typing import Any

from tests.cli.desk import Desk

NUMBERS = (
    "cpu: 8 needed, 2 left on suitable nodes; room for 1 of 4 members; position 1 in queue research;"
    " it starts once other/report (3 pods) ends"
)


def settle(desk: Desk) -> Desk:
    """sweep waits for room; fit of its queue and report of a queue above its share hold it."""
    held: dict[str, Any] = {"allocated": {"cpu": "4", "pods": "2"}, "deserved": {"cpu": "6", "memory": "0"}}
    desk.queue("research", {"weight": 2}, state="Open", **held, share=0.667, pending=1, running=1)
    above: dict[str, Any] = {"allocated": {"cpu": "6"}, "deserved": {"cpu": "4"}}
    desk.queue("reports", {"capability": {"cpu": "8"}}, state="Open", **above, share=1.5, running=1)
    desk.gang("fit", 2, node="n0", phase="Running", reason="Running", queue="research")
    desk.gang("sweep", 4, message=NUMBERS, queue="research", days=10)
    desk.group("report", "Running", "Running", queue="reports", namespace="other", min_member=3)
    return desk
