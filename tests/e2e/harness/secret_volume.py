"""Folder of a Secret volume, as a kubelet writes it. Renaming one symbolic link changes all files at once."""

import base64
import tempfile
from pathlib import Path
from typing import Any


def update(secret: dict[str, Any], folder: Path) -> None:
    """Write the content of the Secret into the folder."""
    new_folder = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    for name, value in secret["data"].items():
        (new_folder / name).write_bytes(base64.b64decode(value))
    link = folder / "..data_tmp"
    link.symlink_to(new_folder.name)
    link.rename(folder / "..data")
    for name in secret["data"]:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
