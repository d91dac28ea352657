"""The shape of a space document: which keys there are, which types they take, in short
form and in full.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    create_model,
)

from ablate import factors
from ablate.data import SETS, own_sets
from ablate.families import families
from ablate.heads import heads
from ablate.own import registry
from ablate.records import (
    LONGEST_LEVEL,
    LOSSES,
    MOST_SIDE,
    MOST_WHOLE,
    NO_AUGMENTATION,
    SCHEDULES,
    STUDY_NAME,
    Design,
    Keep,
    Level,
    Recipe,
    Resources,
    Scheduler,
    Source,
    Strategy,
)
from ablate.records.options import options_text
from ablate.space.recipes import RECIPES
from ablate.tasks import tasks

# Loading processes of one trial: each is a process of this machine.
MOST_WORKERS = 1_000
STRICT = ConfigDict(extra="forbid", strict=True)


class Form(BaseModel):
    """A mapping whose keys are all known and whose values are taken as they are, never
    converted.
    """

    model_config = STRICT


# Tags are in angle brackets, so that `shape` can remove them from the locations that
# pydantic reports.
def _which(value: object) -> str:
    if isinstance(value, dict | list | BaseModel):
        return "<full>"
    return "<short>"


def _which_levels(value: object) -> str:
    if isinstance(value, dict | RangeForm):
        return "<range>"
    return "<list>"


def _which_diagnostics(value: object) -> str:
    if isinstance(value, bool):
        return "<flag>"
    if isinstance(value, list):
        return "<list>"
    return "<full>"


def _which_limits(value: object) -> str:
    if isinstance(value, list):
        return "<list>"
    return "<full>"


def _which_comparison(value: object) -> str:
    if isinstance(value, str):
        return "<short>"
    if isinstance(value, dict):
        return "<full>"
    return "<row>"


def _which_seeds(value: object) -> str:
    if isinstance(value, dict) and "until_decided" in value:
        return "<until>"
    if isinstance(value, dict) and "adaptive" not in value and _SEEDS & set(value):
        return "<count>"
    if isinstance(value, list):
        return "<list>"
    if isinstance(value, dict | BaseModel):
        return "<full>"
    return "<short>"


def _which_count(value: object) -> str:
    if isinstance(value, list):
        return "<list>"
    return "<short>"


# Keys that only the full form of a number of seeds has.
_SEEDS = frozenset({"count", "vary"})
T = TypeVar("T")
# A text is the short form of a mapping. The discriminator chooses the form by type, so
# that pydantic reports the mistakes of that form only.
ShortOrFull = Annotated[
    Annotated[str, Tag("<short>")] | Annotated[T, Tag("<full>")], Discriminator(_which)
]


OneLevel = bool | int | float | str


Number = int | Annotated[float, Field(allow_inf_nan=False)]


class RangeForm(Form):
    low: Number
    """The smallest level. A factor of whole numbers gets whole levels."""
    high: Number
    """The largest level."""
    scale: Literal["linear", "log"] = "linear"
    """Whether the levels have equal distances (linear) or equal ratios (log)."""
    count: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Number of levels. A design needs it; in a search it is 100 by default."""


Levels = Annotated[
    Annotated[list[OneLevel], Tag("<list>")] | Annotated[RangeForm, Tag("<range>")],
    Discriminator(_which_levels),
]


class BackboneForm(Form):
    family: str
    """Family of a backbone that is declared by its numbers."""
    patch_size: Annotated[int, Field(ge=1)] | None = None
    """Side of a patch, in pixels."""
    width: Annotated[int, Field(ge=1)] | None = None
    """Channels of a token (embedding dimension)."""
    depth: Annotated[int, Field(ge=1)] | None = None
    """Number of blocks."""
    heads: Annotated[int, Field(ge=1)] | None = None
    """Number of attention heads. The width must be a multiple of it."""
    mlp_ratio: Annotated[float, Field(gt=0)] | None = None
    """Hidden width of the FFN divided by the width."""
    pool: Literal["token", "mean", "norm-mean", "distilled"] | None = None
    """What is classified: the class token (token), the mean of the patch tokens, taken
    before the norm (mean) or after it (norm-mean), or the class and distillation tokens
    of DeiT (distilled).
    """


