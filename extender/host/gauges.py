"""Gauges that are read off the parts, once a cycle."""

import time

from extender.host.feed import Feed
from extender.kube.writers import Writers
from extender.telemetry import metrics


def show_gauges(feed: Feed, writers: Writers) -> None:
    metrics.write_queue_depth.set(writers.depth)
    for reflector in feed.reflectors:
        name = reflector.resource.plural
        metrics.cache_synced.labels(name).set(reflector.synced)
        if reflector.last_heard is not None:
            metrics.cache_age.labels(name).set(time.monotonic() - reflector.last_heard)
