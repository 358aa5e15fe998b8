"""What commands read off certificates, and the Secrets that workloads mount them from."""

import base64

from extender.api.durations import rounded
from extender.cli.check.findings import at
from extender.cli.output import Json


def secret_mounted_at(folder: str, spec: Json, container: Json) -> str:
    """The name of the Secret that a container has at `folder`; empty where there is none."""
    volumes = {each["name"] for each in container.get("volumeMounts", ()) if each["mountPath"] == folder}
    found = (each for each in spec.get("volumes", ()) if each["name"] in volumes)
    return next((at(each, "secret", "secretName") or "" for each in found), "")


def part_of(secret: Json | None, name: str) -> bytes:
    """One file of a Secret; empty where it lacks it. Raises ValueError."""
    return base64.b64decode(at(secret, "data", name) or "")


def expiries(pem: bytes) -> list[float]:
    """When each certificate ends, in seconds since 1970. Raises ValueError."""
    from extender.webhooks.certificates import expiry, split

    return [expiry(each) for each in split(pem)]


def ends(left: float) -> str:
    return "has expired" if left <= 0 else f"expires in {rounded(int(left))}"
