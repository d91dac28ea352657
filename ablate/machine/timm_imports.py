"""Keeps timm from importing wandb.

timm imports wandb, where it is installed, for a training script of its own. That takes
a second, and wandb makes temporary folders that stay if the process is killed or ends by
`os._exit`, as workers do. Any other import of wandb works as before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

# The module of timm that imports wandb.
IMPORTER = "timm.utils.summary"


class _Refusal:
    """A finder that refuses one module to one importer."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> None:
        if name != "wandb":
            return
        spec = getattr(sys.modules.get(IMPORTER), "__spec__", None)
        if getattr(spec, "_initializing", False):
            raise ModuleNotFoundError("timm needs no wandb here", name="wandb")


def refuse_wandb() -> None:
    """Makes later imports of timm in this process leave wandb out."""
    if not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())
