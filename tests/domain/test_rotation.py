"""Rotation of Muster's own certificate: no API server is ever shown an untrusted one."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from extender.webhooks.certificate_rotation import RotationStep, StoredCertificate, next_step, settle_time
from extender.webhooks.certificates import Validity

NAMES = frozenset({"muster"})
LIFE = 900.0
WHOLE = Validity(0, LIFE)
NEW_CERTIFICATE = StoredCertificate(WHOLE, NAMES)


def step(reserved: StoredCertificate | None, now: float = 0, settled: bool = True) -> RotationStep:
    return next_step(reserved, NAMES, LIFE, now, settled)


def test_a_missing_or_invalid_certificate_is_made_at_once() -> None:
    assert step(None, settled=False) is RotationStep.MAKE
    assert step(NEW_CERTIFICATE, now=LIFE, settled=False) is RotationStep.MAKE
    assert step(NEW_CERTIFICATE, now=-1, settled=False) is RotationStep.MAKE


def test_a_prepared_certificate_that_is_not_valid_is_discarded() -> None:
    for prepared in (Validity(1, LIFE), Validity(-LIFE, 0)):
        assert step(StoredCertificate(WHOLE, NAMES, prepared), settled=False) is RotationStep.PRUNE


def test_the_next_certificate_is_made_when_a_third_of_the_life_is_left() -> None:
    assert step(NEW_CERTIFICATE) is step(NEW_CERTIFICATE, now=LIFE * 2 / 3) is RotationStep.KEEP
    assert step(NEW_CERTIFICATE, now=LIFE * 2 / 3 + 1) is RotationStep.PREPARE


def test_other_names_need_another_certificate() -> None:
    assert next_step(NEW_CERTIFICATE, frozenset({"other"}), LIFE, 0, is_settled=False) is RotationStep.PREPARE


def test_a_certificate_is_served_and_dropped_only_after_settling() -> None:
    prepared = StoredCertificate(WHOLE, NAMES, WHOLE)
    switched = StoredCertificate(WHOLE, NAMES, has_extra_authority=True)
    assert [step(prepared, settled=each) for each in (False, True)] == [
        RotationStep.KEEP,
        RotationStep.SWITCH,
    ]
    assert [step(switched, settled=each) for each in (False, True)] == [RotationStep.KEEP, RotationStep.PRUNE]


def test_settling_is_short_compared_with_the_life() -> None:
    assert settle_time(30) == 1
    assert settle_time(90 * 24 * 3600) == 120


@given(st.lists(st.floats(0.1, LIFE / 5), min_size=50, max_size=200))
def test_a_served_certificate_was_trusted_for_long_enough(pauses: list[float]) -> None:
    """Serve a certificate that was trusted `settle` seconds before, however rare the looks.

    It stays trusted while any replica may serve it.
    """
    now, serving, prepared, trusted, since = 0.0, 0, None, {0}, 0.0
    valid = {0: WHOLE}
    history = []
    for pause in pauses:
        now += pause
        extra = bool(trusted - {serving, prepared})
        reserved = StoredCertificate(valid[serving], NAMES, valid[prepared] if prepared else None, extra)
        match step(reserved, now, settled=now - since >= settle_time(LIFE)):
            case RotationStep.MAKE:
                assert now >= valid[serving].end
                serving, prepared, trusted = serving + 1, None, {serving + 1}
                valid[serving] = Validity(now, now + LIFE)
            case RotationStep.PREPARE:
                prepared = serving + 1
                valid[prepared] = Validity(now, now + LIFE)
                trusted = trusted | {prepared}
            case RotationStep.SWITCH:
                assert prepared is not None
                serving, prepared = prepared, None
            case RotationStep.PRUNE:
                trusted = {serving}
            case RotationStep.KEEP:
                continue
        since = now
        history.append((now, serving, frozenset(trusted)))
    for (_, was, trusted_before), (_, served, trusted_now) in pairwise(history):
        assert served in trusted_now
        if served != was and was in trusted_now:
            assert served in trusted_before
