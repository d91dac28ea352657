"""A file adds a factor, a backbone, a data set, a loss, a metric and a diagnostic."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ablate import data, families, pipeline, space
from ablate.errors import AblateError, DataError, PartError, SpaceError
from ablate.models import build
from ablate.own import registry
from ablate.pipeline import Options
from ablate.records import Status
from ablate.results.html_report import write_report
from ablate.results.study import Study
from ablate.store.other_store import import_studies
from ablate.store.reader import Reader
from tests.own.conftest import Run, Use
from tests.own.test_registry import documented_factor
from tests.processes import ended, kill_with_children, wait_for_epochs

SCALED = '''
class Scaled(nn.Module):
    """Multiplies the output of a module by a constant."""

    def __init__(self, inner, factor):
        super().__init__()
        self.inner = inner
        self.factor = factor

    def forward(self, x):
        return self.factor * self.inner(x)
'''
PARTS = f"""
import numpy as np
import torch
from torch import nn
import ablate
from ablate.diagnostics.diagnostic import Diagnostic
from ablate.factors.factor import Factor, Parameter, Real

{SCALED}

SCALE = Factor(
    name="scale",
    source="mine",
    claim="Smaller residuals train more stably.",
    neutral=lambda values: values["scale"] == 1.0,
    replace_ffn=lambda values, site, inner: Scaled(inner, values["scale"]),
    parameters=(
        Parameter("scale", Real(0, closed=False), 1.0, "factor on the FFN", (0.5, 2.0)),
    ),
)


@ablate.dataset()
def stripes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 240)
    images = rng.integers(0, 60, (240, 8, 8))
    for image, label in zip(images, labels):
        image[:, 2 * label] += 150
    images = images.astype(np.uint8)
    return images[:200], labels[:200], images[200:], labels[200:]


@ablate.backbone(image_size=8)
def two_layers(image_size, channels, classes):
    pixels = channels * image_size**2
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 16), nn.GELU(), nn.Linear(16, classes))


@ablate.loss()
def margin(logits, targets):
    return nn.functional.multi_margin_loss(logits, targets)


@ablate.metric(direction="max", title="worst class (%)", digits=1)
def worst_class(logits, labels):
    hits = logits.argmax(1) == labels
    return 100 * min(hits[labels == one].float().mean().item() for one in labels.unique())


