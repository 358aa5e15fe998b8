"""The certificate as stored in its Secret: tls.crt and tls.key are served, ca.crt has the trusted CAs, and
next.crt and next.key are served after the next switch.
"""

from extender.api.objects.base import Wire
from extender.domain.admission.rotation import Kept, RotationStep
from extender.webhooks.certificates import Pair, Unreadable, expiry, make_pair, names, split, vouches

Data = dict[str, bytes]


class Stored(Wire, frozen=True):
    serving: Pair
    prepared: Pair | None  # to be served next
    trusted: tuple[bytes, ...]  # the CAs of both pairs, and of pairs that a replica may still serve

    @property
    def bundle(self) -> bytes:
        return b"".join(self.trusted)

    @property
    def kept(self) -> Kept:
        needed = {each.authority for each in (self.serving, self.prepared) if each}
        return Kept(
            expires=expiry(self.serving.certificate),
            names=names(self.serving.certificate),
            prepared=self.prepared is not None,
            extra=bool(set(self.trusted) - needed),
        )

    @property
    def data(self) -> Data:
        found = {
            "tls.crt": self.serving.certificate,
            "tls.key": self.serving.key,
            "ca.crt": self.bundle,
        }
        if self.prepared:
            found |= {"next.crt": self.prepared.certificate, "next.key": self.prepared.key}
        return found


def read_stored(data: Data) -> Stored | None:
    """None if the data is not what Muster stores."""
    try:
        trusted = split(data["ca.crt"])
        serving = _pair(data, "tls", trusted)
        prepared = _pair(data, "next", trusted) if "next.crt" in data else None
        found = Stored(serving, prepared, trusted)
        _ = found.kept  # raises if a needed field cannot be read
    except (KeyError, Unreadable):
        return None
    return found


def _pair(data: Data, name: str, trusted: tuple[bytes, ...]) -> Pair:
    certificate, key = data[f"{name}.crt"], data[f"{name}.key"]
    for authority in trusted:
        if vouches(authority, certificate, key):
            return Pair(certificate, key, authority)
    raise Unreadable(f"{name}.crt: its key or its CA is missing")


def advanced(
    step: RotationStep, stored: Stored | None, hosts: frozenset[str], lifetime: float, now: float
) -> Stored:
    """What to store instead after one step of domain/admission/rotation.py."""
    if stored is None or step is RotationStep.MAKE:
        made = make_pair(sorted(hosts), lifetime, now)
        return Stored(made, None, (made.authority,))
    if step is RotationStep.PREPARE:
        made = make_pair(sorted(hosts), lifetime, now)
        return Stored(stored.serving, made, (*stored.trusted, made.authority))
    if step is RotationStep.SWITCH and stored.prepared:
        return Stored(stored.prepared, None, stored.trusted)
    if step is RotationStep.PRUNE:
        return Stored(stored.serving, None, (stored.serving.authority,))
    return stored
