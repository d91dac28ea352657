"""The networks of heads: what they learn from, and what they give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ablate.data.digit_scenes import DigitScenes
from ablate.heads import heads
from tests.heads.test_feature_maps import SWIN, images, network

DETECTORS = [name for name in heads() if "rcnn" in name or "detr" in name]
SMALL = ["mask-rcnn-small", "detr-small", "upernet-small"]
# Parts that only some images use: masks of a class, and the last layer's own output.
BACKBONES = [SWIN, "pvt_tiny", "deit_tiny_patch16_224"]


def scenes(count: int) -> tuple[Tensor, list[dict[str, Tensor]], Tensor]:
    """Images of three channels with objects and classes."""
    found = [DigitScenes("train", 64)[index] for index in range(count)]
    pixels = torch.stack([one.image for one in found]).float().expand(-1, 3, -1, -1)
    classes = torch.stack([one.classes for one in found])
    return pixels / 64 - 1, [one.objects for one in found], classes


def losses(model: Any, head: str) -> Tensor:
    inputs, objects, classes = scenes(4)
    if head.startswith("upernet"):
        from ablate.learning.segmentation import Step

        step: Tensor = Step(model)(inputs, classes.clamp(max=9))
        return step
    told = model.losses(inputs, [(64, 64)] * 4, objects)
    return torch.stack(list(told.values())).sum()


@pytest.mark.parametrize("head", SMALL)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_parameter_is_read_and_gets_a_finite_gradient(
    backbone: str, head: str
) -> None:
    model = network(backbone, head, 64, 64).train()
    losses(model, head).backward()
    wrong = []
    for name, parameter in model.named_parameters():
        if parameter.grad is None or not parameter.grad.isfinite().all():
            wrong.append(name)
    # Only the last map, or the map of the coarsest scale, is read by DETR.
    allowed = ("cls_token", "norms.0", "norms.1", "norms.2")
    if head != "detr-small":
        allowed = ("cls_token",)
    assert not [
        name
        for name in wrong
        if not name.endswith(allowed)
        and not any(f"{part}." in name for part in allowed)
    ]


@pytest.mark.parametrize("head", ["mask-rcnn-small", "detr-small"])
def test_objects_lie_in_the_padded_image_and_have_known_labels(head: str) -> None:
    model: Any = network("pvt_tiny", head, 64, 96)
    with torch.no_grad():
        found = model(images(64, 96, 2), [(64, 96), (40, 50)])
    for one in found:
        assert one["boxes"].shape == (len(one["scores"]), 4)
        assert ((one["labels"] >= 1) & (one["labels"] <= 10)).all()


def test_padding_changes_nothing_that_detr_sees() -> None:
    """The attention of encoder and decoder leaves it out."""
    model: Any = network("pvt_tiny", "detr-small", 64, 64)
    one = images(64, 64)
    padded = torch.nn.functional.pad(one, (0, 64, 0, 32))
    # The backbone itself looks at the padding, so its map is replaced.
    generator = torch.Generator().manual_seed(2)
    seen = torch.randn(1, 512, 2, 2, generator=generator)
    wide = torch.nn.functional.pad(seen, (0, 2, 0, 1), value=7.0)
    model.features.maps = lambda images: [wide if images.shape[-1] > 64 else seen]
    with torch.no_grad():
        alone = model(one)[0]
        among = model(padded, [(64, 64)])[0]
    torch.testing.assert_close(alone["boxes"], among["boxes"])
    torch.testing.assert_close(alone["scores"], among["scores"])


@pytest.mark.parametrize("head", SMALL)
def test_equal_seeds_give_equal_networks(head: str) -> None:
    first = network("pvt_tiny", head, 64, 64).state_dict()
    second = network("pvt_tiny", head, 64, 64).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
