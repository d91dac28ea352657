"""Building: what is not read is an error, and what cannot be built says why."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ablate import factors
from ablate.errors import AblateError, Infeasible, UnknownName, UnreadParameter
from ablate.families import resolve
from ablate.models import build
from ablate.records import Architecture, Level


def test_an_ignored_parameter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = factors.catalogue()
    layout = honest["layout"]
    assert layout.join_branches is not None
    careless = replace(layout, join_branches=lambda values, before: before)
    changed = {**honest, "layout": careless}
    monkeypatch.setattr(factors, "catalogue", lambda backbone="": changed)
    with pytest.raises(UnreadParameter, match="did not read layout = parallel"):
        build(
            Architecture(
                backbone="vit",
                image_size=8,
                channels=1,
                classes=10,
                settings={
                    "size.width": 8,
                    "size.depth": 1,
                    "size.heads": 1,
                    "size.patch_size": 4,
                    "layout": "parallel",
                },
            )
        )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"shortcuts.count": 1, "shortcuts.b": 5},
            "shortcuts.b = 5 does not divide the width 192",
        ),
        ({"ffn.agelu": 5}, "ffn.agelu = 5 does not divide the hidden width 768"),
        ({"size.heads": 5}, "size.heads = 5 does not divide size.width = 192"),
        ({"size.patch_size": 15}, "patch size 15 does not divide the image size 224"),
    ],
)
def test_impossible_settings_say_why(settings: dict[str, int], reason: str) -> None:
    with pytest.raises(Infeasible, match=reason):
        build(resolve("deit_tiny_patch16_224", 224, 3, 1000, settings))


def test_a_backbone_without_plain_blocks_is_refused() -> None:
    with pytest.raises(Infeasible, match="plain pre-norm blocks"):
        resolve("vit_base_patch16_rpn_224", 224, 3, 1000, {})


def test_unknown_backbones_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'deit_tiny_patch16_224'"):
        resolve("deit_tiny_patch16_225", 224, 3, 1000, {})


def test_equal_models_are_one_architecture() -> None:
    plain = resolve("deit_tiny_patch16_224", 224, 3, 1000, {})
    said = {
        "size.depth": 12,
        "size.mlp_ratio": 4,
        "shortcuts.count": 0,
        "shortcuts.b": 8,
        "drop.path": 0.0,
        "layout": "serial",
    }
    assert resolve("deit_tiny_patch16_224", 224, 3, 1000, said) == plain
    assert (
        resolve("deit_tiny_patch16_224", 224, 3, 1000, {"size.depth": 11}).hash
        != plain.hash
    )


def test_stochastic_depth_rises_linearly() -> None:
    model = build(
        resolve("deit_tiny_patch16_224", 32, 3, 10, {"drop.path": 0.3, "size.depth": 4})
    )
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in model.blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_parallel_joins_both_branches_at_once() -> None:
    torch.manual_seed(0)
    model = build(
        resolve(
            "deit_tiny_patch16_224", 32, 3, 10, {"layout": "parallel", "size.depth": 1}
        )
    ).eval()
    block, x = model.blocks[0], torch.randn(1, 5, 192)
    expected = x + (block.attn(block.norm1(x)) + block.mlp(block.norm2(x)))
    assert torch.equal(block(x), expected)


def test_without_identity_only_the_branches_remain() -> None:
    model = build(
        resolve(
            "deit_tiny_patch16_224", 32, 3, 10, {"identity": False, "size.depth": 1}
        )
    ).eval()
    block, x = model.blocks[0], torch.randn(1, 5, 192)
    first = block.attn(block.norm1(x))
    assert torch.equal(block(x), block.mlp(block.norm2(first)))


@pytest.mark.parametrize("identity", [True, False])
def test_without_mlp_a_block_is_attention_alone(identity: bool) -> None:
    settings: dict[str, Level] = {"mlp": False, "size.depth": 1}
    if not identity:
        settings["identity"] = False
    model = build(resolve("deit_tiny_patch16_224", 32, 3, 10, settings)).eval()
    block, x = model.blocks[0], torch.randn(1, 5, 192)
    expected = block.attn(block.norm1(x))
    if identity:
        expected = x + expected
    assert torch.equal(block(x), expected)
    assert not [name for name, _ in block.named_parameters() if "2" in name]


def test_without_mlp_its_width_makes_no_other_network() -> None:
    networks = [
        resolve(
            "deit_tiny_patch16_224", 32, 3, 10, {"mlp": False, "size.mlp_ratio": ratio}
        )
        for ratio in (2.0, 3.0)
    ]
    assert networks[0] == networks[1]
    assert networks[0].settings == {"mlp": False}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"layout": "parallel"}, "write layout: serial"),
        ({"ffn.kernel": 3}, "leave ffn out, or write mlp: true"),
        ({"shortcuts.count": 1}, "shortcuts.placement: msa"),
    ],
)
def test_what_needs_the_mlp_says_so(settings: dict[str, Level], reason: str) -> None:
    with pytest.raises(Infeasible, match=reason):
        build(resolve("deit_tiny_patch16_224", 32, 3, 10, {"mlp": False, **settings}))


@pytest.mark.parametrize("variant", ["text", "code"])
def test_a_shortcut_reads_the_input_or_its_norm(variant: str) -> None:
    settings = {
        "shortcuts.count": 1,
        "shortcuts.placement": "msa",
        "shortcuts.variant": variant,
        "size.depth": 1,
    }
    model = build(resolve("deit_tiny_patch16_224", 32, 3, 10, settings)).eval()
    block, x = model.blocks[0], torch.randn(1, 5, 192)
    normed = block.norm1(x)
    y = x + block.attn(normed) + block.msa_paths[0](x if variant == "text" else normed)
    assert torch.equal(block(x), y + block.mlp(block.norm2(y)))


def test_settings_that_change_nothing_are_refused() -> None:
    with pytest.raises(
        AblateError,
        match=(
            "would change nothing: shortcuts.b is not read unless a circulant"
            " projection is used"
        ),
    ):
        factors.check({"shortcuts.b": 2})
    with pytest.raises(UnknownName, match="did you mean 'shortcuts.count'"):
        factors.check({"shortcuts.cout": 2})
    with pytest.raises(
        AblateError, match="4 is not a level; allowed: none, 1, 3, 5, 7"
    ):
        factors.check({"ffn.kernel": 4})


def test_ffn_does_not_replace_another_activation_unsaid() -> None:
    with pytest.raises(Infeasible, match="that of this backbone has QuickGELU"):
        build(
            resolve(
                "vit_base_patch32_clip_quickgelu_224",
                224,
                3,
                10,
                {"ffn.kernel": 3, "size.depth": 1},
            )
        )


def test_agelu_parameters_are_not_decayed() -> None:
    from timm.optim import create_optimizer_v2

    model = build(
        resolve("deit_tiny_patch16_224", 32, 3, 10, {"ffn.agelu": 2, "size.depth": 1})
    )
    groups = create_optimizer_v2(
        model, "adamw", lr=1e-3, weight_decay=0.05
    ).param_groups
    undecayed = {
        id(p) for group in groups if group["weight_decay"] == 0 for p in group["params"]
    }
    act = model.blocks[0].mlp.act
    assert all(id(p) in undecayed for p in (act.alpha, act.beta, act.gamma, act.theta))
