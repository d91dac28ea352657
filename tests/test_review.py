"""`ablate review` finds each planted fault, and none in a sound study; `ablate
reproduce` agrees, and catches a changed trial.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.execution.simulated import SimulatedExecutor
from ablate.machine import provenance
from ablate.pipeline import Options
from ablate.records import Epoch, Provenance, Trial
from ablate.results.review import Finding, review
from ablate.store.reader import Reader
from ablate.trained.reproduce import reproduce
from tests.conftest import TINY, Say

CLEAN = replace(provenance.collect(), commit="c0ffee", dirty=False)
SOUND = TINY.replace("  shortcuts.count: [0, 1]\n", "").replace("seeds: 2", "seeds: 4")
Study = Callable[..., list[Finding]]


def curve(trial: Trial, number: int) -> Epoch:
    """Parallel blocks and shortcuts help by 3 points; noise of 0.3."""
    settings = trial.architecture.settings
    helps = 3.0 * (settings.get("layout") == "parallel") + 3.0 * bool(
        settings.get("shortcuts.count")
    )
    top1 = (
        70
        + helps
        + random.Random(f"seed {trial.seed}").gauss(0, 1)
        + random.Random(trial.hash).gauss(0, 0.3)
    )
    return Epoch(
        number=number,
        metrics={"train_loss": 1.0, "loss": 1.0, "top1": top1, "top5": 99.0},
        lr=1e-3,
        seconds=1.0,
    )


@pytest.fixture
def reviewed(options: Options, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Runs a text in a clean checkout, changes the store, and gives the review."""

    def study(
        text: str,
        *,
        sql: str = "",
        made: Callable[[Trial, int], Epoch] = curve,
        found: Provenance = CLEAN,
    ) -> list[Finding]:
        monkeypatch.setattr(provenance, "collect", lambda: found)
        pipeline.run(
            space.load(text, "tiny.yaml"),
            "tiny.yaml",
            options,
            executor=SimulatedExecutor(made),
        )
        if sql:
            with sqlite3.connect(options.url) as connection:
                connection.executescript(sql)
        return review("tiny", options.url)

    return study


@pytest.mark.parametrize(
    "text",
    [
        SOUND,
        SOUND.replace(
            "layout: [serial, parallel]",
            "layout: [serial, parallel]\n  recipe.lr: [2e-3, 1e-3]",
        ),
        SOUND.replace("design: grid", "design: one-at-a-time").replace(
            "[serial, parallel]", "[parallel, serial]"
        ),
        TINY.replace("seeds: 2", "seeds: 4\ncontrol: iso-flops"),
        SOUND.replace("test_images: 50", "test_images: 50, validation: 0.2").replace(
            "design: grid", "strategy: {name: random, cells: 2}"
        ),
    ],
    ids=["grid", "recipe too", "hurts", "controlled", "search on a validation split"],
)
def test_a_sound_study_has_no_findings(reviewed: Study, text: str) -> None:
    assert reviewed(text) == []


def test_a_variant_that_helps_without_a_control_near_it_is_found(
    reviewed: Study,
) -> None:
    """A width must be a multiple of the heads, so the next one is far away."""
    text = TINY.replace(
        "width: 16, depth: 1, heads: 2", "width: 24, depth: 2, heads: 8"
    )
    text = text.replace("  layout: [serial, parallel]\n", "")
    text = text.replace("shortcuts.count: [0, 1]", "ffn.kernel: [none, 3]")
    text = text.replace("seeds: 2", "seeds: 4\ncontrol: iso-flops")

    def helps(trial: Trial, number: int) -> Epoch:
        made = curve(trial, number)
        more = 20.0 * (trial.architecture.settings.get("ffn.kernel") == 3)
        return replace(
            made, metrics={**made.metrics, "top1": made.metrics["top1"] + more}
        )

    found = {one.name: one.text for one in reviewed(text, made=helps)}
    assert (
        "No other width of the baseline has a cost nearer"
        in found["no iso-cost control"]
    )


