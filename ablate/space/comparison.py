"""The space that compares commits, for `ablate compare`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ablate.errors import AblateError, unknown
from ablate.own import registry
from ablate.own.commits import COMMIT
from ablate.parts import Trainer, trainer_named
from ablate.records import LONGEST_NAME, Direction, Level
from ablate.text.advice import option

FOLDER = "compare/"


def command_trainer(name: str) -> Trainer:
    """Returns the trainer of a comparison.

    Args:
        name: empty: the only command of the loaded files.

    Raises:
        AblateError: there is none, there are several, or it is no command.
    """
    if name:
        trainer = trainer_named(name)
        if not trainer.takes_commits():
            raise AblateError(
                f"trainer {name} cannot train in a commit; only a command can, as"
                " `ablate.command` declares it, without a factor of its own called"
                f" {COMMIT}"
            )
        return trainer
    commands = [each for each in registry.of_kind("trainer") if _is_command(each)]
    if not commands:
        raise AblateError(
            "to compare commits, name the file that declares the command of your"
            f" training with `ablate.command`: {option('with')} mine.py"
        )
    if len(commands) > 1:
        raise AblateError(
            f"the files declare the commands {', '.join(commands)}; choose one with"
            f" {option('trainer')}"
        )
    return trainer_named(commands[0])


def _is_command(name: str) -> bool:
    return bool(registry.of_kind("trainer")[name].command)


def is_commit(name: str) -> bool:
    """Whether a name is a commit in the repository of a command of the loaded files."""
    for trainer in registry.of_kind("trainer"):
        if not _is_command(trainer):
            continue
        try:
            trainer_named(trainer).tree(name)
        except AblateError:
            continue
        return True
    return False


def comparison(
    commits: Sequence[str],
    trainer: Trainer,
    *,
    seeds: int | Sequence[int],
    epochs: int | None = None,
    metric: str = "",
    settings: Mapping[str, Level] | None = None,
    name: str = "",
) -> str:
    """Returns the YAML text of a study that compares commits with the first one.

    Args:
        commits: two or more levels of the factor `commit`.
        epochs: None: the default of the recipe, or 1 if the command has no place for a
            number of epochs.
        settings: levels of other factors, and fields of the recipe as `recipe.FIELD`.
        name: that of the study; by default it lists the commits.

    Raises:
        AblateError: a setting is not one of the trainer.
    """
    fixed: dict[str, Level] = {}
    recipe: dict[str, Level] = {}
    for factor, level in (settings or {}).items():
        section, _, rest = factor.partition(".")
        if section == "recipe" and rest:
            recipe[rest] = level
        elif factor in trainer.factors:
            fixed[factor] = level
        else:
            names = [*trainer.factors, *(f"recipe.{each}" for each in trainer.recipe)]
            raise AblateError(f"{option('set')}: {unknown('factor', factor, names)}")
    words = " ".join(trainer.command)
    if epochs is not None:
        recipe["epochs"] = epochs
    elif "epochs" not in recipe and not re.search(r"\{(epochs|last)\}", words):
        recipe["epochs"] = 1
    base, *others = commits
    document: dict[str, Any] = {
        "name": name or _name(commits),
        "question": f"Is {_listed(others)} better than {base}?",
        "trainer": trainer.name,
        "factors": {COMMIT: list(commits)},
        "fixed": fixed,
        "seeds": seeds if isinstance(seeds, int) else list(seeds),
        "recipe": recipe,
        "metric": {metric: direction_of(trainer, metric)} if metric else "",
    }
    kept = {key: part for key, part in document.items() if part not in ({}, "")}
    # JSON is YAML, and quotes a commit that would be a number, such as 809615e89100.
    lines = [
        f"{key}: {json.dumps(part, ensure_ascii=False)}" for key, part in kept.items()
    ]
    return "\n".join([*lines, ""])


def direction_of(trainer: Trainer, name: str) -> Direction:
    """Returns what is better of a metric. Raises AblateError if there is none."""
    for metric in trainer.metrics:
        if metric.name == name:
            return metric.direction
    names = [metric.name for metric in trainer.metrics]
    raise AblateError(f"{option('metric')}: {unknown('metric', name, names)}")


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _name(commits: Sequence[str]) -> str:
    """Returns the name of the study: the same for the same commits."""
    name = FOLDER + "..".join(
        re.sub(r"[^A-Za-z0-9_.-]", "-", commit) for commit in commits
    )
    return name[:LONGEST_NAME]
