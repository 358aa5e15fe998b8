"""Whether Muster's account may do what the manifests grant it: each right is asked for by itself."""

from collections.abc import Iterator

from extender.cli.access_reviews import Right
from extender.cli.check.certificates import certificate_in_files
from extender.cli.check.findings import Finding, Installation, fine, some, wrong
from extender.cli.output import Json
from extender.kube.resources import ACCESS_REVIEWS
from extender.shipped import RIGHTS

_ACCOUNT = "muster"


def rights(site: Installation) -> Iterator[Finding]:
    account = account_of(site)
    needed = [each for each in granted(_documents()) if _is_needed(site, each)]
    missing = [each for each in needed if not is_allowed(site, account, each)]
    if not missing:
        yield fine("rights", f"the account {account} has all {len(needed)} that it needs")
        return
    named = some(list(map(str, missing)))
    message = f"the account {account} lacks {len(missing)} of {len(needed)}: {named}"
    yield wrong("rights", message, "kubectl apply -f manifests/rbac.yaml -f manifests/webhooks/rbac.yaml")


def _is_needed(site: Installation, right: Right) -> bool:
    """A certificate that another component makes needs no Secret."""
    return right.resource != "secrets" or not certificate_in_files(site)


def account_of(site: Installation) -> str:
    """The name of Muster's account."""
    return next((each.spec["serviceAccountName"] for each in site.workloads), _ACCOUNT)


def _documents() -> list[Json]:
    import yaml

    texts = (path.read_text(encoding="utf-8") for path in RIGHTS)
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def granted(documents: list[Json]) -> Iterator[Right]:
    """What the roles grant that are bound to Muster's account."""
    roles = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    for each in documents:
        if any(subject["name"] == _ACCOUNT for subject in each.get("subjects", ())):
            role = roles[each["roleRef"]["kind"], each["roleRef"]["name"]]
            for rule in role["rules"]:
                yield from _of_rule(rule, each["metadata"].get("namespace", ""))


def _of_rule(rule: Json, namespace: str) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            plural, _, sub = resource.partition("/")
            for name in rule.get("resourceNames", [""]):
                yield from (Right(verb, group, plural, sub, namespace, name) for verb in rule["verbs"])


def is_allowed(site: Installation, account: str, right: Right) -> bool:
    user = f"system:serviceaccount:{site.namespace}:{account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{site.namespace}", "system:authenticated"]
    spec = {"user": user, "groups": groups, "resourceAttributes": right._asdict()}
    review: Json = {"apiVersion": ACCESS_REVIEWS.version, "kind": "SubjectAccessReview", "spec": spec}
    return bool(site.ask(ACCESS_REVIEWS, review)["status"].get("allowed"))
