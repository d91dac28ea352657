"""What a user's file can declare, beside a Factor: each part is a frozen record.

    backbone    a function that returns a network
    dataset     a function that returns images and labels
    loss        a function of logits and targets
    optimizer   a function that returns an optimizer
    schedule    a function of the share of training that is done
    augmentation  a function that changes training images
    metric      a function of all test logits and labels
    trainer     a function or class around a training of the user's own
    command     a command line that trains in a process of its own

The decorators return the record. `registry` finds it at the top level of the file.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from ablate.errors import AblateError, UnknownName, shortened, unknown
from ablate.factors.factor import OneOf, Real, Whole
from ablate.own import registry
from ablate.own.commits import (
    COMMIT,
    Checkout,
    Tree,
    last_tree_of,
    tree_of,
    written,
)
from ablate.records import (
    LENGTHS,
    METRIC_NAME,
    Direction,
    Level,
    Metric,
    Recipe,
    Settings,
    Trial,
    python_values,
)
from ablate.records.own_parts import (
    PLACEHOLDER,
    OwnAugmentation,
    OwnBackbone,
    OwnData,
    OwnFunction,
    OwnLoss,
    OwnMetric,
    OwnOperator,
    OwnOptimizer,
    OwnSchedule,
    Reports,
    Revision,
    Shapes,
)
from ablate.text.advice import option

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn
    from torch.optim import Optimizer

Allowed: TypeAlias = OneOf | Whole | Real
R = TypeVar("R")
F = TypeVar("F", bound=OwnFunction)

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9_-]*)*")
# What braces in a command can hold beside factors and fields of the recipe.
PLACES = ("seed", "epochs", "last", "checkpoint", "output")
# Columns of the store's views that stand beside the metrics.
RESERVED = frozenset(
    "cell role seed status seconds epochs epochs_done epoch number lr joules params"
    " flops flops_paper activations elementwise trial row rows n attempts error weights"
    " events done".split()
)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A training of the user's own.

    Attributes:
        name: as in `trainer: NAME`.
        train: receives an `OwnTrial`; None for a command.
        command: the words of a command line, with places for levels.
        resume: further words, if the file that the last one names exists.
        reports: where a command reports.
        factors: what a space may vary, by name; the default of a list of levels is its
            first one.
        metrics: what each report contains; the first one is a study's default.
        recipe: the fields of the recipe that the training reads, beside `epochs`.
        model: builds the network from levels, to count its cost.
        inputs: what the network is traced with: a tensor, or a tuple of arguments.
        share: paths that a commit's files are completed with, from the checkout.
        ignore: patterns of files that do not count for the identity of a commit.
        revision: takes the place of the file's content in the identity of trials.
        problem: why it cannot be used; empty if it can. A file may have a part with a
            mistake beside others.
    """

    part: ClassVar[str] = "trainer"

    name: str
    factors: Mapping[str, Allowed]
    metrics: tuple[Metric, ...]
    train: Callable[[Any], None] | None = None
    command: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    reports: Reports = field(default_factory=Reports)
    recipe: tuple[str, ...] = ()
    model: Callable[[Settings], nn.Module] | None = None
    inputs: Callable[[Settings], Any] | None = None
    share: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    revision: Revision = None
    problem: str = ""

    def __post_init__(self) -> None:
        if self.problem:
            return
        subject = f"trainer '{self.name}'" if self.name else "a command"
        self._check_factors(subject)
        self._check_metrics(subject)
        self.reports.check(subject, [metric.name for metric in self.metrics])
        # The length of a training of one's own is in epochs.
        lengths = LENGTHS[1:]
        recipe_fields = [
            field.name for field in fields(Recipe) if field.name not in lengths
        ]
        for name in self.recipe:
            if name not in recipe_fields:
                raise AblateError(
                    f"{subject}: {unknown('recipe field', name, recipe_fields)}; a number of your"
                    " own is a factor, as in factors={...: ablate.Whole(1)}"
                )
        if self.inputs is not None and self.model is None:
            raise AblateError(
                f"{subject}: inputs= has an effect only together with model=; add model=, or leave"
                " inputs= out"
            )

    def _check_factors(self, subject: str) -> None:
        _check_names(
            subject,
            self.factors,
            "if your trainer reads this field of the recipe, list it in recipe=[...]",
        )
        for name in self.factors:
            if name in {metric.name for metric in self.metrics}:
                raise AblateError(
                    f"{subject}: '{name}' is the name of a metric, so a factor cannot have"
                    " it; use another"
                )

    def _check_metrics(self, subject: str) -> None:
        if not self.metrics:
            raise AblateError(
                f'{subject} needs a metric, as in metrics={{"loss": "min"}}'
            )
        seen = set[str]()
        for metric in self.metrics:
            if metric.name in seen:
                raise AblateError(f"{subject}: the metric {metric.name} is a duplicate")
            seen.add(metric.name)
        if not self.metrics[0].compared:
            raise AblateError(
                f"{subject}: the first metric, {self.metrics[0].name}, is the one by"
                " which cells are compared, so it must not have compared=False"
            )

    @property
    def reports_once(self) -> bool:
        """Whether it is a command that is not told how many epochs to train."""
        words = " ".join(self.command)
        return bool(words) and "{epochs}" not in words and "{last}" not in words

    def takes_commits(self) -> bool:
        """Whether `commit` is a factor of it, which no trainer declares."""
        return bool(self.command) and COMMIT not in self.factors

    def tree(self, level: str) -> Tree:
        """The files that a level of the factor `commit` stands for now.

        Raises:
            AblateError: there is no such commit, or it cannot train.
        """
        tree = tree_of(self._folder, level, self.share, self.ignore)
        for word, path in registry.scripts_of(self, tree.repository.root):
            if not tree.has(path) and not tree.shares(path):
                raise AblateError(
                    f"{level} has no file {path}, which the command of trainer"
                    f" {self.name} names as {word}; choose commits that have it"
                )
        return tree

    def last_tree(self, level: str) -> Tree:
        """The files that a level stood for when its space was read."""
        return last_tree_of(self._folder, level) or self.tree(level)

    @property
    def _folder(self) -> str:
        return registry.folder_of("trainer", self.name)

    def defaults(self) -> dict[str, Level]:
        """The first level of each factor that lists its levels."""
        return {
            name: allowed.levels[0]
            for name, allowed in self.factors.items()
            if isinstance(allowed, OneOf)
        }


