"""Stand-in for an API server with tokens and rights, which counts requests."""

from collections import Counter
from dataclasses import dataclass, field

from extender.domain.admission.access import Subject
from extender.kube.access import Right
from extender.kube.errors import Unreachable

ANN, BOB = Subject("ann", groups=("team",)), Subject("bob", groups=("team",))


@dataclass
class Authority:
    tokens: dict[str, Subject] = field(default_factory=lambda: {"of-ann": ANN, "of-bob": BOB})
    rights: set[tuple[str, str, str]] = field(default_factory=set)  # user, verb, namespace
    asked: Counter[object] = field(default_factory=Counter)
    answers: bool = True

    def owner_of(self, token: str) -> Subject | None:
        self._count("token")
        return self.tokens.get(token)

    def grants(self, user: Subject, right: Right) -> bool:
        self._count((user.user, right.namespace))
        return (user.user, right.verb, right.namespace) in self.rights

    def _count(self, request: object) -> None:
        if not self.answers:
            raise Unreachable("10.0.0.1: timed out")
        self.asked[request] += 1