class TeacherForm(Form):
    backbone: ShortOrFull[BackboneForm]
    """The teacher's backbone: a name of `ablate backbones`, any other model of timm, or
    a family with its numbers.
    """
    weights: Annotated[str, Field(min_length=1)]
    """`timm` means the weights that timm publishes. Any other value is a
    checkpoint file: the last.pt of a trial, or a file of timm, torch or safetensors.
    """
    settings: dict[str, OneLevel] = {}
    """The levels of factors with which the teacher is built."""


class DataForm(Form):
    name: str
    """Name of a built-in data set, an .npz file, or a data set of your own."""
    path: str | None = None
    """Folder or file, relative to the working directory; data/NAME if left out."""
    test_split: str | None = None
    """For huggingface: the split that is the test set. The default is the first of test,
    validation, valid and val whose classes are no secret.
    """
    image_size: Annotated[int, Field(ge=1, le=MOST_SIDE)] | None = None
    """Side to which images are resized, in pixels. With image_width: the shorter side.
    """
    image_width: Annotated[int, Field(ge=1, le=MOST_SIDE)] | None = None
    """For detection and segmentation: the largest length of the longer side. Images keep
    their proportions. Costs are counted at image_size x image_width.
    """
    train_images: Annotated[int, Field(ge=2, le=MOST_WHOLE)] | None = None
    """Number of training images to use, drawn uniformly; always the same
    ones, unless seeds.vary has split.
    """
    test_images: Annotated[int, Field(ge=1, le=MOST_WHOLE)] | None = None
    """Number of test images to use, drawn uniformly; always the same ones."""
    workers: Annotated[int, Field(ge=0, le=MOST_WORKERS)] = 4
    """Number of processes that load image files. For detection and segmentation, it is
    at most the number of CPU cores.
    """
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the training images that is held out. Each epoch is measured on the
    held-out images. The test set is measured once, at the end.
    """
    mean: Annotated[list[float], Field(min_length=1)] | None = None
    """Mean of the pixel values (0 to 1) of each channel, or one mean for all channels.
    By default, if training starts from published weights: the mean with which they were
    trained. Otherwise ImageNet's mean for image files, and the mean of the training
    images for data in memory.
    """
    std: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)] | None = (
        None
    )
    """Standard deviation of the pixel values (0 to 1) of each channel, or one for all
    channels. The default is from the same source as that of `mean`.
    """
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    """For image files: share of a test image's shorter side that the central crop
    takes. The default is 0.875 or, if training starts from published weights, the
    share with which these weights are evaluated.
    """
    crop_mode: Literal["center", "squash", "border"] | None = None
    """For image files, how a test image is prepared for the crop: center keeps its
    proportions, squash makes it square, border pads it to a square. The default
    is center or, if training starts from published weights, the mode with which these
    weights are evaluated.
    """
    interpolation: Literal["bilinear", "bicubic"] | None = None
    """For image files: how test images are resized. The default is the method for
    training images (recipe.interpolation) or, if training starts from published
    weights, the method with which these weights are evaluated.
    """


def _form_of(record: type, title: str, **extra: Any) -> type[Form]:
    """A form with the fields of a record, all optional but its name."""
    hints = get_type_hints(record, include_extras=True)
    made: dict[str, Any] = {}
    for field in fields(record):
        if field.name == "name":
            made[field.name] = (hints[field.name], ...)
        else:
            made[field.name] = (hints[field.name] | None, None)
    return create_model(title, __base__=Form, **{**made, **extra})


def _text_of_options(value: object) -> object:
    if not isinstance(value, dict):
        return value
    for name, option in value.items():
        items = option if isinstance(option, list) else [option]
        if any(isinstance(item, dict | list) for item in items):
            raise ValueError(f"the value of {name} must be a number, a word or a list")
    return options_text(value)


def _describe(schema: dict[str, Any]) -> None:
    """Adds to a schema the text below each field of the forms and records.

    Pydantic could do this (`use_attribute_docstrings`). But it reads the sources when
    the forms are made, which delays every command.
    """
    forms = {form.__name__: form for form in Form.__subclasses__()}
    records = {
        "RecipeForm": Recipe,
        "ResourcesForm": Resources,
        "SchedulerForm": Scheduler,
        "DesignForm": Design,
        "StrategyForm": Strategy,
    }
    described = {"SpaceForm": schema, **schema["$defs"]}
    for name, properties in described.items():
        for key, text in _descriptions(records.get(name, forms[name])).items():
            properties["properties"][key]["description"] = text


def _descriptions(record: type) -> dict[str, str]:
    """Returns the text below each field of a class, by the field's name.

    Python does not keep these texts, so they are read from the source.
    """
    try:
        source = inspect.getsource(record)
    except OSError:
        # An installation without sources: editors then show no descriptions.
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, below in pairwise(definition.body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(below, ast.Expr):
            continue
        text = ast.literal_eval(below.value)
        texts[ast.unparse(field.target)] = inspect.cleandoc(text)
    return texts


# A mapping of options becomes their text.
Options = Annotated[
    str,
    Field(max_length=LONGEST_LEVEL),
    BeforeValidator(_text_of_options),
    WithJsonSchema({"type": ["string", "object"]}),
]
RecipeForm = _form_of(
    Recipe,
    "RecipeForm",
    preset=(
        Literal[tuple(RECIPES)],
        Field(default="small", description="The recipe that the other keys change."),
    ),
    optimizer_options=(Options | None, None),
    schedule_options=(Options | None, None),
)
ResourcesForm = _form_of(Resources, "ResourcesForm")
SchedulerForm = _form_of(Scheduler, "SchedulerForm")
DesignForm = _form_of(Design, "DesignForm")
StrategyForm = _form_of(Strategy, "StrategyForm")


Seed = Annotated[int, Field(ge=0, lt=2**32)]


Baseline = Annotated[int, Field(ge=2, le=1000)] | None
Vary = Annotated[list[Source], Field(min_length=1)] | None


class SeedsForm(Form):
    count: Annotated[
        Annotated[int, Field(ge=1, le=1000), Tag("<short>")]
        | Annotated[list[Seed], Field(min_length=1), Tag("<list>")],
        Discriminator(_which_count),
    ] = 3
    """A number N of seeds, which are then 0 to N - 1, or a list of the seeds."""
    baseline: Baseline = None
    """Number of seeds of row 0, if it gets more than the other rows: it is in every
    comparison. `ablate plan` proposes a number.
    """
    vary: Vary = None
    """What a seed decides: init, the initial weights; order, the order of the images
    and all else that is drawn while training; split, which training images are held out
    (data.validation), and which ones are used (data.train_images). By default [init,
    order]. A source that is not in the list is the same for all seeds.
    """


class AdaptiveForm(Form):
    adaptive: Annotated[int, Field(ge=1, le=1000)]
    """In a search: the most seeds that a cell gets. When a cell is proposed, the best
    cell that has results for all of these seeds becomes its rival. The cell gets a
    further seed only while it is no worse than its rival.
    """
    vary: Vary = None
    """What a seed decides; see `vary` under Keys of seeds."""


class UntilDecidedForm(Form):
    until_decided: Annotated[int, Field(ge=3, le=1000)]
    """In a design: the most seeds that a cell gets. A cell gets more seeds than `start`
    only while its verdict is inconclusive.
    """
    start: Annotated[int, Field(ge=2)] = 3
    """Seeds that every cell gets."""
    step: Annotated[int, Field(ge=1)] = 3
    """Seeds that a cell gets between two looks; at each look, verdicts are taken. All
    looks share the risk of a false verdict.
    """
    baseline: Baseline = None
    """Number of seeds that row 0 gets at the start; see `baseline` under Keys of seeds."""
    vary: Vary = None
    """What a seed decides; see `vary` under Keys of seeds."""


class DiagnosticsForm(Form):
    names: Annotated[list[str], Field(min_length=1)] | None = None
    """Names of the diagnostics. By default all except token_similarity and lipschitz,
    which are expensive.
    """
    images: Annotated[int, Field(ge=1, le=MOST_WHOLE)] = 64
    """On how many test images."""
    every: Annotated[int, Field(ge=1, le=MOST_WHOLE)] | None = None
    """Also take them after every N epochs; by default only at the end."""


class TuneForm(Form):
    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Levels]

    settings: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Number of settings that each row tries, the same ones for all rows. A range needs
    it. By default, all combinations of the listed levels are tried.
    """
    seeds: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of trials of each setting. Their seeds are not those of the table."""
    repeat: bool = False
    """Whether each seed of the table chooses a setting of its own, by trials of its own.
    The verdict is then about the whole procedure, choice included.
    """
    draw: Literal["random", "sobol"] | None = None
    """How settings are drawn from ranges: independently (random, the default), or as a
    scrambled Sobol sequence, which covers the ranges more evenly.
    """
    at: Literal["each", "smallest"] = "each"
    """With `across`, the size at which a row's setting is chosen: at each size for itself
    (each, the default), or at the smallest size for all.
    """
    metric: str | None = None
    """The metric by which a row's setting is chosen, measured on the images that are held
    out (data.validation). By default the metric of the study. A trainer of your own
    needs this key: it says which metric is measured on data that are held out.
    """

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The levels or the range of each hyperparameter, by its name."""
        return self.__pydantic_extra__ or {}


