"""`muster podgroup`: what groups there are, which of them wait, and everything about one of them."""

import copy

import click

from extender.cli.podgroup import describe_group, get_groups, list_groups


@click.group()
def podgroup() -> None:
    """Show groups of pods (alias: pg)."""


for command in (list_groups, get_groups, describe_group):
    podgroup.add_command(command)

pg = copy.copy(podgroup)
pg.name, pg.hidden = "pg", True