def trainer_named(name: str) -> Trainer:
    """The trainer of that name.

    Raises:
        UnknownName: no loaded file declares it.
        AblateError: its declaration has a mistake.
    """
    trainers: dict[str, Trainer] = registry.of_kind("trainer")
    if name not in trainers:
        raise UnknownName(_unknown("trainer", name, [*trainers]))
    if trainers[name].problem:
        raise AblateError(trainers[name].problem)
    return trainers[name]


def checkout_of(trial: Trial, folder: Path) -> Checkout | None:
    """Writes the files of a trial's commit below a folder.

    Returns:
        None if it does not train in a commit.

    Raises:
        AblateError: the files cannot be written.
    """
    name = trial.architecture.trainer
    if not name or COMMIT not in trial.architecture.settings:
        return None
    if not trainer_named(name).takes_commits():
        return None
    identity = str(trial.architecture.settings[COMMIT])
    return written(identity, folder, sys.path)


def _or_broken(name: str, make: Callable[[], Trainer]) -> Trainer:
    """Returns a trainer, or one that says what is wrong while a file is loaded.

    Raises:
        AblateError: the declaration has a mistake, and no file is loaded.
    """
    try:
        return make()
    except AblateError as error:
        if not registry.is_loading():
            raise
        return Trainer(name=name, factors={}, metrics=(), problem=str(error))


def own_part(kind: str, name: str, built_in: Sequence[str]) -> Any:
    """The user's part of that kind and name.

    Args:
        built_in: names that no part of a user can have.

    Raises:
        UnknownName: no loaded file declares it.
    """
    parts = registry.besides(kind, built_in)
    if name not in parts:
        raise UnknownName(_unknown(kind, name, [*built_in, *parts]))
    return parts[name]


