"""A document to a Space: checks the shape, then every name, level and combination, and
tells all mistakes at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_type_hints

from pydantic import ValidationError

from ablate import data, diagnostics, factors, families
from ablate.document import Document, Where, parse, read_text
from ablate.errors import (
    AblateError,
    DataError,
    DiagnosticError,
    Problem,
    SpaceError,
    UnknownName,
    shortened,
    unknown,
)
from ablate.factors.factor import explain_refusal
from ablate.records import (
    LONGEST_LEVEL,
    MOST_SIDE,
    PUBLISHED_WEIGHTS,
    Data,
    DeclaredTeacher,
    Design,
    Diagnostics,
    Level,
    Limit,
    Looks,
    Recipe,
    Resources,
    Scheduler,
    Space,
    Strategy,
    weights_named,
)
from ablate.space import limits as limit_rules
from ablate.space.recipes import RECIPES, preset
from ablate.space.schema import (
    AdaptiveForm,
    BackboneForm,
    RecipeForm,
    SpaceForm,
    UntilDecidedForm,
)
from ablate.space.shape import shape_problems

# Metrics that a training gives; the others are costs.
TRAINED = ("top1", "top5", "loss")
# The least difference that counts, where it is not half a per cent point.
MARGINS = {"loss": 0.02}
# Characters of a study's name; the store's column has so many, and not every database
# refuses more by itself.
LONGEST_NAME = 200


def read(path: Path, until_decided: int | None = None) -> Space:
    """The space that a file declares.

    Args:
        until_decided: add seeds to cells of which nothing can be said, up to so many,
            as `seeds: {until_decided: N}` would.

    Raises:
        SpaceError: the file is missing, or has mistakes; each is told with its line.
    """
    text = read_text(path)
    return load(
        (
            text
            if until_decided is None
            else _until_decided(text, str(path), until_decided)
        ),
        str(path),
    )


def _until_decided(text: str, file: str, most: int) -> str:
    """The document with other seeds."""
    import yaml

    values = parse(text, file).values
    said = values.get("seeds", 3)
    if isinstance(said, list):
        raise AblateError(
            f"--until-decided {most} takes seeds 0, 1, ...; {file} lists its seeds:"
            " write a number of them"
        )
    if isinstance(said, int):
        first = {"start": said}
    elif isinstance(said, dict):
        first = said
    else:
        first = {}
    return yaml.safe_dump(
        {**values, "seeds": {**first, "until_decided": most}},
        sort_keys=False,
        allow_unicode=True,
    )


def load(text: str, file: str, *, stored: bool = False) -> Space:
    """The space that a YAML text declares; `file` is the name that mistakes are told
    under, and names the study.

    Args:
        stored: the text is one that was run before, and is only read: files that it
            names need not be there any more.

    Raises:
        SpaceError: the text has mistakes; each is told with its line.
    """
    document = parse(text, file)
    try:
        form = SpaceForm.model_validate(document.values)
    except ValidationError as error:
        raise SpaceError(shape_problems(document, error)) from None
    return _Loader(document, form, stored).space()


def study_name(file: str) -> str:
    """The name of a study by its file: the path below search_spaces/ without its
    ending, else the file's name.
    """
    parts = Path(file).with_suffix("").parts
    if "search_spaces" in parts:
        below = parts[len(parts) - parts[::-1].index("search_spaces") :]
    else:
        below = parts[-1:]
    safe = [
        "".join(c if c.isalnum() or c in "_.-" else "-" for c in part)
        for part in below or parts[-1:]
    ]
    return "/".join(part.strip("-.") or "study" for part in safe)


class _Loader:
    """Gathers a space from a document of the right shape, and every mistake on the way."""

    def __init__(self, document: Document, form: SpaceForm, stored: bool) -> None:
        self._document = document
        self._form = form
        self._stored = stored
        self._problems: list[Problem] = []

    def _wrong(self, where: Where, text: str | Callable[[], str]) -> None:
        self._problems.append(self._document.problem(where, text))

    @cached_property
    def _listed(self) -> dict[str, dict[tuple[bool, Level], Level]]:
        """The levels of each factor that varies, by what they mean."""
        # Of two that mean the same, the first is the level.
        return {
            name: {_key(level): level for level in reversed(found)}
            for name, found in self._form.factors.items()
        }

    def space(self) -> Space:
        form = self._form
        backbone, sizes = self._backbone()
        metric = next(iter(form.metric), "top1")
        levels = {name: tuple(found) for name, found in form.factors.items()}
        fixed = {**sizes, **form.fixed}
        self._check_names(levels, sizes)
        design = self._design
        rows = self._rows(design, levels)
        if design.name == "rows" and form.baseline:
            self._wrong(
                ("baseline",),
                "with design rows the first row is the baseline; leave `baseline` out",
            )
        baseline = self._corner(
            "baseline",
            form.baseline,
            levels,
            {n: found[0] for n, found in levels.items() if found},
        )
        full = self._corner(
            "full",
            form.full,
            levels,
            {n: found[-1] for n, found in levels.items() if found},
        )
        if form.full and not design.two_levels:
            self._wrong(
                ("full",),
                "full is read by the designs leave-one-out, add-one-in, fractional and"
                f" plackett-burman, not by {design.name}",
            )
        space = Space(
            name=self._name(),
            named=form.name is not None,
            document=self._document.text,
            question=form.question,
            expect=form.expect,
            source=form.source,
            backbone=backbone,
            factors=levels,
            fixed=fixed,
            baseline=rows[0] if rows else baseline,
            full=full,
            design=design,
            seeds=self._seeds(),
            data=self._data(),
            recipe=self._recipe(),
            metric=metric,
            direction=next(iter(form.metric.values()), "max"),
            objectives={
                str(name): direction for name, direction in form.metric.items()
            },
            strategy=self._strategy(levels),
            adaptive=isinstance(form.seeds, AdaptiveForm),
            looks=self._looks(),
            margin=MARGINS.get(metric, 0.5) if form.margin is None else form.margin,
            control=self._control(levels),
            limits=self._limits(),
            resources=self._resources(),
            keep=form.keep,
            scheduler=self._scheduler(),
            rows=rows,
            published=self._published(),
            pretrained=self._pretrained(),
            teacher=self._teacher(),
            diagnostics=self._diagnostics(),
            warmup_fits=self._warmup_fits(),
        )
        if next(iter(form.metric), "") not in TRAINED:
            self._wrong(
                ("metric",),
                f"metric names first one of {', '.join(TRAINED)}, as in {{top1: max}}",
            )
        if rows and not self._problems:
            self._check_listed(rows, levels)
        if not self._problems:
            self._check_shares(space)
        if self._problems:
            raise SpaceError(dict.fromkeys(self._problems))
        return space

    def _name(self) -> str:
        """The study's name: what the document says, else that of its file."""
        name = self._form.name or study_name(self._document.file)
        if len(name) > LONGEST_NAME and not self._stored:
            if self._form.name:
                said = "name"
            else:
                said = (
                    "the file names the study; give it another name, as in `name: mine`"
                )
            self._wrong(
                ("name",),
                f"{said}: a name has at most {LONGEST_NAME} characters, this one has"
                f" {len(name)}",
            )
        return name

    def _check_listed(
        self,
        rows: tuple[dict[str, Level], ...],
        levels: Mapping[str, tuple[Level, ...]],
    ) -> None:
        """Every level listed is that of some row."""
        for name, listed in levels.items():
            taken = {_key(row[name]) for row in rows if name in row}
            for index, level in enumerate(listed):
                if _key(level) not in taken:
                    self._wrong(
                        ("factors", name, index),
                        f"{name}: no row is at the level {_shown(level)}; leave it out",
                    )

    def _backbone(self) -> tuple[str, dict[str, Level]]:
        """The backbone's name and the sizes that its full form says."""
        form = self._form.backbone
        varied = self._form.factors.get("backbone")
        if (form is None) == (varied is None):
            self._wrong(
                ("backbone",),
                "name the backbone in one place: `backbone: NAME`, or `backbone: [NAME,"
                " NAME]` under factors",
            )
        if form is None:
            return str((varied or [""])[0]), {}
        name, sizes = _name_and_sizes(form)
        try:
            _check_backbone(form)
        except UnknownName as error:
            self._wrong(("backbone", "family"), str(error))
        return name, sizes

    def _teacher(self) -> DeclaredTeacher | None:
        """The network that cells learn from, where some do."""
        form = self._form.teacher
        levels = self._form.factors.get("recipe.distillation", [self._distillation()])
        distils = any(level != "none" for level in levels)
        if form is None:
            if distils:
                if len(levels) > 1:
                    where: Where = ("factors", "recipe.distillation")
                else:
                    where = ("recipe", "distillation")
                self._wrong(
                    where,
                    "distillation needs a teacher; write teacher: {backbone: NAME,"
                    " weights: FILE}",
                )
            return None
        if not distils:
            self._wrong(
                ("teacher",),
                "no cell learns from the teacher; set recipe.distillation to soft or"
                " hard, or leave it out",
            )
        name, sizes = _name_and_sizes(form.backbone)
        known = families.is_known(name)
        try:
            if known or not _of_timm(name):
                _check_backbone(form.backbone)
        except UnknownName as error:
            self._wrong(("teacher", "backbone"), str(error))
        if form.settings and not known:
            self._wrong(
                ("teacher", "settings"),
                f"factors have no place in {shortened(name)}; leave the settings out",
            )
        elif known:
            self._check_teacher_settings({**sizes, **form.settings}, sizes)
        weights = form.weights
        if (
            weights != PUBLISHED_WEIGHTS
            and not self._stored
            and not os.path.isfile(weights)
        ):
            self._wrong(
                ("teacher", "weights"),
                f"teacher: no file {shortened(weights)}; name a checkpoint, or write"
                " timm for the weights that timm publishes",
            )
        return DeclaredTeacher(
            backbone=name, weights=weights, settings={**sizes, **form.settings}
        )

    def _check_teacher_settings(
        self, settings: Mapping[str, Level], sizes: Mapping[str, Level]
    ) -> None:
        """A teacher's settings are levels of its architecture that decide what it
        predicts.
        """
        for factor, level in settings.items():
            where: Where = ("teacher", "settings", factor)
            if factor.partition(".")[0] in ("recipe", "data", "backbone", "pretrained"):
                self._wrong(
                    where,
                    f"{factor} is no setting of an architecture; a teacher has none",
                )
            elif factor.startswith(("drop.", "patch.")):
                self._wrong(
                    where,
                    f"{factor} is read in training only, and a teacher is not trained;"
                    " leave it out",
                )
            elif (
                factor in sizes
                and self._form.teacher is not None
                and factor in self._form.teacher.settings
            ):
                self._wrong(
                    where,
                    f"{factor} is also among the numbers of the teacher's backbone; say"
                    " it in one place",
                )
            else:
                self._check_levels(where, factor, (level,))
                if factor in factors.parameters():
                    reason = factors.unread_reason(factor, settings)
                else:
                    reason = ""
                if reason:
                    self._wrong(where, f"{reason}; leave it out")

    def _distillation(self) -> str:
        """What the recipe says of distillation."""
        form: Any = self._form.recipe
        if isinstance(form, str):
            return "none"
        return form.distillation or "none"

    def _check_names(
        self, levels: Mapping[str, tuple[Level, ...]], sizes: Mapping[str, Level]
    ) -> None:
        """Every factor known, every level allowed, none said twice."""
        if not levels:
            self._wrong(
                ("factors",),
                "factors is empty; name at least one, as in `shortcuts.count: [0,"
                " 1, 2]`",
            )
        for name, found in levels.items():
            where: Where = ("factors", name)
            if len(found) < (1 if self._design.name == "rows" else 2):
                self._wrong(
                    where,
                    f"{name} needs two levels or more, has {len(found)}; what does not"
                    " vary belongs under `fixed`",
                )
            seen = set[tuple[bool, Level]]()
            for index, level in enumerate(found):
                if _key(level) in seen:
                    self._wrong(
                        (*where, index),
                        f"{name}: the level {_shown(level)} stands twice",
                    )
                seen.add(_key(level))
            self._check_levels(where, name, found)
            if name in sizes and name not in self._form.fixed:
                self._wrong(
                    where,
                    f"{name} varies, but backbone says {name.removeprefix('size.')}"
                    " too; say it in one place",
                )
        self._check_fixed(levels, sizes)

    def _check_fixed(
        self, levels: Mapping[str, tuple[Level, ...]], sizes: Mapping[str, Level]
    ) -> None:
        """What does not vary is said once, and not among the factors too."""
        if isinstance(self._form.data, str):
            side = None
        else:
            side = self._form.data.image_size
        if side is not None and "data.image_size" in levels:
            self._wrong(
                ("data", "image_size"),
                "data.image_size varies under factors; say it in one place",
            )
        for name, level in self._form.fixed.items():
            if name in levels:
                self._wrong(
                    ("fixed", name),
                    f"{name} stands under factors and under fixed; say it in one place",
                )
            if name in sizes:
                self._wrong(
                    ("fixed", name),
                    f"{name} stands under backbone and under fixed; say it in one"
                    " place",
                )
            outside = name.partition(".")[0]
            if outside in ("recipe", "data", "backbone", "pretrained"):
                self._wrong(
                    ("fixed", name),
                    f"{name}: what does not vary of the {outside} belongs under"
                    f" `{outside}`",
                )
            else:
                self._check_levels(("fixed", name), name, (level,))
        for name, level in sizes.items():
            self._check_levels(("backbone", name.removeprefix("size.")), name, (level,))

    def _check_levels(self, where: Where, name: str, found: tuple[Level, ...]) -> None:
        if name.startswith("recipe."):
            self._check_recipe_levels(where, name, found)
            return
        if name == "backbone":
            self._check_backbones(where, found)
            return
        if name == "pretrained":
            for index, level in enumerate(found):
                self._check_weights((*where, index), level)
                if len(str(level)) > LONGEST_LEVEL and not self._stored:
                    allowed = (
                        f"a level has at most {LONGEST_LEVEL} characters, this one has"
                        f" {len(str(level))}"
                    )
                    self._wrong(
                        (*where, index), f"pretrained: {allowed}; put the file nearer"
                    )
            return
        if name == "data.image_size":
            for index, level in enumerate(found):
                if type(level) is not int or not 1 <= level <= MOST_SIDE:
                    allowed = f"whole numbers from 1 to {MOST_SIDE}"
                    self._wrong(
                        (*where, index),
                        f"{name}: {_shown(level)} is not a level; allowed: {allowed}",
                    )
            return
        try:
            _, parameter = factors.find(name)
        except UnknownName:
            outside = ["backbone", "data.image_size", "pretrained"]
            known = [
                *outside,
                *factors.parameters(),
                *(f"recipe.{field.name}" for field in fields(Recipe)),
            ]
            self._wrong(where, partial(unknown, "factor", name, known))
            return
        for index, level in enumerate(found):
            if not parameter.allowed.accepts(level):
                self._wrong(
                    (*where, index), partial(explain_refusal, name, parameter, level)
                )

    def _check_backbones(self, where: Where, found: tuple[Level, ...]) -> None:
        for index, level in enumerate(found):
            if not families.is_known(str(level)):
                self._wrong(
                    (*where, index), partial(families.unknown_backbone, str(level))
                )

    def _rows(
        self, design: Design, levels: Mapping[str, tuple[Level, ...]]
    ) -> tuple[dict[str, Level], ...]:
        """The cells of the design `rows`: each a choice among the levels listed, none
        twice.
        """
        rows = self._form.rows
        if (design.name == "rows") != bool(rows):
            if not rows:
                wrong = "design rows needs cells: rows: [{}, {FACTOR: LEVEL}]"
            else:
                wrong = f"rows is read by design rows, not by {design.name}"
            self._wrong(("design",) if not rows else ("rows",), wrong)
        found: list[dict[str, Level]] = []
        numbers: dict[frozenset[tuple[str, Level]], int] = {}
        for number, row in enumerate(rows):
            for name, level in row.items():
                where: Where = ("rows", number, name)
                if name not in levels:
                    self._wrong(where, partial(_not_varied, name, levels))
                elif _key(level) not in self._listed[name]:
                    self._wrong(
                        where, partial(_not_listed, "rows", name, level, levels[name])
                    )
            first = numbers.setdefault(frozenset(row.items()), number)
            if first != number:
                self._wrong(
                    ("rows", number),
                    f"rows: row {number} stands twice, also as row {first}",
                )
            found.append(self._row(row, levels))
        return tuple(found)

    def _row(
        self, row: Mapping[str, Level], levels: Mapping[str, tuple[Level, ...]]
    ) -> dict[str, Level]:
        """All levels of a listed cell.

        A factor that it does not name is as in the unmodified backbone; what has no
        such level, as the recipe, is at its first one.
        """
        full: dict[str, Level] = {}
        for name, listed in levels.items():
            if name in row:
                full[name] = self._listed[name].get(_key(row[name]), row[name])
            elif name == "pretrained":
                full[name] = False
            elif name not in factors.parameters():
                full[name] = listed[0] if listed else ""
            else:
                default = factors.parameters()[name][1].default
                full |= {} if default is None else {name: default}
        return full

    def _published(self) -> str:
        """The name of a published table, if there is such a one."""
        from ablate.published import tables

        name = self._form.published
        if name and name not in tables():
            self._wrong(("published",), unknown("published table", name, tables()))
        return name

    def _pretrained(self) -> str:
        said = self._form.pretrained
        self._check_weights(("pretrained",), said)
        if (
            "pretrained" in self._form.factors
            and "pretrained" in self._form.model_fields_set
        ):
            self._wrong(
                ("pretrained",), "pretrained varies under factors; say it in one place"
            )
        return weights_named(said)

    def _check_weights(self, where: Where, said: Level) -> None:
        """Weights to start from are true, false, or a file that is there."""
        if isinstance(said, bool):
            return
        if not isinstance(said, str):
            self._wrong(
                where,
                f"pretrained: {_shown(said)} is not a level; allowed: true, false, or a"
                " checkpoint file",
            )
        # Unlike Path.is_file, it is False of names that no file can have.
        elif not self._stored and not os.path.isfile(said):
            self._wrong(
                where,
                f"pretrained: no file {shortened(said)}; write true for the weights"
                " that timm publishes",
            )

    def _diagnostics(self) -> Diagnostics:
        said: Any = self._form.diagnostics
        if isinstance(said, bool):
            if said:
                return Diagnostics(diagnostics.usual())
            return Diagnostics()
        names = said if isinstance(said, list) else said.names
        seen = set[str]()
        for index, name in enumerate(names or ()):
            if name in seen:
                self._wrong(
                    ("diagnostics",), f"diagnostics: {shortened(name)} stands twice"
                )
                continue
            seen.add(name)
            if name not in diagnostics.catalogue():
                if isinstance(said, list):
                    where: Where = ("diagnostics", index)
                else:
                    where = ("diagnostics", "names", index)
                self._wrong(
                    where, partial(unknown, "diagnostic", name, diagnostics.catalogue())
                )
                continue
            try:
                diagnostics.require([name])
            except DiagnosticError as error:
                self._wrong(("diagnostics",), str(error))
        if isinstance(said, list):
            return Diagnostics(tuple(said))
        return Diagnostics(
            tuple(names) if names else diagnostics.usual(), said.images, said.every
        )

    def _check_recipe_levels(
        self, where: Where, name: str, found: tuple[Level, ...]
    ) -> None:
        field = name.removeprefix("recipe.")
        known = [f.name for f in fields(Recipe)]
        if field not in known:
            self._wrong(
                where, partial(unknown, "factor", name, [f"recipe.{k}" for k in known])
            )
            return
        for index, level in enumerate(found):
            try:
                RecipeForm.model_validate({field: level})
            except ValidationError as error:
                self._wrong(
                    (*where, index),
                    f"{name}: {error.errors()[0]['msg'].removeprefix('Input ')}, found"
                    f" {_shown(level)}",
                )

    def _corner(
        self,
        key: str,
        said: Mapping[str, Level],
        levels: Mapping[str, tuple[Level, ...]],
        otherwise: dict[str, Level],
    ) -> dict[str, Level]:
        """The baseline or the full model: what is said, among the levels listed, else
        the first or last levels.
        """
        for name, level in said.items():
            if name not in levels:
                self._wrong((key, name), partial(_not_varied, name, levels))
            elif _key(level) not in self._listed[name]:
                self._wrong(
                    (key, name), partial(_not_listed, key, name, level, levels[name])
                )
        # The level as it is listed: 64 and 64.0 are one.
        chosen = {
            name: self._listed[name].get(_key(level), level)
            for name, level in said.items()
            if name in levels
        }
        return {**otherwise, **chosen}

    @cached_property
    def _design(self) -> Design:
        form: Any = self._form.design
        if isinstance(form, str):
            names = _literal(Design, "name")
            if form not in names:
                self._wrong(("design",), unknown("design", form, names))
                return Design()
            design = Design(name=cast(Any, form))
        else:
            design = Design(**form.model_dump(exclude_none=True))
        if isinstance(form, str):
            said = {}
        else:
            said = form.model_dump(exclude_none=True, exclude={"name"})
        if design.name == "random" and design.cells is None:
            self._wrong(
                ("design",),
                "design random needs a number of cells: design: {name: random,"
                " cells: 20}",
            )
        ignored = [name for name in said if name not in design.read]
        if ignored:
            reader = "fractional" if ignored[0] == "resolution" else "random"
            self._wrong(
                ("design",),
                f"{', '.join(ignored)} is read by design {reader}, not by"
                f" {design.name}",
            )
        return design

    def _scheduler(self) -> Scheduler:
        form: Any = self._form.scheduler
        if isinstance(form, str):
            names = _literal(Scheduler, "name")
            if form not in names:
                self._wrong(("scheduler",), unknown("scheduler", form, names))
                return Scheduler()
            return Scheduler(name=cast(Any, form))
        said = form.model_dump(exclude_none=True)
        scheduler = Scheduler(**said)
        for name in said:
            if name != "name" and name not in scheduler.read:
                self._wrong(
                    ("scheduler", name),
                    f"{name} is not read by scheduler {scheduler.name}; leave it out",
                )
        return scheduler

    def _strategy(self, levels: Mapping[str, tuple[Level, ...]]) -> Strategy | None:
        """How the space is searched, if it is, with what the strategy can do on it."""
        form: Any = self._form.strategy
        if form is None:
            if isinstance(self._form.seeds, AdaptiveForm):
                self._wrong(
                    ("seeds",),
                    "adaptive seeds belong to a search; write a number of seeds, or a"
                    " `strategy`",
                )
            if len(self._form.metric) > 1:
                self._wrong(
                    ("metric",),
                    "a design has one metric, as {top1: max}; several belong to a"
                    " search: add a `strategy`",
                )
            return None
        if "design" in self._form.model_fields_set:
            self._wrong(
                ("strategy",),
                "strategy and design are two ways to choose cells; write one of them",
            )
        said: dict[str, Any] = {"name": form}
        if not isinstance(form, str):
            said = form.model_dump(exclude_none=True)
        if said["name"] not in _literal(Strategy, "name"):
            self._wrong(
                ("strategy",),
                unknown("strategy", said["name"], _literal(Strategy, "name")),
            )
            return None
        strategy = Strategy(**said)
        if strategy.cells is None and strategy.name != "brute-force":
            example = f"strategy: {{name: {strategy.name}, cells: 40}}"
            self._wrong(
                ("strategy",),
                f"strategy {strategy.name} needs a number of cells: {example}",
            )
        if len(self._form.metric) > 1 and self._form.scheduler != "fifo":
            self._wrong(
                ("metric",),
                "a scheduler that stops trials compares one metric; leave the scheduler"
                " or the others out",
            )
        if isinstance(self._form.seeds, UntilDecidedForm):
            self._wrong(
                ("seeds",),
                "seeds until decided compare the cells of a design; in a search write"
                " {adaptive: N}",
            )
        if len(self._form.metric) > 1 and isinstance(self._form.seeds, AdaptiveForm):
            self._wrong(
                ("seeds",), "adaptive seeds compare one metric; write a number of seeds"
            )
        if strategy.name == "cmaes":
            self._check_cmaes(levels)
        return strategy

    def _control(
        self, levels: Mapping[str, tuple[Level, ...]]
    ) -> Literal["", "iso-params", "iso-flops"]:
        """By which cost each variant gets a control, if it does."""
        if self._form.control is None:
            return ""
        if self._form.strategy is not None:
            self._wrong(("control",), "controls belong to a design; a search has none")
        for name in ("size.width", "backbone"):
            if name in levels:
                self._wrong(
                    ("control",),
                    f"a control is the baseline in another width, but {name} varies;"
                    " leave one of them out",
                )
        return self._form.control

    def _check_cmaes(self, levels: Mapping[str, tuple[Level, ...]]) -> None:
        """CMA-ES moves in a space of real numbers, of two dimensions or more, towards
        one goal.
        """
        words = [
            name
            for name, found in levels.items()
            if not all(type(level) in (int, float) for level in found)
        ]
        if words:
            self._wrong(
                ("strategy",),
                f"cmaes needs levels that are numbers, {words[0]} has others; use tpe",
            )
        if len(levels) < 2 or len(self._form.metric) > 1:
            self._wrong(
                ("strategy",),
                "cmaes needs two factors or more, and one metric; use tpe",
            )

    def _seeds(self) -> tuple[int, ...]:
        seeds = self._form.seeds
        if isinstance(seeds, AdaptiveForm):
            return tuple(range(seeds.adaptive))
        if isinstance(seeds, UntilDecidedForm):
            return tuple(range(seeds.until_decided))
        if isinstance(seeds, int):
            return tuple(range(seeds))
        if len(set(seeds)) < len(seeds):
            self._wrong(("seeds",), "a seed stands twice")
        return tuple(seeds)

    def _looks(self) -> Looks | None:
        """When verdicts are taken, where seeds are added until they are found."""
        seeds = self._form.seeds
        if not isinstance(seeds, UntilDecidedForm):
            return None
        if seeds.start >= seeds.until_decided:
            self._wrong(
                ("seeds",),
                "until_decided is the most seeds of a cell, and must be more than"
                f" start = {seeds.start}",
            )
        if self._form.scheduler != "fifo":
            self._wrong(
                ("seeds",),
                "seeds until decided compare trials that were trained to their end;"
                " leave the scheduler out",
            )
        return Looks(seeds.start, seeds.until_decided, seeds.step)

    def _data(self) -> Data:
        form = self._form.data
        if isinstance(form, str):
            if form.endswith(".npz"):
                said: dict[str, Any] = {"name": "npz", "path": form}
            else:
                said = {"name": form}
        else:
            said = form.model_dump(exclude_none=True)
        try:
            return data.describe(**said)
        except DataError as error:
            if self._stored:
                # What it came to can be read where its files are not.
                return Data(
                    name=said["name"],
                    path=said.get("path", ""),
                    image_size=said.get("image_size", 1),
                    channels=1,
                    classes=1,
                    validation=said.get("validation", 0.0),
                )
            named = next(
                (field for field in said if f"data.{field}" in str(error)), "path"
            )
            self._wrong(("data", named), str(error))
            return Data(name=said["name"], path="", image_size=1, channels=1, classes=1)
        except AblateError as error:
            if isinstance(error, UnknownName):
                where: Where = ("data", "name")
            else:
                where = ("data", "path")
            self._wrong(where, str(error))
            return Data(name=said["name"], path="", image_size=1, channels=1, classes=1)

    def _data_name(self) -> str:
        form = self._form.data
        if not isinstance(form, str):
            return form.name
        if form.endswith(".npz"):
            return "npz"
        return form

    def _recipe(self) -> Recipe:
        form: Any = self._form.recipe
        if isinstance(form, str):
            if form not in RECIPES:
                self._wrong(("recipe",), unknown("recipe", form, RECIPES))
                return Recipe()
            return preset(form, self._data_name())
        said = form.model_dump(exclude_none=True, exclude={"preset"})
        recipe = replace(preset(form.preset, self._data_name()), **said)
        varied = any(name.startswith("recipe.") for name in self._form.factors)
        for name, when in recipe.unread().items():
            if name in said and not varied:
                self._wrong(
                    ("recipe", name), f"recipe.{name} is not read unless {when}"
                )
        if {"recipe.epochs", "recipe.warmup_epochs"} & set(self._form.factors):
            # The plan fits or refuses the recipe of each cell.
            return recipe
        if self._warmup_fits():
            return recipe.fitted()
        if recipe.refusal():
            self._wrong(("recipe", "epochs"), f"recipe: {recipe.refusal()}")
        return recipe

    def _warmup_fits(self) -> bool:
        """Whether the warm-up is left to the preset, so that it may be cut to fit into
        the epochs.
        """
        form: Any = self._form.recipe
        return isinstance(form, str) or form.warmup_epochs is None

    def _resources(self) -> Resources:
        form: Any = self._form.resources
        said = form.model_dump(exclude_none=True)
        processes = said.setdefault("processes", max(1, int(said.get("gpus", 0))))
        said.setdefault("cpus", processes)
        resources = Resources(**said)
        for name, number in (("cpus", resources.cpus), ("gpus", resources.gpus)):
            if number > 1 and number != int(number):
                self._wrong(
                    ("resources", name),
                    f"resources.{name} = {number:g}: above 1 it must be a whole number",
                )
        if processes != max(1, int(resources.gpus)) and resources.gpus:
            self._wrong(
                ("resources", "processes"),
                f"resources.processes = {processes}, but there is one for each of"
                f" {resources.gpus:g} gpus; leave it out, or gpus",
            )
        if resources.cpus < processes > 1:
            self._wrong(
                ("resources", "cpus"),
                f"resources.cpus = {resources.cpus:g} is less than one for each of"
                f" {processes} processes; set cpus: {processes}",
            )
        return resources

    def _check_shares(self, space: Space) -> None:
        """Each batch can be shared evenly among the processes of a trial, and the pairs
        that are mixed stay together.
        """
        processes, levels = space.resources.processes, space.factors
        mixes = space.recipe.mixes or any(
            any(levels.get(name, ())) for name in ("recipe.mixup", "recipe.cutmix")
        )
        parts = processes * (2 if mixes else 1)
        modes = {*levels.get("recipe.mixup_mode", ()), space.recipe.mixup_mode} - {
            "batch"
        }
        if processes > 1 and mixes and modes:
            if "recipe.mixup_mode" in levels:
                said: Where = ("factors", "recipe.mixup_mode")
            else:
                said = ("resources",)
            self._wrong(
                said,
                f"recipe.mixup_mode = {min(map(str, modes))} draws for each image of a"
                f" batch, which {processes} processes that share the batch cannot do"
                " alike; use batch, or one process",
            )
        for size in levels.get("recipe.batch_size", (space.recipe.batch_size,)):
            if processes > 1 and int(size) % parts:
                if "recipe.batch_size" in levels:
                    where: Where = ("factors", "recipe.batch_size")
                else:
                    where = ("resources",)
                self._wrong(
                    where,
                    f"recipe.batch_size = {size} cannot be shared by {processes}"
                    f" processes{' that mix pairs' if mixes else ''}; it must be a"
                    f" multiple of {parts}",
                )

    def _limits(self) -> tuple[Limit, ...]:
        said, found = self._form.limits, []
        if isinstance(said, list):
            for index, text in enumerate(said):
                limit = limit_rules.parse(text)
                if limit is None:
                    examples = limit_rules.FULL_EXAMPLES
                    self._wrong(
                        ("limits", index),
                        f"limits: {_shown(text)} is no bound on costs; write one like"
                        f" {examples}",
                    )
                else:
                    found.append(limit)
            return tuple(found)
        for cost, text in said.items():
            limit = limit_rules.parse(text, cost)
            if limit is None:
                self._wrong(
                    ("limits", cost),
                    f"limits.{cost}: {_shown(text)} is no bound; write one like"
                    f" {limit_rules.EXAMPLES}",
                )
            else:
                found.append(limit)
        return tuple(found)


