"""Training: resumed bit for bit, warm bit for bit, every option read, divergence told."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.optim import create_optimizer_v2

from ablate import space
from ablate.data import describe, refuse_recipe
from ablate.errors import CheckpointError, Infeasible
from ablate.families import resolve
from ablate.layers.patch_losses import Regions
from ablate.learning import classification
from ablate.models import build, places_of
from ablate.plan.plan import make_plan
from ablate.records import Cost, Epoch, Level, Recipe, Trial
from ablate.training import Diverged, Training, loop
from ablate.training.checkpoint import CheckpointFolder
from ablate.training.layer_order import layers_said
from ablate.training.probe import seconds_per_image

RECIPE = Recipe(epochs=4, batch_size=50, lr=2e-3, warmup_epochs=1)
EVERYTHING = replace(
    RECIPE,
    crop_padding=1,
    flip=0.5,
    mixup=0.3,
    cutmix=1.0,
    label_smoothing=0.1,
    random_erasing=0.25,
    ema=0.9,
    clip_grad=1.0,
    min_lr=1e-5,
)


def trial(recipe: Recipe = RECIPE, seed: int = 0, **settings: Level) -> Trial:
    sizes: dict[str, Level] = {
        "size.patch_size": 4,
        "size.width": 16,
        "size.depth": 2,
        "size.heads": 2,
        "size.mlp_ratio": 2.0,
    }
    data = describe("digits", train_images=200, test_images=60)
    return Trial(
        architecture=resolve("vit", 8, 1, 10, sizes | settings),
        recipe=recipe,
        data=data,
        seed=seed,
    )


def numbers(epochs: list[Epoch]) -> list[tuple[float, ...]]:
    """Everything but the time."""
    names = ("train_loss", "loss", "top1", "top5")
    return [(e.number, *(e.metrics[name] for name in names), e.lr) for e in epochs]


def train(
    wanted: Trial, folder: Path, stops: tuple[int, ...] = ()
) -> tuple[list[tuple[float, ...]], dict[str, torch.Tensor]]:
    """Trains to the end, in a new `Training` after each epoch in `stops`; gives the
    numbers and the weights.
    """
    training = Training(wanted, folder)
    while not training.finished:
        epoch = training.epoch()
        if epoch.number in stops:
            training.save()
            training.close()
            random.random(), np.random.rand(3), torch.rand(3)
            training = Training(wanted, folder)
            assert len(training.epochs) == epoch.number
    training.save()
    training.close()
    return (
        numbers(training.epochs),
        torch.load(folder / "last.pt", weights_only=True)["model"],
    )


@pytest.mark.parametrize(
    "wanted",
    [
        trial(),
        trial(
            EVERYTHING,
            **{
                "drop.path": 0.3,
                "drop.dropout": 0.1,
                "drop.attention": 0.1,
                "ffn.kernel": 3,
                "shortcuts.count": 2,
            },
        ),
        trial(replace(EVERYTHING, precision="bfloat16", optimizer="sgd", loss="bce")),
        trial(replace(RECIPE, schedule="constant", optimizer="lamb", warmup_epochs=0)),
        trial(
            replace(
                EVERYTHING,
                layer_decay=0.7,
                accumulate=3,
                ema_warmup=True,
                mixup_off_epoch=2,
                mixup_mode="pair",
                beta2=0.95,
            ),
            **{"drop.path": 0.3},
        ),
    ],
    ids=[
        "plain",
        "everything",
        "bfloat16 sgd bce",
        "constant lamb",
        "parts and layers",
    ],
)
def test_a_resumed_trial_continues_bit_for_bit(wanted: Trial, tmp_path: Path) -> None:
    epochs, weights = train(wanted, tmp_path / "straight")
    for stops in ((1, 2, 3), (2,)):
        again, others = train(wanted, tmp_path / f"stopped-{stops}", stops)
        assert again == epochs
        assert all(torch.equal(weights[k], others[k]) for k in weights)


def test_a_warm_process_changes_nothing(tmp_path: Path) -> None:
    """The same trial first, after another one of another kind, and after one that left
    its mark on every global state.
    """
    cold = train(trial(seed=3), tmp_path / "cold")
    train(
        trial(replace(EVERYTHING, precision="bfloat16"), seed=1, layout="parallel"),
        tmp_path / "other",
    )
    torch.set_num_threads(2)
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    warm = train(trial(seed=3), tmp_path / "warm")
    assert warm[0] == cold[0]
    assert all(torch.equal(cold[1][k], warm[1][k]) for k in cold[1])


def test_seeds_differ_and_learning_happens(tmp_path: Path) -> None:
    recipe = Recipe(epochs=12, batch_size=50, lr=5e-3)
    one, other = (
        train(trial(recipe), tmp_path / "a")[0],
        train(trial(recipe, seed=1), tmp_path / "b")[0],
    )
    assert one != other
    assert one[-1][1] < one[0][1], "the training loss falls"
    assert one[-1][3] > 40, "far above the ten per cent of chance"


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "sgd"},
        {"weight_decay": 0.5},
        {"optimizer": "sgd", "momentum": 0.1},
        {"schedule": "constant"},
        {"warmup_epochs": 0},
        {"min_lr": 1e-3},
        {"clip_grad": 0.01},
        {"loss": "bce"},
        {"loss": "bce", "mixup": 0.5, "loss_threshold": 0.2},
        {"label_smoothing": 0.2},
        {"mixup": 0.5},
        {"cutmix": 0.5},
        {"mixup": 0.5, "cutmix": 0.5, "mixup_switch": 0.0},
        {"crop_padding": 2},
        {"flip": 0.5},
        {"random_erasing": 0.5},
        {"ema": 0.99},
        {"precision": "bfloat16"},
        {"batch_size": 40},
        {"warmup_lr": 1e-3},
        {"lr_batch": 100},
        {"eps": 1e-3},
        {"beta1": 0.5},
        {"beta2": 0.9},
        {"layer_decay": 0.5},
        {"lr_width": 64},
        {"random_erasing": 0.5, "accumulate": 2},
        {"ema": 0.99, "ema_warmup": True},
        {"mixup": 0.5, "mixup_prob": 0.5},
        {"mixup": 0.5, "mixup_mode": "pair"},
        {"mixup": 0.5, "mixup_mode": "elem"},
        {"cutmix": 0.5, "mixup_off_epoch": 1},
    ],
    ids=lambda change: " ".join(f"{k}={v}" for k, v in change.items()),
)
def test_every_field_of_a_recipe_is_read(
    change: dict[str, object], tmp_path: Path
) -> None:
    base = replace(RECIPE, epochs=2)
    companions = {k: v for k, v in change.items() if k != list(change)[-1]}
    without = replace(base, **companions)
    with_it = replace(base, **change)
    assert with_it.canonical() != without.canonical()
    assert (
        train(trial(with_it), tmp_path / "with")[0]
        != train(trial(without), tmp_path / "without")[0]
    )


def test_learning_rate_rises_and_falls(tmp_path: Path) -> None:
    rates = [
        e[5]
        for e in train(trial(replace(RECIPE, epochs=6, warmup_epochs=2)), tmp_path)[0]
    ]
    assert rates[0] < rates[1]
    assert max(rates) == pytest.approx(2e-3, rel=0.3)
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[-1] < 2e-4


def test_divergence_is_reported(tmp_path: Path) -> None:
    training = Training(
        trial(replace(RECIPE, lr=1e30, optimizer="sgd", warmup_epochs=0)), tmp_path
    )
    with pytest.raises(Diverged, match="loss is (nan|inf)"):
        for _ in range(4):
            training.epoch()
    training.close()


def test_checkpoints_hold_only_plain_values(tmp_path: Path) -> None:
    train(trial(EVERYTHING), tmp_path)
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    progress = {
        "schedule",
        "scaler",
        "random",
        "epochs",
        "measurements",
        "best",
        "tested",
        "correct",
    }
    assert {"trial", "model", "ema", "optimizer", "terms", *progress} == set(state)
    assert {"torch", "order", "numpy", "python"} <= set(state["random"])


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "text"])
def test_a_damaged_checkpoint_costs_time_and_nothing_else(
    damage: str, tmp_path: Path
) -> None:
    expected = train(trial(), tmp_path / "whole")
    folder = tmp_path / "damaged"
    training = Training(trial(), folder)
    training.epoch()
    training.save()
    training.close()
    file = folder / "last.pt"
    content = file.read_bytes()
    middle = len(content) // 2
    flipped = (
        content[:middle]
        + bytes(b ^ 0xFF for b in content[middle : middle + 64])
        + content[middle + 64 :]
    )
    file.write_bytes(
        {
            "truncated": content[:middle],
            "empty": b"",
            "flipped": flipped,
            "text": b"not a checkpoint",
        }[damage]
    )
    epochs, weights = train(trial(), folder)
    assert epochs == expected[0]
    assert all(torch.equal(weights[k], expected[1][k]) for k in weights)
    assert (folder / "last.pt.unreadable").is_file()


def test_a_checkpoint_of_another_trial_is_refused(tmp_path: Path) -> None:
    train(trial(), tmp_path)
    with pytest.raises(CheckpointError, match="is a checkpoint of trial"):
        Training(trial(seed=1), tmp_path)


def test_a_failed_write_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path, "t")
    folder.save({"epochs": 1})

    def full_disk(state: object, stream: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        folder.save({"epochs": 2})
    loaded = folder.load()
    assert loaded is not None
    assert loaded["epochs"] == 1
    folder.release()


def test_only_one_process_trains_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.training.checkpoint.LOCK_SECONDS", 0.2)
    first = CheckpointFolder(tmp_path, "t")
    with pytest.raises(CheckpointError, match="another process has been training t"):
        CheckpointFolder(tmp_path, "t")
    first.release()
    CheckpointFolder(tmp_path, "t").release()


def test_the_probe_gives_a_time() -> None:
    assert math.isfinite(seconds_per_image(trial().architecture, 32))


def test_what_imports_draw_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial of a process imports what later ones find imported, and imports
    may draw random numbers.
    """
    wanted = trial(replace(RECIPE, random_erasing=0.5))
    expected = train(wanted, tmp_path / "plain")
    read, built = classification.batches, loop.build_from

    def drawing_batches(*arguments: object) -> object:
        random.random(), np.random.rand(2), torch.rand(1)
        return read(*arguments)

    def drawing_build(*arguments: object) -> object:
        made = built(*arguments)
        random.random(), np.random.rand(2)
        return made

    monkeypatch.setattr(classification, "batches", drawing_batches)
    monkeypatch.setattr(loop, "build_from", drawing_build)
    found = train(wanted, tmp_path / "drawing")
    assert found[0] == expected[0]
    assert all(torch.equal(found[1][key], expected[1][key]) for key in expected[1])


