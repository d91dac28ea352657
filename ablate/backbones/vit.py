"""ViT and DeiT, from timm: by timm's name, or declared by patch size, width, depth and heads as family `vit`."""

from __future__ import annotations

import inspect
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ablate.backbones.family import BlockPlace, BranchNames, Family
from ablate.errors import Infeasible
from ablate.factors.factor import Dimensions

if TYPE_CHECKING:
    from torch import nn

NAME = "vit"
POOLS = {"token": "token", "avg": "mean"}

# What a declared `vit` has where nothing is said; width, depth and heads must be said.
DECLARED = Dimensions(patch_size=16, width=0, depth=0, heads=0, mlp_ratio=4.0, pool="token")

MSA = BranchNames(norm="norm1", mixer="attn", scale="ls1", drop_path="drop_path1")
MLP = BranchNames(norm="norm2", mixer="mlp", scale="ls2", drop_path="drop_path2")


@cache
def members() -> list[str]:
    """timm's model names that its vision_transformer and deit modules define."""
    import timm

    return [*timm.list_models(module="vision_transformer"), *timm.list_models(module="deit")]


@cache
def _unmodified(name: str) -> nn.Module:
    """The backbone of that name without weights (on the meta device), to read its numbers from."""
    import timm
    import torch

    with torch.device("meta"):
        model: nn.Module = timm.create_model(name, pretrained=False)
    _require_plain(name, model)
    return model


def _require_plain(name: str, model: nn.Module) -> None:
    """Raises Infeasible where a model is no plain pre-norm ViT, so that a factor would attach to something else."""
    from timm.layers.mlp import Mlp
    from timm.models.vision_transformer import Block, VisionTransformer

    if not isinstance(model, VisionTransformer) or any(
        type(block) is not Block or type(block.mlp) is not Mlp for block in model.blocks
    ):
        raise Infeasible(
            f"backbone {name} is not made of plain pre-norm blocks (norm, MSA, norm, MLP), so factors have no place in it"
        )


@cache
def dimensions(name: str) -> Dimensions:
    """The numbers of the unmodified backbone."""
    if name == NAME:
        return DECLARED
    model: Any = _unmodified(name)
    block = model.blocks[0]
    return Dimensions(
        patch_size=model.patch_embed.patch_size[0],
        width=model.embed_dim,
        depth=len(model.blocks),
        heads=block.attn.num_heads,
        mlp_ratio=block.mlp.fc1.out_features / model.embed_dim,
        pool=POOLS.get(model.global_pool, model.global_pool),
    )


def image_size(name: str) -> int:
    """Side of the input that the backbone was made for; a declared one takes any."""
    if name == NAME:
        return 224
    model: Any = _unmodified(name)
    return int(model.patch_embed.img_size[0])


def create(name: str, image_size: int, channels: int, classes: int, wanted: Dimensions) -> nn.Module:
    """timm's model at the wanted numbers; a number that is the backbone's own is left to timm.

    Raises:
        Infeasible: the numbers do not fit together.
    """
    import timm
    from timm.models.vision_transformer import VisionTransformer

    own = dimensions(name)
    if min(wanted.width, wanted.depth, wanted.heads) < 1:
        raise Infeasible("backbone vit needs size.width, size.depth and size.heads")
    if wanted.width % wanted.heads:
        raise Infeasible(f"size.heads = {wanted.heads} does not divide size.width = {wanted.width}")
    if image_size % wanted.patch_size:
        raise Infeasible(
            f"patch size {wanted.patch_size} does not divide the image size {image_size}; set data.image_size or size.patch_size"
        )
    if wanted.drop_path and wanted.depth == 1:
        raise Infeasible("drop.path rises linearly from 0 in the first block; with size.depth = 1 it does nothing")
    arguments: dict[str, Any] = {"in_chans": channels, "num_classes": classes, "img_size": image_size}
    timm_names = {
        "patch_size": "patch_size",
        "width": "embed_dim",
        "depth": "depth",
        "heads": "num_heads",
        "mlp_ratio": "mlp_ratio",
    }
    for ours, theirs in timm_names.items():
        if name == NAME or getattr(wanted, ours) != getattr(own, ours):
            arguments[theirs] = getattr(wanted, ours)
    if name == NAME or wanted.pool != own.pool:
        arguments |= _pooling(name, wanted.pool)
    rates = {"drop_path_rate": wanted.drop_path, "pos_drop_rate": wanted.dropout, "proj_drop_rate": wanted.dropout}
    rates["attn_drop_rate"] = wanted.attention_dropout
    arguments |= {rate: value for rate, value in rates.items() if value}
    model: nn.Module = VisionTransformer(**arguments) if name == NAME else timm.create_model(name, pretrained=False, **arguments)
    return model


def _pooling(name: str, pool: str) -> dict[str, Any]:
    """timm's arguments for a pooling: without the class token, patch tokens are averaged and the norm follows."""
    if pool == "token":
        return {"class_token": True, "global_pool": "token"}
    if name != NAME and "distilled" in name:
        raise Infeasible(f"size.pool = mean: {name} has two heads, each on a token of its own")
    return {"class_token": False, "global_pool": "avg"}


def _norm_like(norm: nn.Module) -> partial[nn.Module]:
    """A maker of norms of the same class and epsilon."""
    keep = {k: getattr(norm, k) for k in ("eps",) if k in inspect.signature(type(norm)).parameters}
    return partial(type(norm), **keep)


def blocks(model: nn.Module) -> list[BlockPlace]:
    """The places of all blocks."""
    vit: Any = model
    return [
        BlockPlace(
            owner=vit.blocks,
            index=index,
            msa=MSA,
            mlp=MLP,
            width=vit.embed_dim,
            heads=block.attn.num_heads,
            hidden=block.mlp.fc1.out_features,
            grid=vit.patch_embed.grid_size,
            prefix=vit.num_prefix_tokens,
            dropout=block.mlp.drop1.p,
            norm=_norm_like(block.norm1),
        )
        for index, block in enumerate(vit.blocks)
    ]


FAMILY = Family(name=NAME, members=members, dimensions=dimensions, image_size=image_size, create=create, blocks=blocks)
