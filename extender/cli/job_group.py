"""`muster job`: which jobs wait, start and run, all about one of them, and what keeps one back."""

import click

from extender.cli.job import describe_job, hold_job, list_jobs, resume_job, stop_job
from extender.cli.kinds import config_option


@click.group()
def job() -> None:
    """Show jobs that wait as jobs, and keep them back."""


for command in (list_jobs, describe_job, hold_job, resume_job, stop_job):
    command.params.append(config_option())
    job.add_command(command)