NORM = Diagnostic(
    name="mean_norm",
    about="mean norm of the tokens",
    source="mine",
    axis="norm",
    measure=lambda layer: {{"": layer.tokens.norm(dim=-1).mean(1)}},
)
"""
VIT = """
question: Does a smaller residual help?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors: {scale: [1, 0.5]}
seeds: 2
data: stripes
metric: {worst_class: max}
diagnostics: [mean_norm]
recipe: {epochs: 3, batch_size: 50, lr: 2e-3, loss: margin}
"""
PLAIN = """
question: Which loss suits a small perceptron?
backbone: two_layers
factors: {recipe.loss: [cross-entropy, margin]}
seeds: 2
data: stripes
recipe: {epochs: 3, batch_size: 50, lr: 2e-3}
"""


def test_all_parts_in_one_study(use: Use, run: Run, study: Study) -> None:
    use(PARTS)
    assert run(VIT).trained == 4
    assert run(VIT).trained == 0
    assert "worst class (%)" in study.table()
    frame = study.frame()
    assert frame["worst_class"].notna().all()
    assert frame["top1"].notna().all(), "the built-in metrics are measured too"
    with Reader(study.store) as reader:
        assert reader.diagnostics.names("own") == ["mean_norm"]
        _, codes = reader.query("SELECT DISTINCT code FROM trials")
    assert len(codes) == 1
    assert "loss margin" in str(codes)
    assert "metric worst_class" in str(codes)


def test_a_backbone_of_ones_own(use: Use, run: Run, study: Study) -> None:
    use(PARTS)
    assert run(PLAIN).trained == 4
    (cell, _) = study.results().cells
    assert cell.cost is not None
    assert cell.cost.params == 64 * 16 + 16 + 16 * 4 + 4
    assert cell.cost.flops_paper == 64 * 16 + 16 * 4


def test_factors_of_blocks_are_refused_with_the_reason(use: Use) -> None:
    use(PARTS)
    declared = space.load(
        PLAIN.replace(
            "{recipe.loss: [cross-entropy, margin]}", "{shortcuts.count: [0, 2]}"
        ),
        "own.yaml",
    )
    shown = pipeline.cost_plan(declared, "none.db")
    assert shown.cells[0].trials
    assert shown.cells[1].note == (
        "shortcuts is not defined on two_layers: ablate does not know the blocks of your"
        " own backbones"
    )


def test_what_a_trial_does_not_use_is_not_in_its_hash(use: Use) -> None:
    use(PARTS)
    text = PLAIN.replace("data: stripes", "data: {name: digits, train_images: 100}")
    text = text.replace(
        "two_layers", "{family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}"
    )
    declared = space.load(text, "own.yaml")
    first, second = pipeline.cost_plan(declared, "none.db").cells
    assert first.architecture is not None
    assert first.architecture.code == {}
    assert first.trials[0].code == {}
    assert list(second.trials[0].code) == ["loss margin"]
    registry.clear()
    plain = space.load(text.replace("margin", "bce"), "own.yaml")
    (again, _) = pipeline.cost_plan(plain, "none.db").cells
    assert again.trials[0].hash == first.trials[0].hash


@pytest.mark.proof
def test_a_changed_file_trains_again_and_a_revision_does_not(
    use: Use, run: Run
) -> None:
    use(PARTS)
    assert run(VIT).trained == 4
    use(f"{PARTS}\n# A comment.\n")
    assert run(VIT).trained == 4
    declared = PARTS
    for decorator in ("dataset()", "loss()"):
        declared = declared.replace(decorator, decorator.replace(")", "revision=1)"))
    declared = declared.replace('direction="max",', 'direction="max", revision=1,')
    declared = declared.replace('name="scale",', 'name="scale", revision=1,')
    use(declared)
    assert run(VIT).trained == 4
    use(f"{declared}\n# A comment.\n")
    assert run(VIT).trained == 0


@pytest.mark.proof
def test_a_study_outlives_its_parts(
    use: Use, run: Run, study: Study, tmp_path: Path
) -> None:
    file = use(PARTS)
    run(VIT)
    table = study.table()
    file.unlink()
    registry.clear()
    assert study.table() == table
    write_report(study, tmp_path / "report.html")
    assert "worst class" in (tmp_path / "report.html").read_text()
    with pytest.raises(SpaceError, match="unknown factor 'scale'"):
        run(VIT)


def test_the_factor_of_the_readme_trains(use: Use, run: Run) -> None:
    """Exactly as printed."""
    use(documented_factor())
    assert run(VIT_WITH_SCALE).trained == 4


VIT_WITH_SCALE = """
question: Does a smaller residual help?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors: {scale: [1, 0.5]}
seeds: 2
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 2, batch_size: 50, lr: 2e-3}
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1", "must return four arrays: x_train, y_train, x_test, y_test"),
        ("raise OSError('no disk')", "data: bad cannot be loaded: OSError: no disk"),
        ("return X.astype(float), Y, X, Y", "x_train is float64"),
        ("return X, Y, X[:, :2], Y", "images must be square"),
        (
            "return X, Y[:3], X, Y",
            r"y_train is int64 \(3,\); it must be integers \(8,\)",
        ),
        ("return X, Y - 1, X, Y", "y_train has the label -1"),
        (
            "return X, Y + 1, X, Y",
            "y_train in bad starts at class 1, y_test at 0; .*same classes",
        ),
        ("return X, Y, X[:0], Y[:0]", "x_test is empty"),
        ("return X, Y, X[:, :2, :2], Y", "both must have the same shape"),
    ],
)
def test_data_of_another_form(use: Use, body: str, message: str) -> None:
    use(
        "import numpy as np\nimport ablate\nX = np.zeros((8, 4, 4), np.uint8)\nY ="
        f" np.arange(8)\n@ablate.dataset()\ndef bad():\n    {body}\n"
    )
    with pytest.raises(DataError, match=message):
        data.describe("bad")


