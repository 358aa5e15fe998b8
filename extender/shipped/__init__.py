"""Files of the repository that an installed Muster needs as well.

They are links to the places where users look for them; a wheel contains the files themselves.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
EXAMPLE = (_HERE / "first-gang.yaml").resolve()
RIGHTS = tuple((_HERE / name).resolve() for name in ("rbac.yaml", "rbac-webhooks.yaml"))
_OURS = ("queues", "resource-flavors", "local-queues", "podgroups", "topologies", "commands")
_KINDS = (*_OURS, "elastic-quota-trees", "volcano-jobs", "volcano-cron-jobs")
CRDS = tuple((_HERE / f"crd-{name}.yaml").resolve() for name in _KINDS)


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the objects in these files.

    Libyaml reads them ten times as fast as Python, and may be missing.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    texts = (path.read_text(encoding="utf-8") for path in paths)
    return [document for text in texts for document in yaml.load_all(text, loader) if document]
