"""The README's factor, written by a user into a file of its own, works as it stands
there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ablate import factors, layers, space
from ablate.cost import count
from ablate.errors import Infeasible
from ablate.families import resolve
from ablate.models import build
from ablate.plan import make_plan

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(?:python|yaml)\n(.*?)```", README, re.DOTALL)
LAYER = """
from torch import nn

class Scaled(nn.Module):
    def __init__(self, inner, scale):
        super().__init__()
        self.inner, self.scale = inner, scale

    def forward(self, x):
        return self.scale * self.inner(x)
"""
SIZES = {"size.patch_size": 4, "size.width": 8, "size.depth": 1, "size.heads": 1}


@pytest.fixture
def own_factor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The README's two files, as if they stood in the package."""
    (tmp_path / "factors").mkdir()
    (tmp_path / "layers").mkdir()
    (tmp_path / "factors" / "scale.py").write_text(
        next(block for block in BLOCKS if "FACTOR = " in block)
    )
    (tmp_path / "layers" / "scale.py").write_text(LAYER)
    monkeypatch.setattr(
        factors, "__path__", [*factors.__path__, str(tmp_path / "factors")]
    )
    monkeypatch.setattr(
        layers, "__path__", [*layers.__path__, str(tmp_path / "layers")]
    )
    factors.catalogue.cache_clear()
    factors.parameters.cache_clear()
    yield
    monkeypatch.undo()
    factors.catalogue.cache_clear()
    factors.parameters.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("own_factor")
def test_the_readmes_factor() -> None:
    declared = space.load(
        next(block for block in BLOCKS if "ffn.kernel: [none, 3]" in block), "mine.yaml"
    )
    assert len(make_plan(declared, count).trials) == 4 * 5
    torch.manual_seed(0)
    half = build(resolve("vit", 8, 1, 10, {**SIZES, "scale": 0.5})).blocks[0].mlp
    torch.manual_seed(0)
    whole = build(resolve("vit", 8, 1, 10, SIZES)).blocks[0].mlp
    x = torch.randn(1, 5, 8)
    assert torch.equal(half(x), 0.5 * whole(x))
    with pytest.raises(
        Infeasible, match="ffn and scale each take the feed-forward network's place"
    ):
        build(resolve("vit", 8, 1, 10, {**SIZES, "scale": 0.5, "ffn.kernel": 3}))
