"""Distillation: the loss is DeiT's, the teacher only predicts, and its content is part
of a trial's identity.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from scipy.special import log_softmax
from torch import Tensor, nn

from ablate import space
from ablate.errors import CheckpointError, Infeasible, SpaceError
from ablate.families import resolve
from ablate.learning.teacher import Distillation, TeacherNetwork, build_teacher
from ablate.models import build
from ablate.pipeline import Options, run
from ablate.plan.plan import make_plan
from ablate.plan.teacher import find_teacher
from ablate.records import (
    Architecture,
    Cost,
    Data,
    DeclaredTeacher,
    InitialWeights,
    Level,
    Recipe,
    Teacher,
    Trial,
)
from ablate.store.reader import Reader
from ablate.training import Training
from tests.training.test_training import RECIPE, numbers, trial

SIZES: dict[str, Level] = {
    "size.patch_size": 4,
    "size.width": 16,
    "size.depth": 2,
    "size.heads": 2,
    "size.mlp_ratio": 2.0,
}
HARD = replace(RECIPE, distillation="hard")
LOGITS = (5, 7)


@pytest.fixture
def logits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of both heads and of the teacher, and labels; float64."""
    torch.manual_seed(3)
    own, of_token, taught = torch.randn(3, *LOGITS, dtype=torch.float64).mul(2).unbind()
    return own, of_token, taught, torch.tensor([0, 6, 2, 2, 5])


def cross_entropy(own: Tensor, classes: Tensor) -> float:
    """The mean over images, in numpy."""
    rows = log_softmax(own.numpy(), axis=1)
    return float(
        -np.mean([rows[image, wanted] for image, wanted in enumerate(classes.tolist())])
    )


def divergence(own: Tensor, taught: Tensor, temperature: float) -> float:
    """KL(teacher || student) of softened probabilities, the mean over images, in numpy."""
    student, teacher = (
        log_softmax(rows.numpy() / temperature, axis=1) for rows in (own, taught)
    )
    return float((np.exp(teacher) * (teacher - student)).sum(axis=1).mean())


def loss_of(recipe: Recipe) -> Distillation:
    return Distillation(nn.CrossEntropyLoss(), recipe)


