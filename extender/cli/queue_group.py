"""`muster queue`: what queues there are, what each holds and deserves, and changing them.

kubectl's conventions hold: NAME is an argument, -n is a namespace. vcctl's long flags (--name, --weight,
--state, --action) work as well.
"""

import copy

import click

from extender.cli.queue import (
    close_queues,
    delete_queue,
    describe_queue,
    get_queues,
    hold_queues,
    list_queues,
    open_queues,
    operate_queue,
    resume_queues,
)
from extender.cli.queue_spec import create_queue, update_queue

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


for command in _COMMANDS:
    queue.add_command(command)

q = copy.copy(queue)
q.name, q.hidden = "q", True
