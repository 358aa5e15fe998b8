"""`muster queue`: what queues there are, what each holds and deserves, and changing them.

kubectl's conventions hold: NAME is an argument, -n is a namespace. vcctl's long flags (--name, --weight,
--state, --action) work as well.
"""

import copy

import click

from extender.cli.queues.delete import delete_queue
from extender.cli.queues.describe import describe_queue
from extender.cli.queues.edit import create_queue, update_queue
from extender.cli.queues.listing import get_queues, list_queues
from extender.cli.queues.open_close import close_queues, open_queues
from extender.cli.queues.operate import operate_queue
from extender.cli.queues.stop import hold_queues, resume_queues

_COMMANDS = (
    list_queues,
    get_queues,
    describe_queue,
    create_queue,
    update_queue,
    open_queues,
    close_queues,
    hold_queues,
    resume_queues,
    operate_queue,
    delete_queue,
)


@click.group()
def queue() -> None:
    """Show and change queues (alias: q)."""


for each in _COMMANDS:
    queue.add_command(each)

q = copy.copy(queue)
q.name, q.hidden = "q", True
