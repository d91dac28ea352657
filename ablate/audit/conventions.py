"""Ways of counting a network's parameters and FLOPs.

Each way is a named function from an architecture to a number. Papers count with
different tools. `COUNTS` has the ways that explain a whole printed table, each with its
source. The first way of each cost, `all` and `executed`, is the one that this package
reports elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ablate import families
from ablate.cost.count import (
    by_operator,
    count,
    model_and_image,
    module_flops,
    parameters,
)
from ablate.cost.rules import ELEMENTWISE, FREE, MATRIX, OTHER, Handle, elements
from ablate.errors import Infeasible, UnknownName, unknown
from ablate.factors.factor import Dimensions
from ablate.families import timm_models
from ablate.records import Architecture, Cost

CostName = Literal["params", "FLOPs"]

# How `ablate cost` counts: every parameter, and every operator that runs, by fvcore's
# rules.
DEFAULTS: Mapping[CostName, str] = {"params": "all", "FLOPs": "executed"}


@dataclass(frozen=True)
class Count:
    """One way of counting.

    Attributes:
        name: the name that a published table uses.
        cost: what it counts.
        about: what the number includes, in one sentence.
        source: where the way of counting comes from.
        number: the function.
    """

    name: str
    cost: CostName
    about: str
    source: str
    number: Callable[[Architecture], float]


def all_parameters(architecture: Architecture) -> float:
    """Counts every parameter of the network."""
    return parameters(architecture)


def parameters_of_layers(architecture: Architecture) -> float:
    """Counts the parameters of modules without children.

    Class token, position embedding, layer scale and Swin's position bias belong to
    modules with children, so they are left out.
    """
    model, _ = model_and_image(architecture)
    total = 0
    for module in model.modules():
        if any(module.children()):
            continue
        for parameter in module.parameters(recurse=False):
            total += parameter.numel()
    return total


def executed(cost: Cost) -> float:
    """Counts every operator that runs, by fvcore's rules, without elementwise ones."""
    return cost.flops


def matrix(cost: Cost) -> float:
    """Counts convolutions, linear layers and matrix products.

    Circulant projections count by their paper's formula.
    """
    return cost.flops_paper


def every_operation(cost: Cost) -> float:
    """Counts every operator that runs, with one operation per elementwise output."""
    return cost.flops + cost.elementwise


def modules_and_norms(architecture: Architecture) -> float:
    """Counts linear and convolution modules, and two operations per element of a norm.

    Products of tensors, as in attention, and convolutions that are not modules are left
    out.
    """
    model, image = model_and_image(architecture)
    normed = 0

    def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal normed
        normed += output.numel()

    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d | nn.GroupNorm):
            module.register_forward_hook(add)
    with torch.no_grad():
        model(image)
    return module_flops(architecture) + 2 * normed


def mmcv(architecture: Architecture) -> float:
    """Counts as the flops counter of mmcv 1.2.7 does, which hooks modules.

    It counts linear layers without their biases, convolutions with them, two operations
    per element of a batch norm, one per element of a ReLU, and one per element that is
    pooled. It has no rule for layer norms. Products of tensors, as in attention, are
    left out.
    """
    model, image = model_and_image(architecture)
    total = 0

    def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        if inputs:
            # The counter's hooks see no arguments that are passed by name.
            total += _mmcv_rule(module, inputs[0], output)

    for module in model.modules():
        if not any(module.children()):
            module.register_forward_hook(add)
    with torch.no_grad():
        model(image)
    return float(total)


def _mmcv_rule(module: nn.Module, image: Tensor, output: Tensor) -> int:
    counted = 0
    if isinstance(module, nn.Linear):
        counted = output.numel() * module.in_features
    elif isinstance(module, nn.ConvTranspose2d):
        positions = image.numel() // image.shape[1]
        counted = positions * module.weight.numel() + _bias(module, output)
    elif isinstance(module, nn.Conv2d):
        positions = output.numel() // output.shape[1]
        counted = positions * module.weight.numel() + _bias(module, output)
    elif isinstance(module, nn.BatchNorm2d):
        counted = 2 * output.numel()
    elif isinstance(module, nn.ReLU):
        counted = output.numel()
    elif isinstance(module, nn.AdaptiveAvgPool2d | nn.AvgPool2d | nn.MaxPool2d):
        counted = image.numel()
    return counted


def _bias(module: nn.Conv2d | nn.ConvTranspose2d, output: Tensor) -> int:
    if module.bias is None:
        return 0
    return output.numel()


