"""Addresses of a release: registry and URL, which pyproject.toml names, and their forms."""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from extender import __version__

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Forms of addresses: a pattern whose group is the host, and a description of the form.
REGISTRY = r"([a-z0-9.-]+)(?::\d+)?(?:/[a-z0-9._-]+)*", "HOST[:PORT][/PATH] in lower case"
URL = r"https?://([\w.-]+)(?::\d+)?(?:/[\w.~%+-]+)*/?", "http[s]://HOST[:PORT][/PATH]"


class Unusable(Exception):
    """Error: an argument or the environment is wrong, so no file is written. The message is for users."""


class Addresses(NamedTuple):
    """Addresses of this version.

    `registry` is the registry of the image and the chart. `url` is the folder of the files of the release.
    """

    registry: str
    url: str

    @property
    def image(self) -> str:
        """Return the repository of the image."""
        return f"{self.registry}/kube-muster"

    @property
    def charts(self) -> str:
        """Return the folder of charts. `helm push` expects `oci://` in front of this text."""
        return f"{self.registry}/charts"


def settings() -> Addresses:
    """Return the addresses that pyproject.toml names."""
    table = tomllib.loads(PROJECT.read_text())["tool"]["muster-release"]
    return Addresses(table["registry"], f"{table['url']}/v{__version__}")


def addresses(registry: str = "", url: str = "") -> Addresses:
    """Return the addresses of this version; an empty parameter means the address in pyproject.toml.

    Raises:
        Unusable: An address has the wrong form, or is a placeholder.
    """
    defaults = settings()
    result = Addresses(registry or defaults.registry, (url or defaults.url).rstrip("/"))
    for flag, value, form in (("registry", result.registry, REGISTRY), ("url", result.url, URL)):
        if host(f"--{flag}", value, form).endswith(".example"):
            raise Unusable(
                f"--{flag}: invalid value {value!r}: must not be a placeholder; set {flag} in pyproject.toml"
            )
    return result


def host(flag: str, value: str, form: tuple[str, str]) -> str:
    """Return the host of an address. `form` is the pattern of allowed values, and its description.

    Raises:
        Unusable: The address has the wrong form.
    """
    pattern, description = form
    match = re.fullmatch(pattern, value, re.ASCII)
    if match is None:
        raise Unusable(f"{flag}: invalid value {value!r}: must be {description}")
    return match[1]
