"""`muster job`: which jobs wait, start and run, all about one of them, and what keeps one back."""

import click

from extender.cli.further_kinds import config_option
from extender.cli.jobs.describe import describe_job
from extender.cli.jobs.hold import hold_job, resume_job, stop_job
from extender.cli.jobs.listing import list_jobs


@click.group()
def job() -> None:
    """Show jobs that wait as jobs, and keep them back."""


for each in (list_jobs, describe_job, hold_job, resume_job, stop_job):
    each.params.append(config_option())
    job.add_command(each)
