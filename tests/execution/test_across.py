"""Sizes: every row is trained at each, and its effect is judged along all of them."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import api, space
from ablate.budget import Budget
from ablate.errors import AblateError, SpaceError, UnknownName
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Hooks, Options, Outcome, preview, previews, resume, run
from ablate.records import Epoch, Trial
from ablate.report.charts import Chart, Series
from ablate.report.matplotlib_charts import save_chart
from ablate.report.verdicts import Verdict, Withheld
from ablate.results.project import budget_of
from ablate.results.study import Study
from ablate.store.reader import Reader
from ablate.store.writer import Writer
from tests.conftest import Killed, Say, killing, made_once

STUDY = """
question: Does a depthwise kernel help at every width?
backbone: {family: vit, patch_size: 4, depth: 1, heads: 2, mlp_ratio: 2}
factors: {ffn.kernel: [none, 3], value: [none, silu]}
design: one-at-a-time
across: {size.width: [8, 16, 32]}
seeds: 5
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 2, batch_size: 50, warmup_epochs: 0}
"""
AXIS = "size.width: [8, 16, 32]"
TUNED = STUDY.replace("test_images: 50", "test_images: 50, validation: 0.2") + (
    "tune: {recipe.lr: [1e-4, 1e-3, 1e-2]}\n"
)
WIDTHS = (8, 16, 32)
STUDIES = ["tiny/width-8", "tiny/width-16", "tiny/width-32"]
Law = Callable[[str, int], float]


def width_of(trial: Trial) -> int:
    return int(str(trial.architecture.settings["size.width"]))


def constant(row: str, width: int) -> float:
    return {"ffn.kernel": 3.0, "value": 0.0}.get(row, 0.0)


def fading(row: str, width: int) -> float:
    """A kernel helps less with each doubling of the width, and hurts at the largest."""
    return {"ffn.kernel": {8: 4.0, 16: 0.0, 32: -4.0}[width], "value": 0.0}.get(
        row, 0.0
    )


def curves(law: Law) -> Callable[[Trial, int], Epoch]:
    """Trials of which row 0 gains 5 points with each doubling of the width."""

    def curve(trial: Trial, number: int) -> Epoch:
        width = width_of(trial)
        names = ("ffn.kernel", "value")
        row = next((n for n in names if n in trial.architecture.settings), "")
        noise = random.Random(zlib.crc32(trial.hash.encode())).gauss(0, 0.1)
        doublings = {8: 0, 16: 1, 32: 2}[width]
        top1 = 60 + 5 * doublings + law(row, width) + noise
        return Epoch(
            number=number,
            metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
            lr=trial.recipe.lr,
            seconds=1.0,
        )

    return curve


RunStudy = Callable[..., Outcome]


@pytest.fixture
def run_study(options: Options, tmp_path_factory: pytest.TempPathFactory) -> RunStudy:
    def run_it(
        text: str = STUDY, law: Law = constant, hooks: Hooks | None = None
    ) -> Outcome:
        def make() -> Outcome:
            declared = space.load(text, "tiny.yaml")
            executor = SimulatedExecutor(curves(law))
            return run(declared, "tiny.yaml", options, hooks, executor)

        if hooks is not None or law not in (constant, fading):
            return make()
        return made_once((text, law), options.runs, tmp_path_factory, make)

    return run_it


@pytest.fixture
def ladder(options: Options) -> Study:
    return Study("tiny", options.url)


def verdicts(ladder: Study) -> list[str]:
    return [row["verdict"] for row in ladder.effects_table().data]


def test_each_size_is_a_study_that_has_all_rows(
    run_study: RunStudy, options: Options, ladder: Study
) -> None:
    outcome = run_study()
    assert (outcome.study, outcome.trials, outcome.trained) == ("tiny", 45, 45)
    with Reader(options.url) as reader:
        assert [study.name for study in reader.studies.sizes("tiny")] == STUDIES
    for name, width in zip(STUDIES, WIDTHS, strict=True):
        results, declared = Study(name, options.url).read()
        assert declared.factors.fixed["size.width"] == width
        assert [len(cell.values) for cell in results.cells] == [5, 5, 5]
    assert [size.across.size for size in ladder.sizes()] == list(WIDTHS)
    # The training compute of row 0: its FLOPs, times the images that a training sees.
    for size in ladder.sizes():
        cost = size.results.cells[0].cost
        assert cost is not None
        assert size.position == cost.flops * 2 * 200


def test_a_second_run_trains_nothing(run_study: RunStudy) -> None:
    run_study()
    again = run_study()
    assert (again.trained, again.known_before) == (0, 45)


def test_a_constant_effect_helps_at_every_size(
    run_study: RunStudy, ladder: Study
) -> None:
    run_study()
    helps, same = verdicts(ladder)
    # Row 0 gains 5 points with each doubling of the width, which is more than a doubling
    # of the compute. So 3 points are worth 2 ** (3 / 5) widths, and more compute.
    assert helps.startswith("helps at every size; worth ")
    assert same == "no difference at every size"
    (row, _) = ladder.effects_table().data
    for at in row["sizes"]:
        assert at["low"] < 3 < at["high"]
    middle = row["sizes"][1]
    assert middle["equal_low"] < middle["equal"] < middle["equal_high"]
    # At the largest size, row 0 never gets there.
    last = row["sizes"][2]
    assert (last["equal"], last["equal_high"]) == (None, None)
    assert last["equal_low"] >= 1


def test_the_equal_compute_is_where_row_0_reaches_the_row(
    run_study: RunStudy, ladder: Study
) -> None:
    run_study()
    low, middle, high = ladder.sizes()
    expected = 2 ** (3 / 5 * (high.doublings - middle.doublings))
    (row, _) = ladder.effects_table().data
    assert row["sizes"][1]["equal"] == pytest.approx(expected, rel=0.05)
    expected = 2 ** (3 / 5 * (middle.doublings - low.doublings))
    assert row["sizes"][0]["equal"] == pytest.approx(expected, rel=0.05)


def test_an_effect_that_turns_reverses_and_has_a_trend(
    run_study: RunStudy, ladder: Study
) -> None:
    run_study(law=fading)
    reverses, _ = verdicts(ladder)
    assert reverses.startswith(
        "reverses between width 8 and 32: helps at width 8, hurts at width 32, "
    )
    turns, other = ladder.effects_table().data
    assert (turns["crossing_low"], turns["crossing_high"]) == (8, 32)
    assert (other["crossing_low"], other["crossing_high"]) == (None, None)
    assert "per doubling of training compute" in reverses
    (row, _) = ladder.effects_table().data
    doublings = [size.doublings for size in ladder.sizes()]
    slope = -8 / (doublings[2] - doublings[0])
    assert row["trend"] == pytest.approx(slope, rel=0.05)
    assert row["trend_low"] < row["trend"] < row["trend_high"] < 0


def test_an_effect_that_ends_has_no_difference_from_a_size_on(
    run_study: RunStudy, ladder: Study
) -> None:
    run_study(law=lambda row, width: 4.0 if row == "value" and width == 8 else 0.0)
    same, ends = verdicts(ladder)
    assert same == "no difference at every size"
    assert ends.startswith(
        "helps at width 8, no difference from width 16 on; helps less"
    )


def test_a_lower_loss_is_better(run_study: RunStudy, ladder: Study) -> None:
    # The loss is 1.0 for every trial, so there is no noise to test against.
    run_study(STUDY + "metric: {loss: min}\n")
    assert verdicts(ladder) == ["inconclusive", "inconclusive"]


def test_a_size_has_no_verdict_of_its_own(
    run_study: RunStudy, options: Options
) -> None:
    run_study()
    for name in STUDIES:
        for effect in Study(name, options.url).effects():
            assert effect.verdict is Verdict.INCONCLUSIVE
            assert effect.withheld is Withheld.ACROSS
        table = Study(name, options.url).effects_table("factors")
        assert {row["verdict"] for row in table.data} == {"inconclusive"}


def test_there_is_no_verdict_before_all_sizes_have_ended(
    run_study: RunStudy, ladder: Study
) -> None:
    with pytest.raises(Killed):
        run_study(hooks=killing(100))
    assert verdicts(ladder) == ["trials unfinished", "trials unfinished"]
    run_study()
    assert verdicts(ladder)[0].startswith("helps at every size")


@pytest.mark.proof
@pytest.mark.parametrize("text", [STUDY, TUNED], ids=["plain", "tuned"])
def test_ten_kills_change_no_byte(
    run_study: RunStudy, options: Options, ladder: Study, tmp_path: Path, text: str
) -> None:
    for _ in range(10):
        with pytest.raises(Killed):
            run_study(text, hooks=killing(13))
    run_study(text)
    other = Options(runs=tmp_path / "other", executor="inline")
    executor = SimulatedExecutor(curves(constant))
    run(space.load(text, "tiny.yaml"), "tiny.yaml", other, None, executor)
    undisturbed = Study("tiny", other.url)
    for form in ("md", "csv", "json", "html"):
        assert ladder.table(form) == undisturbed.table(form)
    assert {size.results.tune is None for size in ladder.sizes()} == {text is STUDY}


@pytest.mark.parametrize("name", ["tiny", "tiny/width-16", None])
def test_a_resume_finishes_all_sizes(
    run_study: RunStudy, options: Options, name: str | None
) -> None:
    with pytest.raises(Killed):
        run_study(hooks=killing(30))
    outcome = resume(name, options, None, SimulatedExecutor(curves(constant)))
    assert (outcome.trials, outcome.unfinished) == (45, 0)


def test_the_budget_is_that_of_all_sizes(options: Options) -> None:
    limited = Options(runs=options.runs, executor="inline", budget=Budget(trials=20))
    declared = space.load(STUDY, "tiny.yaml")
    executor = SimulatedExecutor(curves(constant))
    outcome = run(declared, "tiny.yaml", limited, None, executor)
    assert (outcome.trained, outcome.unfinished) == (20, 25)
    assert outcome.exhausted == "max_trials 20"
    again = run(declared, "tiny.yaml", limited, None, SimulatedExecutor())
    assert again.trained == 0


def test_a_size_that_is_added_makes_a_new_generation(
    run_study: RunStudy, options: Options, ladder: Study
) -> None:
    run_study()
    run_study(STUDY.replace("[8, 16, 32]", "[8, 16]"))
    with Reader(options.url) as reader:
        before = reader.studies.results("tiny/width-8").before
    assert before.generation == 2
    assert [study.name for study in before.studies] == ["tiny/width-8@1"]
    assert [size.across.size for size in ladder.sizes()] == [8, 16]


def test_a_ladder_is_shown_by_its_name(
    run_study: RunStudy, options: Options, ladder: Study, say: Say
) -> None:
    run_study()
    where = ("--runs", str(options.runs))
    for words in (("table", "tiny"), ("effects", "tiny")):
        code, out, _ = say(*words, *where)
        assert code == 0
        assert "helps at every size" in " ".join(out.split())
    code, out, _ = say(
        "effects", "tiny/width-8", "--of", "sizes", *where, "--format", "json"
    )
    assert code == 0
    assert [at["size"] for at in json.loads(out)[0]["sizes"]] == list(WIDTHS)
    code, _, error = say("review", "tiny", *where)
    assert code == 2
    assert "name one: tiny/width-8, tiny/width-16, tiny/width-32" in error


def test_the_error_budget_counts_a_ladder_once(
    run_study: RunStudy, options: Options
) -> None:
    run_study()
    budget = budget_of(options.url)
    (line,) = budget.lines
    assert line.test.name == "tiny"
    assert line.own == ("row 1",)


def test_the_frame_of_a_ladder_has_all_sizes(
    run_study: RunStudy, ladder: Study
) -> None:
    run_study()
    frame = ladder.frame()
    assert frame["size.width"].value_counts().to_dict() == dict.fromkeys(WIDTHS, 15)
    assert len(frame) == 45


def test_the_views_of_all_sizes_have_the_size_as_a_column(
    run_study: RunStudy, options: Options
) -> None:
    run_study()
    union = " UNION ALL ".join(
        f'SELECT "size.width", top1 FROM results_tiny_width_{width}' for width in WIDTHS
    )
    with sqlite3.connect(options.runs / "ablate.db") as store:
        rows = store.execute(f'SELECT "size.width", count(*) FROM ({union}) GROUP BY 1')
        assert rows.fetchall() == [(8, 15), (16, 15), (32, 15)]


@pytest.mark.proof
def test_sizes_may_have_their_own_numbers_of_seeds(
    options: Options, ladder: Study
) -> None:
    text = PREDICTED.replace("seeds: 5\n", "")
    narrow, wide = {}, {}
    for last, intervals in ((20, narrow), (5, wide)):
        seeds = text.replace("predict: 32", f"predict: 32, seeds: [8, 5, {last}]")
        declared = space.load(seeds, "tiny.yaml")
        executor = SimulatedExecutor(curves(constant))
        where = replace(options, runs=options.runs / str(last))
        outcome = run(declared, "tiny.yaml", where, None, executor)
        assert outcome.trials == 3 * (8 + 5)
        effects = Study("tiny", where.url).effects_table().data
        assert [each["n"] for each in effects[0]["sizes"]] == [8, 5]
        intervals.update(predictions(where)[1])
        run(declared, "tiny.yaml", where, None, executor, predicted=True)
        results, _ = Study("tiny/width-32", where.url).read()
        assert [len(cell.values) for cell in results.cells] == [last] * 3
    # The mean of more seeds is predicted more narrowly.
    for (low, value, high), (lower, same, higher) in zip(
        narrow.values(), wide.values(), strict=True
    ):
        assert lower < low < high < higher
        assert value == same


@pytest.mark.parametrize("of", ["sizes", "scaling"])
def test_charts_have_a_point_at_each_size(
    run_study: RunStudy, ladder: Study, of: str
) -> None:
    run_study()
    from ablate.results.study_charts import chart

    drawn = chart(ladder, of)
    assert isinstance(drawn, Chart)
    lines = [series for series in drawn.series if series.like is None]
    assert len(lines) == (2 if of == "sizes" else 3)
    assert {len(series.x) for series in lines} == {3}
    assert "training compute of row 0 (10^6 FLOPs" in drawn.x


def test_the_scaling_leads_from_a_row_to_where_row_0_is_as_good(
    run_study: RunStudy, ladder: Study
) -> None:
    run_study()
    from ablate.results.study_charts import chart

    drawn = chart(ladder, "scaling")
    assert isinstance(drawn, Chart)
    row_0, kernel, _, worth = drawn.series
    assert (worth.like, worth.dashed) == (1, True)
    assert (worth.x[0], worth.y[0]) == (kernel.x[1], kernel.y[1])
    start, end = (math.log(x) for x in row_0.x[1:])
    share = (math.log(worth.x[1]) - start) / (end - start)
    reached = row_0.y[1] + share * (row_0.y[2] - row_0.y[1])
    # Row 0 is drawn as a chord, and taken to be in a band beside it.
    assert reached == pytest.approx(worth.y[1], abs=0.3)


@pytest.mark.proof
def test_the_figure_shows_what_was_predicted_and_then_what_was_measured(
    run_study: RunStudy, options: Options, ladder: Study, tmp_path: Path
) -> None:
    from ablate.results.study_charts import chart

    def ahead() -> list[Series]:
        drawn = chart(ladder, "sizes")
        assert isinstance(drawn, Chart)
        for ending in ("svg", "html"):
            save_chart(tmp_path / f"sizes.{ending}", drawn)
        assert drawn.ticks_x[2:] == ([18.9] if drawn.series[2:] else [])
        return list(drawn.series[2:])

    run_study(PREDICTED, fading)
    _, by_row = predictions(options)
    kernel, value = ahead()
    assert (kernel.like, value.like) == (0, 1)
    assert (kernel.low[-1], kernel.y[-1], kernel.high[-1]) == by_row[1]
    run_predicted(options)
    measured = ahead()[1::2]
    assert [series.like for series in measured] == [0, 1]
    assert measured[0].y == pytest.approx([-4], abs=0.3)


def test_a_study_without_sizes_says_how_to_get_them(
    run_study: RunStudy, options: Options
) -> None:
    run_study(STUDY.replace(f"across: {{{AXIS}}}\n", "fixed: {size.width: 8}\n"))
    with pytest.raises(AblateError, match=r"add to its file: across: \{size.width:"):
        Study("tiny", options.url).effects_table("sizes")
    with pytest.raises(UnknownName):
        Study("other", options.url).effects_table("sizes")


@pytest.mark.proof
def test_python_gets_the_ladder(tmp_path: Path) -> None:
    text = STUDY.replace("seeds: 5", "seeds: 2").replace("[8, 16, 32]", "[4, 8]")
    (tmp_path / "mine.yaml").write_text(text.replace("heads: 2", "heads: 1"))
    study = api.run(tmp_path / "mine.yaml", runs=tmp_path, executor="inline")
    assert study.name == "mine"
    assert len(study.sizes()) == 2
    assert len(study.effects_table().data) == 2


@pytest.mark.parametrize(
    ("axis", "names"),
    [
        ("data.train_images: [100, 200]", ["train_images-100", "train_images-200"]),
        ("size.depth: [1, 2]", ["depth-1", "depth-2"]),
        ("recipe.lr: [1e-3, 2e-3], per: number", ["lr-0.001", "lr-0.002"]),
        ("size.mlp_ratio: [1, 2], per: params", ["mlp_ratio-1", "mlp_ratio-2"]),
    ],
)
def test_an_axis_stands_where_it_belongs(
    axis: str, names: list[str], options: Options
) -> None:
    text = STUDY.replace(AXIS, axis).replace(
        "{family: vit, patch_size: 4, depth: 1, heads: 2, mlp_ratio: 2}",
        "{family: vit, patch_size: 4, width: 8, heads: 2}",
    )
    if "depth" not in axis:
        text = text.replace("width: 8,", "width: 8, depth: 1,")
    if "train_images" in axis:
        text = text.replace("train_images: 200, ", "")
    sizes = space.load_sizes(text, "tiny.yaml")
    assert [each.name for each in sizes] == [f"tiny/{name}" for name in names]
    shown = previews(sizes, options.url, options, probe=False)
    hashes = [each.plan.cells[0].trials[0].hash for each in shown]
    assert len(set(hashes)) == 2


def test_a_list_of_backbones_is_an_axis(options: Options) -> None:
    text = """
