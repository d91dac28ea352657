"""Which column of runs is what: the metric, its direction, seeds, factors, the baseline.

What the names of columns and their values do not settle is an error with the candidates
and the option to type, never a choice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError, first, shortened, unknown
from ablate.readers.words import is_seed, step_word
from ablate.records import Direction, Level, is_number, level_text
from ablate.results.elsewhere.runs import Runs, number_of
from ablate.text.advice import option

if TYPE_CHECKING:
    import pandas as pd

# Words of a metric's name, by what is better.
LARGER = (
    "acc accuracy top1 top5 f1 auc auroc map miou iou dice bleu rouge score reward"
    " return r2 precision recall psnr ssim success win"
).split()
SMALLER = (
    "loss error err rmse mse mae nll perplexity ppl bits bpb bpc bpd wer cer fid eer"
    " seconds time latency regret energy joules"
).split()
# Columns that say when, where and by whom a run was made.
ABOUT = (
    "id run_id run run_uuid uuid name run_name timestamp created created_at"
    " start_time end_time date datetime time runtime duration wall_time user"
    " host hostname state status notes sweep group number path output_dir"
).split()
# Levels that a baseline usually has.
USUAL = (
    "baseline base control reference default vanilla none off false original".split()
)
# What a missing level is called.
MISSING = "missing"
# The most different settings.
MOST_ROWS = 1_000
# The most candidates that a message lists.
LISTED = 8
# The most characters of one of them.
LONGEST = 200

Setting = tuple[Level, ...]


@dataclass(frozen=True)
class Columns:
    """What the columns of runs are.

    Attributes:
        seed: the column of seeds; empty if there is none.
        factors: the columns that tell settings apart.
        baseline: the levels of row 0, in the order of the factors; None if rows are not
            compared.
        settings: the levels of all rows, row 0 first.
    """

    metric: str
    direction: Direction
    seed: str
    factors: tuple[str, ...]
    baseline: Setting | None
    settings: tuple[Setting, ...]

    def sentence(self, runs: int) -> str:
        """Returns what was understood, in one line."""
        better = "larger" if self.direction == "max" else "smaller"
        factors = f", factors {', '.join(self.factors)}" if self.factors else ""
        baseline = ""
        if self.baseline is not None:
            baseline = f", baseline {_text(self.factors, self.baseline)}"
        seed = f"seeds {self.seed}" if self.seed else "no seeds"
        return (
            f"{runs} runs: metric {self.metric} ({better} is better),"
            f" {seed}{factors}{baseline}."
        )


def columns_of(
    runs: Runs,
    metric: str = "",
    direction: str = "",
    seed: str = "",
    by: Sequence[str] = (),
    baseline: Mapping[str, str] | None = None,
    *,
    needs_baseline: bool = True,
) -> Columns:
    """Returns what the columns of runs are.

    Args:
        metric, direction, seed, by, baseline: what the user says.
        needs_baseline: whether rows are compared with one of them.

    Raises:
        UnknownName: there is no such column.
        AblateError: something is ambiguous, or nothing is compared.
    """
    frame = runs.frame
    if direction not in ("", "max", "min"):
        raise AblateError(f"direction is max or min, found {shortened(str(direction))}")
    by = tuple(dict.fromkeys(by))
    named = [
        *([metric] if metric else []),
        *([seed] if seed else []),
        *by,
        *(baseline or {}),
    ]
    for name in named:
        if name not in frame.columns:
            raise AblateError(unknown("column", name, map(str, frame.columns)))
    seed = seed or _seed(runs)
    metric = metric or _metric(runs, {seed, *by, *(baseline or {})})
    if metric in (seed, *by, *(baseline or {})):
        raise AblateError(
            f"{metric} is the metric, and not a seed or a setting; name another column"
        )
    if not _is_numeric(frame[metric]):
        raise AblateError(
            f"the metric {metric} has a value that is no number:"
            f" {_text_in(frame[metric], runs)}; correct it, or leave it empty"
        )
    direction = direction or runs.directions.get(metric, "") or _direction(metric)
    if not direction:
        raise AblateError(
            f"whether larger or smaller values of {metric} are better is not clear;"
            f" write {option('direction')} max, or {option('direction')} min"
        )
    factors = by or _factors(
        runs, metric, seed, tuple(baseline or {}), needs_one=needs_baseline
    )
    settings = _settings(frame, factors)
    if not seed and len(settings) == len(frame):
        # One run of each row: they may all have the same seed.
        seed = _only_seed(runs, {metric, *factors})
    chosen = None
    if needs_baseline:
        chosen = _baseline(frame, factors, settings, baseline or {})
    others = [setting for setting in settings if setting != chosen]
    ordered = others if chosen is None else [chosen, *others]
    return Columns(
        metric=metric,
        direction="max" if direction == "max" else "min",
        seed=seed,
        factors=factors,
        baseline=chosen,
        settings=tuple(ordered),
    )


def _is_numeric(column: pd.Series[Any]) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(column)


def _text_in(column: pd.Series[Any], runs: Runs) -> str:
    """Returns the first value that is no number, and where it is."""
    for value, where in zip(column, runs.where, strict=True):
        if number_of(value) is None and value is not None:
            return f"{shortened(str(value))} ({where})"
    return shortened(str(column.iloc[0]))


def _varies(column: pd.Series[Any]) -> bool:
    return column.nunique(dropna=True) > 1


def is_about(name: str) -> bool:
    """Whether a column says when, where and by whom a run was made."""
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    if plain.startswith(("unnamed", "tags", "mlflow", "best_epoch", "best_step")):
        return True
    return plain in ABOUT or bool(step_word(name))


def _seed(runs: Runs) -> str:
    """Returns the column of seeds; empty if there is none.

    Raises:
        AblateError: there are several.
    """
    names = [name for name in runs.frame.columns if is_seed(name)]
    varying = [name for name in names if _varies(runs.frame[name])]
    if len(varying) > 1:
        raise AblateError(
            f"there are several columns of seeds: {', '.join(varying[:LISTED])}; write"
            f" {option('seed')} {varying[0]}, or {option('seed')} {','.join(varying)}"
            " if all of them together pair runs"
        )
    return varying[0] if varying else ""


def _only_seed(runs: Runs, others: Collection[str]) -> str:
    """Returns the column of seeds if all runs have one seed; empty if there is none."""
    names = [
        name
        for name in runs.frame.columns
        if is_seed(name)
        and name not in others
        and runs.frame[name].notna().all()
        and runs.frame[name].nunique() == 1
    ]
    return names[0] if len(names) == 1 else ""


def _metric(runs: Runs, others: Iterable[str]) -> str:
    """Returns the only column that can be the metric.

    Raises:
        AblateError: there is none, or there are several.
    """
    frame = runs.frame
    taken = set(others)
    candidates = [
        name
        for name in frame.columns
        if name not in taken
        and name not in runs.settings
        and not is_about(name)
        and _is_numeric(frame[name])
        and (name in runs.metrics or _is_measured(frame[name], name))
    ]
    tested = [name for name in candidates if "train" not in _words(name)]
    candidates = tested or candidates
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise AblateError(
            "no column looks like a metric; the columns are"
            f" {', '.join(first(list(frame.columns), 'columns'))}; write"
            f" {option('metric')} NAME"
        )
    raise AblateError(
        f"several columns may be the metric: {', '.join(first(candidates, 'columns'))};"
        f" write {option('metric')} {shortened(candidates[0])}"
    )


def _is_measured(column: pd.Series[Any], name: str) -> bool:
    """Whether a column of numbers may be the metric."""
    return bool(_direction(name)) or _has_many_values(column)


def _has_many_values(column: pd.Series[Any]) -> bool:
    """Whether a column of numbers has too many values for a setting."""
    values = column.dropna()
    return bool((values % 1 != 0).any()) and values.nunique() > len(values) / 2


def _words(name: str) -> list[str]:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1_\2", name)
    return re.split(r"[^a-z0-9]+", spaced.lower())


def _direction(name: str) -> str:
    """Returns what is better by the words of a metric's name; empty if unclear."""
    words = _words(name)
    if "neg" in words or "negative" in words:
        return ""
    # `acc1` is an accuracy, and `top1` is a word of its own.
    words += [word.rstrip("0123456789") for word in words]
    larger = any(word in LARGER for word in words)
    smaller = any(word in SMALLER for word in words)
    if larger == smaller:
        return ""
    return "max" if larger else "min"


