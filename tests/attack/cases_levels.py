"""Levels, numbers and combinations: of factors, sizes, recipes, designs, searches,
limits, rows and seeds.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.attack.case import SPACE, Case, document
from tests.attack.cases_documents import GOOD, added, changed

LAYOUT = "layout: [serial, parallel]"
SIZES = "patch_size: 4, width: 16, depth: 1, heads: 2"
BACKBONE = f"backbone: {{family: vit, {SIZES}}}\n"


def varied(levels: str) -> str:
    """The good document with another second factor."""
    return changed(LAYOUT, levels)


def sized(sizes: str) -> str:
    """The good document with other sizes."""
    return changed(SIZES, sizes)


def levels() -> Iterator[Case]:
    """Levels that a factor does not take."""
    at = f"{SPACE}:5: "
    for name, line in {
        "a mapping": "layout: [serial, {a: b}]",
        "a list": "layout: [serial, [parallel]]",
        "null": "layout: [serial, ~]",
        "not a list": "layout: serial",
        "a mapping of levels": "layout: {serial: parallel}",
        "one": "layout: [serial]",
        "none": "layout: []",
        "twice": "layout: [serial, parallel, serial]",
        "another case": "layout: [serial, Parallel]",
        "blanks around": 'layout: [serial, " parallel"]',
        "a number": "layout: [serial, 1]",
        "truth": "layout: [serial, true]",
        "300 characters": f"layout: [serial, {'x' * 300}]",
        "emoji": "layout: [serial, \N{PARTY POPPER}]",
        "NUL": r'layout: [serial, "par\0allel"]',
        "a fraction for a whole number": "shortcuts.b: [4, 2.5]",
        "a whole float for a whole number": "shortcuts.b: [4, 2.0]",
        "a word for a number": "shortcuts.b: [4, four]",
        "zero": "shortcuts.b: [4, 0]",
        "negative": "shortcuts.b: [4, -4]",
        "beyond 64 bits": f"shortcuts.b: [4, {2**63}]",
        "a hexadecimal number": "shortcuts.b: [4, 0x10]",
        "an octal number": "shortcuts.b: [4, 0o10]",
        "underscores": "shortcuts.b: [4, 1_0]",
        "an Arabic digit": "shortcuts.b: [4, \u0664]",
        "a full-width digit": "shortcuts.b: [4, \uff14]",
        "a minus sign": "shortcuts.b: [4, \u22124]",
        "a rate beyond one": "drop.path: [0, 1e30]",
        "a negative rate": "drop.path: [0, -1e-300]",
        "no number": "drop.path: [0, .nan]",
        "infinity": "drop.path: [0, .inf]",
        "an overflow": "drop.path: [0, 1e400]",
        "a rate in words": "drop.path: [0, 10%]",
        "a comma for a point": 'drop.path: [0, "0,1"]',
        "zero in two ways": "drop.path: [0, -0.0]",
        "a kernel of two": "ffn.kernel: [none, 2]",
        "a kernel of true": "ffn.kernel: [none, true]",
        "a depth beyond all": "size.heads: [2, 2000000]",
        "a side of zero": "data.image_size: [8, 0]",
        "a side beyond memory": "data.image_size: [8, 1000000]",
        "a side as a float": "data.image_size: [8, 16.0]",
        "an unknown factor": "layuot: [serial, parallel]",
        "an unknown parameter": "shortcuts.cuont: [1, 2]",
        "a factor without its parameter": "shortcuts: [0, 1]",
        "a parameter of nothing": ".count: [0, 1]",
        "a factor of dots": "...: [0, 1]",
        "a factor with __class__": "shortcuts.__class__: [0, 1]",
        "the preset of a recipe": "recipe.preset: [small, deit]",
        "the name of the data": "data.name: [digits, mnist]",
        "backbones that are none": "backbone: [vit, vti]",
        "no epochs": "recipe.epochs: [2, 0]",
        "epochs beyond 32 bits": "recipe.epochs: [2, 2147483648]",
        "epochs as a float": "recipe.epochs: [2, 3.0]",
        "a batch of none": "recipe.batch_size: [2, 0]",
        "a rate of nothing": "recipe.lr: [0.1, 0]",
        "a negative learning rate": "recipe.lr: [0.1, -1e-9]",
        "an optimiser that is none": "recipe.optimizer: [adamw, adem]",
        "smoothing of one": "recipe.label_smoothing: [0, 1]",
        "an EMA of one": "recipe.ema: [0, 1.0]",
        "repeats beyond memory": "recipe.repeats: [1, 1000000]",
        "padding beyond memory": "recipe.crop_padding: [0, 1000000]",
        "RandAugment of 300 characters": f"recipe.rand_augment: ['', {'rand-m9' * 50}]",
        "a precision that is none": "recipe.precision: [float32, float8]",
        "a weight decay of text": 'recipe.weight_decay: [0.1, "0.2"]',
    }.items():
        yield document(varied(line), f"level: {name}", at)
    same = ", ".join(["serial"] * 15_000)
    yield document(
        varied(f"layout: [{same}]"),
        "levels: 15,000 times the same",
        "the level 'serial' is a duplicate",
    )
    many = ", ".join(map(str, range(15_000)))
    words = ", ".join(f"w{number}" for number in range(15_000))
    for name, line in {
        "15,000 numbers of a word": f"layout: [{many}]",
        "15,000 words of a number": f"shortcuts.b: [{words}]",
        "15,000 unknown words": f"layout: [{words}]",
        "15,000 unknown backbones": f"backbone: [{words}]",
        "15,000 sides": f"data.image_size: [{words}]",
        "15,000 learning rates": f"recipe.lr: [{words}]",
        "15,000 optimisers": f"recipe.optimizer: [{words}]",
        "15,000 empty lists": "layout: [" + "[], " * 15_000 + "x]",
        "15,000 nulls": "layout: [" + "~, " * 15_000 + "x]",
    }.items():
        yield document(varied(line), f"levels: {name}", " more problems")


def sizes() -> Iterator[Case]:
    """Backbones that are none, or that no memory holds."""
    for name, said in {
        "a width beyond 64 bits": f"patch_size: 4, width: {2**64}, depth: 1, heads: 2",
        "a width beyond all memory": (
            "patch_size: 4, width: 2000000, depth: 1, heads: 2"
        ),
        "a billion blocks": "patch_size: 4, width: 16, depth: 1000000000, heads: 2",
        "ten million blocks of one channel": (
            "patch_size: 4, width: 1, depth: 10000000, heads: 1"
        ),
        "a billion heads": "patch_size: 4, width: 16, depth: 1, heads: 1000000000",
        "a patch of a billion pixels": (
            "patch_size: 1000000000, width: 16, depth: 1, heads: 2"
        ),
        "a ratio of zero": f"{SIZES}, mlp_ratio: 0",
        "a ratio below zero": f"{SIZES}, mlp_ratio: -1",
        "an infinite ratio": f"{SIZES}, mlp_ratio: 1e309",
        "a ratio in words": f"{SIZES}, mlp_ratio: four",
        "a pool that is none": f"{SIZES}, pool: max",
        "a window of a ViT as a key": f"{SIZES}, window: 4",
        "a width in quotes": 'patch_size: 4, width: "16", depth: 1, heads: 2',
    }.items():
        yield document(sized(said), f"size: {name}", f"{SPACE}:2: ")
    none = "no cell of space can be trained"
    for name, said, says in (
        (
            "a width of a million",
            "patch_size: 4, width: 1000000, depth: 1, heads: 2",
            "does not fit into this machine's memory",
        ),
        (
            "a thousand blocks that are wide",
            "patch_size: 4, width: 65536, depth: 1000, heads: 2",
            "does not fit into this machine",
        ),
        (
            "a ratio of 1e30",
            f"{SIZES}, mlp_ratio: 1e30",
            "does not fit into this machine's memory",
        ),
        (
            "a ratio of 1e300",
            f"{SIZES}, mlp_ratio: 1e300",
            "does not fit into this machine's memory",
        ),
        (
            "a ratio of 1e12",
            f"{SIZES}, mlp_ratio: 1e12",
            "does not fit into this machine's memory",
        ),
        (
            "a ratio of 1e-30",
            f"{SIZES}, mlp_ratio: 1e-30",
            "the FFN would have no hidden channel",
        ),
        (
            "heads that do not divide",
            "patch_size: 4, width: 16, depth: 1, heads: 3",
            "does not divide size.width",
        ),
        (
            "more heads than channels",
            "patch_size: 4, width: 16, depth: 1, heads: 32",
            "does not divide size.width",
        ),
        (
            "a patch larger than the image",
            "patch_size: 16, width: 16, depth: 1, heads: 2",
            "does not divide the image size",
        ),
        (
            "a patch that does not divide",
            "patch_size: 3, width: 16, depth: 1, heads: 2",
            "does not divide the image size",
        ),
        ("no width", "patch_size: 4, depth: 1, heads: 2", "needs size.width"),
        ("nothing but a family", "patch_size: 4", "needs size.width"),
        (
            "a window of a ViT",
            f"{SIZES}}}\nfixed: {{size.window: 4",
            "window cannot be changed on vit",
        ),
    ):
        yield document(sized(said), f"no cell: {name}", says if says else none)
    named = BACKBONE.strip()
    for name, line, says in (
        ("a family that is named", "backbone: {family: swin}", "unknown family 'swin'"),
        ("a number", "backbone: 5", f"{SPACE}:2: "),
        ("a path", "backbone: ../../etc/passwd", "unknown backbone"),
        ("10,000 characters", f"backbone: {'deit_' * 2000}", "unknown backbone"),
        (
            "timm's name with a tag",
            "backbone: deit_tiny_patch16_224.fb_in1k",
            "names weights of timm, but pretrained is not true",
        ),
        ("nearly timm's name", "backbone: resnet5", "did you mean"),
        (
            "of a shape that digits have not",
            "backbone: pvt_small",
            "no cell of space can be trained",
        ),
        (
            "a Swin on 8 pixels",
            "backbone: swin_tiny_patch4_window7_224",
            "no cell of space can be trained",
        ),
        ("a side too small", "backbone: vit_relpos_small_patch16_224", "8 x 8 pixels"),
    ):
        yield document(changed(named, line), f"backbone: {name}", says)


def cells() -> Iterator[Case]:
    """Which cells there are."""
    rows = "design: rows\nrows:\n"
    yield document(
        added(rows + "  - {layout: parallel}\n" * 5000),
        "5,000 equal rows",
        "... and 4,979 more problems",
    )
    yield document(
        added(rows + "  - {x: y}\n" * 5000),
        "5,000 rows of an unknown factor",
        "more problems",
    )
    yield document(
        added(rows + "".join(f"  - {{layout: w{n}}}\n" for n in range(5000))),
        "5,000 unlisted levels",
        "more problems",
    )
    yield document(
        added(rows + "  - []\n" * 5000), "5,000 lists for rows", "more problems"
    )
    yield document(
        added("design: rows\nrows: {}"), "rows are a mapping", f"{SPACE}:10: "
    )
    yield document(added("design: rows\nrows: [~]"), "a row is null", f"{SPACE}:10: ")
    yield document(
        added("design: rows\nrows: [{layout: [serial]}]"),
        "a row holds a list",
        f"{SPACE}:10: ",
    )
    yield document(
        added("design: rows\nrows: [{layout: serial}, {layout: serial}]"),
        "a row twice",
        f"{SPACE}:10: ",
    )
    yield document(
        added("design: {name: random, cells: 0}"), "no random cells", f"{SPACE}:9: "
    )
    yield document(
        added("design: {name: random, cells: 1000000000000}"),
        "10^12 random cells",
        f"{SPACE}:9: ",
    )
    yield document(
        added("design: {name: random, cells: 2, seed: -1}"),
        "a negative design seed",
        f"{SPACE}:9: ",
    )
    yield document(
        added(f"design: {{name: random, cells: 2, seed: {2**63}}}"),
        "a design seed beyond 2^63 - 1",
        f"{SPACE}:9: ",
    )
    yield document(
        added("design: {name: fractional, resolution: 99}"),
        "a resolution of 99",
        f"{SPACE}:9: ",
    )
    yield document(
        added("design: fractional"),
        "a fraction of two factors",
        "no fraction of resolution 4 has fewer cells than the full design",
    )
    yield document(
        added("design: {name: fractional, cells: 4}"),
        "cells of a fraction",
        f"{SPACE}:9: ",
    )
    yield document(added("design: [grid]"), "a list of designs", f"{SPACE}:9: ")
    yield document(
        added("strategy: {name: tpe, cells: 1000000000000}"),
        "a search of 10^12 cells",
        f"{SPACE}:9: ",
    )
    yield document(
        added("strategy: {name: tpe, cells: 4, parallel: 1000000000000}"),
        "10^12 at once",
        f"{SPACE}:9: ",
    )
    yield document(
        added(f"strategy: {{name: tpe, cells: 4, seed: {2**63}}}"),
        "a search seed beyond 2^63 - 1",
        f"{SPACE}:9: ",
    )
    yield document(
        added("strategy: {cells: 4}"), "a search without a name", f"{SPACE}:9: "
    )
    grid = "\n".join(
        f"  {name}: [{', '.join(map(str, range(1, 41)))}]"
        for name in ("shortcuts.b", "shortcuts.count", "size.heads")
    )
    wide = changed("  shortcuts.count: [0, 1]\n", f"{grid}\n").replace(", heads: 2", "")
    yield document(
        wide, "128,000 cells", "the grid has 128,000 cells, more than 100,000"
    )
    lrs = ", ".join(f"{n}e-7" for n in range(1, 2001))
    yield document(
        changed("seeds: 2", "seeds: 1000").replace(LAYOUT, f"recipe.lr: [{lrs}]"),
        "4 million trials",
        "more than 1,000,000",
    )
    for name, said in {
        "below zero": "-1",
        "1001": "1001",
        "10^18": str(10**18),
        "2^63": str(2**63),
        "a list of none": "[]",
        "a list of 2^32": f"[0, {2**32}]",
        "a list of 2^63": f"[0, {2**63}]",
        "a list with a float": "[0, 1.0]",
        "a list with truth": "[0, true]",
        "a list with text": '[0, "1"]',
        "a list with a list": "[0, [1]]",
        "a list with null": "[0, ~]",
        "15,000 times the same": "[" + "7, " * 15_000 + "7]",
        "a range": "0..5",
        "adaptive zero": "{adaptive: 0}",
        "until decided and adaptive": "{until_decided: 9, adaptive: 3}",
        "until two are decided": "{until_decided: 2}",
        "a start after the end": "{until_decided: 5, start: 9}",
        "no steps": "{until_decided: 9, step: 0}",
    }.items():
        yield document(
            changed("seeds: 2", f"seeds: {said}"), f"seeds: {name}", f"{SPACE}:6: "
        )


def rest() -> Iterator[Case]:
    """Names, metrics, limits, resources, and what belongs together."""
    for name, said in {
        "201 characters": "x" * 201,
        "100,000 characters": "x" * 100_000,
        "201 characters in folders": "/".join(["folder"] * 30),
        "a step up": "../mine",
        "absolute": "/etc/passwd",
        "a quote": '"a\'b"',
        "a double quote": "'a\"b'",
        "a semicolon": "a;b",
        "a backslash": "'a\\b'",
        "an umlaut": "stu\u0308dy",
        "a combining mark": "m\u00fcnchen",
        "right to left": "'a\u202eb'",
        "a zero-width blank": "'a\u200bb'",
        "a line break": r'"a\nb"',
        "a NUL": r'"a\0b"',
        "nothing after a stroke": "a/",
        "two strokes": "a//b",
        "a dot first": ".a",
        "an option": "--help",
    }.items():
        yield document(added(f"name: {said}"), f"name: {name}", f"{SPACE}:9: ")
    for length in (197, 245):
        name = (
            f"{'n' * length}.yaml"
            if length > 200
            else f"search_spaces/{'n' * 100}/{'m' * 101}.yaml"
        )
        yield Case(
            name=f"file name of {length} characters",
            says="a name has at most 190 characters",
            argv=("plan", name),
            files={name: GOOD},
        )
    for number, text in enumerate(
        (
            "flops <= 1e999",
            "flops <= 1e31",
            "flops <= -",
            "flops == 3",
            "flops != 3",
            "flops <= 3 <= params",
            "3 <= 4",
            "baseline.flops <= 4",
            "flops <= baseline",
            "flops <= baseline.top1",
            "flops <= baseline.__class__",
            "flops.real <= 3",
            "flops() <= 3",
            "flops[0] <= 3",
            "flops ** 99999 <= 3",
            "flops << 99999 <= 3",
            "-flops <= 3",
            "lambda: flops",
            "flops if 1 else 2 <= 3",
            "[flops for flops in (1,)] <= 3",
            "flops <= '\\d'",
            "flops <= 0x",
            "flops <= 1if 1else 2",
            "flops <= 5is 5",
            "flops <= 1j",
            "flops <= True",
            "flops <= \N{PARTY POPPER}",
            "(" * 400 + "flops",
            "flops <= " + "(" * 99 + "1" + ")" * 99 + "x",
            "flops <= " + "1+" * 250 + "1",
            "flops <= " + "9" * 480,
            "flops <= 1; import os",
            "__import__('os').system('true') <= flops",
            "",
            " ",
            "#",
        )
    ):
        quoted = text.replace("'", "''")
        yield document(
            added(f"limits: ['{quoted}']"),
            f"limit {number}: {text[:40]}",
            f"{SPACE}:9: limits: ",
        )
    yield document(
        added("limits: [" + "x, " * 15_000 + "x]"),
        "15,000 limits",
        f"{SPACE}:9: limits: 'x'",
    )
    yield document(
        added("limits: [flops <= 1]"),
        "a limit that no cell keeps",
        "row 0 is not allowed, so no row could be compared with it",
    )
    yield document(
        added("limits: [flops / (params - params) <= 1]"),
        "a limit that divides by zero",
        "divides by zero",
    )
    yield document(
        added(f"limits: [flops{' * 1e29' * 11} <= 1]"),
        "a limit that overflows",
        "gives no finite number",
    )
    for name, said, says in (
        ("no metric", "metric: {}", f"{SPACE}:9: "),
        ("a list of metrics", "metric: [top1]", f"{SPACE}:9: "),
        ("a margin of zero", "margin: 0", f"{SPACE}:9: "),
        ("a margin beyond floats", "margin: 1e999", f"{SPACE}:9: "),
        ("CPUs beyond floats", "resources: {cpus: 1e300}", f"{SPACE}:9: "),
        ("10^18 CPUs", f"resources: {{cpus: {10**18}}}", f"{SPACE}:9: "),
        ("GPUs beyond floats", "resources: {gpus: 1e300}", f"{SPACE}:9: "),
        ("10^18 processes", f"resources: {{processes: {10**18}}}", f"{SPACE}:9: "),
        ("a third of a CPU too many", "resources: {cpus: 1.33}", f"{SPACE}:9: "),
        (
            "processes that share a CPU",
            "resources: {cpus: 1, processes: 2}",
            f"{SPACE}:9: ",
        ),
        (
            "a control of a search",
            "strategy: {name: tpe, cells: 4}\ncontrol: iso-flops",
            f"{SPACE}:10: ",
        ),
        ("a control of nothing", "control: iso-latency", f"{SPACE}:9: "),
        (
            "asha without grace",
            "scheduler: {name: asha, grace_epochs: 0}",
            f"{SPACE}:9: ",
        ),
        (
            "asha that keeps all",
            "scheduler: {name: asha, reduction: 1}",
            f"{SPACE}:9: ",
        ),
        (
            "grace beyond 32 bits",
            f"scheduler: {{name: asha, grace_epochs: {2**31}}}",
            f"{SPACE}:9: ",
        ),
        ("diagnostics of everything", "diagnostics: [all]", f"{SPACE}:9: "),
        (
            "15,000 diagnostics",
            "diagnostics: [" + ", ".join(f"d{n}" for n in range(15_000)) + "]",
            "more problems",
        ),
        (
            "a diagnostic 15,000 times",
            "diagnostics: [" + "x, " * 15_000 + "x]",
            "x is a duplicate",
        ),
        (
            "diagnostics of 10^18 images",
            f"diagnostics: {{images: {10**18}}}",
            f"{SPACE}:9: ",
        ),
        ("a fixed factor that varies", "fixed: {layout: serial}", f"{SPACE}:9: "),
        (
            "15,000 fixed factors",
            "fixed: {" + ", ".join(f"f{n}: 1" for n in range(9_000)) + "}",
            "more problems",
        ),
        (
            "9,000 baselines",
            "baseline: {" + ", ".join(f"f{n}: 1" for n in range(9_000)) + "}",
            "more problems",
        ),
        (
            "a fixed level that nothing reads",
            "fixed: {shortcuts.order: activation, shortcuts.variant: code}",
            "no cell reads",
        ),
        (
            "a published table that is none",
            "published: ../../etc/passwd",
            f"{SPACE}:9: ",
        ),
        (
            "timm's weights of a declared backbone",
            "pretrained: true",
            "timm publishes no weights for vit",
        ),
    ):
        yield document(added(said), f"rest: {name}", says)
    yield document(
        changed("{epochs: 2, warmup_epochs: 0}", "{epochs: 2, warmup_epochs: 3}"),
        "warm-up beyond the end",
        f"{SPACE}:8: ",
    )
    yield document(
        changed("{epochs: 2, warmup_epochs: 0}", "deit"),
        "a recipe for files on digits",
        "no cell of space can be trained",
    )
    yield document(
        changed("epochs: 2, ", "epochs: 2, rand_augment: no-such-thing, "),
        "no RandAugment",
        "no cell of space can be trained",
    )
    yield document(
        changed("epochs: 2, ", "epochs: 2, crop_padding: 2000, "),
        "padding of 2,000",
        f"{SPACE}:8: ",
    )
    yield document(
        changed("epochs: 2, ", "epochs: 2, select: best, "),
        "the best without a split",
        "set data.validation",
    )
    yield document(
        changed("epochs: 2, ", "epochs: 2, mixup: 0.1, batch_size: 1, "),
        "mixing one image",
        "mix pairs",
    )
    yield document(
        varied("patch.mixing: [1, 2]"),
        "patches mixed without CutMix",
        "set recipe.cutmix above 0",
    )
    yield document(
        changed(BACKBONE, "").replace("factors:\n", "factors: {}\nx:\n"),
        "several things wrong at once",
        "unknown key 'x'",
    )


CASES = [*levels(), *sizes(), *cells(), *rest()]