def _unknown(kind: str, name: str, names: Sequence[str]) -> str:
    """The message for a part that no loaded file declares."""
    how = f"if it is your own, name its file: {option('with')} FILE"
    if not names:
        return f"unknown {kind} '{shortened(name)}'; {how}"
    return f"{unknown(kind, name, names)}; {how}"


def trainer(
    *,
    metrics: Mapping[str, Direction] | Sequence[Metric],
    factors: Mapping[str, Sequence[Level] | Allowed] | None = None,
    recipe: Sequence[str] = (),
    model: Callable[[Settings], nn.Module] | None = None,
    inputs: Callable[[Settings], Any] | None = None,
    name: str = "",
    revision: Revision = None,
) -> Callable[[Callable[..., Any]], Trainer]:
    """Makes a training of your own available to spaces, as `trainer: NAME`.

    >>> @ablate.trainer(factors={"norm": ["layer", "rms"]}, metrics={"loss": "min"})
    ... def train(trial):
    ...     net = build(trial.levels["norm"]).to(trial.device)
    ...     for epoch in trial.epochs(resume=lambda path: load(net, path)):
    ...         trial.report(loss=fit(net), save=lambda path: save(net, path))

    It also takes a class whose constructor receives the trial. The class has
    `epoch(number)`, which returns the metrics by name, and if it can resume, `save(path)`
    and `load(path)`.

    Args:
        metrics: what each report contains, each with the direction in which it is
            better; or records, which also say title, unit, digits and margin.
        factors: what a space may vary: levels, or Whole or Real.
        recipe: the fields of the recipe that the training reads, beside `epochs`.
        model: builds the network from levels, so that its parameters are counted.
        inputs: returns from levels what the network is traced with to count its FLOPs: a
            tensor, or a tuple of arguments.
        name: by default that of the function.
        revision: raise it if old results are no longer valid. Without it, every change
            of the file or of the modules beside it that it imports counts as one.

    Raises:
        AblateError: a name or metric is not allowed.
    """

    if isinstance(recipe, str):
        raise AblateError(f"recipe= is a list of fields, as in [{recipe!r}]")

    def declare(function: Callable[..., Any]) -> Trainer:
        train = function
        if inspect.isclass(function):
            train = _method_by_method(function)
        called = name or function.__name__

        def make() -> Trainer:
            return Trainer(
                name=called,
                train=train,
                factors=_allowed(factors or {}),
                metrics=_metrics(metrics),
                recipe=tuple(recipe),
                model=model,
                inputs=inputs,
                revision=revision,
            )

        return _or_broken(called, make)

    return declare