def _factors(
    runs: Runs, metric: str, seed: str, baseline: Sequence[str], *, needs_one: bool
) -> tuple[str, ...]:
    """Returns the columns that tell settings apart.

    Args:
        needs_one: whether rows are compared.

    Raises:
        AblateError: there is none.
    """
    frame = runs.frame
    factors = []
    for name in frame.columns:
        if name in (metric, seed) or name in runs.metrics:
            continue
        if name in baseline:
            factors.append(name)
            continue
        column = frame[name]
        if not _varies(column) or (is_about(name) and name not in runs.settings):
            continue
        is_known = name in runs.settings
        if not is_known and _is_numeric(column) and _has_many_values(column):
            continue
        # What is different in each run tells runs apart, not settings.
        if column.nunique() == len(frame) and len(frame) > 2 and seed:
            continue
        factors.append(name)
    if not factors and needs_one:
        shown = ", ".join(first(list(frame.columns), "columns"))
        raise AblateError(
            f"no column tells settings apart; the columns are {shown}; write"
            f" {option('by')} NAME for each that does"
        )
    return tuple(factors)


def _settings(frame: pd.DataFrame, factors: Sequence[str]) -> list[Setting]:
    """Returns the different settings, in the order of the runs.

    Raises:
        AblateError: there is one, or there are too many.
    """
    settings = list(dict.fromkeys(settings_of(frame, factors)))
    if len(settings) > MOST_ROWS:
        raise AblateError(
            f"{', '.join(factors)} have {len(settings):,} different settings, and at"
            f" most {MOST_ROWS:,} are compared; write {option('by')} NAME for the columns"
            " that count"
        )
    return settings