_NORMS = frozenset(("aten::layer_norm", "aten::group_norm", "aten::batch_norm"))
_MEANS = frozenset(("aten::mean", "aten::avg_pool2d", "aten::adaptive_avg_pool2d"))
# torch's addcmul is a product with a sum.
_PRODUCTS = frozenset(("aten::mul", "aten::mul_", "aten::addcmul"))


def torchprofile(architecture: Architecture) -> float:
    """Counts as torchprofile 0.0.4 does.

    It counts convolutions, linear layers and matrix products, and one operation per
    output element of a norm, a mean or pooling, or an elementwise product. Attention
    multiplies its logits by their scale, one product per logit, even if the call is
    fused.
    """
    model, image = model_and_image(architecture)
    names = (*MATRIX, *OTHER, *ELEMENTWISE)
    handles: dict[str, Handle | None] = {
        name: partial(_torchprofile_rule, name) for name in names
    }
    counted = by_operator(model, image, handles | dict.fromkeys(FREE))
    return float(sum(counted.values()))


def _torchprofile_rule(
    name: str, inputs: list[Any], outputs: list[Any]
) -> Counter[str]:
    if name in MATRIX:
        counted = MATRIX[name](inputs, outputs)
        number = float(
            sum(counted.values()) if isinstance(counted, Counter) else counted
        )
        return Counter({name: number + _logits(name, inputs)})
    if name in _NORMS or name in _MEANS or name in _PRODUCTS:
        return Counter({name: elements(outputs[0])})
    return Counter()