def command(
    words: str | Sequence[str],
    *,
    metrics: Mapping[str, Direction] | Sequence[Metric],
    factors: Mapping[str, Sequence[Level] | Allowed] | None = None,
    pattern: str | Sequence[str] = (),
    reads: str = "",
    first: int = 1,
    every: int = 1,
    resume: str | Sequence[str] = (),
    model: Callable[[Settings], nn.Module] | None = None,
    inputs: Callable[[Settings], Any] | None = None,
    share: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    name: str = "",
    revision: Revision = None,
) -> Trainer:
    r"""Makes a training script available to spaces, as `trainer: NAME`.

    >>> train = ablate.command(
    ...     "python train.py --norm {norm} --lr {recipe.lr} --seed {seed}"
    ...     " --epochs {epochs} --resume {checkpoint}",
    ...     factors={"norm": ["layer", "rms"]}, metrics={"loss": "min"},
    ... )

    After each epoch the script prints one line of JSON with every metric, such as
    `{"epoch": 1, "loss": 0.5}`, and flushes it. A script that reports in another way
    stays as it is: `pattern` finds the metrics in its output, `reads` in its files.
    `{checkpoint}` is a path that is the same each time the trial starts: if the file
    exists, the script resumes from it.

    >>> train = ablate.command(
    ...     "python train.py --output {output} --seed {seed} --epochs {epochs}",
    ...     metrics={"eval_top1": "max"}, reads="{output}/*/summary.csv", first=0,
    ...     resume="--resume {output}/last.pth.tar",
    ... )

    Args:
        words: the command line; `python` means the Python that runs ablate. Braces hold
            the name of a factor, `recipe.FIELD`, `seed`, `epochs`, `last` (what the
            script calls its last epoch, such as a number of steps), `checkpoint` or
            `output`, a folder of the trial. `{norm!r}` is a level as Python writes it.
        metrics: see `trainer`.
        factors: see `trainer`.
        pattern: regular expression, or several, with a named group for each metric, as
            in `r"val_loss (?P<loss>[\d.]+)"`, and perhaps the group `epoch`. Groups may
            be found in several lines.
        reads: path of files below `{output}`, with wildcards: CSV, JSON lines or
            TensorBoard events. A metric is a column or tag, with `_` for characters
            such as `/`; the epoch is the column `epoch`, or else `step`.
        first: what the script calls its first epoch in a pattern or file.
        every: by how much its numbers grow, such as steps between two reports.
        resume: further words if the file exists that the last of them names.
        model: see `trainer`.
        inputs: see `trainer`.
        share: files and folders that git does not track and the script reads, such as
            `["data"]`, below the folder of this file. With the factor `commit`, the files
            of each commit are completed with links to them.
        ignore: patterns of files that do not count for the identity of a commit, such as
            `["*.md"]`.
        name: by default that of the variable.
        revision: see `trainer`.

    Raises:
        AblateError: a name is not allowed, or a factor has no place in the command.
    """
    import shlex

    if isinstance(words, str):
        words = shlex.split(words)
    if isinstance(resume, str):
        resume = shlex.split(resume)
    shared = (share,) if isinstance(share, str) else tuple(share)
    ignored = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    reports = Reports(patterns, files=reads, first=first, every=every)

    def make() -> Trainer:
        allowed = _allowed(factors or {})
        _check_files(reads, resume)
        places = _places(words, (*resume, reads), allowed)
        return Trainer(
            name=name,
            command=tuple(words),
            resume=tuple(resume),
            reports=reports,
            factors=allowed,
            metrics=_metrics(metrics),
            recipe=places,
            model=model,
            inputs=inputs,
            share=shared,
            ignore=ignored,
            revision=revision,
        )

    return _or_broken(name, make)


def _check_files(reads: str, resume: Sequence[str]) -> None:
    """Raises AblateError if trials would share the files that a script writes."""
    if reads and not reads.startswith("{output}/"):
        raise AblateError(
            f"command: reads={reads!r} must begin with {{output}}/, so that each trial has"
            " files of its own; pass {output} to the script as its folder"
        )
    if resume and not re.search(r"\{(output|checkpoint)\}", resume[-1]):
        raise AblateError(
            f"command: the last word of resume=, {resume[-1]!r}, must be a file of the"
            " trial: {checkpoint}, or a path below {output}"
        )


def _places(
    words: Sequence[str], further: Sequence[str], allowed: Mapping[str, Allowed]
) -> tuple[str, ...]:
    """Returns the fields of the recipe that have a place in a command.

    Raises:
        AblateError: a place is unknown, or a factor or the seed has none.
    """
    for name_ in PLACES:
        if name_ in allowed:
            raise AblateError(
                f"command: {{{name_}}} has a meaning of its own in a command, so no"
                f" factor can be named '{name_}'; rename the factor"
            )
    places = _names_in(words)
    reads = [name for name in places if name.startswith("recipe.")]
    readable = {*PLACES, *allowed, *reads}
    others = _names_in(further)
    for name in sorted((places | others) - readable):
        raise AblateError(
            f"command: {unknown('placeholder', name, readable)}; write the name of a"
            f" factor, recipe.FIELD, {', '.join(PLACES[:-1])} or {PLACES[-1]} in the"
            " braces"
        )
    for factor in allowed:
        if factor not in places:
            raise AblateError(
                f"command: the command line does not contain the factor {factor}; add"
                f" {{{factor}}} to it"
            )
    if "seed" not in places:
        raise AblateError(
            "command: without {seed} all seeds would train the same; add {seed}"
        )
    return tuple(sorted(name.removeprefix("recipe.") for name in reads))