def settings_of(frame: pd.DataFrame, factors: Sequence[str]) -> list[Setting]:
    """Returns the levels of the factors of each run."""
    if not factors:
        return [()] * len(frame)
    return list(
        zip(
            *([_level(value) for value in frame[name]] for name in factors), strict=True
        )
    )


def _level(value: Any) -> Level:
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        # A time, for one.
        return str(value)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _baseline(
    frame: pd.DataFrame,
    factors: Sequence[str],
    settings: Sequence[Setting],
    said: Mapping[str, str],
) -> Setting:
    """Returns the levels of row 0.

    Args:
        said: levels by factor, as the user types them.

    Raises:
        AblateError: no setting or several are meant.
    """
    if len(settings) < 2:
        levels = _text(factors, settings[0])
        raise AblateError(
            f"all runs have the same setting ({levels}): nothing is compared"
        )
    if said:
        places = {name: factors.index(name) for name in said if name in factors}
        missing = [name for name in said if name not in places]
        if missing:
            raise AblateError(
                f"{option('baseline')} names {missing[0]}, which is not among the factors"
                f" {', '.join(factors)}"
            )
        meant = [
            setting
            for setting in settings
            if all(
                _is_typed(setting[place], said[name]) for name, place in places.items()
            )
        ]
        what = ", ".join(f"{name}={level}" for name, level in said.items())
    else:
        meant = [
            setting
            for setting in settings
            if all(level_text(level).lower() in USUAL for level in setting)
        ]
        what = ""
    if len(meant) == 1:
        return meant[0]
    candidates = [
        shortened(_typed(factors, setting), LONGEST) for setting in (meant or settings)
    ]
    listed = "; ".join(first(candidates, "settings"))
    if what:
        problem = (
            f"{what} is no setting" if not meant else f"{what} are several settings"
        )
    else:
        problem = "which setting is the baseline is not clear"
    if len(settings) == len(frame):
        listed += (
            f". Each run has a setting of its own: name the columns that count, with"
            f" {option('by')} NAME for each"
        )
    elif len(factors) > 1:
        listed += (
            f"; or name the columns that count: {option('by')} {factors[0]} if"
            f" {' and '.join(factors[1:3])} should make no rows"
        )
    raise AblateError(f"{problem}; write {option('baseline')} with one of: {listed}")


def _is_typed(level: Level, text: str) -> bool:
    """Whether a text is a level as a user types it: `0.10` is 0.1, `True` is true."""
    if is_number(level):
        try:
            return math.isclose(float(text), level, rel_tol=1e-6)
        except ValueError:
            return False
    return level_text(level).lower() == text.lower()


def _typed(factors: Sequence[str], setting: Setting) -> str:
    """Returns a setting as a user types it."""
    return ",".join(
        f"{name}={level!r}" if is_number(level) else f"{name}={level_text(level)}"
        for name, level in zip(factors, setting, strict=True)
    )


def _text(factors: Sequence[str], setting: Setting) -> str:
    text = ", ".join(
        f"{name} = {level_text(level)}"
        for name, level in zip(factors, setting, strict=True)
    )
    return shortened(text, LONGEST)