class AcrossForm(Form):
    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, list[OneLevel]]

    per: Literal["compute", "params", "number"] | None = None
    """What is doubled along the sizes: the training compute of row 0 (FLOPs of an image x
    images seen), its parameters, or the number itself. By default the compute; with a
    trainer of your own the number itself.
    """

    seeds: list[Annotated[int, Field(ge=1, le=1000)]] | None = None
    """Number of seeds of each size, in the order of the sizes, with that of the predicted
    size last. By default, all sizes have `seeds` of the study.
    """
    predict: OneLevel | None = None
    """A larger size at which effects are predicted. `ablate run` with `--predicted` trains
    it later, and the table shows both.
    """

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes by the name of the axis, of which there must be one."""
        return self.__pydantic_extra__ or {}


Bounded = Literal["params", "flops", "flops_paper", "activations", "elementwise"]


class MetricForm(Form):
    """The metric that cells are compared by, in full."""

    direction: Literal["max", "min"] | None = None
    """Whether larger or smaller values are better; by default as the metric says."""
    over: Annotated[int, Field(ge=2, le=1000)] | None = None
    """The mean of the metric over so many last epochs is compared, in place of its value
    after the last one. It differs less from seed to seed. A training that ends earlier
    counts as a whole. Not with data.validation, because each epoch is then measured on
    the validation split.
    """


Metrics = Annotated[
    dict[
        str,
        Annotated[
            Annotated[Literal["max", "min"], Tag("<short>")]
            | Annotated[MetricForm, Tag("<full>")],
            Discriminator(_which),
        ],
    ],
    Field(
        min_length=1,
        examples=[{"top1": "max"}, {"loss": "min"}, {"top1": {"over": 5}}],
    ),
]


# The forms of records are made at run time (`_form_of`), so mypy does not accept them
# as types; pydantic does. Hence `type: ignore[valid-type]` below.
class SpaceForm(Form):
    """A search space: one question, one backbone, the factors that vary, and how the
    cells are trained.
    """

    question: Annotated[str, Field(min_length=1)]
    """What the study asks, in a sentence."""
    expect: str = ""
    """The result that you expect. It is printed with the results; verdicts do not
    depend on it.
    """
    source: str = ""
    """Where the claim is from, for example: augmented-shortcuts, table 3."""
    name: (
        Annotated[
            str,
            Field(pattern=STUDY_NAME),
        ]
        | None
    ) = None
    """Name of the study. By default the name of the file without its suffix. If the
    file is in a folder search_spaces, the name includes the path below this folder.
    """
    backbone: ShortOrFull[BackboneForm] | None = None
    """A backbone's name (`ablate backbones` lists them), or a family with its numbers;
    leave it out if the backbone is a factor.
    """
    factors: dict[str, Levels]
    """Levels of each factor that varies. The first level of a list is the factor's
    baseline level, unless `baseline` names another one. A range such as {low: 3e-4,
    high: 1e-2, scale: log} stands for a list of numbers; `baseline` names its baseline
    level.
    """
    fixed: dict[str, OneLevel] = {}
    """Levels of factors that do not vary."""
    baseline: dict[str, OneLevel] = {}
    """Baseline levels where they are not the first ones."""
    full: dict[str, OneLevel] = {}
    """For leave-one-out, add-one-in, fractional and plackett-burman: the full level of
    each factor, by default its last level.
    """
    design: ShortOrFull[DesignForm] = "grid"  # type: ignore[valid-type]
    """Which cells are trained."""
    strategy: ShortOrFull[StrategyForm] | None = None  # type: ignore[valid-type]
    """In the place of a design: how a search proposes cells, from the results so far.
    """
    tune: TuneForm | None = None
    """Nuisance hyperparameters, such as recipe.lr: each row, row 0 included, tries the
    same settings of them, and the table shows each row at its own best setting, trained
    on fresh seeds.
    """
    across: AcrossForm | None = None
    """Sizes at which every row is trained: {size.width: [16, 24, 32, 48]}. The axis is a
    factor, a number of `data` or `recipe`, or `backbone`. Each size is a study, and the
    verdicts say how the effect of a row changes with size.
    """
    together: list[list[str]] = []
    """Factors whose levels change together: [[a, b]] pairs the first level of a with the
    first of b, the second with the second, and so on.
    """
    exclude: list[dict[str, OneLevel]] = []
    """Combinations of levels that are not trained, such as [{a: 1, b: 2}]; the plan
    lists them.
    """
    rows: list[dict[str, OneLevel]] = []
    """For `design: rows`: one item per cell, with the levels that differ from the
    unmodified backbone, as in a paper's table; the first item is the reference.
    """
    published: str = ""
    """A table of a paper with the same rows as this study, such as augvit/table3;
    `ablate table --published` shows the paper's values beside yours.
    """
    task: str = "classification"
    """What the networks are trained for: classification, detection or segmentation."""
    head: str | None = None
    """What turns the backbone into a network of the task; by default mask-rcnn for
    detection and upernet for segmentation.
    """
    trainer: Annotated[str, Field(min_length=1)] | None = None
    """A training of your own, by its name in the file that `--with` loads. It has its
    own network and data, and it declares the possible `factors`.
    """
    pretrained: bool | str = False
    """The weights from which training starts: those that timm publishes (true), or
    those of a checkpoint file.
    """
    teacher: TeacherForm | None = None
    """The trained network that a cell learns from if its recipe.distillation is soft,
    soft-code or hard.
    """
    diagnostics: Annotated[
        Annotated[bool, Tag("<flag>")]
        | Annotated[list[str], Tag("<list>")]
        | Annotated[DiagnosticsForm, Tag("<full>")],
        Discriminator(_which_diagnostics),
    ] = False
    """Diagnostics to take in each network at the end: all except token_similarity and
    lipschitz (true), or the listed ones. A mapping can also say on how many images and
    after which epochs.
    """
    seeds: Annotated[
        Annotated[int, Field(ge=1, le=1000), Tag("<short>")]
        | Annotated[list[Seed], Field(min_length=1), Tag("<list>")]
        | Annotated[AdaptiveForm, Tag("<full>")]
        | Annotated[UntilDecidedForm, Tag("<until>")]
        | Annotated[SeedsForm, Tag("<count>")],
        Discriminator(_which_seeds),
    ] = 3
    """A number N of seeds, which are then 0 to N - 1, or a list of the seeds
    themselves. Every cell is trained with every seed. {count: N, baseline: M} gives row
    0 more. A design also accepts {until_decided: N}, and a search {adaptive: N}: cells
    then get different numbers of seeds. {count: N, vary: [order]} says what seeds decide.
    """
    data: ShortOrFull[DataForm] = "digits"
    """Data set by name, or an .npz file."""
    recipe: ShortOrFull[RecipeForm] = "small"  # type: ignore[valid-type]
    """A preset by name, or a mapping of the keys that change a preset."""
    metric: Metrics = {}
    """The metric that cells are compared by, and its direction. It is measured on the
    test set after the last epoch, unless recipe.select is best; {top1: {over: 5}}
    compares the mean over the last five epochs. By default the first metric of the task
    or of your trainer. In a search, costs can be further objectives, as in {top1: max,
    flops: min}.
    """
    margin: Annotated[float, Field(gt=0)] | None = None
    """The smallest difference of the metric that matters. By default 0.5 percentage
    points; for the loss 0.02; for a metric of your own, the margin in its declaration,
    or none.
    """
    primary: list[
        Annotated[
            Annotated[int, Field(ge=1), Tag("<row>")]
            | Annotated[str, Tag("<short>")]
            | Annotated[dict[str, OneLevel], Tag("<full>")],
            Discriminator(_which_comparison),
        ]
    ] = []
    """The comparisons that the study is about, the most important one first. Name rows
    (each by the levels in which it differs from row 0, or by its number), or name
    factors, or write [controls] for the comparisons with controls. A row or factor is
    tested at the level of all rows together, but only if every comparison before it has
    the verdict `helps` or `hurts`. With few seeds, these tests find many more effects
    than tests of all rows.
    """
    labels: dict[str, str] = {}
    """Names for tables and figures. The key is a factor, or a factor and a level such as
    ffn.kernel:none; the value is the name to print. Keys, SQL and JSON keep the real
    names.
    """
    keep: Keep = "last"
    """What stays on disk of a completed trial: its whole last checkpoint (last), only
    the weights of the last and the best epoch (best), or nothing (none).
    """
    limits: Annotated[
        Annotated[dict[Bounded, str], Tag("<full>")]
        | Annotated[list[str], Tag("<list>")],
        Discriminator(_which_limits),
    ] = {}
    """Bounds on cost by name, for example flops: "<= 1.1 * baseline"; or a list of
    texts such as "flops <= 1.05 * baseline.flops" or "size.width * size.depth <= 512".
    """
    resources: ResourcesForm = ResourcesForm()  # type: ignore[valid-type]
    """CPU cores and GPUs of one trial. With fractions, trials share a device."""
    control: Literal["iso-params", "iso-flops"] | None = None
    """Adds a control for each variant: the baseline with another width, which costs
    about as much as the variant. A control shows what capacity alone would give.
    """
    scheduler: ShortOrFull[SchedulerForm] = "fifo"  # type: ignore[valid-type]
    """fifo trains every trial to its end; asha, hyperband and median stop the worse
    ones early.
    """


def _given(optional: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional key where it is given: null is no level."""
    (given,) = (form for form in optional["anyOf"] if form != {"type": "null"})
    return {**given, "description": optional["description"]}


