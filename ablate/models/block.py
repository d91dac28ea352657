"""The pre-norm block algebra: two branches, paths beside them, and how they join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from ablate.backbones.family import BranchNames
from ablate.factors.factor import Join, Path


class PreNormBlock(nn.Module):
    """A block of two branches, token mixer (msa) and channel mixer (mlp).

    A branch is `A(x) = drop_path(scale(mixer(norm(x))))`. Beside it stand the identity shortcut (or nothing) and any number
    of paths, whose sum is P(x). The branches join

        in series:    x <- [x +] A1(x) + P1(x);   x <- [x +] A2(x) + P2(x)
        in parallel:  x <- [x +] A1(x) + P1(x) + A2(x) + P2(x)

    Paths are not subject to the branch's stochastic depth: like the identity, they bypass it.

    The block takes over the modules of the block that it stands for under their own names, so its weights keep their keys.

    Shape:
        input and output (batch, tokens, width).
    """

    def __init__(
        self,
        block: nn.Module,
        msa: BranchNames,
        mlp: BranchNames,
        msa_paths: Sequence[Path],
        mlp_paths: Sequence[Path],
        join: Join,
    ) -> None:
        super().__init__()
        for name, module in block.named_children():
            self.add_module(name, module)
        self._msa, self._mlp, self._join = msa, mlp, join
        self.msa_paths = nn.ModuleList(path.module for path in msa_paths)
        self.mlp_paths = nn.ModuleList(path.module for path in mlp_paths)
        self._reads = {"msa": [path.reads for path in msa_paths], "mlp": [path.reads for path in mlp_paths]}

    def forward(self, x: Tensor) -> Tensor:
        msa = self._residual(x, self._msa, self.msa_paths, self._reads["msa"])
        if self._join.layout == "parallel":
            both = _sum([*msa, *self._residual(x, self._mlp, self.mlp_paths, self._reads["mlp"])])
            return x + both if self._join.identity else both
        x = _sum([x, *msa] if self._join.identity else msa)
        mlp = self._residual(x, self._mlp, self.mlp_paths, self._reads["mlp"])
        return _sum([x, *mlp] if self._join.identity else mlp)

    def _residual(self, x: Tensor, names: BranchNames, paths: nn.ModuleList, reads: Sequence[str]) -> list[Tensor]:
        """The branch's output and those of the paths beside it."""
        part = self._modules
        norm, mixer = cast(nn.Module, part[names.norm]), cast(nn.Module, part[names.mixer])
        scale, drop_path = cast(nn.Module, part[names.scale]), cast(nn.Module, part[names.drop_path])
        normed = norm(x)
        return [
            drop_path(scale(mixer(normed))),
            *(path(normed if read == "norm" else x) for path, read in zip(paths, reads, strict=True)),
        ]


def _sum(terms: Sequence[Tensor]) -> Tensor:
    """Left to right, as timm adds: sums of floats depend on their order."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