question: q
factors: {shortcuts.count: [0, 1]}
across: {backbone: [deit_tiny_patch16_224, deit_small_patch16_224]}
data: {name: digits, image_size: 224}
"""
    sizes = space.load_sizes(text, "tiny.yaml")
    assert [each.network.backbone for each in sizes] == [
        "deit_tiny_patch16_224",
        "deit_small_patch16_224",
    ]
    previews(sizes, options.url, options, probe=False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (AXIS, "size.width: [8]", "needs a list of 2 to 20 sizes"),
        (AXIS, "size.width: 8", "needs a list of 2 to 20 sizes"),
        (AXIS, "size.width: {low: 8, high: 32}", "needs a list of 2 to 20 sizes"),
        (AXIS, "size.width: [[8], 16]", "needs a list of 2 to 20 sizes"),
        (AXIS, "", "across has one axis, found 0"),
        (AXIS, f"{AXIS}, size.depth: [1, 2]", "across has one axis, found 2"),
        (AXIS, "size.width: [8, 8]", "the level 8 is a duplicate"),
        (AXIS, "size.width: [8, -3]", "size.width: -3 is not a level"),
        (AXIS, "size.widht: [8, 16]", "did you mean 'size.width'?"),
        (AXIS, "size.depth: [1, 2]", "under across and under backbone"),
        (AXIS, "ffn.kernel: [3, 5]", "under across and under factors"),
        (AXIS, "recipe.epochs: [1, 2]", "under across and under recipe"),
        (AXIS, "data.train_images: [1, 2]", "under across and under data"),
        (AXIS, "data.name: [digits, mnist]", "across: data.name is no size"),
        (AXIS, "backbone: [a, b]", "under across and under backbone"),
        (AXIS, f"{AXIS}, per: weight", "'weight' is not allowed"),
        (AXIS, f"{AXIS}, seeds: [5, 5, 5]", "leave one out"),
        (
            AXIS,
            "recipe.optimizer: [sgd, adamw], per: number",
            "sizes that are no numbers",
        ),
        ("design: one-at-a-time", "strategy: {name: tpe, cells: 4}", "for designs"),
        ("seeds: 5", "seeds: {until_decided: 9}", "exclude each other"),
        ("seeds: 5", "seeds: {count: 5, baseline: 9}", "exclude each other"),
        ("seeds: 5", "seeds: 5\nprimary: [1]", "leave primary out"),
    ],
)
def test_a_mistake_gets_one_message_with_its_line(
    old: str, new: str, message: str
) -> None:
    assert old in STUDY
    with pytest.raises(SpaceError) as raised:
        space.load(STUDY.replace(old, new), "tiny.yaml")
    (problem,) = raised.value.problems
    assert message in str(problem)
    assert problem.line in (3, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ("[5, 5]", "seeds has 2 numbers for 3 sizes"),
        ("[5, 5, 0]", "across.seeds"),
        ("5", "across.seeds"),
        ("[5, 5, a]", "across.seeds"),
    ],
)
def test_wrong_numbers_of_seeds_get_one_message(seeds: str, message: str) -> None:
    text = STUDY.replace("seeds: 5\n", "").replace(AXIS, f"{AXIS}, seeds: {seeds}")
    with pytest.raises(SpaceError) as raised:
        space.load(text, "tiny.yaml")
    (problem,) = raised.value.problems
    assert message in str(problem)
    assert problem.line == 6


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        # Two heads need an even width.
        (
            "size.width: [8, 9]",
            "width-9 .*\n.*heads = 2 does not divide size.width = 9",
        ),
        ("recipe.lr: [1e-3, 2e-3]", "the same training compute .* write per: number"),
        ("recipe.lr: [1e-3, 2e-3], per: params", "the same parameters"),
    ],
)
def test_the_plan_refuses_what_cannot_be_compared(
    axis: str, message: str, options: Options
) -> None:
    text = STUDY.replace(AXIS, axis)
    if "width" not in axis:
        text = text.replace("patch_size: 4,", "patch_size: 4, width: 8,")
    with pytest.raises(AblateError, match=message):
        run(space.load(text, "tiny.yaml"), "tiny.yaml", options)
    assert not list(options.runs.glob("*.db"))


@pytest.mark.parametrize(
    ("factors", "axis", "message"),
    [
        (
            "drop.path: [0, 0.2]",
            "size.depth: [2, 1]",
            r"row 1 \(drop.path = 0.2\) cannot be at size.depth = 1: .*change this size",
        ),
        (
            "shortcuts.count: [0, 1]",
            "shortcuts.b: [1, 2], per: number",
            "shortcuts.b changes nothing: row 0 trains the same network at 1 and at 2",
        ),
    ],
)
def test_sizes_have_the_same_rows_and_differ(
    factors: str, axis: str, message: str, options: Options
) -> None:
    text = f"""