def _names_in(words: Sequence[str]) -> set[str]:
    """The names in the braces of words."""
    return {place[1] for place in PLACEHOLDER.finditer(" ".join(words))}


def backbone(
    *,
    image_size: int = 224,
    factors: Mapping[str, Sequence[Level] | Allowed] | None = None,
    like: str = "",
    name: str = "",
    revision: Revision = None,
) -> Callable[[Callable[..., nn.Module]], OwnBackbone]:
    """Makes a network available to spaces, as `backbone: NAME`.

    >>> @ablate.backbone(image_size=32, factors={"act": ["relu", "gelu"]})
    ... def tiny(image_size, channels, classes, act):
    ...     act = nn.ReLU() if act == "relu" else nn.GELU()
    ...     pixels = channels * image_size**2
    ...     hidden = nn.Linear(pixels, 64)
    ...     return nn.Sequential(nn.Flatten(), hidden, act, nn.Linear(64, classes))

    Args:
        image_size: side of the images that it is made for, in pixels.
        factors: what a space may vary: levels, or Whole or Real. The function gets each
            level by name. The default is that of the argument, otherwise the first
            level.
        like: a family of `ablate backbones`, such as vit or swin, if the network names
            its blocks and their parts as timm's networks of this family do. The factors
            of the family then work on it too.
        name: by default that of the function.
        revision: see `trainer`.

    Shape:
        the network maps (batch, channels, image_size, image_size) to (batch, classes).

    Raises:
        AblateError: a factor's name is not allowed, or the function does not take it.
    """

    def declare(function: Callable[..., nn.Module]) -> OwnBackbone:
        called = name or _name_of(function)
        allowed = _allowed(factors or {})
        subject = f"backbone '{called}'"
        _check_names(subject, allowed, "use another name")
        signature = inspect.signature(function)
        try:
            signature.bind(image_size, 3, 1000, **allowed)
        except TypeError as error:
            names = ", ".join(("image_size", "channels", "classes", *allowed))
            raise AblateError(
                f"{subject}: {error}; its function is called with ({names})"
            ) from None
        return OwnBackbone(
            name=called,
            build=function,
            image_size=image_size,
            factors=allowed,
            defaults=_defaults(subject, signature, allowed),
            like=like,
            revision=revision,
        )

    return declare


def dataset(
    *, name: str = "", revision: Revision = None
) -> Callable[[Callable[[], tuple[Any, Any, Any, Any]]], OwnData]:
    """Makes a data set available to spaces, as `data: NAME`.

    The function returns training images, training labels, test images and test labels
    as arrays: images uint8 (n, height, width) or (n, height, width, channels), labels
    integers (n) from 0. It must return the same each time.

    Args:
        name: by default that of the function.
        revision: see `trainer`.
    """

    return _declaring(OwnData, name, revision)


def loss(
    *, name: str = "", revision: Revision = None
) -> Callable[[Callable[[Tensor, Tensor], Tensor]], OwnLoss]:
    """Makes a loss available to spaces, as `recipe: {loss: NAME}`.

    Args:
        name: by default that of the function.
        revision: see `trainer`.

    Shape:
        the function maps logits (batch, classes) and targets to a scalar. Targets are
        class numbers (batch), or under Mixup and CutMix shares (batch, classes).
    """

    return _declaring(OwnLoss, name, revision)