def _name_and_sizes(form: str | BackboneForm) -> tuple[str, dict[str, Level]]:
    """The name of a backbone, and the sizes that its full form says."""
    if isinstance(form, str):
        return form, {}
    given = form.model_dump(exclude={"family"}, exclude_none=True)
    return form.family, {f"size.{key}": level for key, level in given.items()}


def _check_backbone(form: str | BackboneForm) -> None:
    """Raises UnknownName where no family has a backbone, or a family cannot be declared
    by its numbers.
    """
    if isinstance(form, str):
        families.find(form)
        return
    declared = [
        family.name for family in families.families().values() if family.declared
    ]
    if form.family not in declared:
        raise UnknownName(
            unknown("family", form.family, declared)
            + "; other backbones are named, as in `backbone: pvt_small`"
        )


def _of_timm(name: str) -> bool:
    """Whether timm has a model of that name."""
    from timm.models import is_model

    return bool(is_model(name))


def _key(level: Level) -> tuple[bool, Level]:
    """Equal for levels that mean the same: 0 and 0.0 do, 1 and true do not."""
    return isinstance(level, bool), level


def _shown(level: Level) -> str:
    """A wrong level as a message repeats it."""
    return shortened(repr(level))


def _not_varied(name: str, levels: Mapping[str, tuple[Level, ...]]) -> str:
    return unknown("factor", name, levels) + "; it must vary under factors"


def _not_listed(key: str, name: str, level: Level, listed: tuple[Level, ...]) -> str:
    return (
        f"{key}: {_shown(level)} is not among the levels of {name}:"
        f" {', '.join(map(str, listed))}"
    )


def _literal(record: type, name: str) -> tuple[str, ...]:
    """The words that a record's field may be."""
    return get_args(get_type_hints(record)[name])
