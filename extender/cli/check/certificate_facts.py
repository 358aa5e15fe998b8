"""What commands read off certificates, and off the Secrets that hold them."""

import base64

from extender.api.durations import rounded
from extender.cli.check.findings import at
from extender.cli.output import Json


def part_of(secret: Json | None, name: str) -> bytes:
    """One file of a Secret; empty where it lacks it. Raises ValueError."""
    return base64.b64decode(at(secret, "data", name) or "")


def expiries(pem: bytes) -> list[float]:
    """When each certificate ends, in seconds since 1970. Raises ValueError."""
    from extender.webhooks.certificates import expiry, split

    return [expiry(each) for each in split(pem)]


def ends(left: float) -> str:
    return "has expired" if left <= 0 else f"expires in {rounded(int(left))}"