def test_a_full_disk_is_said_and_leaves_the_old_checkpoint_and_no_part(
    tmp_path: Path,
) -> None:
    folder = CheckpointFolder(tmp_path, "t")
    folder.save({"epochs": [1]})
    (tmp_path / "last.part").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="No space left on device; the previous"):
        folder.save({"epochs": [1, 2]})
    assert not (tmp_path / "last.part").is_symlink()
    kept = folder.load()
    folder.release()
    assert kept is not None
    assert kept["epochs"] == [1]


def test_a_training_trial_gives_signs_of_life_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.training.checkpoint.BEAT_SECONDS", 0.0)
    training = Training(trial(), tmp_path)
    touched = []
    monkeypatch.setattr("os.utime", touched.append)
    training.epoch()
    training.close()
    assert len(touched) > 1


def one_step(
    recipe: Recipe, tmp_path: Path, **settings: Level
) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of the first batch of a trial, and the gradient that it left."""
    training = Training(trial(recipe, **settings), tmp_path)
    images, labels = next(iter(training._work.batches.train(training._order)))
    training._optimizer.step = lambda *_: None
    loss = training._update(training._work.batch(images, labels)).item()
    gradients = {
        name: p.grad.clone()
        for name, p in training._model.named_parameters()
        if p.grad is not None
    }
    training.close()
    return loss, gradients


@pytest.mark.parametrize("parts", [2, 3, 50])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1, "clip_grad": 0.5},
        {"loss": "bce"},
    ],
)
def test_a_batch_parts_of_has_the_gradient_of_the_whole(
    change: dict[str, object], parts: int, tmp_path: Path
) -> None:
    whole = one_step(replace(RECIPE, **change), tmp_path / "whole")
    in_parts = one_step(replace(RECIPE, accumulate=parts, **change), tmp_path / "parts")
    assert in_parts[0] == pytest.approx(whole[0], rel=1e-6)
    for name, gradient in whole[1].items():
        torch.testing.assert_close(in_parts[1][name], gradient, atol=1e-6, rtol=1e-4)


def test_patch_losses_are_taken_parts_of_too(tmp_path: Path) -> None:
    recipe, terms = (
        replace(RECIPE, cutmix=1.0),
        {
            "patch.contrastive": 1.0,
            "patch.mixing": 1.0,
        },
    )
    whole, in_parts = (
        one_step(replace(recipe, accumulate=n), tmp_path / str(n), **terms)
        for n in (1, 5)
    )
    assert in_parts[0] == pytest.approx(whole[0], rel=1e-5)


def test_regions_of_mixed_images_are_taken_parts_of_too(tmp_path: Path) -> None:
    """As the published code of patch diversification mixes; its dropout before the
    heads is drawn part by part.
    """
    regions = Regions(torch.tensor([1.0, 0.0]), torch.rand(5, 3), torch.rand(5, 3))
    parts = classification._parts_of(regions, 2)
    assert all(torch.equal(part.mask, regions.mask) for part in parts)
    assert torch.equal(torch.cat([part.own for part in parts]), regions.own)
    assert torch.equal(torch.cat([part.other for part in parts]), regions.other)
    terms = {"patch.contrastive": 1.0, "patch.mixing": 1.0, "patch.variant": "code"}
    whole, in_parts = (
        one_step(replace(RECIPE, cutmix=1.0, accumulate=n), tmp_path / str(n), **terms)
        for n in (1, 5)
    )
    assert in_parts[0] == pytest.approx(whole[0], rel=0.2)
    assert set(in_parts[1]) == set(whole[1])


def test_a_batch_has_no_more_parts_than_images() -> None:
    with pytest.raises(
        Infeasible, match="recipe.accumulate = 51 is more than the 50 images of a batch"
    ):
        refuse_recipe(describe("digits"), replace(RECIPE, accumulate=51))


def test_patches_are_labelled_where_a_batch_is_mixed_alike() -> None:
    text = """
