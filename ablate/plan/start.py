"""What a space's `pretrained` means for each backbone."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from ablate.errors import CheckpointError, Infeasible
from ablate.records import Start


def find_start(pretrained: str, backbone: str) -> Start | None:
    """What a space's `pretrained` means for a backbone; None for an empty one.

    Raises:
        Infeasible: timm publishes no weights for the backbone.
        CheckpointError: there is no such file.
    """
    if not pretrained:
        return None
    if pretrained == "timm":
        from timm.models import get_pretrained_cfg, is_model, is_model_pretrained

        if not is_model(backbone) or not is_model_pretrained(backbone):
            raise Infeasible(f"timm publishes no weights for {backbone}; name a checkpoint file: pretrained: FILE.pth")
        configuration: Any = get_pretrained_cfg(backbone)
        return Start(f"timm {backbone}.{configuration.tag}")
    file = Path(pretrained)
    if not file.is_file():
        raise CheckpointError(f"pretrained: no file {file}")
    status = file.stat()
    return Start(f"sha256 {_file_hash(file.resolve(), status.st_mtime_ns, status.st_size)}", str(file.resolve()))


@lru_cache(maxsize=16)
def _file_hash(file: Path, changed: int, size: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:20]