WIDER = TINY.replace("seeds: 2", "seeds: 4")
CHANGED = {
    "seeds were added": (WIDER.replace("seeds: 4", "seeds: 6"), "seeds: 4 → 6"),
    "seeds were selected": (
        WIDER.replace("seeds: 4", "seeds: [0, 2, 3]"),
        "seeds: 4 → [0, 2, 3]",
    ),
    "a factor was dropped": (
        WIDER.replace("  layout: [serial, parallel]\n", ""),
        'factors layout: ["serial", "parallel"] → none',
    ),
    "the metric was swapped": (WIDER + "metric: {loss: min}\n", "metric: top1 → loss"),
    "the baseline was swapped": (
        WIDER.replace("[serial, parallel]", "[parallel, serial]"),
        "baseline layout: serial → parallel",
    ),
}


@pytest.mark.parametrize(("text", "words"), CHANGED.values(), ids=CHANGED)
def test_a_changed_declaration_is_found(
    reviewed: Study, options: Options, text: str, words: str
) -> None:
    """Even if nothing trains after the change."""
    assert not [one for one in reviewed(WIDER) if one.name == "generations"]
    (found,) = [one for one in reviewed(text) if one.name == "generations"]
    assert "the study is generation 2: its file changed after results" in found.text
    assert words in found.text
    # Back to the first file: this is a change too, and the first one is not forgotten.
    (found,) = [one for one in reviewed(WIDER) if one.name == "generations"]
    assert words in found.text
    with Reader(options.url) as reader:
        names = [name for name, _ in reader.studies.generations("tiny")]
    assert names == ["tiny@1", "tiny@2", "tiny"]


@pytest.mark.parametrize(
    "text",
    [
        WIDER,
        WIDER.replace("Does a", "Would a"),
        WIDER + "resources: {cpus: 2}\n",
        WIDER.replace("test_images: 50", "test_images: 50, workers: 1"),
    ],
    ids=["equal", "question", "resources", "loading"],
)
def test_a_declaration_that_changes_nothing_decisive_is_no_finding(
    reviewed: Study, text: str
) -> None:
    reviewed(WIDER)
    assert not [one for one in reviewed(text) if one.name == "generations"]


def test_a_change_before_any_result_is_no_finding(
    reviewed: Study, options: Options
) -> None:
    def stopped(trial: Trial, number: int) -> Epoch:
        raise RuntimeError("out of luck")

    reviewed(WIDER, made=stopped)
    found = reviewed(WIDER.replace("seeds: 4", "seeds: 5"))
    assert not [one for one in found if one.name == "generations"]


def diverging(trial: Trial, number: int) -> Epoch:
    bad = trial.seed == 1 and trial.architecture.settings.get("layout") == "parallel"
    return (
        replace(curve(trial, number), metrics={"loss": float("nan")})
        if bad
        else curve(trial, number)
    )


def failing(trial: Trial, number: int) -> Epoch:
    if trial.seed == 1:
        raise RuntimeError("out of luck")
    return curve(trial, number)


def flat(trial: Trial, number: int) -> Epoch:
    """Differences beyond the margin, and noise beyond the differences."""
    epoch = curve(trial, number)
    top1 = 70 + random.Random(trial.hash).gauss(0, 4)
    return replace(epoch, metrics={**epoch.metrics, "top1": top1})


ROWS = SOUND.split("design:")[0].replace(
    "layout:", "recipe.lr: [2e-3, 1e-3]\n  layout:"
) + (
    "design: rows\nrows:\n  - {layout: serial, recipe.lr: 2e-3}\n  - {layout: parallel,"
    " recipe.lr: 1e-3}\nseeds:" + SOUND.split("seeds:")[1]
)
SEARCH = SOUND.replace("design: grid", "strategy: {name: random, cells: 2}")
ANOTHER = """
INSERT INTO provenance
  SELECT (SELECT MAX(id) + 1 FROM provenance), study_id, started_at, document, command,
    ablate, {commit}, dirty, python, {torch}, timm, ray, platform, host, {cpu}, cores,
    memory_gb, gpus
  FROM provenance LIMIT 1;
UPDATE attempts SET provenance_id = (SELECT MAX(id) FROM provenance)
  WHERE id = (SELECT MAX(id) FROM attempts);
"""


