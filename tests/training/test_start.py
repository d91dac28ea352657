"""Weights that training starts from: what fits is taken, resampled where the resolution
differs, and told.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch

from ablate import space
from ablate.data import describe
from ablate.data.images import evaluation_transform, normalisation
from ablate.errors import CheckpointError, Infeasible, SpaceError
from ablate.families import resolve
from ablate.models import build, build_from
from ablate.models.initial_weights import read_start
from ablate.models.weights import load_weights
from ablate.pipeline import Options, run
from ablate.plan.plan import make_plan
from ablate.plan.start import find_start, prepared, refuse_strange
from ablate.records import Cost, InitialWeights, Level, Recipe
from ablate.store.reader import Reader
from ablate.training import Training
from tests.training.test_training import trial

SIZES: dict[str, Level] = {
    "size.patch_size": 4,
    "size.width": 16,
    "size.depth": 2,
    "size.heads": 2,
    "size.mlp_ratio": 2.0,
}


def vit(side: int = 16, classes: int = 10, **settings: Level) -> torch.nn.Module:
    torch.manual_seed(7)
    return build(resolve("vit", side, 3, classes, {**SIZES, **settings}))


def started(
    state: dict[str, torch.Tensor], side: int = 16, classes: int = 10, **settings: Level
):
    torch.manual_seed(8)
    return build_from(resolve("vit", side, 3, classes, {**SIZES, **settings}), state)


def test_the_same_network_takes_everything() -> None:
    source = vit().state_dict()
    model, loaded = started(source)
    assert all(torch.equal(model.state_dict()[key], source[key]) for key in source)
    assert loaded.taken == set(source)
    assert not (loaded.new or loaded.unused or loaded.kept or loaded.resampled)


def test_a_modified_network_takes_what_it_shares_and_says_what_is_new() -> None:
    source = vit().state_dict()
    model, loaded = started(
        source, **{"shortcuts.count": 1, "attnscale": True, "ffn.agelu": 2}
    )
    state = model.state_dict()
    assert torch.equal(
        state["blocks.0.attn.qkv.weight"], source["blocks.0.attn.qkv.weight"]
    )
    assert "blocks.0.attn.edits.weights.0.w" in loaded.new
    assert "blocks.0.msa_paths.0.projection.c" in loaded.new
    # The narrower first layer keeps the first rows of the trained one.
    assert loaded.kept == {
        f"blocks.{b}.mlp.fc1.{p}" for b in (0, 1) for p in ("weight", "bias")
    }
    assert torch.equal(
        state["blocks.1.mlp.fc1.weight"], source["blocks.1.mlp.fc1.weight"][:16]
    )
    assert "kept in part" in str(loaded)


def test_a_convolution_that_becomes_a_linear_layer_is_kept_not_unused() -> None:
    name = "poolformer_s12"
    torch.manual_seed(0)
    source = build(resolve(name, 64, 3, 10, {})).state_dict()
    model, loaded = build_from(resolve(name, 64, 3, 10, {"ffn.kernel": 3}), source)
    inside = model.state_dict()["stages.0.blocks.0.mlp.module.fc2.weight"]
    assert torch.equal(inside, source["stages.0.blocks.0.mlp.fc2.weight"].flatten(1))
    assert "stages.0.blocks.0.mlp.module.fc2.weight" in loaded.kept
    assert not loaded.unused


def test_a_checkpoint_of_the_modified_network_brings_its_factors_along() -> None:
    source = vit(**{"shortcuts.count": 2, "featscale": "text"}).state_dict()
    model, loaded = started(source, **{"shortcuts.count": 2, "featscale": "text"})
    assert not loaded.new
    assert all(torch.equal(model.state_dict()[key], source[key]) for key in source)


def test_other_classes_and_other_resolution() -> None:
    source = vit(16, 10).state_dict()
    model, loaded = started(source, 32, 3)
    assert loaded.new == {"head.weight", "head.bias"}
    assert loaded.resampled == {"pos_embed"}
    assert model.state_dict()["pos_embed"].shape == (1, 65, 16)
    # The class token's embedding stays; a constant embedding stays constant.
    assert torch.equal(model.state_dict()["pos_embed"][:, 0], source["pos_embed"][:, 0])
    source["pos_embed"].fill_(0.5)
    assert torch.allclose(
        started(source, 32)[0].state_dict()["pos_embed"], torch.tensor(0.5)
    )


def test_a_network_without_class_token_takes_the_grids_part() -> None:
    source = vit().state_dict()
    model, loaded = started(source, **{"size.pool": "mean"})
    assert torch.equal(model.state_dict()["pos_embed"], source["pos_embed"][:, 1:])
    assert "cls_token" in loaded.unused


def test_window_biases_are_resampled() -> None:
    torch.manual_seed(0)
    name = "swin_tiny_patch4_window7_224"
    source = build(resolve(name, 56, 3, 10, {})).state_dict()
    keys = {key for key in source if key.endswith("relative_position_bias_table")}
    for key in keys:
        source[key].fill_(0.25)
    model, loaded = build_from(resolve(name, 64, 3, 10, {"size.window": 4}), source)
    assert loaded.resampled
    assert loaded.resampled <= keys
    for key in loaded.resampled:
        assert torch.allclose(model.state_dict()[key], torch.tensor(0.25), atol=1e-5)


def test_taking_draws_nothing_random() -> None:
    source, model = vit().state_dict(), vit(attnscale=True)
    before = torch.get_rng_state()
    load_weights(model, source)
    assert torch.equal(before, torch.get_rng_state())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vit.pth"
    torch.manual_seed(9)
    sizes = {
        "embed_dim": 16,
        "depth": 2,
        "num_heads": 2,
        "mlp_ratio": 2.0,
        "patch_size": 4,
        "img_size": 8,
    }
    model = timm.models.VisionTransformer(in_chans=1, num_classes=10, **sizes)
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, path
    )
    return path


def test_training_starts_from_a_file_and_says_so(file: Path, tmp_path: Path) -> None:
    start = find_start(str(file), "vit")
    assert start is not None
    assert start.identity.startswith("sha256 ")
    wanted = replace(trial(), start=start)
    assert wanted.hash != trial().hash
    training = Training(wanted, tmp_path / "run")
    state = training._model.state_dict()
    training.close()
    source = torch.load(file, weights_only=True)["state_dict"]
    assert torch.equal(
        state["blocks.0.attn.qkv.weight"], source["module.blocks.0.attn.qkv.weight"]
    )
    assert "tensors taken from the checkpoint" in training.weights


def test_a_trials_own_checkpoint_starts_another(tmp_path: Path) -> None:
    first = Training(trial(), tmp_path / "first")
    first.epoch()
    first.save()
    first.close()
    start = find_start(str(tmp_path / "first" / "last.pt"), "vit")
    second = Training(replace(trial(attnscale=True), start=start), tmp_path / "second")
    assert torch.equal(
        second._model.state_dict()["patch_embed.proj.weight"],
        first._model.state_dict()["patch_embed.proj.weight"],
    )
    second.close()


def test_equal_content_is_one_start_wherever_it_lies(file: Path) -> None:
    copy = file.with_name("copy.pth")
    copy.write_bytes(file.read_bytes())
    one, other = find_start(str(file), "vit"), find_start(str(copy), "vit")
    assert one is not None
    assert other is not None
    assert one.identity == other.identity
    assert replace(trial(), start=one).hash == replace(trial(), start=other).hash


def test_published_weights_are_named_by_their_tag_or_refused() -> None:
    start = find_start("timm", "cait_xxs24_224")
    assert start == InitialWeights("timm cait_xxs24_224.fb_dist_in1k")
    for name in ("pvt_small", "vit"):
        with pytest.raises(Infeasible, match=f"timm publishes no weights for {name}"):
            find_start("timm", name)


def test_published_weights_are_timms_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real loading code, on weights that lie here instead of on the hub."""
    torch.manual_seed(3)
    source = timm.create_model("cait_xxs24_224")
    torch.save(source.state_dict(), tmp_path / "cait.pth")
    create = timm.create_model

    def local(name: str, pretrained: bool = False, **arguments: object) -> object:
        overlay = {"file": str(tmp_path / "cait.pth"), "hf_hub_id": None, "url": ""}
        return create(
            name, pretrained=pretrained, pretrained_cfg_overlay=overlay, **arguments
        )

    monkeypatch.setattr(timm, "create_model", local)
    wanted = replace(
        trial(),
        architecture=resolve("cait_xxs24_224", 224, 3, 10, {}),
        start=InitialWeights("timm cait_xxs24_224"),
    )
    state = read_start(wanted)
    assert all(
        torch.equal(state[key], tensor) for key, tensor in source.state_dict().items()
    )


