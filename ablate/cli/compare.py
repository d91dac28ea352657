"""`ablate compare`: commits against each other, or two studies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.options import (
    FormatOption,
    SetOption,
    TrainerOption,
    WithOption,
    refuse_run_options,
    with_run_options,
)
from ablate.cli.output import GATE_CODES, Format, say, show, tell
from ablate.cli.training import EXHAUSTED, train_and_show
from ablate.records import MOST_WHOLE

if TYPE_CHECKING:
    from ablate.pipeline import Options, Outcome

# Of several commits, the verdict that decides the exit code.
WORST_FIRST = ("hurts", "inconclusive", "no difference", "helps")
SEEDS = 5


@with_run_options
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B ...",
            help="Two or more commits: branches, tags, patch files, or worktree. Or two"
            " studies.",
        ),
    ],
    options: Options,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=2,
            max=MOST_WHOLE,
            help=f"Seeds of each commit. [default: {SEEDS}]",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            max=MOST_WHOLE,
            help="Epochs of each trial. [default: as in a space, or 1 if the command has"
            " no place for them]",
        ),
    ] = None,
    chosen: SetOption = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric", help="Metric to compare by. [default: the trainer's first]"
        ),
    ] = "",
    trainer: TrainerOption = "",
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Train commits with the same seeds, and say whether the others differ from the first.

    The exit code is that of `ablate gate`: 0 for helps, 3 for hurts, 4 for no difference,
    5 for inconclusive. Of several commits, the worst verdict counts. Names of two studies
    print these studies side by side.
    """
    asked = {
        "--seeds": seeds is not None,
        "--epochs": epochs is not None,
        "--set": bool(chosen),
        "--metric": bool(metric),
        "--trainer": bool(trainer),
    }
    if _are_studies(names, options.url):
        _show_studies(names, options, [name for name in asked if asked[name]], form)
        return
    from ablate import space
    from ablate.own.commits import make_hidden
    from ablate.report.commits import difference_lines
    from ablate.report.table import tabulate
    from ablate.space.comparison import command_trainer, comparison
    from ablate.space.typed import levels_of

    record = command_trainer(trainer)
    _refuse_unclear(names)
    trees = [record.tree(name) for name in names]
    text = comparison(
        names,
        record,
        seeds=seeds or SEEDS,
        epochs=epochs,
        metric=metric,
        settings=levels_of(chosen or (), "--set"),
    )
    declared = space.load(text, "compare")

    def start(hooks: Any) -> Outcome:
        from ablate import pipeline

        return pipeline.run(declared, "compare", options, hooks)

    for line in difference_lines(trees):
        tell(line)
    if len({tree.identity for tree in trees}) == 1:
        tell("All of them train the same, so nothing is trained.")
        if form is not Format.table:
            # As many effects as there are rows that differ.
            show(tabulate([], []), form.value)
        raise typer.Exit(GATE_CODES["no difference"])
    make_hidden(options.runs)
    is_table = form is Format.table
    try:
        train_and_show(
            start,
            options,
            form,
            table=None if is_table else lambda study: study.effects_table(),
        )
    except typer.Exit as ended:
        # 3 stands for hurts here.
        code = ended.exit_code
        raise typer.Exit(
            GATE_CODES["inconclusive"] if code == EXHAUSTED else code
        ) from None
    raise typer.Exit(_verdict(declared.name, options.url, speaks=is_table))


def _refuse_unclear(names: list[str]) -> None:
    """Raises AblateError if there are too few commits, or one is there twice."""
    from ablate.errors import AblateError

    if len(names) < 2:
        raise AblateError(
            "compare needs two commits or more, as in: ablate compare main my-branch"
            " --with mine.py"
        )
    for name in names:
        if names.count(name) > 1:
            raise AblateError(f"compare: {name} is named twice; name different commits")


def _verdict(name: str, url: str, *, speaks: bool) -> int:
    """Returns the exit code of a comparison, and prints a sentence for each commit."""
    from ablate.report.wording import sentence
    from ablate.results.study import Study

    study = Study(name, url)
    results, declared = study.read()
    effects = study.effects()
    if speaks:
        for effect in effects:
            say(
                sentence(
                    effect,
                    results.metric,
                    declared.criterion.margin,
                )
            )
    verdicts = {str(effect.verdict) for effect in effects}
    # A commit that trains like the first one differs in nothing.
    worst = next((each for each in WORST_FIRST if each in verdicts), "no difference")
    return GATE_CODES[worst]


def _are_studies(names: list[str], url: str) -> bool:
    """Whether the names are those of studies.

    Raises:
        AblateError: some are, and others are not, or they are those of commits too.
    """
    from ablate.errors import AblateError
    from ablate.space.comparison import is_commit
    from ablate.store.database import exists
    from ablate.store.reader import Reader

    if not exists(url):
        return False
    with Reader(url) as reader:
        stored = set(names) & {study.name for study in reader.studies.all()}
    if not stored:
        return False
    commits = [name for name in names if is_commit(name)]
    both = [name for name in commits if name in stored]
    if both:
        raise AblateError(
            f"compare: {both[0]} is a study and a commit; write refs/heads/{both[0]} for"
            " the branch, or rename the study"
        )
    others = [name for name in names if name not in stored]
    if others:
        what = "a commit" if others[0] in commits else "neither a study nor a commit"
        raise AblateError(
            f"compare: {next(iter(stored))} is a study, and {others[0]} is {what};"
            " compare commits with commits, or studies with studies"
        )
    return True


def _show_studies(
    names: list[str], options: Options, given: list[str], form: Format
) -> None:
    """Prints two studies side by side.

    Raises:
        AblateError: there are not two of them, or an option would have no effect.
    """
    from ablate.errors import AblateError
    from ablate.report.side_by_side import side_by_side
    from ablate.results.study import Study

    if len(names) != 2 or names[0] == names[1]:
        raise AblateError(f"compare: name two different studies, found {len(names)}")
    if given:
        raise AblateError(
            f"compare: two studies are printed side by side, so {given[0]} has no effect;"
            " leave it out"
        )
    refuse_run_options(options, "compare: two studies side by side")
    read = [Study(name, options.url).read() for name in names]
    (first, declared), (second, other) = read
    show(
        side_by_side(first, second, (declared.factors.fixed, other.factors.fixed)),
        form.value,
    )