def _logits(name: str, inputs: list[Any]) -> int:
    """Returns the number of logits of a fused attention."""
    if name != "aten::scaled_dot_product_attention":
        return 0
    width = inputs[0].type().sizes()[-1]
    return int(elements(inputs[0]) // width * inputs[1].type().sizes()[-2])


def antioversmoothing(architecture: Architecture) -> float:
    """Counts as the `flops` methods of the anti-oversmoothing paper's models do.

    There is one operation per multiply-add, one per element of a norm and of a layer
    scale, one per logit for AttnScale, and two per element for FeatScale. The tokens of
    ViT and CaiT are the patches alone, without the class token. Swin's last norm counts
    four times.

    Raises:
        Infeasible: the paper has no such backbone.
    """
    family = families.find(architecture.backbone).name
    forms = {"vit": _vit_flops, "cait": _cait_flops, "swin": _swin_flops}
    if family not in forms:
        raise Infeasible(
            "the paper anti-oversmoothing counts the FLOPs of ViT, CaiT and Swin, not"
            f" those of {architecture.backbone}"
        )
    return forms[family](architecture)


def _block_flops(
    architecture: Architecture, tokens: int, width: int, heads: int, keys: int
) -> int:
    """Counts one block: attention over `keys` tokens, an MLP of ratio 4, and two norms.

    The scalings that are on count too.
    """
    logits = heads * tokens * keys
    products = 12 * tokens * width**2 + 2 * tokens * keys * width
    scaled = logits if architecture.settings.get("attnscale") else 0
    if architecture.settings.get("featscale", "none") != "none":
        features = 2 * tokens * width
    else:
        features = 0
    return products + 2 * tokens * width + scaled + features


def _dimensions(architecture: Architecture) -> Dimensions:
    dimensions = families.find(architecture.backbone).dimensions(architecture.backbone)
    depth = int(architecture.settings.get("size.depth", dimensions.depth))
    return Dimensions(
        patch_size=dimensions.patch_size,
        width=dimensions.width,
        depth=depth,
        heads=dimensions.heads,
    )


def _ends_flops(architecture: Architecture, dimensions: Dimensions, tokens: int) -> int:
    """Counts patch embedding, last norm and classifier."""
    embedding = (
        tokens * dimensions.width * architecture.channels * dimensions.patch_size**2
    )
    return (
        embedding + tokens * dimensions.width + dimensions.width * architecture.classes
    )


def _vit_flops(architecture: Architecture) -> float:
    dimensions = _dimensions(architecture)
    tokens = (architecture.image_size // dimensions.patch_size) ** 2
    block = _block_flops(
        architecture, tokens, dimensions.width, dimensions.heads, tokens
    )
    return dimensions.depth * block + _ends_flops(architecture, dimensions, tokens)


def _cait_flops(architecture: Architecture) -> float:
    dimensions = _dimensions(architecture)
    tokens = (architecture.image_size // dimensions.patch_size) ** 2
    talking = 2 * dimensions.heads**2 * tokens**2
    layer_scales = 2 * tokens * dimensions.width
    block = (
        _block_flops(architecture, tokens, dimensions.width, dimensions.heads, tokens)
        + talking
        + layer_scales
    )
    # Queries, output and MLP are of the class token alone, keys and values of the
    # patches; there are two norms and two layer scales.
    class_block = (
        10 * dimensions.width**2
        + 2 * tokens * dimensions.width**2
        + 2 * tokens * dimensions.width
        + 4 * dimensions.width
    )
    return (
        dimensions.depth * block
        + 2 * class_block
        + _ends_flops(architecture, dimensions, tokens)
    )


def _swin_flops(architecture: Architecture) -> float:
    swin: Any = timm_models.unmodified(architecture.backbone)
    side = architecture.image_size // swin.patch_embed.patch_size[0]
    width = swin.embed_dim
    # The patch embedding has a norm.
    total = (
        side**2
        * width
        * (architecture.channels * swin.patch_embed.patch_size[0] ** 2 + 1)
    )
    for number, stage in enumerate(swin.layers):
        if number:
            # Patch merging is a norm of the four neighbours and a linear layer from
            # four widths to two.
            total += side**2 * width + (side // 2) ** 2 * 8 * width**2
            side = side // 2
            width = 2 * width
        attention = stage.blocks[0].attn
        keys = math.prod(stage.blocks[0].window_size)
        total += len(stage.blocks) * _block_flops(
            architecture, side**2, width, attention.num_heads, keys
        )
    # For the last norm, the published method divides the first stage's tokens by
    # 2^stages, although the side has been halved only three times.
    first = architecture.image_size // swin.patch_embed.patch_size[0]
    total += width * first**2 // 2 ** len(swin.layers) + width * architecture.classes
    return float(total)


def _counted(number: Callable[[Cost], float]) -> Callable[[Architecture], float]:
    return lambda architecture: number(count(architecture))


# The ways of counting that need only the result of one trace.
OF_COST: Mapping[str, Callable[[Cost], float]] = {
    "executed": executed,
    "matrix": matrix,
    "every operation": every_operation,
}

COUNTS: Mapping[str, Count] = {
    way.name: way
    for way in (
        Count(
            name="all",
            cost="params",
            about="every parameter",
            source="this package",
            number=all_parameters,
        ),
        Count(
            name="layers",
            cost="params",
            about="parameters of modules without children: no class token, no position"
            " embedding, no layer scale",
            source="counters that hook layers, as thop",
            number=parameters_of_layers,
        ),
        Count(
            name="executed",
            cost="FLOPs",
            about="every operator that runs, by fvcore's rules",
            source="this package",
            number=_counted(executed),
        ),
        Count(
            name="matrix",
            cost="FLOPs",
            about="convolutions, linear layers and matrix products; circulant projections by"
            " the text's formula",
            source="augmented-shortcuts, section 3.2",
            number=_counted(matrix),
        ),
        Count(
            name="every operation",
            cost="FLOPs",
            about="every operator that runs, elementwise ones included",
            source="this package: executed and elementwise",
            number=_counted(every_operation),
        ),
        Count(
            name="modules and norms",
            cost="FLOPs",
            about="linear and convolution modules, and two operations an element of a norm"
            " module; no products of tensors",
            source="counters that hook modules, as mmcv's, which LVT's repository names",
            number=modules_and_norms,
        ),
        Count(
            name="mmcv",
            cost="FLOPs",
            about="linear and convolution modules, batch norms, ReLUs and pooling; no"
            " layer norms and no products of tensors",
            source="mmcv 1.2.7, mmcv/cnn/utils/flops_counter.py",
            number=mmcv,
        ),
        Count(
            name="torchprofile",
            cost="FLOPs",
            about="matrix products, and one operation an element of a norm, a mean and an"
            " elementwise product",
            source="torchprofile 0.0.4, with which IFFN's published main.py counts",
            number=torchprofile,
        ),
        Count(
            name="antioversmoothing",
            cost="FLOPs",
            about="matrix products of the patch tokens, without the class token; one"
            " operation an element of a norm",
            source="the `flops` methods of the models that anti-oversmoothing publishes",
            number=antioversmoothing,
        ),
    )
}


def find(name: str) -> Count:
    """Returns the way of counting of that name. Raises UnknownName if there is none."""
    if name not in COUNTS:
        raise UnknownName(unknown("way of counting", name, tuple(COUNTS)))
    return COUNTS[name]
