"""The examples, and the code in docs/own.md and docs/data.md, run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ablate import pipeline, registry, space
from ablate.execution import make
from ablate.pipeline import Options
from ablate.study import Study
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
    shown, _ = blocks(OWN, "yaml")
    stored = (ROOT / "examples" / "characters" / "space.yaml").read_text()
    assert stored.endswith(shown)


@pytest.mark.slow
def test_the_parts_in_the_documentation_train(use: Use, run: Run, study: Study) -> None:
    use(blocks(OWN, "python")[-1])
    text = blocks(OWN, "yaml")[-1]
    assert run(text).trained == 10
    assert "worst class (%)" in study.table()


@pytest.mark.slow
def test_the_parts_in_the_documentation_pass_their_checks(
    say: Say, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(blocks(OWN, "python")[-1])
    code, out, _ = say("check", "mine.py")
    assert code == 0, out


def test_the_data_in_the_documentation_are_read(use: Use) -> None:
    from ablate import data

    use(blocks(DATA, "python")[0])
    described = data.describe("noise")
    assert (described.image_size, described.channels, described.classes) == (8, 3, 10)
    assert described.images == 100
