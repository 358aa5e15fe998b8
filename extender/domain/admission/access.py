"""The right to use a restricted queue: the RBAC verb `use` on the queue.

Either the user or the service account of the pods must have the right. Pods of Deployments and Jobs of
CronJobs are created by controllers that act for all users: for these only the service account counts. Pods
that the Job controller creates are not reviewed again.
"""

import msgspec

from extender.api.admission import NewPod, UserInfo
from extender.domain.admission.faults import Code, Fault
from extender.domain.admission.submission import Destination

ACCOUNTS = "system:serviceaccount:"
_CONTROLLERS = "system:serviceaccounts:kube-system"
_CONTROLLER_MANAGER = "system:kube-controller-manager"


class Subject(msgspec.Struct, frozen=True):
    """A user or service account, as a SubjectAccessReview names it."""

    user: str  # its name
    uid: str = ""  # empty if unknown, as for a service account
    groups: tuple[str, ...] = ()  # sorted
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # extra fields of the authenticator, sorted by key


def subject(user: UserInfo) -> Subject:
    extra = {key: tuple(values) for key, values in sorted((user.extra or {}).items())}
    return Subject(user.username, user.uid, tuple(sorted(user.groups or ())), tuple(extra.items()))


def service_account(namespace: str, name: str) -> Subject:
    groups = ("system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Subject(f"system:serviceaccount:{namespace}:{name or 'default'}", groups=groups)


def asked_about_pod(pod: NewPod, user: UserInfo) -> tuple[Subject, ...]:
    """Return the subjects of which one must have the right to use the queue.

    The result is empty for a pod that the cluster's own controllers create for a Job, which was reviewed
    when it was created; a user may write any group into a Deployment's template. Owner references count
    only if those controllers wrote them, since any user can write them.
    """
    owner = pod.controller
    of_job = owner is not None and (owner.kind, owner.api_version.partition("/")[0]) == ("Job", "batch")
    return () if of_job and acts_for_all(user) else asked_about_template(pod, user)


def asked_about_template(pod: NewPod, user: UserInfo) -> tuple[Subject, ...]:
    """Return the subjects of a Job. The rights of a controller that acts for all users do not count."""
    account = service_account(pod.metadata.namespace, pod.spec.service_account_name)
    return (account,) if acts_for_all(user) else (subject(user), account)


def acts_for_all(user: UserInfo) -> bool:
    return _CONTROLLERS in (user.groups or ()) or user.username == _CONTROLLER_MANAGER


def acts_for_owners(user: UserInfo, namespace: str) -> bool:
    """Return whether an account creates objects on behalf of their owners.

    Such accounts are the cluster's controllers, and operators: accounts of other namespaces.
    """
    is_account, own = user.username.startswith(ACCOUNTS), f"{ACCOUNTS}{namespace}:"
    return acts_for_all(user) or (is_account and not user.username.startswith(own))


def not_granted(to: Destination, subjects: tuple[Subject, ...]) -> Fault:
    names = " nor ".join(repr(subject.user) for subject in subjects)
    cannot = f"neither {names} may use it" if len(subjects) > 1 else f"{names} may not use it"
    remedy = f"grant the verb use on queues.scheduling.volcano.sh {to.queue!r} by RBAC, or name another queue"
    return Fault(Code.USE_NOT_GRANTED, to.field, f"queue {to.queue!r} is restricted and {cannot}: {remedy}")


def pods_not_reviewed(to: Destination, pods: int) -> Fault:
    """Return the fault of a group whose pods were created before it.

    At their creation, the use of this queue was unknown and not reviewed. The message counts the pods without
    their names, because the caller may not be the API server.
    """
    text = (
        f"queue {to.queue!r} is restricted, and pods that named this group before it existed are waiting "
        f"({pods}), so their permission was not checked: delete them, create the group, then its pods"
    )
    return Fault(Code.PODS_NOT_REVIEWED, to.field, text)


def not_known(to: Destination, why: str) -> Fault:
    text = f"queue {to.queue!r} is restricted, and the permission to use it could not be checked ({why}): "
    text += "try again"
    return Fault(Code.NOT_NOW, to.field, text)