question: q
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {patch.mixing: [0.0, 1.0]}
recipe: {epochs: 3, cutmix: 1.0, mixup_mode: pair}
"""
    plan = make_plan(
        space.load(text, "a.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )
    assert [cell.feasible for cell in plan.cells] == [True, False]
    assert "set recipe.mixup_mode to batch" in plan.cells[1].note


def rates(recipe: Recipe, tmp_path: Path) -> list[float]:
    """The learning rate of each parameter group before the first step."""
    training = Training(trial(recipe), tmp_path)
    training.close()
    return [group["lr"] for group in training._optimizer.param_groups]


def test_the_learning_rate_grows_with_the_batch(tmp_path: Path) -> None:
    scaled = replace(RECIPE, lr=5e-4, lr_batch=25, warmup_epochs=0)
    assert set(rates(scaled, tmp_path / "a")) == {1e-3}
    assert (
        scaled.canonical() == replace(RECIPE, lr=1e-3, warmup_epochs=0).canonical()
    ), "one learning rate, said in two ways"
    assert replace(scaled, batch_size=100).rate == 2e-3
    warm = replace(RECIPE, warmup_epochs=2, warmup_lr=1e-5)
    assert set(rates(warm, tmp_path / "b")) == {1e-5}
    assert set(rates(replace(warm, schedule="constant"), tmp_path / "c")) == {1e-5}
    assert (
        replace(warm, warmup_lr=RECIPE.lr / 1000).canonical()
        == replace(warm, warmup_lr=0.0).canonical()
    )


def test_deeper_layers_learn_faster_and_the_rate_that_is_reported_is_the_last_ones(
    tmp_path: Path,
) -> None:
    recipe = replace(RECIPE, layer_decay=0.5, warmup_epochs=0, schedule="constant")
    found = sorted(set(rates(recipe, tmp_path / "a")), reverse=True)
    assert found == [RECIPE.lr * 0.5**depth for depth in range(len(found))]
    assert len(found) == 4, "embedding, two blocks, head"
    assert train(trial(recipe), tmp_path / "b")[0][0][5] == RECIPE.lr


# Of each family one backbone, at a side that it takes, and a factor that stands in its
# blocks.
LAYERED = {
    "deit_tiny_patch16_224": (32, {"shortcuts.count": 1}),
    "deit_tiny_distilled_patch16_224": (32, {"attnscale": True}),
    "swin_tiny_patch4_window7_224": (56, {"shortcuts.count": 1}),
    "cait_xxs24_224": (32, {"attnscale": True}),
    "poolformer_s12": (64, {"ffn.kernel": 3}),
    "pvt_v2_b0": (64, {"shortcuts.count": 1}),
    "pvt_tiny": (64, {"shortcuts.count": 1}),
    "t2t_vit_14": (64, {"shortcuts.count": 1}),
    "lvt_r1": (64, {"ffn.kernel": 3}),
}


@pytest.mark.parametrize("backbone", LAYERED)
def test_the_rate_decays_block_by_block_on_every_family(backbone: str) -> None:
    """All of a block learns at one rate, a later block as fast or faster, and the
    classifier at the full one.

    timm takes a stage of PVT version 2 for one layer.
    """
    side, factors = LAYERED[backbone]
    model = build(resolve(backbone, side, 3, 5, factors))
    with layers_said(model):
        optimizer = create_optimizer_v2(
            model, opt="adamw", lr=1.0, weight_decay=0.1, layer_decay=0.5
        )
    scales = {
        id(p): group["lr_scale"]
        for group in optimizer.param_groups
        for p in group["params"]
    }
    found = []
    for place in places_of(model):
        inside = {scales[id(p)] for p in model.get_submodule(place.name).parameters()}
        assert len(inside) == 1, place.name
        found += inside
    assert found == sorted(found)
    assert len(set(found)) == (4 if backbone == "pvt_v2_b0" else len(found)), (
        "each block has a rate of its own"
    )
    assert min(scales.values()) < found[0], (
        "what makes the first tokens is slower still"
    )
    assert {
        scales[id(p)]
        for name, p in model.named_parameters()
        if name.startswith("head.")
    } == {1.0}


def test_the_optimiser_is_as_the_recipe_says(tmp_path: Path) -> None:
    for name in ("adamw", "lamb", "nadamw"):
        recipe = replace(RECIPE, optimizer=name)
        own, said = (
            Training(trial(recipe), None),
            Training(trial(replace(recipe, eps=1e-4, beta1=0.8, beta2=0.95)), None),
        )
        usual = create_optimizer_v2(torch.nn.Linear(1, 1), opt=name, lr=1.0)
        assert [own._optimizer.defaults[key] for key in ("eps", "betas")] == [
            usual.defaults[key] for key in ("eps", "betas")
        ]
        assert [said._optimizer.param_groups[0][key] for key in ("eps", "betas")] == [
            1e-4,
            (0.8, 0.95),
        ]


def test_mixing_ends_when_the_recipe_says(tmp_path: Path) -> None:
    training = Training(trial(replace(RECIPE, cutmix=1.0, mixup_off_epoch=2)), tmp_path)
    mixed = []
    for _ in range(4):
        training.epoch()
        mixed.append(training._work.mix.mixup_enabled)
    training.close()
    assert mixed == [True, True, False, False]
    assert "mixup_off_epoch" in replace(RECIPE, cutmix=1.0, mixup_off_epoch=4).unread()


def test_the_average_warms_up(tmp_path: Path) -> None:
    training = Training(trial(replace(RECIPE, ema=0.9999, ema_warmup=True)), None)
    assert training._ema.get_decay(10) == 1 - (1 + 9) ** (-2 / 3)
    assert (
        Training(trial(replace(RECIPE, ema=0.9999)), None)._ema.get_decay(10) == 0.9999
    )


@pytest.mark.parametrize(
    ("field", "level", "recipe"),
    [
        ("eps", 1e-4, Recipe(optimizer="sgd")),
        ("beta1", 0.8, Recipe(optimizer="sgd")),
        ("warmup_lr", 1e-5, Recipe()),
        ("ema_warmup", True, Recipe()),
        ("mixup_prob", 0.5, Recipe()),
        ("mixup_mode", "elem", Recipe()),
        ("mixup_off_epoch", 3, Recipe()),
        ("color_jitter", 0.3, Recipe(rand_augment="rand-m9")),
        ("crop_scale", 0.2, Recipe(crop_padding=4)),
        ("crop_ratio", 2.0, Recipe(crop_padding=4)),
        ("interpolation", "bicubic", Recipe(crop_padding=4)),
    ],
)
def test_what_is_not_read_is_not_in_the_identity_and_says_when_it_would_be(
    field: str, level: Level, recipe: Recipe
) -> None:
    changed = replace(recipe, **{field: level})
    assert changed.canonical() == recipe.canonical()
    assert changed.unread()[field]