def _listed(level: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list of levels, or of a range of numbers."""
    level = dict(level)
    description = level.pop("description", "")
    listed: dict[str, Any] = {"type": "array", "items": level, "minItems": 1}
    if level.get("type") in ("integer", "number"):
        listed = {"anyOf": [listed, {"$ref": "#/$defs/RangeForm"}]}
    if description:
        listed["description"] = description
    return listed


def _in_one_line(schema: Any) -> Any:
    """The schema with each description in one line, as editors show it."""
    if isinstance(schema, list):
        return [_in_one_line(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    joined = {key: _in_one_line(value) for key, value in schema.items()}
    if isinstance(joined.get("description"), str):
        joined["description"] = " ".join(joined["description"].split())
    return joined


def _name_parts(recipe: dict[str, Any]) -> None:
    """Adds to the schema of a recipe the built-in and the users' parts that it names."""
    for kind, built_in in (
        ("loss", LOSSES),
        ("schedule", SCHEDULES),
        ("augmentation", (NO_AUGMENTATION,)),
    ):
        recipe[kind]["anyOf"][0]["enum"] = [*built_in, *registry.of_kind(kind)]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a space, with every factor's name and levels, for editors."""
    schema = SpaceForm.model_json_schema()
    _describe(schema)
    schema = _in_one_line(schema)
    levels: dict[str, dict[str, Any]] = {}
    # A switch of a user's backbone may have the name of another factor.
    choices: dict[str, list[dict[str, Any]]] = {}
    for backbone in ("", *registry.of_kind("backbone")):
        for name, (_, parameter) in factors.parameters(backbone).items():
            level = {**parameter.allowed.schema(), "description": parameter.about}
            if level not in choices.setdefault(name, []):
                choices[name].append(level)
    for name, of_name in choices.items():
        levels[name] = of_name[0] if len(of_name) == 1 else {"anyOf": of_name}
    recipe = schema["$defs"]["RecipeForm"]["properties"]
    _name_parts(recipe)
    for field_name, field_schema in recipe.items():
        if field_name != "preset":
            levels[f"recipe.{field_name}"] = _given(field_schema)
    # A level is one value: the text of a mapping.
    for name in ("recipe.optimizer_options", "recipe.schedule_options"):
        levels[name]["type"] = "string"
    # What varies beside the architecture's settings and the recipe.
    levels["backbone"] = {
        "type": "string",
        "description": "name of the backbone; `ablate backbones` lists them",
    }
    levels["data.image_size"] = {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_SIDE,
        "description": "side to which images are resized, in pixels",
    }
    levels["pretrained"] = {
        "type": ["boolean", "string"],
        "description": (
            "weights to start from: true for those that timm publishes, false for none,"
            " or a checkpoint file"
        ),
    }
    listed = {name: _listed(level) for name, level in levels.items()}
    properties = schema["properties"]
    for key in ("rows", "exclude"):
        schema["properties"][key]["items"] = {
            "type": "object",
            "properties": levels,
            "additionalProperties": False,
        }
    for key, properties_by_name in (
        ("factors", listed),
        ("fixed", levels),
        ("baseline", levels),
        ("full", levels),
    ):
        properties[key] = {
            # pydantic allows any key here; only known factors are allowed.
            k: v
            for k, v in properties[key].items()
            if k != "additionalProperties"
        }
        properties[key] |= {
            "properties": properties_by_name,
            "additionalProperties": False,
        }
    tune, across = (schema["$defs"][form] for form in ("TuneForm", "AcrossForm"))
    tune["properties"] |= listed
    tune["additionalProperties"] = False
    images = {"data.train_images": _listed({"type": "integer", "minimum": 2})}
    across["properties"] |= listed | images
    across["additionalProperties"] = False
    properties["task"]["enum"] = list(tasks())
    properties["head"]["anyOf"][0]["enum"] = list(heads())
    names = [family.name for family in families().values() if family.declared]
    schema["$defs"]["DataForm"]["properties"]["name"]["enum"] = [*SETS, *own_sets()]
    recipe["optimizer"]["examples"] = ["adamw", "sgd", "lion", "muon", "lamb"]
    schema["$defs"]["BackboneForm"]["properties"]["family"]["enum"] = names
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ablate search space",
        **schema,
    }


__all__ = ["BackboneForm", "DataForm", "Level", "SpaceForm", "json_schema"]
