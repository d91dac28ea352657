"""The examples, and the code in docs/own.md and docs/data.md, run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.execution import make
from ablate.own import registry
from ablate.pipeline import Options
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import Say
from tests.own.conftest import Run, Use

ROOT = Path(__file__).parents[2]
OWN = (ROOT / "docs" / "own.md").read_text()
DATA = (ROOT / "docs" / "data.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def file_of(name: str) -> Path:
    return ROOT / "examples" / name / "mine.py"


@pytest.mark.proof
@pytest.mark.parametrize("name", ["characters", "script"])
def test_an_example_is_studied(name: str, options: Options) -> None:
    folder = ROOT / "examples" / name
    registry.load_file(folder / "mine.py")
    text = (folder / "space.yaml").read_text()
    text = re.sub(r"seeds: \d+", "seeds: 2", text)
    text = re.sub(r"epochs: \d+", "epochs: 2", text)
    declared = space.load(text, str(folder / "space.yaml"))
    outcome = pipeline.run(declared, "space.yaml", options, None, make("inline"))
    assert (outcome.trained, outcome.failed) == (6, 0)
    study = Study(name, options.url)
    verdicts = [str(effect.verdict) for effect in study.effects()]
    assert len(verdicts) == 2
    frame = study.frame()
    metric = study.results().metric.name
    assert frame[metric].nunique() == 6, "each trial has a value of its own"


@pytest.mark.proof
def test_the_examples_pass_their_checks(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("characters", "script"):
        code, out, err = say("check", str(ROOT / "examples" / name / "mine.py"))
        assert code == 0, out + err
        assert "all ok" in out


def test_the_script_that_is_studied_runs_alone() -> None:
    text = (ROOT / "examples" / "characters" / "train.py").read_text()
    assert "import ablate" not in text
    assert 'if __name__ == "__main__":' in text
    assert len((ROOT / "examples" / "script" / "train.py").read_text()) < 2_000


def test_the_documentation_shows_the_examples_as_they_are() -> None:
    code = re.sub(r'^""".*?"""\n', "", file_of("characters").read_text(), flags=re.S)
    assert len([line for line in code.splitlines() if line.strip()]) == 15
    characters, command, line, *_ = blocks(OWN, "python")
    file = file_of("characters")
    assert file.read_text().partition('"""\n\n')[2] == characters
    file = file_of("script")
    assert file.read_text().partition('"""\n\n')[2] == command
    assert line.strip() in (ROOT / "examples" / "script" / "train.py").read_text()
    shown = block("yaml", "trainer: characters")
    stored = (ROOT / "examples" / "characters" / "space.yaml").read_text()
    assert stored.endswith(shown)


def block(language: str, part: str) -> str:
    """The block of docs/own.md with these words."""
    (found,) = [one for one in blocks(OWN, language) if part in one]
    return found


def test_the_parts_in_the_documentation_train(use: Use, run: Run, study: Study) -> None:
    use(block("python", "def two_layers("))
    text = block("yaml", "backbone: two_layers")
    assert run(text).trained == 10
    assert "worst class (%)" in study.table()


def test_the_switches_in_the_documentation_train(use: Use, run: Run) -> None:
    use(block("python", "def two_layers("))
    text = block("yaml", "gate: [false, true]")
    assert run(text.replace("seeds: 3", "seeds: 1")).trained == 4


def test_the_recipe_parts_in_the_documentation_train(use: Use, run: Run) -> None:
    use(block("python", "def two_layers("))
    text = block("yaml", "recipe.augmentation: [none, noise]")
    assert run(text.replace("seeds: 3", "seeds: 1")).trained == 4


def test_the_diagnostic_in_the_documentation_is_measured(
    use: Use, run: Run, study: Study
) -> None:
    use(block("python", "NORM ="))
    text = """
question: How long are the tokens?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors: {shortcuts.count: [0, 1]}
seeds: 1
data: {name: digits, train_images: 50, test_images: 50}
recipe: {epochs: 1, batch_size: 50}
"""
    run(text + block("yaml", "diagnostics:"))
    with Reader(study.store) as reader:
        assert reader.diagnostics.names("own") == ["mean_norm"]


def test_the_parts_in_the_documentation_pass_their_checks(
    say: Say, tmp_path: Path
) -> None:
    for part in ("def two_layers(", "NORM ="):
        (tmp_path / "mine.py").write_text(block("python", part))
        code, out, _ = say("check", "mine.py")
        assert code == 0, out


def test_the_data_in_the_documentation_are_read(use: Use) -> None:
    from ablate import data

    use(blocks(DATA, "python")[0])
    described = data.describe("noise")
    assert (described.image_size, described.channels, described.classes) == (8, 3, 10)
    assert described.images == 100
