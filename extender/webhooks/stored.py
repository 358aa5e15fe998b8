"""The certificate as it lies in its Secret: tls.crt and tls.key are served, ca.crt is whom to trust, and
next.crt and next.key wait for their turn.
"""

from extender.api.objects import Wire
from extender.domain.admission.rotation import Kept, RotationStep
from extender.webhooks.certificates import Pair, Unreadable, expiry, make_pair, names, split, vouches

Data = dict[str, bytes]


class Stored(Wire, frozen=True):
    """`trusted`: the CAs of both pairs, and those of pairs that may still be served somewhere."""

    serving: Pair
    prepared: Pair | None
    trusted: tuple[bytes, ...]

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
    """None when it is not what we store, whatever else it is."""
    try:
        trusted = split(data["ca.crt"])
        serving = _pair(data, "tls", trusted)
        prepared = _pair(data, "next", trusted) if "next.crt" in data else None
        found = Stored(serving, prepared, trusted)
        _ = found.kept  # whatever is needed of it can be read
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
    step: RotationStep, stored: Stored | None, whom: frozenset[str], lifetime: float, now: float
) -> Stored:
    """What is to be stored instead, after one step of rotation.py."""
    if stored is None or step is RotationStep.MAKE:
        made = make_pair(sorted(whom), lifetime, now)
        return Stored(made, None, (made.authority,))
    if step is RotationStep.PREPARE:
        made = make_pair(sorted(whom), lifetime, now)
        return Stored(stored.serving, made, (*stored.trusted, made.authority))
    if step is RotationStep.SWITCH and stored.prepared:
        return Stored(stored.prepared, None, stored.trusted)
    if step is RotationStep.PRUNE:
        return Stored(stored.serving, None, (stored.serving.authority,))
    return stored
