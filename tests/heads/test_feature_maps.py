"""Backbones as sources of feature maps, on images of any size."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from ablate import families, heads
from ablate.backbones.features import FeatureMaps
from ablate.errors import Infeasible, UnknownName
from ablate.heads.padding import loss_of_made_up
from ablate.layers.ffn import DepthwiseBlock
from ablate.models import build, build_from
from ablate.records import Settings

SWIN = "swin_tiny_patch4_window7_224"


def network(
    backbone: str,
    head: str,
    height: int,
    width: int,
    settings: Settings | None = None,
) -> nn.Module:
    torch.manual_seed(0)
    return build(
        families.resolve(
            backbone, height, 3, 10, settings or {}, head=head, image_width=width
        )
    ).eval()


def maps_of(model: nn.Module) -> FeatureMaps:
    (found,) = (one for one in model.modules() if isinstance(one, FeatureMaps))
    return found


def images(height: int, width: int, count: int = 1) -> Tensor:
    return torch.randn(
        count, 3, height, width, generator=torch.Generator().manual_seed(1)
    )


@pytest.mark.proof
def test_the_maps_of_swin_are_those_of_timm_where_windows_fill_the_grid() -> None:
    ours = maps_of(network(SWIN, "upernet-small", 224, 448))
    theirs: Any = timm.create_model(
        SWIN, features_only=True, strict_img_size=False, always_partition=True
    ).eval()
    missing = theirs.load_state_dict(
        {
            name.replace("layers.", "layers_"): value
            for name, value in ours.backbone.state_dict().items()
        },
        strict=False,
    )
    assert not missing.missing_keys
    ours.norms = nn.ModuleList(nn.Identity() for _ in ours.widths)
    with torch.no_grad():
        found = ours(images(224, 448))
        expected = theirs(images(224, 448))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.permute(0, 3, 1, 2))


@pytest.mark.parametrize(
    "settings", [{}, {"shortcuts.count": 1}, {"featscale": "image"}]
)
def test_opposite_edges_of_an_image_do_not_see_each_other(settings: Settings) -> None:
    """Also where windows do not fill the grid, as at the published sizes."""
    ours = maps_of(network(SWIN, "upernet-small", 128, 192, settings))
    changed = images(128, 192).clone()
    changed[:, :, -8:] += 1
    if settings:
        # The scales start at zero; then this factor would change nothing.
        for name, parameter in ours.named_parameters():
            if "image_edits" in name:
                nn.init.zeros_(parameter)
    with torch.no_grad():
        before = ours(images(128, 192))[0]
        after = ours(changed)[0]
    difference = (before - after).abs().amax((0, 1, 3))
    assert difference[-1] > 0
    # Two blocks with windows of seven tokens reach fourteen rows at most.
    assert difference[:16].max() == 0


# timm resamples the biases of windows.
@pytest.mark.filterwarnings("ignore::UserWarning:timm.*")
@pytest.mark.filterwarnings("ignore:torch.searchsorted")
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_window_that_is_larger_than_usual_stays_in_all_stages() -> None:
    ours = maps_of(network(SWIN, "upernet-small", 448, 896, {"size.window": 14}))
    swin: Any = ours.backbone
    sizes = {block.window_size for stage in swin.layers for block in stage.blocks}
    assert sizes == {(14, 14)}


@pytest.mark.parametrize("size", [(64, 64), (96, 160)])
def test_the_map_of_a_vit_is_that_of_timm_at_any_size(size: tuple[int, int]) -> None:
    ours = maps_of(network("deit_tiny_patch16_224", "detr-small", *size))
    theirs: Any = timm.create_model(
        "deit_tiny_patch16_224",
        num_classes=0,
        img_size=ours.built_side,
        dynamic_img_size=True,
    ).eval()
    theirs.load_state_dict(ours.backbone.state_dict())
    with torch.no_grad():
        (found,) = ours(images(*size))
        tokens = theirs.forward_features(images(*size))[:, 1:]
    assert found.shape[-2:] == (size[0] // 16, size[1] // 16)
    torch.testing.assert_close(found.flatten(2).transpose(1, 2), tokens)


def test_the_maps_of_pvt_have_four_scales() -> None:
    ours = maps_of(network("pvt_tiny", "upernet-small", 64, 96))
    with torch.no_grad():
        found = ours(images(64, 96))
    assert [tuple(one.shape[1:]) for one in found] == [
        (64, 16, 24),
        (128, 8, 12),
        (320, 4, 6),
        (512, 2, 3),
    ]


def test_a_convolution_over_tokens_sees_the_grid_of_the_image() -> None:
    """Also of an image that has another size than the one before."""
    model = network("pvt_tiny", "upernet-small", 64, 96, {"ffn.kernel": 3})
    first = next(one for one in model.modules() if isinstance(one, DepthwiseBlock))
    seen: list[tuple[int, ...]] = []
    first.conv.register_forward_hook(
        lambda module, inputs, output: seen.append(tuple(output.shape[-2:]))
    )
    with torch.no_grad():
        model(images(64, 96))
        model(images(32, 64))
    assert seen == [(16, 24), (8, 16)]


@pytest.mark.parametrize(
    ("backbone", "settings", "said"),
    [
        (
            "cait_xxs24_224",
            {},
            "head detr is not defined on cait_xxs24_224; it is defined on",
        ),
        ("vit_tiny_patch16_224", {"patch.cosine": 0.5}, "patch is defined on a class"),
        ("vit_tiny_patch16_224", {"drop.head": 0.1}, "drop.head is defined on a class"),
        (
            "vit_tiny_patch16_224",
            {"representation": True},
            "representation is defined on a class",
        ),
    ],
)
def test_what_needs_a_classifier_is_refused_with_the_reason(
    backbone: str, settings: Settings, said: str
) -> None:
    with pytest.raises(Infeasible, match=said):
        network(backbone, "detr", 64, 64, settings)


def test_patches_that_do_not_divide_the_stride_are_refused() -> None:
    with pytest.raises(Infeasible, match="needs a patch size that divides 32; that of"):
        network("vit_small_patch14_dinov2", "detr", 224, 224)


def test_a_map_of_one_place_has_a_coarser_one() -> None:
    model = network("vit_small_patch32_224", "upernet-small", 32, 32)
    with torch.no_grad():
        assert model(images(32, 32)).shape[1] == 10


def test_a_side_that_a_map_cannot_have_is_refused() -> None:
    with pytest.raises(
        Infeasible, match=r"a width that is a multiple of 32; data.image_width"
    ):
        network("pvt_tiny", "upernet-small", 64, 100)


def test_an_unknown_head_is_said_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="mask-rcnn"):
        heads.find("mask-rcn")


def test_the_names_of_heads_and_tasks_are_known_without_torch() -> None:
    """Commands that train nothing stay fast."""
    code = (
        "import sys; from ablate import heads, tasks; heads.heads(); tasks.tasks();"
        " assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("settings", [{}, {"ffn.agelu": 2}])
def test_a_checkpoint_of_a_network_with_a_head_fits_it(settings: Settings) -> None:
    trained = network("pvt_tiny", "detr-small", 64, 64, settings)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(1)
    architecture = families.resolve("pvt_tiny", 64, 3, 10, settings, head="detr-small")
    fresh, loaded = build_from(architecture, trained.state_dict())
    assert not loaded.new
    assert not loaded.unused
    expected = trained.state_dict()
    assert all(
        torch.equal(tensor, expected[name])
        for name, tensor in fresh.state_dict().items()
    )


def test_made_up_objects_are_on_the_device_of_the_images() -> None:
    """A network on a GPU cannot be compared with boxes in the main memory."""

    class Network:
        def losses(
            self, images: Tensor, sizes: object, objects: list[dict[str, Tensor]]
        ) -> dict[str, Tensor]:
            for one in objects:
                assert {value.device for value in one.values()} == {images.device}
            return {"loss": images.sum()}

    images = torch.zeros(2, 3, 8, 8, device="meta")
    assert loss_of_made_up(Network(), images).device == images.device