def test_hard_distillation_is_equation_3(
    logits: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    own, of_token, taught, labels = logits
    expected = 0.5 * cross_entropy(own, labels) + 0.5 * cross_entropy(
        of_token, taught.argmax(dim=1)
    )
    assert loss_of(HARD)((own, of_token), labels, taught).item() == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize(("kind", "classes"), [("soft", 1), ("soft-code", LOGITS[1])])
@pytest.mark.parametrize(("share", "temperature"), [(0.1, 3.0), (0.5, 1.0), (1.0, 2.0)])
def test_soft_distillation_is_equation_2(
    kind: str,
    classes: int,
    share: float,
    temperature: float,
    logits: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    own, _, taught, labels = logits
    recipe = replace(
        RECIPE,
        distillation=kind,
        distillation_share=share,
        distillation_temperature=temperature,
    )
    teaching = temperature**2 * divergence(own, taught, temperature) / classes
    expected = (1 - share) * cross_entropy(own, labels) + share * teaching
    assert loss_of(recipe)(own, labels, taught).item() == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("kind", ["soft", "soft-code", "hard"])
def test_distillation_in_half_precision_keeps_its_digits(kind: str) -> None:
    """Two nearly equal logarithms of probabilities are subtracted."""
    torch.manual_seed(0)
    own = torch.randn(8, 1000).bfloat16()
    taught = (own + 0.1 * torch.randn(8, 1000)).bfloat16()
    labels = torch.arange(8)
    recipe = replace(RECIPE, distillation=kind, distillation_share=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss_of(recipe)(own, labels, taught).item()
    exact = loss_of(recipe)(own.double(), labels, taught.double()).item()
    assert found == pytest.approx(exact, rel=1e-3)


def test_a_declared_distillation_token_is_that_of_timm() -> None:
    """The same parameters under the same names, and with equal weights the same
    numbers, from one head and from both.
    """
    published = timm.create_model(
        "deit_tiny_distilled_patch16_224", num_classes=10, img_size=32
    )
    declared = build(
        resolve("deit_tiny_patch16_224", 32, 3, 10, {"size.pool": "distilled"})
    )
    declared.load_state_dict(published.state_dict())
    images = torch.randn(2, 3, 32, 32)
    for made in (published, declared):
        made.set_distilled_training(True)
    with torch.no_grad():
        for one, other in zip(
            published.train()(images), declared.train()(images), strict=True
        ):
            assert torch.equal(one, other)
        own, of_token = declared(images)
        torch.testing.assert_close(declared.eval()(images), (own + of_token) / 2)


def test_a_distillation_token_leaves_the_other_weights_as_they_are_drawn() -> None:
    def made(pool: str) -> dict[str, Tensor]:
        torch.manual_seed(5)
        return build(
            resolve("vit", 8, 1, 10, {**SIZES, "size.pool": pool, "ffn.kernel": 3})
        ).state_dict()

    plain, distilled = made("token"), made("distilled")
    assert set(distilled) - set(plain) == {
        "dist_token",
        "head_dist.weight",
        "head_dist.bias",
    }
    assert all(
        torch.equal(distilled[name], plain[name])
        for name in plain
        if name != "pos_embed"
    )
    position = distilled["pos_embed"]
    assert not torch.equal(position[0, 1], distilled["dist_token"][0, 0])
    assert torch.equal(
        torch.cat((position[:, :1], position[:, 2:]), dim=1), plain["pos_embed"]
    )


@pytest.mark.parametrize(
    ("backbone", "pool", "why"),
    [
        ("deit_tiny_distilled_patch16_224", "token", "classifies with two heads"),
        (
            "vit_small_patch14_reg4_dinov2",
            "distilled",
            "not a plain ViT with a class token",
        ),
    ],
)
def test_poolings_that_a_backbone_cannot_have(
    backbone: str, pool: str, why: str
) -> None:
    with pytest.raises(Infeasible, match=why):
        build(resolve(backbone, 224, 3, 10, {"size.pool": pool}))


@pytest.fixture
def teacher(tmp_path: Path) -> Teacher:
    """A network of the digits, trained for two epochs."""
    training = Training(
        trial(replace(RECIPE, epochs=2, warmup_epochs=0)), tmp_path / "teacher"
    )
    while not training.finished:
        training.epoch()
    training.save()
    training.close()
    declared = DeclaredTeacher("vit", str(tmp_path / "teacher" / "last.pt"), SIZES)
    found = find_teacher(declared, HARD, training._trial.data)
    assert found is not None
    return found


def taught(teacher: Teacher, recipe: Recipe = HARD, **settings: Level) -> Trial:
    return replace(trial(recipe, **settings), teacher=teacher)


def trained(
    wanted: Trial, folder: Path, stops: int = 99, processes: int = 1
) -> tuple[list[tuple[float, ...]], dict[str, Tensor]]:
    """The curve and the weights; the training is built again every `stops` epochs."""
    while True:
        training = Training(wanted, folder, processes=processes)
        for _ in range(stops):
            if training.finished:
                break
            training.epoch()
        training.save()
        training.close()
        if training.finished:
            return (
                numbers(training.epochs),
                torch.load(folder / "last.pt", weights_only=True)["model"],
            )


@pytest.mark.proof
def test_a_network_that_only_learns_from_its_teacher_predicts_as_it_does(
    teacher: Teacher, tmp_path: Path
) -> None:
    recipe = replace(HARD, distillation_share=1.0, epochs=40, lr=4e-3)
    network = build_teacher(teacher, trial().data)

    def agreement(wanted: Trial, folder: Path) -> float:
        training = Training(wanted, folder)
        images = torch.cat([inputs for inputs, _ in training._work.batches.test()])
        while not training.finished:
            training.epoch()
        training.close()
        with torch.no_grad():
            return float(
                (training._model.eval()(images).argmax(1) == network(images).argmax(1))
                .double()
                .mean()
            )

    with_teacher = agreement(taught(teacher, recipe), tmp_path / "taught")
    alone = agreement(trial(replace(recipe, distillation="none")), tmp_path / "alone")
    assert with_teacher > alone + 0.1


def test_the_teacher_stays_as_it_is_and_out_of_the_checkpoint(
    teacher: Teacher, tmp_path: Path
) -> None:
    training = Training(taught(teacher, **{"size.pool": "distilled"}), tmp_path / "run")
    network = training._work.teacher
    assert isinstance(network, TeacherNetwork)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    training.epoch()
    training.save()
    training.close()
    assert not network.training
    assert all(
        torch.equal(tensor, before[name])
        for name, tensor in network.state_dict().items()
    )
    state = torch.load(tmp_path / "run" / "last.pt", weights_only=True)
    assert set(state["model"]) == set(training._model.state_dict())
    assert "head_dist.weight" in state["model"]


def test_both_heads_learn(teacher: Teacher, tmp_path: Path) -> None:
    training = Training(taught(teacher, **{"size.pool": "distilled"}), tmp_path)
    images, labels = next(iter(training._work.batches.train(training._order)))
    training._optimizer.step = lambda *_: None
    training._update(training._work.batch(images, labels))
    training.close()
    gradients = {
        name: parameter.grad for name, parameter in training._model.named_parameters()
    }
    for head in ("head.weight", "head_dist.weight"):
        assert gradients[head] is not None
        assert gradients[head].abs().max() > 0


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_resumed_it_is_the_same(kind: str, teacher: Teacher, tmp_path: Path) -> None:
    recipe = replace(HARD, distillation=kind, mixup=0.8, cutmix=1.0, ema=0.9)
    wanted = taught(teacher, recipe, **{"size.pool": "distilled"})
    straight, weights = trained(wanted, tmp_path / "straight")
    again, others = trained(wanted, tmp_path / "again", stops=1)
    assert again == straight
    assert all(torch.equal(others[name], weights[name]) for name in weights)


@pytest.mark.proof
def test_parts_and_processes_change_nothing_but_rounding(
    teacher: Teacher, tmp_path: Path
) -> None:
    recipe = replace(HARD, distillation="soft", batch_size=40, epochs=2)
    whole, weights = trained(taught(teacher, recipe), tmp_path / "whole")
    for name, parts, processes in (("parts", 4, 1), ("processes", 1, 2)):
        curve, others = trained(
            taught(teacher, replace(recipe, accumulate=parts)),
            tmp_path / name,
            processes=processes,
        )
        for one, other in zip(whole, curve, strict=True):
            assert other == pytest.approx(one, abs=1e-4)
        assert all(
            torch.allclose(others[key], weights[key], atol=1e-4) for key in weights
        )


def test_a_teacher_from_timm_sees_images_as_it_was_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Published weights of this ViT want a mean of 0.5; DeiT's images have ImageNet's."""
    name = "vit_tiny_patch16_224"
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=1000)
    monkeypatch.setattr(
        "ablate.learning.teacher.read_weights", lambda *_, **__: network.state_dict()
    )
    data = Data(name="imagenet", path="", image_size=224, channels=3, classes=1000)
    made = build_teacher(
        Teacher(
            Architecture(backbone=name, image_size=224, channels=3, classes=1000),
            InitialWeights("timm some"),
        ),
        data,
    )
    raw = torch.rand(2, 3, 224, 224)
    mean, std = (
        torch.tensor([0.485, 0.456, 0.406])[:, None, None],
        torch.tensor([0.229, 0.224, 0.225])[:, None, None],
    )
    with torch.no_grad():
        torch.testing.assert_close(
            made((raw - mean) / std),
            network.eval()((raw - 0.5) / 0.5),
            atol=1e-5,
            rtol=1e-4,
        )


DOCUMENT = """question: What does a teacher give?
backbone: {{family: vit, patch_size: 4, width: 16, depth: 2, heads: 2, mlp_ratio: 2}}
teacher:
  backbone: {{family: vit, patch_size: 4, width: 16, depth: 2, heads: 2, mlp_ratio: 2}}
  weights: {weights}
factors:
  recipe.distillation: [none, hard]
  size.pool: [token, distilled]
seeds: 1
data: {{name: digits, train_images: 200, test_images: 60}}
recipe: {{epochs: 2, batch_size: 50, warmup_epochs: 0}}
"""


def no_cost(architecture: Architecture) -> Cost:
    return Cost(params=1, flops=1, flops_paper=1, activations=1, elementwise=1)


def test_a_trial_is_named_by_what_its_teacher_holds(
    teacher: Teacher, tmp_path: Path
) -> None:
    def hashes(file: Path) -> list[str]:
        plan = make_plan(space.load(DOCUMENT.format(weights=file), "s.yaml"), no_cost)
        return [found.hash for cell in plan.cells for found in cell.trials]

    file = Path(teacher.weights.path)
    first = hashes(file)
    moved = tmp_path / "moved.pt"
    shutil.copy(file, moved)
    assert hashes(moved) == first, "a file may move"
    state = torch.load(file, weights_only=True)
    state["model"]["head.bias"][0] += 1
    torch.save(state, moved)
    changed = hashes(moved)
    assert [one == other for one, other in zip(first, changed, strict=True)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_study_with_a_teacher_runs_and_its_store_says_so(
    teacher: Teacher, tmp_path: Path
) -> None:
    declared = space.load(DOCUMENT.format(weights=teacher.weights.path), "s.yaml")
    options = Options(runs=tmp_path / "runs", executor="inline")
    outcome = run(declared, "s.yaml", options)
    assert (outcome.trained, outcome.failed) == (4, 0)
    with Reader(options.url) as reader:
        _, rows = reader.query("SELECT teacher, COUNT(*) FROM trials GROUP BY teacher")
    assert {row[0]: row[1] for row in rows} == {None: 2, teacher.identity: 2}


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (
            ("  weights: {weights}", "  weights: nowhere.pt"),
            5,
            "teacher: no file nowhere.pt; name a checkpoint",
        ),
        (("[none, hard]", "[none, none]"), 3, "no cell learns from the teacher"),
        (("seeds: 1", "seeds: 1\npretrained: false"), 0, ""),
        (
            (
                "  weights: {weights}",
                "  weights: {weights}\n  settings: {{shortcuts.count: -1}}",
            ),
            6,
            "shortcuts.count",
        ),
        (
            (
                "  weights: {weights}",
                "  weights: {weights}\n  settings: {{recipe.lr: 1}}",
            ),
            6,
            "recipe.lr is not a setting",
        ),
        (
            (
                "  weights: {weights}",
                "  weights: {weights}\n  settings: {{size.width: 8}}",
            ),
            6,
            "size.width is also among",
        ),
        (
            (
                "  weights: {weights}",
                "  weights: {weights}\n  settings: {{drop.path: 0.1}}",
            ),
            6,
            "drop.path is read in training only",
        ),
        (
            (
                "  weights: {weights}",
                "  weights: {weights}\n  settings: {{shortcuts.b: 8}}",
            ),
            6,
            "shortcuts.b is not read",
        ),
    ],
)
def test_mistakes_are_reported_with_their_line(
    change: tuple[str, str], line: int, message: str, teacher: Teacher
) -> None:
    text = DOCUMENT.replace(*change).format(weights=teacher.weights.path)
    if not message:
        space.load(text, "s.yaml")
        return
    with pytest.raises(SpaceError) as caught:
        space.load(text, "s.yaml")
    assert f"s.yaml:{line}: " in str(caught.value)
    assert message in str(caught.value)


def test_distillation_without_a_teacher_is_refused() -> None:
    text = DOCUMENT.replace("  weights: {weights}\n", "").format()
    lines = [
        line
        for line in text.splitlines()
        if not line.startswith(("teacher", "  backbone"))
    ]
    with pytest.raises(
        SpaceError,
        match=r"s.yaml:4: distillation needs a teacher; write teacher: \{backbone",
    ):
        space.load("\n".join(lines), "s.yaml")
    alone = [
        line.replace("epochs: 2", "distillation: soft, epochs: 2")
        for line in lines
        if "recipe.distillation" not in line
    ]
    with pytest.raises(SpaceError, match="distillation needs a teacher"):
        space.load("\n".join(alone), "s.yaml")


def test_weights_of_another_network_are_refused(
    teacher: Teacher, tmp_path: Path
) -> None:
    data = trial().data
    with pytest.raises(
        Infeasible, match="teacher: last.pt is of another network than vit"
    ):
        find_teacher(
            DeclaredTeacher("vit", teacher.weights.path, {**SIZES, "size.width": 32}),
            HARD,
            data,
        )
    with pytest.raises(
        Infeasible, match="teacher: last.pt is of another network than resnet10t"
    ):
        find_teacher(DeclaredTeacher("resnet10t", teacher.weights.path), HARD, data)
    with pytest.raises(
        Infeasible, match="timm's weights are for image files; name a checkpoint"
    ):
        find_teacher(DeclaredTeacher("resnet10t", "timm"), HARD, data)
    (tmp_path / "words.pt").write_text("no tensors")
    with pytest.raises(
        CheckpointError,
        match="teacher: .*words.pt is no checkpoint that can be read safely",
    ):
        find_teacher(
            DeclaredTeacher("vit", str(tmp_path / "words.pt"), SIZES), HARD, data
        )
    assert find_teacher(DeclaredTeacher("vit", "nowhere"), RECIPE, data) is None, (
        "nothing is read where nothing distils"
    )


def test_any_model_of_timm_can_teach(tmp_path: Path) -> None:
    data = trial().data
    network = timm.create_model("resnet10t", in_chans=1, num_classes=10)
    torch.save(network.state_dict(), tmp_path / "resnet.pth")
    teacher = find_teacher(
        DeclaredTeacher("resnet10t", str(tmp_path / "resnet.pth")), HARD, data
    )
    assert teacher is not None
    training = Training(
        taught(teacher, replace(HARD, epochs=1, warmup_epochs=0)), tmp_path / "run"
    )
    assert np.isfinite(training.epoch().metrics["train_loss"])
    training.close()


def test_a_teacher_of_another_side_is_refused_in_the_plan(tmp_path: Path) -> None:
    """This one takes no other side than its own."""
    data = trial().data
    name = "mobilevit_xxs"
    torch.save(
        timm.create_model(name, in_chans=1, num_classes=10).state_dict(),
        tmp_path / "weights.pth",
    )
    assert (
        find_teacher(DeclaredTeacher(name, str(tmp_path / "weights.pth")), HARD, data)
        is not None
    )
    name = "eva02_tiny_patch14_224"
    torch.save(
        timm.create_model(name, in_chans=1, num_classes=10).state_dict(),
        tmp_path / "eva.pth",
    )
    with pytest.raises(Infeasible, match=f"teacher: .*{name}"):
        find_teacher(DeclaredTeacher(name, str(tmp_path / "eva.pth")), HARD, data)


def test_a_file_that_changed_since_the_plan_is_refused(
    teacher: Teacher, tmp_path: Path
) -> None:
    Path(teacher.weights.path).write_bytes(b"something else")
    with pytest.raises(
        CheckpointError,
        match="teacher: .*last.pt has changed since the trial was planned",
    ):
        Training(taught(teacher), tmp_path / "run")
