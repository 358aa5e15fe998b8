"""CRDs of operators, read from their releases."""

from typing import Any, NamedTuple

import yaml

from tests.e2e import build

Json = dict[str, Any]
MODULE = build.MODULES / build.DEFAULT


class Release(NamedTuple):
    """Go module of an operator, and the folder of the module with the CRDs."""

    module: str
    crds: str

    def crd(self, group: str, kind: str) -> Json:
        """Return the CRD of a kind.

        The files are large, so only files with the name of the kind are parsed.
        """
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        folder = build.sources(self.module, MODULE) / self.crds
        texts = [path.read_text() for path in folder.glob("*.yaml")]
        documents = [
            document
            for text in texts
            if f"kind: {kind}" in text
            for document in yaml.load_all(text, Loader=loader)
        ]
        (crd,) = (
            candidate
            for candidate in documents
            if candidate
            and candidate["kind"] == "CustomResourceDefinition"
            and (candidate["spec"]["group"], candidate["spec"]["names"]["kind"]) == (group, kind)
        )
        return dict(crd)
