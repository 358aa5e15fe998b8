"""The right to use a restricted queue: the RBAC verb `use` on the queue.

Either the user or the service account of the pods must have the right. Pods of Deployments, and Jobs of
CronJobs, are created by controllers that act for all users. For these, only the service account counts.
Pods that the Job controller creates are not reviewed again.
"""

import msgspec

from extender.api.admission import NewPod, UserInfo
from extender.domain.admission.faults import Code, Fault
from extender.domain.admission.submission import Destination

ACCOUNT_PREFIX = "system:serviceaccount:"
_CONTROLLER_GROUP = "system:serviceaccounts:kube-system"
_MANAGER_USER = "system:kube-controller-manager"


class Subject(msgspec.Struct, frozen=True):
    """User or service account, as a SubjectAccessReview names it."""

    user: str  # name
    uid: str = ""  # empty if unknown, such as for a service account
    groups: tuple[str, ...] = ()  # sorted
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # extra fields of the authenticator, sorted by key


def subject(user: UserInfo) -> Subject:
    extra = {key: tuple(values) for key, values in sorted((user.extra or {}).items())}
    return Subject(user.username, user.uid, tuple(sorted(user.groups or ())), tuple(extra.items()))


def service_account(namespace: str, name: str) -> Subject:
    groups = ("system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Subject(f"system:serviceaccount:{namespace}:{name or 'default'}", groups=groups)


def subjects_of_pod(pod: NewPod, user: UserInfo) -> tuple[Subject, ...]:
    """Return the subjects of which at least one must have the right to use the queue.

    The result is empty for a pod that the cluster's own controllers create for a Job, since the Job was
    reviewed when it was created. The pods of a Deployment are reviewed, since a user can write any PodGroup
    into its template. An owner reference counts only if a controller of the cluster wrote it, since any user
    can write an owner reference.
    """
    owner = pod.controller
    is_of_job = owner is not None and (owner.kind, owner.api_version.partition("/")[0]) == ("Job", "batch")
    return () if is_of_job and is_cluster_controller(user) else subjects_of_template(pod, user)


def subjects_of_template(pod: NewPod, user: UserInfo) -> tuple[Subject, ...]:
    """Return the service account of a pod or Job, and its user, unless the user acts for all users."""
    account = service_account(pod.metadata.namespace, pod.spec.service_account_name)
    return (account,) if is_cluster_controller(user) else (subject(user), account)


def is_cluster_controller(user: UserInfo) -> bool:
    """Return whether a user is one of the cluster's controllers, which act for all users."""
    return _CONTROLLER_GROUP in (user.groups or ()) or user.username == _MANAGER_USER


def acts_for_owners(user: UserInfo, namespace: str) -> bool:
    """Return whether a user creates objects on behalf of their owners.

    Such users are the cluster's controllers, and operators, which are service accounts of other namespaces.
    """
    is_account, own_prefix = user.username.startswith(ACCOUNT_PREFIX), f"{ACCOUNT_PREFIX}{namespace}:"
    return is_cluster_controller(user) or (is_account and not user.username.startswith(own_prefix))


def missing_right_fault(target: Destination, subjects: tuple[Subject, ...]) -> Fault:
    """Return the fault of subjects without the right to use a restricted queue."""
    names, queue = " nor ".join(repr(subject.user) for subject in subjects), repr(target.queue)
    denial = f"neither {names} may use it" if len(subjects) > 1 else f"{names} may not use it"
    remedy = f"grant the verb use on queues.scheduling.volcano.sh {queue} by RBAC, or name another queue"
    return Fault(Code.USE_NOT_GRANTED, target.field, f"queue {queue} is restricted and {denial}: {remedy}")


def unreviewed_pods_fault(target: Destination, pod_count: int) -> Fault:
    """Return the fault of a group whose pods were created before the group.

    When the pods were created, their queue was unknown, so its use was not reviewed. The message has the
    number of pods instead of their names, because the caller may be a user who must not see the names.
    """
    text = (
        f"queue {target.queue!r} is restricted, and pods that named this group before it existed are waiting "
        f"({pod_count}), so their permission was not checked: delete them, create the group, then its pods"
    )
    return Fault(Code.PODS_NOT_REVIEWED, target.field, text)


def unknown_right_fault(target: Destination, cause: str) -> Fault:
    """Return the fault if the right to use a restricted queue could not be checked."""
    text = f"queue {target.queue!r} is restricted, and the permission to use it could not be checked "
    text += f"({cause}): try again"
    return Fault(Code.NOT_NOW, target.field, text)