def optimizer(
    *, name: str = "", revision: Revision = None
) -> Callable[[Callable[..., Optimizer]], OwnOptimizer]:
    """Makes an optimizer available to spaces, as `recipe: {optimizer: NAME}`.

    >>> @ablate.optimizer()
    ... def signum(groups, lr, beta=0.9):
    ...     return Signum(groups, lr=lr, beta=beta)

    The function, or a class of torch, gets the groups of parameters, with the weight
    decay of each, then `lr`, and the recipe's `optimizer_options` by name. A killed
    trial continues with its `state_dict`.

    Args:
        name: by default that of the function.
        revision: see `trainer`.
    """

    return _declaring(OwnOptimizer, name, revision)


def schedule(
    *, name: str = "", revision: Revision = None
) -> Callable[[Callable[..., float]], OwnSchedule]:
    """Makes a schedule available to spaces, as `recipe: {schedule: NAME}`.

    >>> @ablate.schedule()
    ... def triangle(share):
    ...     return 1 - abs(2 * share - 1)

    The function maps the share of all updates that are made, from 0 to 1, to what the
    learning rate is multiplied by. It gets the recipe's `schedule_options` by name. In
    the epochs of the warm-up, the learning rate rises linearly instead.

    Args:
        name: by default that of the function.
        revision: see `trainer`.
    """

    return _declaring(OwnSchedule, name, revision)


def augmentation(
    *, name: str = "", revision: Revision = None
) -> Callable[[Callable[[Tensor, Generator], Tensor]], OwnAugmentation]:
    """Makes an augmentation available to spaces, as `recipe: {augmentation: NAME}`.

    >>> @ablate.augmentation()
    ... def noise(images, generator):
    ...     drawn = torch.randn(images.shape, generator=generator)
    ...     return images + 0.1 * drawn.to(images.device)

    It changes each training batch after the built-in augmentations, before Mixup and
    CutMix. All random numbers must be drawn from the generator, which is on the CPU; a
    killed trial then continues with the same ones.

    Args:
        name: by default that of the function.
        revision: see `trainer`.

    Shape:
        images are float32 (batch, channels, side, side), normalised, on the device. The
        result has the same shape and type.
    """

    return _declaring(OwnAugmentation, name, revision)


def operator(
    name: str, *, revision: Revision = None
) -> Callable[[Callable[[Shapes, Shapes], float]], OwnOperator]:
    """Makes FLOPs of an operator countable that ablate has no rule for.

    >>> @ablate.operator("mylib::scan")
    ... def scan(inputs, outputs):
    ...     batch, tokens, width = inputs[0]
    ...     return 2 * batch * tokens * width

    Args:
        name: as the error about the operator names it.
        revision: see `trainer`.

    Shape:
        the function gets the shapes of all inputs and of all outputs, None for a value
        that is no tensor, and returns multiply-adds. They count as executed FLOPs.
    """

    def declare(function: Callable[[Shapes, Shapes], float]) -> OwnOperator:
        return OwnOperator(name=name, count=function, revision=revision)

    return declare


def metric(
    *,
    direction: Direction,
    name: str = "",
    title: str = "",
    unit: str = "",
    digits: int = 4,
    margin: float = 0.0,
    revision: Revision = None,
) -> Callable[[Callable[[Tensor, Tensor], float]], OwnMetric]:
    """Makes a metric of classification available to spaces, as `metric: {NAME: max}`.

    Args:
        direction: max or min: whether larger values are better.
        name: by default that of the function.
        title: see `Metric`.
        unit: see `Metric`.
        digits: see `Metric`.
        margin: see `Metric`.
        revision: see `trainer`.

    Shape:
        the function maps all test logits, float32 (n, classes), and labels, int64 (n),
        both on the CPU, to a number.

    Raises:
        AblateError: the name is not allowed.
    """

    def declare(function: Callable[[Tensor, Tensor], float]) -> OwnMetric:
        shown = Metric(
            name=name or _name_of(function),
            title=title,
            unit=unit,
            digits=digits,
            margin=margin,
            direction=direction,
        )
        _check_metric(shown)
        return OwnMetric(measure=function, shown=shown, revision=revision)

    return declare