def test_without_network_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no route to host\nmore")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(
        CheckpointError,
        match=r"could not be fetched \(no route to host\).*name the file",
    ):
        read_start(replace(trial(), start=InitialWeights("timm x")))


def test_a_file_that_changed_since_the_plan_is_refused(file: Path) -> None:
    wanted = replace(trial(), start=find_start(str(file), "vit"))
    torch.save({"patch_embed.proj.bias": torch.zeros(16)}, file)
    with pytest.raises(
        CheckpointError, match="has changed since the trial was planned"
    ):
        read_start(wanted)


def test_a_file_of_another_network_is_refused(file: Path) -> None:
    start = find_start(str(file), "vit")
    refuse_strange(start, trial().architecture)
    with pytest.raises(Infeasible, match="vit.pth is of another network: "):
        refuse_strange(start, resolve("vit", 8, 1, 10, {**SIZES, "size.width": 32}))
    refuse_strange(InitialWeights("timm x"), trial().architecture)


@pytest.mark.parametrize("content", [b"", b"junk", b"cos\nsystem\n(S'true'\ntR."])
def test_what_is_no_safe_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad.pth"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="no checkpoint that can be read safely"):
        find_start(str(file), "vit")


def test_a_file_without_tensors_and_one_that_is_not_there(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    with pytest.raises(CheckpointError, match="holds no tensors by name"):
        find_start(str(tmp_path / "empty.pth"), "vit")
    with pytest.raises(CheckpointError, match="no file"):
        find_start(str(tmp_path / "missing.pth"), "vit")


@pytest.mark.parametrize(
    "backbone",
    [
        "vit_base_patch16_224",
        "swin_tiny_patch4_window7_224",
        "poolformer_s12",
        "pvt_v2_b0",
        "cait_s24_224",
        "vit_medium_patch16_gap_384",
    ],
)
def test_files_are_prepared_as_published_weights_want_them(backbone: str) -> None:
    weights = timm.models.get_pretrained_cfg(backbone)
    made = prepared(describe("imagenet"), Recipe(), "timm", backbone)
    wanted = (
        tuple(weights.mean),
        tuple(weights.std),
        weights.crop_pct,
        weights.crop_mode,
        weights.interpolation,
    )
    found = (made.crop or 0.875, made.crop_mode or "center", made.interpolation)
    assert (normalisation(made), *found) == (wanted[:2], *wanted[2:])
    assert made.canonical() != describe("imagenet").canonical(), "it changes numbers"


def test_what_the_space_says_of_the_data_goes_before_the_weights() -> None:
    said = describe(
        "imagenet", mean=[0.1], std=[0.2], crop=0.875, interpolation="bilinear"
    )
    made = prepared(said, Recipe(), "timm", "vit_base_patch16_224")
    assert (made.mean, made.std, made.crop, made.interpolation) == (
        (0.1, 0.1, 0.1),
        (0.2, 0.2, 0.2),
        0.0,
        "",
    )
    assert evaluation_transform(made, Recipe()).transforms[0].size == 256
    cropped = prepared(
        describe("imagenet", crop=1.0), Recipe(), "timm", "vit_base_patch16_224"
    )
    assert (cropped.crop, cropped.mean) == (1.0, (0.5, 0.5, 0.5))


def test_files_of_weights_and_data_in_memory_are_prepared_as_ever(file: Path) -> None:
    assert prepared(
        describe("imagenet"), Recipe(), "", "vit_base_patch16_224"
    ) == describe("imagenet")
    assert prepared(
        describe("imagenet"), Recipe(), str(file), "vit_base_patch16_224"
    ) == describe("imagenet")
    assert prepared(
        describe("cifar10"), Recipe(), "timm", "vit_base_patch16_224"
    ) == describe("cifar10")


SPACE = """
question: q
factors: {FACTORS}
data: imagenet
recipe: finetune-384
pretrained: true
seeds: 1
"""


def test_each_backbone_of_a_plan_gets_the_data_of_its_weights() -> None:
    text = SPACE.replace(
        "FACTORS", "backbone: [vit_base_patch16_224, deit_small_patch16_224]"
    )
    plan = make_plan(
        space.load(text, "a.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    )
    vit_data, deit_data = (cell.trials[0].data for cell in plan.cells)
    assert (
        vit_data.canonical() | {"mean": [0.5] * 3, "std": [0.5] * 3, "crop": 0.9}
        == vit_data.canonical()
    )
    assert (deit_data.mean, deit_data.crop) == ((), 0.9)


STARTS = """question: Does a start earn its cost?
backbone: {{family: vit, patch_size: 4, width: 16, depth: 2, heads: 2, mlp_ratio: 2}}
factors:
  pretrained: [false, {file}]
data: {{name: digits, train_images: 200, test_images: 60}}
recipe: {{epochs: 1, batch_size: 50, warmup_epochs: 0}}
seeds: 1
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Weights of the network of `STARTS`."""
    torch.manual_seed(0)
    place = tmp_path / "own.pth"
    torch.save(build(resolve("vit", 8, 1, 10, SIZES)).state_dict(), place)
    return place


def test_weights_to_start_from_can_vary(own: Path, tmp_path: Path) -> None:
    declared = space.load(STARTS.format(file=own), "s.yaml")
    without, with_ = make_plan(
        declared,
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    ).cells
    assert without.trials[0].start is None
    assert with_.trials[0].start == find_start(str(own), "vit")
    assert without.trials[0].hash != with_.trials[0].hash
    alone = space.load(
        STARTS.replace(
            "pretrained: [false, {file}]", "attnscale: [false, true]"
        ).format(),
        "s.yaml",
    )
    assert (
        make_plan(
            alone,
            lambda architecture: Cost(
                params=1, flops=1, flops_paper=1, activations=1, elementwise=1
            ),
        )
        .cells[0]
        .trials[0]
        .hash
        == without.trials[0].hash
    )
    options = Options(runs=tmp_path / "runs", executor="inline")
    outcome = run(declared, "s.yaml", options)
    assert (outcome.trained, outcome.failed) == (2, 0)
    with Reader(options.url) as reader:
        weights = [row.weights for row in reader.trials.of("s")]
    assert weights[0] == ""
    assert re.fullmatch(r"\d+ tensors taken from the checkpoint", weights[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("[false, {file}]", "[false, nowhere.pth]"),
            "s.yaml:4: pretrained: no file nowhere.pth",
        ),
        (("[false, {file}]", "[false, 3]"), "s.yaml:4: pretrained: 3 is not a level"),
        (
            ("seeds: 1", "seeds: 1\npretrained: true"),
            "s.yaml:8: pretrained varies under factors; say it in one place",
        ),
        (("seeds: 1", "seeds: 1\nfixed: {{pretrained: true}}"), "pretrained"),
    ],
)
def test_mistakes_of_weights_that_vary_are_reported(
    change: tuple[str, str], message: str, own: Path
) -> None:
    with pytest.raises(SpaceError, match=re.escape(message)):
        space.load(STARTS.replace(*change).format(file=own), "s.yaml")


@pytest.mark.parametrize(
    ("of", "to"),
    [
        ("token", "distilled"),
        ("distilled", "token"),
        ("distilled", "mean"),
        ("mean", "token"),
    ],
)
def test_prefix_tokens_take_the_positions_that_are_theirs(of: str, to: str) -> None:
    prefixes = {"mean": 0, "token": 1, "distilled": 2}
    torch.manual_seed(1)
    source = build(resolve("vit", 16, 3, 10, {**SIZES, "size.pool": of})).state_dict()
    torch.manual_seed(2)
    drawn = build(resolve("vit", 16, 3, 10, {**SIZES, "size.pool": to})).state_dict()[
        "pos_embed"
    ]
    torch.manual_seed(2)
    model, loaded = build_from(
        resolve("vit", 16, 3, 10, {**SIZES, "size.pool": to}), source
    )
    found, given = model.state_dict()["pos_embed"], source["pos_embed"]
    old, new = prefixes[of], prefixes[to]
    shared = min(old, new)
    assert torch.equal(found[:, :shared], given[:, :shared])
    assert torch.equal(found[:, shared:new], drawn[:, shared:new])
    assert torch.equal(found[:, new:], given[:, old:])
    assert "pos_embed" in loaded.resampled


def test_a_row_that_names_no_weights_starts_without_them(own: Path) -> None:
    rows = "rows: [{attnscale: true}, {attnscale: true, pretrained: FILE}]\ndesign: rows\n".replace(
        "FILE", str(own)
    )
    text = (
        STARTS.format(file=own)
        .replace("[false, ", "[")
        .replace("factors:", "factors:\n  attnscale: [true]")
        + rows
    )
    first, second = make_plan(
        space.load(text, "s.yaml"),
        lambda architecture: Cost(
            params=1, flops=1, flops_paper=1, activations=1, elementwise=1
        ),
    ).cells
    assert first.trials[0].start is None
    assert second.trials[0].start is not None


def test_a_long_name_of_a_file_is_refused_as_a_level_only(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150) / ("y" * 80)
    folder.mkdir(parents=True)
    file = folder / "own.pth"
    torch.save(vit().state_dict(), file)
    with pytest.raises(SpaceError, match="a level has at most 200 characters"):
        space.load(STARTS.format(file=file), "s.yaml")
    alone = (
        STARTS.replace("pretrained: [false, {file}]", "attnscale: [false, true]")
        + "pretrained: {file}\n"
    )
    assert space.load(alone.format(file=file), "s.yaml").network.pretrained == str(file)