def test_labels_and_images_are_kept(use: Use) -> None:
    from ablate.data import arrays

    use(PARTS)
    described = data.describe("stripes")
    assert (described.image_size, described.channels, described.classes) == (8, 1, 4)
    loaded = arrays.load(described)
    stripes = registry.of_kind("data set")["stripes"]()
    assert np.array_equal(loaded.train.squeeze(1).numpy(), stripes[0])
    assert np.array_equal(loaded.test_labels.numpy(), stripes[3])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("loss: margin", "loss: margn", "unknown loss 'margn'; did you mean 'margin'?"),
        ("{worst_class: max}", "{worst_clas: max}", "the first metric must be one of"),
        ("data: stripes", "data: strips", "did you mean 'stripes'?"),
        (
            "loss: margin",
            "loss: margin, label_smoothing: 0.1",
            "is not read unless loss",
        ),
    ],
)
def test_a_wrong_name_is_reported_with_its_line(
    use: Use, old: str, new: str, message: str
) -> None:
    use(PARTS)
    with pytest.raises(SpaceError) as told:
        space.load(VIT.replace(old, new), "own.yaml")
    assert message in str(told.value)
    assert re.match(r"own\.yaml:\d+: ", str(told.value))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("multi_margin_loss(logits, targets)", "relu(logits)", "must return a scalar"),
        ("return 100 * min(", "return float('nan') * min(", "worst_class is nan"),
        ("return 100 * min(", "return 1 / 0 * min(", "division by zero"),
    ],
)
def test_a_part_that_fails_fails_its_trials(
    use: Use, run: Run, options: Options, old: str, new: str, message: str
) -> None:
    use(PARTS.replace(old, new))
    assert run(VIT).failed == 2
    with Reader(options.url) as reader:
        _, rows = reader.query("SELECT error FROM attempts")
    assert all(message in error for (error,) in rows)


def test_a_metric_needs_all_logits_in_one_process(use: Use) -> None:
    use(PARTS)
    text = f"{VIT}resources: {{processes: 2}}\n"
    plan = pipeline.cost_plan(space.load(text, "own.yaml"), "none.db")
    assert {cell.note for cell in plan.cells} == {
        "the metric worst_class needs all logits in one process; set"
        " resources.processes to 1"
    }


@pytest.mark.proof
def test_several_processes_of_a_trial_load_the_parts(
    use: Use, run: Run, study: Study
) -> None:
    use(PARTS)
    text = VIT.replace("metric: {worst_class: max}\n", "resources: {processes: 2}\n")
    outcome = run(text.replace("seeds: 2", "seeds: 1"))
    assert outcome.trained == 2, study.table()


def test_a_backbone_that_cannot_be_built(use: Use) -> None:
    use(PARTS.replace("nn.Linear(16, classes)", "nn.Linear(16, 3)"))
    plan = pipeline.cost_plan(space.load(PLAIN, "own.yaml"), "none.db")
    assert plan.cells[0].note == "two_layers gives no logits of 4 classes"
    registry.clear()
    use(PARTS.replace("pixels = channels", "pixels = nothing"))
    families.find("two_layers")
    # A mistake is no matter of levels: the plan stops, and names the line.
    with pytest.raises(
        PartError, match=r"two_layers cannot be built .* NameError.*own_parts.py:\d+"
    ):
        pipeline.cost_plan(space.load(PLAIN, "own.yaml"), "none.db")
    registry.clear()
    use(
        PARTS.replace(
            "pixels = channels", "assert not classes, 'odd'\n    pixels = channels"
        )
    )
    plan = pipeline.cost_plan(space.load(PLAIN, "own.yaml"), "none.db")
    assert "AssertionError: odd (own_parts.py:" in plan.cells[0].note