def _defaults(
    subject: str, signature: inspect.Signature, allowed: Mapping[str, Allowed]
) -> dict[str, Level]:
    """The defaults of a function's arguments, otherwise the first level of a list.

    Raises AblateError if a default is not an allowed level.
    """
    defaults: dict[str, Level] = {}
    for name, levels in allowed.items():
        argument = signature.parameters.get(name)
        if argument is not None and argument.default is not argument.empty:
            if not levels.accepts(argument.default):
                raise AblateError(
                    f"{subject}: the default {name} = {argument.default!r} is not a"
                    f" level; allowed: {levels}"
                )
            defaults[name] = argument.default
        elif isinstance(levels, OneOf):
            defaults[name] = levels.levels[0]
    return defaults


def _check_names(subject: str, names: Iterable[str], advice: str) -> None:
    """Raises AblateError if factors cannot have these names.

    Args:
        advice: what to do about a name of built-in training.
    """
    # SQLite does not tell the columns `Depth` and `depth` apart.
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise AblateError(
                f"{subject}: two names of factors differ only in capital letters:"
                f" {name.lower()}; rename one"
            )
        if not NAME.fullmatch(name):
            raise AblateError(
                f"{subject}: '{name}' is not a name of a factor; use letters, digits,"
                " _ and -"
            )
        if name.partition(".")[0] in ("recipe", "data", "backbone", "pretrained"):
            raise AblateError(
                f"{subject}: '{name}' is a key of built-in training, so a factor"
                f" cannot have this name; {advice}"
            )


def _declaring(
    record: type[F], name: str, revision: Revision
) -> Callable[[Callable[..., Any]], F]:
    """Returns a decorator that makes a part of a function."""

    def declare(function: Callable[..., Any]) -> F:
        return record(
            name=name or _name_of(function), function=function, revision=revision
        )

    return declare


def _name_of(function: Any) -> str:
    return str(function.__name__)


def _allowed(factors: Mapping[str, Sequence[Level] | Allowed]) -> dict[str, Allowed]:
    allowed: dict[str, Allowed] = {}
    for name, levels in factors.items():
        if isinstance(levels, OneOf | Whole | Real):
            allowed[name] = levels
            continue
        levels = python_values(levels)
        if isinstance(levels, str) or not levels:
            raise AblateError(
                f"factor '{name}': list its levels, as in [4, 6], or give Whole(1) or"
                f" Real(0); found {levels!r}"
            )
        allowed[name] = OneOf(tuple(levels))
    return allowed


def _metrics(
    declared: Mapping[str, Direction] | Sequence[Metric],
) -> tuple[Metric, ...]:
    if isinstance(declared, Mapping):
        made = tuple(
            Metric(name, direction=direction) for name, direction in declared.items()
        )
    else:
        made = tuple(declared)
    for part in made:
        if not isinstance(part, Metric):
            raise AblateError(
                f'metrics: {part!r} has no direction; write {{{part!r}: "min"}} or'
                f' ablate.Metric({part!r}, direction="min")'
            )
        _check_metric(part)
    return made


def _check_metric(metric: Metric) -> None:
    if metric.direction not in ("max", "min"):
        raise AblateError(
            f"metric '{metric.name}': the direction is max or min, found"
            f" {metric.direction!r}"
        )
    if not METRIC_NAME.fullmatch(metric.name):
        raise AblateError(
            f"metric '{metric.name}': a name has letters, digits and _ only, begins with"
            " a letter, and has at most 20 characters"
        )
    if metric.of or metric.over != 1:
        raise AblateError(
            f"metric '{metric.name}': a mean over the last epochs is declared in the"
            f" space, as metric: {{{metric.of or metric.name}: {{over: {metric.over}}}}};"
            " leave out of= and over="
        )
    if metric.name.lower() in RESERVED:
        raise AblateError(
            f"metric '{metric.name}': the store has a column of this name; use another"
        )


def _method_by_method(kind: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A training function that calls the methods of a class."""

    def train(trial: Any) -> None:
        work = kind(trial)
        save = getattr(work, "save", None)
        for epoch in trial.epochs(resume=getattr(work, "load", None)):
            trial.report(**work.epoch(epoch), save=save)

    return train
