"""Files of the repository that an installed Muster needs as well.

They are links to the places where people look for them; a wheel contains the files themselves.
"""

from pathlib import Path

_HERE = Path(__file__).parent
EXAMPLE = (_HERE / "first-gang.yaml").resolve()
RIGHTS = tuple((_HERE / name).resolve() for name in ("rbac.yaml", "rbac-webhooks.yaml"))
_OURS = ("queues", "resource-flavors", "local-queues", "podgroups", "commands", "elastic-quota-trees")
_KINDS = (*_OURS, "volcano-jobs", "volcano-cron-jobs")
CRDS = tuple((_HERE / f"crd-{name}.yaml").resolve() for name in _KINDS)
