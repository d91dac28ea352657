"""The pre-norm block algebra: two branches, paths beside them, and how they join."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from ablate.factors.factor import Branch, Join, Path
from ablate.families.family import Algebra

# What families call the norm before the MLP, the MLP, and its scale.
PARTS_OF_MLP = ("norm2", "mlp", "ls2", "gamma_2", "layer_scale2")


class Arranged(nn.Module):
    """A pre-norm block of two branches, token mixer (msa) and channel mixer (mlp).

    A branch is `A(x) = s(drop_path(scale(mixer(norm(x)))))`, where s are the scales that
    factors add. Beside it are the identity
    shortcut (or nothing) and any number of paths, whose sum is P(x). The branches join

        in series:    x <- r1 ([x +] A1(x) + P1(x));   x <- r2 ([x +] A2(x) + P2(x))
        in parallel:  x <- r1 r2 ([x +] A1(x) + P1(x) + A2(x) + P2(x))

    or the first one is all (a block without MLP). Here r is the product of the paths'
    `rescale`, or 1 without paths. The stochastic depth of a branch does not affect
    paths: like the identity, they bypass it.

    `arrange` gives this forward to a block that a library built. The block stays the
    same object with the same parameters under the same keys, so the library's
    checkpoints still fit.

    Shape:
        those of the block.
    """

    algebra: type[Algebra]
    join: Join
    reads: dict[Branch, list[str]]
    rescale: dict[Branch, float]
    msa_paths: nn.ModuleList
    mlp_paths: nn.ModuleList
    msa_scales: nn.ModuleList
    mlp_scales: nn.ModuleList

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        msa = self._residual(x, "msa", self.msa_paths, self.msa_scales, context)
        if self.join.layout == "parallel":
            mlp = self._residual(x, "mlp", self.mlp_paths, self.mlp_scales, context)
            both = _sum([*msa, *mlp])
            return _times(
                x + both if self.join.identity else both,
                self.rescale["msa"] * self.rescale["mlp"],
            )
        x = _times(_sum([x, *msa] if self.join.identity else msa), self.rescale["msa"])
        if not self.join.mlp:
            return x
        mlp = self._residual(x, "mlp", self.mlp_paths, self.mlp_scales, context)
        return _times(
            _sum([x, *mlp] if self.join.identity else mlp), self.rescale["mlp"]
        )

    def _residual(
        self,
        x: Tensor,
        branch: Branch,
        paths: nn.ModuleList,
        scales: nn.ModuleList,
        context: Sequence[Any],
    ) -> list[Tensor]:
        """Returns the outputs of the branch and of the paths beside it."""
        normed = self.algebra.norm(self, branch, x)
        mixed = self.algebra.mix(self, branch, normed, *context)
        for scale in scales:
            mixed = scale(mixed)
        return [
            mixed,
            *(
                path(normed if read == "norm" else x)
                for path, read in zip(paths, self.reads[branch], strict=True)
            ),
        ]


def arrange(
    block: nn.Module,
    algebra: type[Algebra],
    paths: dict[Branch, list[Path]],
    scales: dict[Branch, list[nn.Module]],
    join: Join,
) -> None:
    """Gives a block paths, scales and another way of joining its branches."""
    block.__class__ = _arranged(type(block))
    assert isinstance(block, Arranged)
    block.algebra, block.join = algebra, join
    block.reads = {}
    block.rescale = {}
    for branch, beside in paths.items():
        block.reads[branch] = [path.reads for path in beside]
        block.rescale[branch] = _product(path.rescale for path in beside)
    block.msa_paths = nn.ModuleList(path.module for path in paths["msa"])
    block.mlp_paths = nn.ModuleList(path.module for path in paths["mlp"])
    block.msa_scales = nn.ModuleList(scales["msa"])
    block.mlp_scales = nn.ModuleList(scales["mlp"])
    if not join.mlp:
        for name in PARTS_OF_MLP:
            if hasattr(block, name):
                delattr(block, name)


_CLASSES: dict[type[nn.Module], type[nn.Module]] = {}


def _arranged(kind: type[nn.Module]) -> type[nn.Module]:
    """Returns the class of such blocks, with the forward of `Arranged`."""
    if kind not in _CLASSES:
        _CLASSES[kind] = type(
            f"Arranged{kind.__name__}", (Arranged, kind), {"__module__": __name__}
        )
    return _CLASSES[kind]


def _product(factors: Iterable[float]) -> float:
    product = 1.0
    for factor in factors:
        product *= factor
    return product


def _times(x: Tensor, factor: float) -> Tensor:
    if factor == 1.0:
        return x
    return x * factor


def _sum(terms: Sequence[Tensor]) -> Tensor:
    """Adds from left to right, as timm does: a sum of floats depends on its order."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