def another(**changed: str) -> str:
    return ANOTHER.format(
        **{
            "commit": '"commit"',
            "torch": "torch",
            "cpu": "cpu",
            **{k: f"'{v}'" for k, v in changed.items()},
        }
    )


@pytest.mark.parametrize(
    ("name", "command", "how"),
    [
        (
            "too few seeds",
            "--until-decided",
            {"text": SOUND.replace("seeds: 4", "seeds: 1")},
        ),
        ("too few seeds", "ablate run", {"text": SOUND, "made": flat}),
        (
            "not confirmed",
            "ablate run",
            {
                "text": SEARCH.replace("seeds: 4", "seeds: 1"),
                "also": ["chosen on the test set"],
            },
        ),
        (
            "no iso-cost control",
            "ablate run",
            {"text": TINY.replace("seeds: 2", "seeds: 4")},
        ),
        ("chosen on the test set", "ablate run", {"text": SEARCH}),
        (
            "not confirmed",
            "ablate run",
            {
                "text": TINY.replace("seeds: 2", "seeds: 4").replace(
                    "design: grid", "strategy: {name: random, cells: 3}"
                ),
                "also": ["chosen on the test set", "too few", "iso-cost"],
            },
        ),
        (
            "chosen on the test set",
            "ablate run",
            {
                "text": SOUND.replace("seeds: 4", "seeds: 4\nscheduler: asha"),
                "also": ["pruned", "too few"],
            },
        ),
        (
            "baseline trained differently",
            "ablate run",
            {"text": ROWS, "also": ["never ablated"]},
        ),
        (
            "never ablated",
            "ablate run",
            {"text": ROWS, "also": ["baseline trained differently"]},
        ),
        (
            "mixed hardware",
            "ablate reproduce",
            {"text": SOUND, "sql": another(cpu="another CPU")},
        ),
        (
            "mixed versions of torch",
            "ablate reproduce",
            {"text": SOUND, "sql": another(torch="1.0")},
        ),
        (
            "mixed commits",
            "ablate reproduce",
            {"text": SOUND, "sql": another(commit="abc")},
        ),
        (
            "mixed threads",
            "ablate reproduce",
            {"text": SOUND, "sql": "UPDATE attempts SET threads = 7 WHERE id = 1"},
        ),
        (
            "changed checkout",
            "ablate reproduce",
            {"text": SOUND, "found": replace(CLEAN, dirty=True)},
        ),
        ("diverged seeds", "ablate run", {"text": SOUND, "made": diverging}),
        ("unfinished", "ablate resume", {"text": SOUND, "made": failing}),
    ],
)
def test_each_planted_fault_is_found(
    reviewed: Study, name: str, command: str, how: dict[str, object]
) -> None:
    also = {name, *how.pop("also", [])}
    found = reviewed(**how)
    assert name in [finding.name for finding in found]
    assert all(any(word in finding.name for word in also) for finding in found), (
        "and nothing else"
    )
    first, *_ = [finding for finding in found if finding.name == name]
    assert command in first.command


def test_one_number_of_seeds_is_proposed_for_all_rows(reviewed: Study) -> None:
    """Two findings with two numbers would contradict each other."""
    rates = "  recipe.lr: [2e-3, 1e-3]\n  layout:"
    found = reviewed(SOUND.replace("  layout:", rates), made=flat)
    (few,) = [finding.text for finding in found if finding.name == "too few seeds"]
    rows = re.findall(r"row \d \([^)]+: [+-][0-9.]+ points on 4 seeds\)", few)
    assert len(rows) > 1
    assert len(re.findall("`seeds: [0-9]+`", few)) == 1


def test_a_number_of_seeds_that_is_not_enough_says_so(reviewed: Study) -> None:
    def close(trial: Trial, number: int) -> Epoch:
        """A difference just above the margin, and noise far beyond it."""
        epoch = curve(trial, number)
        noise = (-9.0, 9.0, -9.0, 9.0)[trial.seed]
        parallel = trial.architecture.settings.get("layout") == "parallel"
        return replace(
            epoch,
            metrics={**epoch.metrics, "top1": 70 + (noise + 0.6 if parallel else 0.0)},
        )

    found = reviewed(SOUND, made=close)
    (few,) = [finding.text for finding in found if finding.name == "too few seeds"]
    assert re.search(
        r" For an even chance of a conclusive verdict, row 1 needs about \d+ more seeds\."
        " At most 50 are proposed at a time",
        few,
    )