@pytest.mark.ray
def test_a_killed_study_on_ray_resumes_with_its_parts(tmp_path: Path) -> None:
    """Driver killed, resumed from the store, tabulated; equal to an undisturbed run."""
    (tmp_path / "mine.py").write_text(PARTS)
    (tmp_path / "own.yaml").write_text(VIT.replace("epochs: 3", "epochs: 40"))

    def ablate(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ablate", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    plain = ablate("run", "own.yaml", "--with", "mine.py", "--runs", "whole")
    assert plain.returncode == 0, plain.stderr
    driver = subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", "own.yaml", "--with", "mine.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    store = tmp_path / "runs" / "ablate.db"
    with ended(driver):
        wait_for_epochs(driver, store, 1)
        kill_with_children(driver)
    unnamed = ablate("resume")
    assert unnamed.returncode == 2
    assert unnamed.stderr == (
        "error: own was last run with your own parts; add --with mine.py\n"
    )
    resumed = ablate("resume", "--with", "mine.py")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == plain.stdout
    with Reader(str(store)) as reader:
        statuses = reader.studies.get("own").by_status
    assert statuses == {Status.COMPLETED: 4}


def test_data_that_a_function_reads_count(use: Use, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "offset.txt"
    place.write_text("0")
    read = f"150 - int(__import__('pathlib').Path({str(place)!r}).read_text())"
    parts = PARTS.replace("label] += 150", f"label] += {read}")
    use(parts)
    assert run(PLAIN).trained == 4
    registry.clear()
    place.write_text("9")
    use(parts)
    assert run(PLAIN).trained == 4


def test_a_foreign_store_puts_no_statements_into_views(
    use: Use, run: Run, options: Options, tmp_path: Path
) -> None:
    use(PARTS)
    run(PLAIN)
    evil = (
        "x') AS a FROM cells c, cell_trials ct, trials t; CREATE TABLE pwned(i int) --"
    )
    with sqlite3.connect(options.url) as store:
        (text,) = store.execute("SELECT space FROM studies").fetchone()
        declared = json.loads(text)
        declared["metrics"].append({**declared["metrics"][0], "name": evil})
        view = 'v" AS SELECT 1; CREATE TABLE pwned2(i int) --'
        store.execute(
            "UPDATE studies SET space = ?, results_view = ?",
            (json.dumps(declared), view),
        )
    store.close()
    other = tmp_path / "other.db"
    import_studies(options.url, str(other))
    with sqlite3.connect(other) as store:
        names = {row[0] for row in store.execute("SELECT name FROM sqlite_master")}
        (sql,) = store.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'results_own'"
        ).fetchone()
    store.close()
    assert not {"pwned", "pwned2"} & names
    assert "pwned" not in sql


LIKE = """
import torch
import ablate
from timm.models.vision_transformer import VisionTransformer


class Shifted(VisionTransformer):
    def forward(self, x):
        return super().forward(x + 0.25)


@ablate.backbone(image_size=8, like="vit")
def shifted(image_size, channels, classes):
    return Shifted(
        img_size=image_size, patch_size=4, in_chans=channels, num_classes=classes,
        embed_dim=16, depth=2, num_heads=2,
    )


@ablate.backbone(image_size=8, like="vit")
def unlike(image_size, channels, classes):
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(channels * image_size**2, classes)
    )


@ablate.backbone(image_size=8, like="resnet")
def other(image_size, channels, classes): ...
"""
ON_LIKE = """
question: Do factors work on a network of my own?
backbone: shifted
factors: {shortcuts.count: [0, 2], ffn.kernel: [none, 3]}
seeds: 1
data: {name: digits, train_images: 100, test_images: 50}
diagnostics: [token_cosine]
recipe: {epochs: 1, batch_size: 50}
"""


def test_factors_work_on_a_backbone_like_timms(
    use: Use, run: Run, study: Study
) -> None:
    use(LIKE)
    assert run(ON_LIKE).trained == 4
    costs = {cell.cost.params for cell in study.results().cells if cell.cost}
    assert len(costs) == 4
    neutral = build(families.resolve("shifted", 8, 1, 10, {"shortcuts.count": 0}))
    torch.manual_seed(0)
    ours = build(families.resolve("shifted", 8, 1, 10, {})).eval()
    torch.manual_seed(0)
    theirs = registry.of_kind("backbone")["shifted"](8, 1, 10).eval()
    image = torch.rand(1, 1, 8, 8)
    assert type(neutral) is type(theirs)
    assert torch.equal(ours(image), theirs(image))


def test_a_backbone_that_is_not_like_its_family(use: Use) -> None:
    use(LIKE)
    text = ON_LIKE.replace("backbone: shifted", "backbone: unlike")
    plan = pipeline.cost_plan(space.load(text, "own.yaml"), "none.db")
    assert "unlike is not built like timm's networks of the family vit" in str(
        plan.cells[0].note
    )
    with pytest.raises(AblateError, match="backbone other: unknown family 'resnet'"):
        families.find("other")
    text = ON_LIKE.replace("ffn.kernel: [none, 3]", "size.width: [16, 24]")
    plan = pipeline.cost_plan(space.load(text, "own.yaml"), "none.db")
    assert "size.width cannot be changed on shifted" in plan.cells[1].note
