"""Ways of counting: each against a closed form that is computed here from the numbers
of the network.
"""

from __future__ import annotations

import pytest

from ablate.audit.conventions import COUNTS, find
from ablate.cost import count, module_flops
from ablate.errors import Infeasible, UnknownName
from ablate.families import resolve
from ablate.records import Architecture, Level

WIDTH, DEPTH, HEADS, CLASSES, TOKENS = 24, 2, 3, 10, 17


def tiny(**settings: Level) -> Architecture:
    """A ViT of 16 patches and a class token."""
    sizes = {
        "size.width": WIDTH,
        "size.depth": DEPTH,
        "size.heads": HEADS,
        "size.patch_size": 4,
    }
    return resolve(
        "vit",
        16,
        3,
        CLASSES,
        {
            **sizes,
            **{name.replace("__", "."): level for name, level in settings.items()},
        },
    )


def number(name: str, architecture: Architecture) -> float:
    return find(name).number(architecture)


def test_an_unknown_way_of_counting_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'torchprofile'"):
        find("torchprofle")


def test_every_way_of_counting_has_a_name_a_reason_and_a_docstring() -> None:
    for name, way in COUNTS.items():
        assert way.name == name
        assert way.about
        assert way.source


def test_layers_leave_out_class_token_and_position_embedding() -> None:
    left_out = WIDTH + TOKENS * WIDTH
    assert number("layers", tiny()) == number("all", tiny()) - left_out


def test_package_counts_are_those_of_one_trace() -> None:
    cost = count(tiny())
    assert number("executed", tiny()) == cost.flops
    assert number("matrix", tiny()) == cost.flops_paper
    assert number("every operation", tiny()) == cost.flops + cost.elementwise


def test_modules_and_norms_see_no_product_of_tensors() -> None:
    norms = (2 * DEPTH + 1) * TOKENS * WIDTH
    found = number("modules and norms", tiny())
    assert found == module_flops(tiny()) + 2 * norms
    products = 2 * DEPTH * TOKENS**2 * WIDTH
    assert module_flops(tiny()) == count(tiny()).flops_paper - products


def test_torchprofile_counts_norms_and_the_scale_of_logits_once() -> None:
    norms = (2 * DEPTH + 1) * TOKENS * WIDTH
    logits = DEPTH * HEADS * TOKENS**2
    assert number("torchprofile", tiny()) == count(tiny()).flops_paper + norms + logits


def test_torchprofile_counts_products_norms_and_means_of_an_iffn() -> None:
    """Two AGeLUs have two products each; a norm of the hidden width, a batch norm of
    it, and a norm of the width are added.
    """
    architecture = tiny(size__pool="mean", ffn__agelu=2, ffn__kernel=3)
    patches, hidden = TOKENS - 1, 4 * WIDTH
    # The last norm sees the mean.
    norms = 2 * DEPTH * patches * WIDTH + WIDTH
    logits = DEPTH * HEADS * patches**2
    inside = DEPTH * patches * (hidden + hidden + WIDTH + 2 * hidden)
    mean = WIDTH
    expected = count(architecture).flops_paper + norms + logits + inside + mean
    assert number("torchprofile", architecture) == expected


def transformer(width: int, heads: int, depth: int, attn: int, feat: int) -> int:
    """The published `flops` of a DeiT at 224, written down line by line."""
    patches, total = 196, 196 * width * 768
    for _ in range(depth):
        total += patches * width
        total += (
            3 * patches * width * width
            + 2 * patches * patches * width
            + attn * heads * patches * patches
        )
        total += patches * width * width
        total += feat * 2 * patches * width
        total += 2 * patches * width * width * 4
        total += patches * width
    return total + patches * width + width * 1000


@pytest.mark.parametrize(("attn", "feat"), [(0, 0), (1, 0), (0, 1)])
def test_antioversmoothing_counts_a_deit_without_its_class_token(
    attn: int, feat: int
) -> None:
    scaled: dict[str, Level] = {
        "attnscale": bool(attn),
        "featscale": "text" if feat else "none",
    }
    for depth in (12, 24):
        architecture = resolve(
            "deit_small_patch16_224", 224, 3, 1000, {**scaled, "size.depth": depth}
        )
        assert number("antioversmoothing", architecture) == transformer(
            384, 6, depth, attn, feat
        )


@pytest.mark.parametrize(("attn", "feat"), [(0, 0), (1, 0), (0, 1)])
def test_antioversmoothing_counts_talking_heads_and_layer_scales_of_a_cait(
    attn: int, feat: int
) -> None:
    width, heads, patches = 192, 4, 196
    total = transformer(width, heads, 24, attn, feat)
    total += 24 * (2 * patches * patches * heads * heads + 2 * patches * width)
    attention = (
        patches * width * 2 * width
        + width * width
        + 2 * patches * width
        + width * width
    )
    total += 2 * (4 * width + attention + 8 * width * width)
    scaled: dict[str, Level] = {
        "attnscale": bool(attn),
        "featscale": "text" if feat else "none",
    }
    assert (
        number("antioversmoothing", resolve("cait_xxs24_224", 224, 3, 1000, scaled))
        == total
    )


@pytest.mark.parametrize(("attn", "feat"), [(0, 0), (1, 0), (0, 1)])
def test_antioversmoothing_counts_the_windows_of_a_swin(attn: int, feat: int) -> None:
    total, side, width = 56 * 56 * 96 * 48 + 56 * 56 * 96, 56, 96
    for stage, (blocks, heads) in enumerate(
        zip((2, 2, 18, 2), (3, 6, 12, 24), strict=True)
    ):
        tokens, windows = side * side, (side // 7) ** 2
        window = 4 * 49 * width * width + 2 * 49 * 49 * width + attn * heads * 49 * 49
        total += blocks * (
            2 * tokens * width
            + windows * window
            + 8 * tokens * width * width
            + feat * 2 * tokens * width
        )
        if stage < 3:
            total += tokens * width + tokens // 4 * 8 * width * width
            side, width = side // 2, 2 * width
    total += width * 56 * 56 // 16 + width * 1000
    scaled: dict[str, Level] = {
        "attnscale": bool(attn),
        "featscale": "text" if feat else "none",
    }
    assert (
        number(
            "antioversmoothing",
            resolve("swin_small_patch4_window7_224", 224, 3, 1000, scaled),
        )
        == total
    )


def test_antioversmoothing_has_no_count_of_other_backbones() -> None:
    with pytest.raises(Infeasible, match="not those of poolformer_s12"):
        number("antioversmoothing", resolve("poolformer_s12", 224, 3, 1000, {}))
