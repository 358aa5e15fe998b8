"""HTTP clients for probes, metrics and debug pages of the programs under test."""

import re
from pathlib import Path
from typing import Any

import urllib3

METRIC_LINE = re.compile(r"^([^\s{]+(?:\{.*\})?) (\S+)(?: \d+)?$")
SHORT_TIMEOUT, LONG_TIMEOUT = urllib3.Timeout(5), urllib3.Timeout(30)


def fetch(
    url: str, authority: Path | None = None, timeout: urllib3.Timeout = LONG_TIMEOUT
) -> urllib3.BaseHTTPResponse:
    """Send a GET request on a new connection. Proxies that the environment names are not used."""
    options: dict[str, Any] = {"ca_certs": str(authority)} if authority else {}
    with urllib3.PoolManager(retries=False, timeout=timeout, **options) as pool:
        return pool.request("GET", url)


def answers(url: str, authority: Path | None = None) -> bool:
    """Return whether a probe succeeds. A closed port counts as a failure."""
    try:
        return fetch(url, authority, SHORT_TIMEOUT).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def samples(text: str) -> dict[str, float]:
    """Return the values of a Prometheus text, keyed by `name{label="value"}`."""
    matches = map(METRIC_LINE.match, text.splitlines())
    return {match[1]: float(match[2]) for match in matches if match}


def total(values: dict[str, float], name: str, **labels: str) -> float:
    """Return the sum of a metric over all samples that have these labels."""
    label_texts = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        value
        for sample, value in values.items()
        if sample.partition("{")[0] == name and all(label in sample for label in label_texts)
    )
