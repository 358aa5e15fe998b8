"""Reviews of the webhook port. Each path applies its rules to the object under review.

    body ──► Review ──► rules of its path (domain/admission) ──► faults or a patch ──► answer

A body that is not a review is an error of the caller and raises Malformed. A refusal is a normal answer.

Until the cluster has been read, queues are unknown. Reviews of objects that need Muster in any case (queues,
groups) are then refused, with a request to try again. Reviews of other objects (Jobs, pods, PodGroups of
other APIs) pass.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec

from extender.api import admission
from extender.domain.admission.faults import Code, Fault, join_faults
from extender.kube.decoding import TOO_DEEP, UNREADABLE, decode_in_part, has_cut_parts, identity
from extender.kube.errors import Ambiguous
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)
T = TypeVar("T")

_NOT_SYNCED = Fault(Code.NOT_NOW, "", "Muster has not finished reading the cluster: try again in a moment")
_UNCHECKED = "Muster has not finished reading the cluster, so the queue was not checked"
_RETRY_SECONDS = 1  # seconds after which the user should try again


class Malformed(ValueError):
    """Error: the body is not an AdmissionReview. The message contains the path of the invalid field."""


class NotKnown(Exception):
    """Error: a rule could not read the API server. The message says why."""


class ReviewOutcome(NamedTuple):
    """Result of the rules of a path."""

    faults: list[Fault] = []  # faults, any of which refuses the object
    patch: list[dict[str, object]] = []  # operations of a JSON patch
    warnings: list[str] = []  # warnings for the user


Rule = Callable[[admission.ReviewRequest], ReviewOutcome]


class Path(NamedTuple):
    """Rules for reviews on one path."""

    rule: Rule
    operations: tuple[str, ...]  # operations that the path accepts
    needs_sync: bool = True  # whether the cluster must have been read first
    is_optional: bool = False  # whether objects pass with a warning until the cluster has been read


class BadObject(ValueError):
    """Error: an object under review lacks the fields of its kind, or has fields of another type."""


class Reviewer:
    """Reviewer of the objects on all paths. Safe to use from any thread."""

    def __init__(self, paths: Mapping[str, Path], is_synced: Callable[[], bool]) -> None:
        self.paths = paths
        self._is_synced = is_synced

    def answer(self, path: str, body: bytes) -> bytes:
        """Return the AdmissionReview that answers `body`.

        Raises:
            Malformed: The body is not an AdmissionReview.
            KeyError: The path is unknown.
        """
        with metrics.count_review(path) as call:
            try:
                review = decode_in_part(admission.review_decoder, body)
            except UNREADABLE as fault:
                call.outcome = "malformed"
                raise Malformed(str(fault)) from fault
            call.outcome = "failed"
            outcome = self._review(self.paths[path], review)
            response = admission.ReviewResponse(
                uid=review.request.uid,
                allowed=not outcome.faults,
                status=_status(outcome.faults) if outcome.faults else None,
                patch=admission.encode(outcome.patch) if outcome.patch else None,
                patch_type="JSONPatch" if outcome.patch else None,
                warnings=outcome.warnings or None,
            )
            call.outcome = "allowed" if response.allowed else "refused"
            return admission.encode(admission.ReviewAnswer(response))

    def _review(self, path: Path, review: admission.Review) -> ReviewOutcome:
        """Return the outcome of a review, also if the rules cannot be applied."""
        request = review.request
        fields = (
            ("apiVersion", review.api_version, admission.API_VERSION),
            ("kind", review.kind, admission.KIND),
        )
        faults = [
            Fault(Code.NOT_READABLE, field, f"invalid value {value!r}: must be {required}")
            for field, value, required in fields
            if value != required
        ]
        if faults:
            return ReviewOutcome(faults)
        if request.operation not in path.operations:
            text = f"invalid value {request.operation!r}: must be one of {', '.join(path.operations)}"
            return ReviewOutcome([Fault(Code.INVALID_OPERATION, "request.operation", text)])
        if path.needs_sync and not self._is_synced():
            return ReviewOutcome(warnings=[_UNCHECKED]) if path.is_optional else ReviewOutcome([_NOT_SYNCED])
        try:
            return path.rule(request)
        except NotKnown as fault:
            text = f"the API server could not be read ({fault}): try again"
            return ReviewOutcome([Fault(Code.NOT_NOW, "", text)])
        except BadObject as fault:
            if _is_being_deleted(request.object):
                return ReviewOutcome()
            return ReviewOutcome([Fault(Code.NOT_READABLE, "request.object", str(fault))])


def _status(faults: list[Fault]) -> admission.Status:
    """Return a Status with causes for programs and a message for users."""
    causes = [admission.Cause(str(fault.code), fault.field, fault.message) for fault in faults]
    if any(fault.code.is_temporary for fault in faults):
        details = admission.Details(causes, _RETRY_SECONDS)
        return admission.Status(503, "ServiceUnavailable", join_faults(faults), details)
    code, reason = (422, "Invalid") if all(fault.code.is_inherent for fault in faults) else (403, "Forbidden")
    return admission.Status(code, reason, join_faults(faults), admission.Details(causes))


def _is_being_deleted(raw: msgspec.Raw) -> bool:
    """Return whether an object is being deleted. Its finalizers have to be removable in any case."""
    with suppress(Ambiguous):
        return identity(raw).deletion_timestamp is not None
    return False


def read(raw: msgspec.Raw, kind: type[T]) -> T:
    """Return an object under review.

    Raises:
        BadObject: The object cannot be read.
    """
    if has_cut_parts(raw):
        raise BadObject(TOO_DEEP)
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as fault:
        raise BadObject(str(fault)) from fault


def read_if_there(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """Return an object under review; None if there is none.

    Raises:
        BadObject: The object cannot be read.
    """
    return None if bytes(raw) in (b"", b"null") else read(raw, kind)
