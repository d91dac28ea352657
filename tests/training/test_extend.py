"""A finished study is trained on: from the checkpoints where that is the same training,
again where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.execution import make
from ablate.pipeline import Hooks, Options
from ablate.records import Event, Progressed, Started
from ablate.results.study import Study
from ablate.store.reader import Reader
from tests.conftest import RunText

SHORT = (
    "recipe: {epochs: 3, batch_size: 50, lr: 2e-3, warmup_epochs: 1, schedule:"
    " constant, crop_padding: 1, flip: 0.5}"
)


def of(tiny: str, recipe: str) -> str:
    lines = [line for line in tiny.splitlines() if not line.startswith("recipe")]
    return "\n".join([*lines, recipe, "diagnostics: [token_cosine]"]).replace(
        "seeds: 2", "seeds: 1"
    )


@pytest.mark.proof
def test_a_longer_training_at_a_constant_rate_goes_on_to_the_same_bits(
    run_text: RunText,
    tiny: str,
    options: Options,
    tmp_path_factory: pytest.TempPathFactory,
    table: Callable[[], str],
) -> None:
    events: list[Event] = []
    run_text(of(tiny, SHORT), make("inline"))
    short = table()
    outcome = run_text(
        of(tiny, SHORT.replace("epochs: 3", "epochs: 5", 1)),
        make("inline"),
        Hooks(event=events.append),
    )
    assert outcome.trained == 4
    assert [event.epoch for event in events if isinstance(event, Started)] == [3] * 4, (
        "only the last two epochs were trained"
    )
    assert table() != short
    longer, curves = Study("tiny", options.url).table("json"), epochs(options)
    fresh = Options(runs=tmp_path_factory.mktemp("fresh"), executor="inline", cpus=2)
    from ablate import pipeline, space

    declared = space.load(
        of(tiny, SHORT.replace("epochs: 3", "epochs: 5", 1)), "tiny.yaml"
    )
    pipeline.run(declared, "tiny.yaml", fresh)
    assert Study("tiny", fresh.url).table("json") == longer
    assert epochs(fresh) == curves
    # The shorter one is a result of its own, and stays.
    assert run_text(of(tiny, SHORT), make("inline")).trained == 0
    assert table() == short


def epochs(options: Options) -> list[tuple[object, ...]]:
    statement = (
        "SELECT e.trial, e.epoch, e.train_loss, e.loss, e.top1 FROM epoch_results e"
        " JOIN trials t ON t.hash = e.trial WHERE t.epochs = 5 UNION ALL SELECT"
        " trial_hash, epoch, value, layer, 0 FROM diagnostics d JOIN trials t ON t.hash"
        " = d.trial_hash WHERE t.epochs = 5 ORDER BY 1, 2, 3"
    )
    with Reader(options.url) as reader:
        return [tuple(row) for row in reader.query(statement)[1]]


@pytest.mark.proof
def test_a_longer_cosine_is_another_training(
    run_text: RunText, tiny: str, options: Options
) -> None:
    cosine = SHORT.replace("constant", "cosine")
    events: list[Event] = []
    run_text(of(tiny, cosine), make("inline"))
    run_text(
        of(tiny, cosine.replace("epochs: 3", "epochs: 4", 1)),
        make("inline"),
        Hooks(event=events.append),
    )
    assert {event.epoch for event in events if isinstance(event, Started)} == {0}


@pytest.mark.proof
def test_a_damaged_beginning_costs_time_only(
    run_text: RunText, tiny: str, options: Options
) -> None:
    run_text(of(tiny, SHORT), make("inline"))
    for file in Path(options.runs).glob("checkpoints/*/*/last.pt"):
        file.write_bytes(file.read_bytes()[:-100])
    events: list[Event] = []
    outcome = run_text(
        of(tiny, SHORT.replace("epochs: 3", "epochs: 4", 1)),
        make("inline"),
        Hooks(event=events.append),
    )
    assert outcome.trained == 4
    assert {event.epoch for event in events if isinstance(event, Started)} == {0}
    assert (
        sum(len(event.epochs) for event in events if isinstance(event, Progressed))
        == 16
    )