def test_the_command_line_says_it(reviewed: Study, options: Options, say: Say) -> None:
    reviewed(SOUND.replace("seeds: 4", "seeds: 1"))
    code, out, _ = say("review", "tiny", "--runs", str(options.runs))
    assert code == 1
    assert f"ablate run tiny.yaml --until-decided 6 --runs {options.runs}" in out
    reviewed(SOUND)
    code, out, _ = say("review", "tiny", "--runs", str(options.runs))
    assert (code, "No findings" in out) == (0, True)


@pytest.fixture
def trained(options: Options) -> tuple[Options, str]:
    """A study of which two trials were trained for real, and one of their hashes."""
    text = SOUND.replace("seeds: 4", "seeds: 1")
    declared = space.load(text, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", options)
    return options, pipeline.preview(declared, options.url).plan.trials[0].hash


def test_a_trial_is_reproduced_to_the_last_bit(
    trained: tuple[Options, str], say: Say
) -> None:
    options, key = trained
    before = Path(options.url).read_bytes()
    found = reproduce(key[:8], options)
    assert (found.same, found.agrees, found.first, found.epochs) == (
        True,
        True,
        None,
        3,
    )
    assert Path(options.url).read_bytes() == before, "nothing is written"
    code, out, _ = say("reproduce", key, "--runs", str(options.runs))
    assert code == 0
    assert "bit-identical in all 3 epochs" in out
    assert not list((options.runs / "reproduced").rglob("last.pt"))


def test_a_changed_trial_is_caught(trained: tuple[Options, str], say: Say) -> None:
    options, key = trained
    with sqlite3.connect(options.url) as connection:
        connection.execute(
            "UPDATE epoch_metrics SET value = value + 2 WHERE trial_hash = ? AND"
            " epoch >= 2 AND name = 'top1'",
            (key,),
        )
    found = reproduce(key, options)
    assert (found.same, found.agrees, found.first) == (False, False, 2)
    code, out, _ = say("reproduce", key, "--runs", str(options.runs))
    assert code == 1
    assert "differs from epoch 2 on; does NOT agree" in out


def test_a_changed_test_result_is_caught(options: Options) -> None:
    text = SOUND.replace("seeds: 4", "seeds: 1").replace(
        "test_images: 50", "test_images: 50, validation: 0.2"
    )
    declared = space.load(text, "tiny.yaml")
    pipeline.run(declared, "tiny.yaml", options)
    key = pipeline.preview(declared, options.url).plan.trials[0].hash
    assert reproduce(key, options).same
    with sqlite3.connect(options.url) as connection:
        connection.execute(
            "UPDATE trial_metrics SET value = 99.9 WHERE trial_hash = ? AND name ="
            " 'top1'",
            (key,),
        )
    found = reproduce(key, options)
    assert (found.agrees, found.first, found.stored) == (False, None, 99.9)


def test_only_trials_can_be_reproduced(trained: tuple[Options, str], say: Say) -> None:
    options, _ = trained
    code, _, err = say("reproduce", "tiny", "--runs", str(options.runs))
    assert (code, "is a study; name one of its trials" in err) == (2, True)
    assert say("reproduce", "ffff", "--runs", str(options.runs))[0] == 2


@pytest.mark.parametrize(
    ("status", "advised"), [("failed", True), ("diverged", False), ("pruned", False)]
)
def test_resume_is_named_only_where_it_completes_the_trial(
    trained: tuple[Options, str], say: Say, status: str, advised: bool
) -> None:
    options, key = trained
    with sqlite3.connect(options.url) as connection:
        connection.execute("UPDATE trials SET status = ? WHERE hash = ?", (status, key))
    code, _, err = say("reproduce", key, "--runs", str(options.runs))
    assert code == 2
    assert f"is {status}, and only completed trials can be reproduced" in err
    assert ("ablate resume" in err) == advised