question: q
backbone: {{family: vit, patch_size: 4, width: 8, heads: 2}}
factors: {{{factors}}}
across: {{{axis}}}
fixed: {{size.depth: 1}}
"""
    if "depth" in axis:
        text = text.replace("fixed: {size.depth: 1}\n", "")
    with pytest.raises(AblateError, match=message):
        run(space.load(text, "tiny.yaml"), "tiny.yaml", options)


def test_until_decided_is_refused(options: Options) -> None:
    declared = space.load(STUDY, "tiny.yaml")
    with pytest.raises(AblateError, match="across exclude each other"):
        space.until_decided(declared, 9)
    assert preview(declared, options.url, options, probe=False).plan.space == declared


PREDICTED = STUDY.replace(AXIS, "size.width: [8, 16], predict: 32")


def predictions(options: Options) -> tuple[str, dict[int, tuple[float, float, float]]]:
    """When the effects of rows were predicted, and the predictions."""
    with Reader(options.url) as reader:
        stored = [study.space for study in reader.studies.sizes("tiny")]
    across = [each.across for each in stored if each is not None]
    first, second = (each for each in across if each is not None)
    assert first.predictions == second.predictions
    return first.predicted_at, {
        each.row: (each.low, each.value, each.high) for each in first.predictions
    }


def run_predicted(
    options: Options, text: str = PREDICTED, law: Law = fading
) -> Outcome:
    declared = space.load(text, "tiny.yaml")
    executor = SimulatedExecutor(curves(law))
    return run(declared, "tiny.yaml", options, None, executor, predicted=True)


def test_effects_are_predicted_before_the_size_is_trained(
    run_study: RunStudy, options: Options, ladder: Study
) -> None:
    outcome = run_study(PREDICTED, fading)
    assert outcome.trials == 30
    at, by_row = predictions(options)
    low, value, high = by_row[1]
    # Half of what the line says, which falls by 4 points in the same number of doublings
    # as from 8 to 16.
    small, large = ladder.sizes()
    with Reader(options.url) as reader:
        assert reader.studies.predicted("tiny") is None
    row = ladder.effects_table().data[0]
    assert (row["predicted_low"], row["predicted"], row["predicted_high"]) == (
        low,
        value,
        high,
    )
    assert "measured" not in row
    assert small.doublings < large.doublings
    assert low < value < 0 < high, "it may also stay at 0"
    # Another run keeps what was predicted, and so does one with another comment.
    run_study(PREDICTED, fading)
    run_study(PREDICTED + "# a comment\n", fading)
    assert predictions(options) == (at, by_row)

    outcome = run_predicted(options)
    assert (outcome.trials, outcome.trained) == (15, 15)
    assert predictions(options) == (at, by_row)
    row = ladder.effects_table().data[0]
    assert row["measured"] == pytest.approx(-4, abs=0.3)
    assert row["predicted_low"] < row["measured"] < row["predicted_high"]
    # The size that was predicted has verdicts of its own.
    verdicts_there = [e.verdict for e in Study("tiny/width-32", options.url).effects()]
    assert verdicts_there == [Verdict.HURTS, Verdict.SAME]
    assert [size.across.size for size in ladder.sizes()] == [8, 16]


@pytest.mark.proof
def test_nothing_is_predicted_before_all_sizes_are_trained(
    run_study: RunStudy, options: Options
) -> None:
    with pytest.raises(Killed):
        run_study(PREDICTED, hooks=killing(40))
    with pytest.raises(AblateError, match="train them first, without predicted"):
        run_predicted(options)
    with Reader(options.url) as reader:
        assert reader.studies.predicted("tiny") is None


def test_results_that_are_known_are_not_predicted(
    run_study: RunStudy, options: Options
) -> None:
    # The same trials belong to another ladder.
    run_study(STUDY.replace(AXIS, "size.width: [32, 64]") + "name: other\n")
    run_study(PREDICTED)
    assert predictions(options) == ("", {})
    with pytest.raises(AblateError, match="were known before"):
        run_predicted(options)


def test_a_resume_finishes_the_predicted_size(
    run_study: RunStudy, options: Options
) -> None:
    run_study(PREDICTED, constant)
    declared = space.load(PREDICTED, "tiny.yaml")
    executor = SimulatedExecutor(curves(constant))
    with pytest.raises(Killed):
        run(declared, "tiny.yaml", options, killing(20), executor, predicted=True)
    outcome = resume("tiny", options, None, SimulatedExecutor(curves(constant)))
    assert (outcome.trials, outcome.unfinished) == (15, 0)


def test_a_space_without_a_prediction_has_nothing_to_train(options: Options) -> None:
    for text in (STUDY, STUDY.replace(f"across: {{{AXIS}}}", "fixed: {size.width: 8}")):
        with pytest.raises(AblateError, match="predicts none; add one, as in across"):
            run_predicted(options, text)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("size.width: [8, 16], predict: 16", "the level 16 is a duplicate"),
        ("size.width: [8, 16], predict: -1", "size.width: -1 is not a level"),
        ("size.width: [8, 16], predict: [32]", "must be a number, a word"),
    ],
)
def test_a_wrong_prediction_gets_one_message(new: str, message: str) -> None:
    with pytest.raises(SpaceError) as raised:
        space.load(STUDY.replace(AXIS, new), "tiny.yaml")
    (problem,) = raised.value.problems
    assert message in str(problem)
    assert problem.line == 6


def test_a_prediction_is_for_a_larger_size(options: Options) -> None:
    text = STUDY.replace(AXIS, "size.width: [16, 32], predict: 8")
    with pytest.raises(AblateError, match="predict is for a size beyond the others"):
        run(space.load(text, "tiny.yaml"), "tiny.yaml", options)


FURTHER = PREDICTED.replace("predict: 32", "predict: 64")


def test_another_prediction_is_not_compared_with_the_size_before(
    run_study: RunStudy, options: Options, ladder: Study
) -> None:
    run_study(PREDICTED, fading)
    at, by_row = predictions(options)
    run_predicted(options)
    # Width 64 is predicted now, and 32 is what was measured.
    run_study(FURTHER, fading)
    row = ladder.effects_table().data[0]
    assert "measured" not in row
    assert predictions(options)[1] != by_row
    # Back again, the first prediction stands.
    run_study(PREDICTED, fading)
    assert predictions(options) == (at, by_row)
    assert ladder.effects_table().data[0]["measured"] == pytest.approx(-4, abs=0.3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seeds: 5", "seeds: 5\nmargin: 2"),
        ("[8, 16]", "[16, 8]"),
        ("question: Does", "question: Why does"),
    ],
)
def test_a_prediction_stays_while_what_it_is_made_from_does(
    run_study: RunStudy, options: Options, old: str, new: str
) -> None:
    run_study(PREDICTED, fading)
    before = predictions(options)
    run_study(PREDICTED.replace(old, new), fading)
    assert predictions(options) == before


def test_other_seeds_are_not_predicted_once_the_size_was_seen(
    run_study: RunStudy, options: Options
) -> None:
    run_study(PREDICTED, fading)
    run_predicted(options)
    run_study(PREDICTED.replace("seeds: 5", "seeds: [10, 11, 12]"), fading)
    assert predictions(options) == ("", {})


def test_the_unit_is_part_of_a_prediction(
    run_study: RunStudy, options: Options
) -> None:
    run_study(PREDICTED, fading)
    _, by_compute = predictions(options)
    run_study(PREDICTED.replace("predict: 32", "predict: 32, per: number"), fading)
    _, by_width = predictions(options)
    assert by_width[1] != by_compute[1]


def test_one_seed_predicts_nothing(run_study: RunStudy, options: Options) -> None:
    run_study(PREDICTED.replace("seeds: 5", "seeds: 1"))
    assert predictions(options) == ("", {})
    with pytest.raises(AblateError, match="no row has two seeds"):
        run_predicted(options, PREDICTED.replace("seeds: 5", "seeds: 1"))


def test_a_row_with_a_lost_trial_is_not_predicted(
    run_study: RunStudy, options: Options
) -> None:
    def lost(trial: Trial, number: int) -> Epoch:
        if width_of(trial) == 16 and "value" in trial.architecture.settings:
            raise ValueError("this row cannot train")
        return curves(constant)(trial, number)

    declared = space.load(PREDICTED, "tiny.yaml")
    run(declared, "tiny.yaml", options, None, SimulatedExecutor(lost))
    assert predictions(options) == ("", {})
    with Writer(options.url) as writer:
        writer.abandon("tiny/width-16", 2)
    run_study(PREDICTED)
    assert set(predictions(options)[1]) == {1}


def test_a_size_is_not_renamed(run_study: RunStudy, options: Options, say: Say) -> None:
    run_study()
    words = ("study", "rename", "tiny/width-8", "foo", "--runs", str(options.runs))
    code, _, error = say(*words)
    assert code == 2
    assert "is a size of tiny" in error


def test_axes_with_the_same_sizes_are_not_mixed(
    run_study: RunStudy, ladder: Study
) -> None:
    text = STUDY.replace("depth: 1, heads: 2, ", "width: 8, ")
    depths = text.replace(AXIS, "size.depth: [1, 2]") + "fixed: {size.heads: 2}\n"
    heads = text.replace(AXIS, "size.heads: [1, 2], per: number")
    law = SimulatedExecutor()
    for each in (depths, heads + "fixed: {size.depth: 1}\n"):
        declared = space.load(each, "tiny.yaml")
        run(declared, "tiny.yaml", Options(store=ladder.store), None, law)
    assert [size.across.axis for size in ladder.sizes()] == ["size.heads"] * 2


@pytest.mark.parametrize("ladder_first", [True, False])
def test_a_study_and_a_ladder_do_not_share_a_name(
    run_study: RunStudy, *, ladder_first: bool
) -> None:
    plain = STUDY.replace(f"across: {{{AXIS}}}", "fixed: {size.width: 8}")
    first, second = (STUDY, plain) if ladder_first else (plain, STUDY)
    run_study(first)
    with pytest.raises(AblateError, match="another name, as in name: tiny-"):
        run_study(second)


def test_controls_may_differ_between_sizes(options: Options) -> None:
    text = STUDY.replace("[none, 3]", "[none, 3, 7]").replace("8, 16, 32", "4, 8, 32")
    sizes = space.load_sizes(text + "control: iso-params\n", "tiny.yaml")
    shown = previews(sizes, options.url, options, probe=False)
    assert len({len(each.plan.cells) for each in shown}) > 1


def test_an_equal_compute_lies_on_the_side_of_the_effect(
    run_study: RunStudy, ladder: Study
) -> None:
    # Row 0 gets worse with each doubling of the width, by more than it gains elsewhere.
    run_study(law=lambda row, width: {"ffn.kernel": 2.0}.get(row, 0) - 8 * (width / 8))
    (row, _) = ladder.effects_table().data
    assert row["verdict"].startswith("helps at every size")
    assert "worth" not in row["verdict"]
    assert all(at["equal"] is None or at["equal"] >= 1 for at in row["sizes"])


@pytest.mark.proof
def test_a_resume_after_an_edit_trains_the_sizes_first(
    run_study: RunStudy, options: Options
) -> None:
    run_study(PREDICTED, fading)
    declared = space.load(PREDICTED, "tiny.yaml")
    executor = SimulatedExecutor(curves(fading))
    with pytest.raises(Killed):
        run(declared, "tiny.yaml", options, killing(20), executor, predicted=True)
    with pytest.raises(Killed):
        run_study(PREDICTED.replace("seeds: 5", "seeds: 6"), fading, killing(5))
    outcome = resume("tiny", options, None, SimulatedExecutor(curves(fading)))
    assert (outcome.trials, outcome.unfinished) == (36, 0)
    # A file that predicts nothing has nothing else to finish.
    run_study(PREDICTED.replace(", predict: 32", ""), fading)
    assert resume("tiny", options, None, SimulatedExecutor()).trained == 0


def test_the_predicted_size_is_in_the_error_budget(
    run_study: RunStudy, options: Options
) -> None:
    run_study(PREDICTED, fading)
    run_predicted(options)
    by_name = {line.test.name: line.own for line in budget_of(options.url).lines}
    assert by_name["tiny/width-32"] == ("row 1",)
    assert set(by_name) == {"tiny", "tiny/width-32"}


def test_a_misspelt_key_is_recognised() -> None:
    text = STUDY.replace(AXIS, f"{AXIS}, pre: params")
    with pytest.raises(SpaceError, match="found 2.*'pre'; did you mean 'per'"):
        space.load(text, "tiny.yaml")


def test_latex_has_a_column_for_each_size(
    run_study: RunStudy, options: Options, ladder: Study, say: Say
) -> None:
    run_study()
    where = ("--runs", str(options.runs), "--format", "latex")
    code, out, _ = say("table", "tiny", *where)
    assert code == 0
    assert out == ladder.table("latex")
    assert "width 32" in out
    code, _, error = say("table", "tiny", *where, "--caption", "mine")
    assert code == 2
    assert "leave these options out" in error


def test_a_ladder_of_which_one_size_is_left_does_not_hide_the_others(
    run_study: RunStudy, options: Options
) -> None:
    run_study()
    with sqlite3.connect(options.runs / "ablate.db") as store:
        # `ablate study delete` refuses studies with results.
        store.execute("DELETE FROM studies WHERE name != 'tiny/width-8'")
    assert budget_of(options.url).lines == ()


def test_a_plan_of_several_sizes_has_no_power(say: Say) -> None:
    Path("sizes.yaml").write_text(STUDY)
    code, _, error = say("plan", "sizes.yaml", "--all")
    assert code == 2
    assert "leave it out" in error
