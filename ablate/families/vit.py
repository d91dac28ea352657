"""ViT and DeiT, from timm.

A backbone is given by timm's name, or declared by patch size, width, depth and heads as
family `vit`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ablate.errors import Infeasible
from ablate.factors.factor import Branch, Dimensions
from ablate.families import timm_models
from ablate.families.family import BlockPlace, Family, TwoNorms
from ablate.families.places import plain_places

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.backbones.features import FeatureMaps

NAME = "vit"

# The defaults of a declared `vit`; width, depth and heads have none.
DECLARED = Dimensions(patch_size=16, mlp_ratio=4.0, pool="token")


@cache
def _plain(name: str) -> Any:
    """Returns the backbone without weights.

    Raises Infeasible if it is not a plain pre-norm ViT, because a factor would then
    attach to something else.
    """
    from timm.models.vision_transformer import Attention, Block, Mlp, VisionTransformer

    model = timm_models.unmodified(name)
    if not isinstance(model, VisionTransformer) or any(
        type(block) is not Block
        or type(block.mlp) is not Mlp
        or type(block.attn) is not Attention
        for block in model.blocks
    ):
        raise Infeasible(
            f"backbone {name} is not made of plain pre-norm blocks (norm, MSA, norm,"
            " MLP), so factors have no place in it"
        )
    return model


@cache
def dimensions(name: str) -> Dimensions:
    if name == NAME:
        return DECLARED
    model = _plain(name)
    patch_size = model.patch_embed.patch_size[0]
    plain = timm_models.plain_dimensions(patch_size, model.embed_dim, model.blocks)
    return replace(plain, pool=_pool(model))


def _pool(model: Any) -> str:
    """Returns the level of `size.pool` that a model of timm has."""
    from timm.models.deit import VisionTransformerDistilled

    if isinstance(model, VisionTransformerDistilled):
        return "distilled"
    if model.global_pool == "token":
        return "token"
    if model.global_pool != "avg":
        return str(model.global_pool)
    if type(model.norm).__name__ == "Identity":
        return "mean"
    return "norm-mean"


def image_size(name: str) -> int:
    """Returns the side of the input that the backbone was made for.

    A declared backbone accepts any side.
    """
    if name == NAME:
        return 224
    return int(_plain(name).patch_embed.img_size[0])


def _refuse(numbers: Dimensions, image_size: int) -> None:
    """Raises Infeasible if no ViT can have these numbers."""
    if min(numbers.width, numbers.depth, numbers.heads) < 1:
        raise Infeasible("backbone vit needs size.width, size.depth and size.heads")
    if numbers.width % numbers.heads:
        raise Infeasible(
            f"size.heads = {numbers.heads} does not divide size.width = {numbers.width}"
        )
    if image_size % numbers.patch_size:
        raise Infeasible(
            f"patch size {numbers.patch_size} does not divide the image size"
            f" {image_size}; set data.image_size or size.patch_size"
        )
    if numbers.drop_path and numbers.depth == 1:
        raise Infeasible(
            "drop.path is 0 in the first block and rises linearly in the blocks after"
            " it; with size.depth = 1, it has no effect"
        )


def create(
    name: str, image_size: int, channels: int, classes: int, numbers: Dimensions
) -> nn.Module:
    """Returns timm's model with the wanted numbers.

    Numbers that equal the backbone's own are not passed to timm.
    """
    from timm.models.vision_transformer import VisionTransformer

    _refuse(numbers, image_size)
    unmodified = dimensions(name)
    arguments: dict[str, Any] = {"img_size": image_size}
    # What equals the backbone's own is left to timm, so that a cell without edits is
    # timm's own network.
    timm_names = {
        "patch_size": "patch_size",
        "width": "embed_dim",
        "depth": "depth",
        "heads": "num_heads",
        "mlp_ratio": "mlp_ratio",
    }
    for ours, theirs in timm_names.items():
        if name == NAME or getattr(numbers, ours) != getattr(unmodified, ours):
            arguments[theirs] = getattr(numbers, ours)
    if name == NAME or numbers.pool != unmodified.pool:
        arguments |= _pooling(name, numbers.pool)
    # A rate of 0 is what timm has without the argument.
    rates = timm_models.rates(numbers, "pos_drop_rate", "proj_drop_rate")
    if numbers.head_dropout:
        rates["drop_rate"] = numbers.head_dropout
    arguments |= {rate: value for rate, value in rates.items() if value}
    made: nn.Module
    if name == NAME:
        made = VisionTransformer(in_chans=channels, num_classes=classes, **arguments)
    else:
        made = timm_models.create(name, channels, classes, **arguments)
    if numbers.pool == "distilled" != unmodified.pool:
        _add_distillation_token(made, name)
    return made


def _add_distillation_token(model: Any, name: str) -> None:
    """Adds a distillation token and its head to a ViT with a class token.

    They are initialised as in DeiT.
    """
    import torch
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer
    from torch import nn

    if (
        type(model) is not VisionTransformer
        or model.num_prefix_tokens != 1
        or model.pos_embed is None
    ):
        raise Infeasible(
            f"size.pool = distilled: {name} is not a plain ViT with a class token and"
            " learned positions"
        )
    with torch.random.fork_rng(devices=[]):
        # The token has random draws of its own, so that with equal seeds the factors'
        # new weights start as they do without the token.
        torch.manual_seed(torch.initial_seed() + 1)
        token, position = nn.init.trunc_normal_(
            torch.empty(2, 1, 1, model.embed_dim), std=0.02
        ).unbind()
        head = nn.Linear(model.embed_dim, model.num_classes)
        nn.init.trunc_normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)
    if not model.no_embed_class:
        before = model.pos_embed.detach()
        model.pos_embed = nn.Parameter(
            torch.cat((before[:, :1], position, before[:, 1:]), dim=1)
        )
    # This class has the parts of the plain one, and reads these as well.
    model.__class__ = VisionTransformerDistilled
    model.dist_token = nn.Parameter(token)
    model.head_dist = head
    model.num_prefix_tokens = 2
    model.distilled_training = False


def _pooling(name: str, pool: str) -> dict[str, Any]:
    """Returns timm's arguments for a pooling.

    Without the class token, patch tokens are averaged before or after the norm.
    """
    if name != NAME and "distilled" in name:
        raise Infeasible(
            f"size.pool = {pool}: {name} classifies with two heads, each on its own"
            " token, so its pooling cannot change; leave size.pool out"
        )
    if pool in ("token", "distilled"):
        return {"class_token": True, "global_pool": "token"}
    return {"class_token": False, "global_pool": "avg", "fc_norm": pool == "mean"}


def blocks(model: nn.Module) -> list[BlockPlace]:
    vit: Any = model
    return plain_places(
        vit.blocks, vit.patch_embed.grid_size, prefix=vit.num_prefix_tokens
    )


class Algebra(TwoNorms):
    @staticmethod
    def mix(block: Any, branch: Branch, normed: Tensor, *context: Any) -> Tensor:
        mixed: Tensor
        if branch == "msa":
            mixed = block.drop_path1(block.ls1(block.attn(normed)))
        else:
            mixed = block.drop_path2(block.ls2(block.mlp(normed)))
        return mixed


def editable(attention: nn.Module) -> type[nn.Module]:
    from ablate.backbones.editable import EditableViTAttention

    return EditableViTAttention


def leave_out(model: nn.Module, added: int) -> None:
    from ablate.backbones.editable import leave_out_of_mean

    leave_out_of_mean(model, added)


def features(model: nn.Module, side: int, free: bool) -> FeatureMaps:
    from ablate.backbones.features import PlainMap

    return PlainMap(model, side)


FAMILY = Family(
    name=NAME,
    about="ViT and DeiT, from timm",
    members=lambda: timm_models.names("vision_transformer", "deit"),
    dimensions=dimensions,
    image_size=image_size,
    create=create,
    blocks=blocks,
    algebra=Algebra,
    features=features,
    leave_out=leave_out,
    editable=editable,
    sizes=frozenset(
        (
            "patch_size",
            "width",
            "depth",
            "heads",
            "mlp_ratio",
            "pool",
            "drop_path",
            "dropout",
            "attention_dropout",
            "head_dropout",
        )
    ),
    declared=True,
)
