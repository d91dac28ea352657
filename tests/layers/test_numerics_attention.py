"""Attention and its edits, projections of shortcuts, and layouts against the papers'
formulas, written again slowly.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ablate.backbones.pieces import SelfAttention
from ablate.backbones.t2t import Attention
from ablate.layers.attention import (
    EditableAttention,
    GatedValue,
    ScaledFrequencies,
    ScaledHighPass,
    Seen,
    TalkingHeads,
    ValueActivation,
)
from ablate.layers.circulant import CirculantProjection
from ablate.layers.layout import OnTokens, from_tokens, to_tokens
from ablate.layers.shortcuts import (
    ActivationProjection,
    DenseProjection,
    ProjectionActivation,
    ProjectionOnly,
)
from tests.layers.slowly import (
    Arrays,
    agree,
    block_circulant,
    dft,
    gelu,
    layer_norm,
    low_pass,
    parameters,
    randomise,
    sigmoid,
    silu,
    softmax,
)

PHI = {"gelu": gelu, "silu": silu, "glu": sigmoid, "geglu": gelu, "swiglu": silu}
Recipe = dict[str, list[str]]
Added = np.ndarray | int

# By place, the edits in the order in which they are appended.
RECIPES: dict[str, Recipe] = {
    "none": {},
    "value": {"value": ["gelu"]},
    "gated": {"value": ["swiglu"]},
    "output": {"output": ["frequencies 1"]},
    "logits": {"logits": ["talking"]},
    "weights": {"weights": ["high"]},
    "talk, then scale": {
        "weights": ["talking", "high"],
        "logits": ["talking", "talking"],
    },
    "scale, then talk": {"weights": ["high", "talking"]},
    "all": {
        "value": ["geglu", "silu"],
        "logits": ["talking"],
        "weights": ["high", "talking"],
        "output": ["frequencies 2", "frequencies 1"],
    },
}


def made(edit: str, width: int, heads: int) -> nn.Module:
    """The layer of an edit's name."""
    if edit == "talking":
        return TalkingHeads(heads)
    if edit == "high":
        return ScaledHighPass(heads)
    if edit.startswith("frequencies"):
        return ScaledFrequencies(width, int(edit[-1]))
    return GatedValue(width, edit) if edit.endswith("glu") else ValueActivation(edit)


def append(attention: EditableAttention, recipe: Recipe, width: int) -> None:
    for place, edits in recipe.items():
        for edit in edits:
            getattr(attention.edits, place).append(
                made(edit, width, attention.num_heads)
            )


def scaled_high_pass(a: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A_LP + (1 + w_h) A_HP of maps (batch, heads, n, m), head by head (eq. 7 to 9)."""
    result = np.zeros_like(a)
    lowest = np.full(a.shape[2:], 1 / a.shape[3])
    for batch in range(a.shape[0]):
        for head in range(a.shape[1]):
            result[batch, head] = lowest + (1 + w[head]) * (a[batch, head] - lowest)
    return result


def scaled_frequencies(
    x: np.ndarray, s: np.ndarray, t: np.ndarray, times: int
) -> np.ndarray:
    """X + times (DC[X] diag(s) + HC[X] diag(t)), image by image (eq. 10 to 12)."""
    constant = low_pass(x.shape[1])
    rest = np.eye(x.shape[1]) - constant
    return np.stack(
        [
            image + times * (constant @ image @ np.diag(s) + rest @ image @ np.diag(t))
            for image in x
        ]
    )


def talking(x: np.ndarray, mix: np.ndarray) -> np.ndarray:
    """New head k is the sum over heads h of mix[k, h] times head h."""
    result = np.zeros_like(x)
    for new in range(x.shape[1]):
        for old in range(x.shape[1]):
            result[:, new] += mix[new, old] * x[:, old]
    return result


def edited(
    place: str, recipe: Recipe, values: Arrays, x: np.ndarray, source: np.ndarray
) -> np.ndarray:
    """x after the edits of one place, one after the other."""
    for at, edit in enumerate(recipe.get(place, [])):
        key = f"edits.{place}.{at}."
        if edit == "talking":
            x = talking(x, values[key + "mix.weight"])
        elif edit == "high":
            x = scaled_high_pass(x, values[key + "w"])
        elif edit.startswith("frequencies"):
            x = scaled_frequencies(
                x, values[key + "s"], values[key + "t"], int(edit[-1])
            )
        elif edit.endswith("glu"):
            x = (
                PHI[edit](
                    source @ values[key + "gate.weight"].T + values[key + "gate.bias"]
                )
                * x
            )
        else:
            x = PHI[edit](x)
    return x


def heads_of(x: np.ndarray, heads: int) -> np.ndarray:
    """(batch, n, width) cut along the channels: (batch, heads, n, width / heads)."""
    size = x.shape[-1] // heads
    return np.stack(
        [x[..., head * size : (head + 1) * size] for head in range(heads)], axis=1
    )


def merged(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    source: np.ndarray,
    recipe: Recipe,
    values: Arrays,
    bias: Added,
    mask: Added,
) -> np.ndarray:
    """softmax(edit(Q K^T + bias) + mask), edited, times the edited V, for queries, keys
    and values (batch, heads, n, size); heads are concatenated.
    """
    batch, heads, n, size = q.shape
    m = k.shape[2]
    v = heads_of(
        edited(
            "value",
            recipe,
            values,
            np.concatenate(list(v.swapaxes(0, 1)), axis=-1),
            source,
        ),
        heads,
    )
    logits = np.zeros((batch, heads, n, m))
    for image in range(batch):
        for head in range(heads):
            logits[image, head] = q[image, head] @ k[image, head].T
    logits = edited("logits", recipe, values, logits + bias, source) + mask
    weights = edited("weights", recipe, values, softmax(logits), source)
    result = np.zeros((batch, n, heads * size))
    for image in range(batch):
        for head in range(heads):
            result[image, :, head * size : (head + 1) * size] = (
                weights[image, head] @ v[image, head]
            )
    return result


def self_attention(
    source: np.ndarray,
    projected: tuple[np.ndarray, ...],
    heads: int,
    recipe: Recipe,
    values: Arrays,
) -> np.ndarray:
    """Multi-head attention (patch-diversification, eq. 1 and 2) with edits, from tokens
    projected to Q, K and V.
    """
    q, k, v = (heads_of(tokens, heads) for tokens in projected)
    out = merged(q / math.sqrt(q.shape[-1]), k, v, source, recipe, values, 0, 0)
    return edited(
        "output",
        recipe,
        values,
        out @ values["proj.weight"].T + values["proj.bias"],
        source,
    )


def test_scaled_high_pass() -> None:
    torch.manual_seed(0)
    layer = ScaledHighPass(3)
    maps = torch.randn(2, 3, 4, 5).softmax(-1)
    np.testing.assert_allclose(layer(maps).detach().numpy(), maps.numpy(), atol=1e-6)
    randomise(layer)
    agree(
        lambda: layer(maps),
        {"maps": maps, **parameters(layer)},
        lambda at: scaled_high_pass(at["maps"], at["w"]),
    )


def test_low_pass_part_of_a_map_is_what_its_filter_leaves() -> None:
    """With square maps, A_LP is the Fourier filter itself."""
    torch.manual_seed(1)
    layer = ScaledHighPass(1)
    randomise(layer)
    a = torch.randn(1, 1, 6, 6).softmax(-1)
    w, a64 = layer.w.item(), a[0, 0].double().numpy()
    expected = low_pass(6) + (1 + w) * (a64 - low_pass(6))
    np.testing.assert_allclose(layer(a)[0, 0].detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("times", [1, 2])
def test_scaled_frequencies(times: int) -> None:
    torch.manual_seed(2)
    layer = ScaledFrequencies(4, times)
    x = torch.randn(2, 5, 4)
    np.testing.assert_allclose(layer(x).detach().numpy(), x.numpy(), atol=1e-6)
    randomise(layer)
    leaves = {"x": x, **parameters(layer)}
    agree(
        lambda: layer(x),
        leaves,
        lambda at: scaled_frequencies(at["x"], at["s"], at["t"], times),
    )


def test_talking_heads() -> None:
    torch.manual_seed(3)
    layer = TalkingHeads(3)
    randomise(layer)
    x = torch.randn(2, 3, 4, 5)
    agree(
        lambda: layer(x),
        {"x": x, **parameters(layer)},
        lambda at: talking(at["x"], at["mix.weight"]),
    )
    assert [name for name, _ in layer.named_parameters()] == ["mix.weight"]


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_value_activation(name: str) -> None:
    torch.manual_seed(4)
    layer, source, v = ValueActivation(name), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    agree(lambda: layer(source, v), {"v": v}, lambda at: PHI[name](at["v"]))


@pytest.mark.parametrize("name", ["glu", "geglu", "swiglu"])
def test_gated_value(name: str) -> None:
    torch.manual_seed(5)
    layer, source, v = GatedValue(4, name), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    randomise(layer)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 4 + 4

    def reference(at: Arrays) -> np.ndarray:
        return PHI[name](at["source"] @ at["gate.weight"].T + at["gate.bias"]) * at["v"]

    agree(
        lambda: layer(source, v),
        {"source": source, "v": v, **parameters(layer)},
        reference,
    )


@pytest.mark.parametrize("name", RECIPES)
def test_attention_with_edits(name: str) -> None:
    torch.manual_seed(6)
    width, heads, recipe = 6, 3, RECIPES[name]
    layer = Attention(width, heads, 0.0, 0.0)
    append(layer, recipe, width)
    randomise(layer)
    x = torch.randn(2, 4, width)

    def reference(at: Arrays) -> np.ndarray:
        projected = tuple(
            at["x"] @ at["qkv.weight"][part * width : (part + 1) * width].T
            for part in range(3)
        )
        return self_attention(at["x"], projected, heads, recipe, at)

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference)


@pytest.mark.parametrize(
    ("name", "reduction"),
    [("none", 1), ("none", 2), ("all", 1), ("all", 2), ("value", 2), ("gated", 2)],
)
def test_attention_over_a_reduced_grid_with_edits(name: str, reduction: int) -> None:
    """Keys and values come from LN(conv(x)), whose kernels tile the grid (PVT, eq. 1 to
    3); a gate reads the same tokens.
    """
    torch.manual_seed(7)
    width, heads, (height, across), recipe = (
        4,
        2,
        (2, 6 if reduction > 1 else 2),
        RECIPES[name],
    )
    layer = SelfAttention(width, heads, reduction=reduction)
    append(layer, recipe, width)
    randomise(layer)
    x = torch.randn(2, height * across, width)

    def reduced(at: Arrays) -> np.ndarray:
        if reduction == 1:
            return at["x"]
        image = at["x"].reshape(2, height, across, width)
        rows = []
        for i in range(height // reduction):
            for j in range(across // reduction):
                total = np.tile(at["sr.bias"], (2, 1))
                for u in range(reduction):
                    for v in range(reduction):
                        total = (
                            total
                            + image[:, i * reduction + u, j * reduction + v]
                            @ at["sr.weight"][:, :, u, v].T
                        )
                rows.append(total)
        return layer_norm(
            np.stack(rows, axis=1), at["norm.weight"], at["norm.bias"], 1e-5
        )

    def reference(at: Arrays) -> np.ndarray:
        source = reduced(at)
        q = at["x"] @ at["q.weight"].T + at["q.bias"]
        k = source @ at["kv.weight"][:width].T + at["kv.bias"][:width]
        v = source @ at["kv.weight"][width:].T + at["kv.bias"][width:]
        return self_attention(source, (q, k, v), heads, recipe, at)

    agree(
        lambda: layer(x, (height, across)),
        {"x": x, **parameters(layer)},
        reference,
        entries=24,
    )


@pytest.mark.parametrize("added", ["", "bias", "mask", "bias mask"])
@pytest.mark.parametrize("name", ["none", "gated", "logits", "all"])
def test_bias_and_mask(name: str, added: str) -> None:
    """A bias meets the logits before their edits, a mask after them; there are other
    numbers of queries than of keys.
    """
    torch.manual_seed(8)
    heads, recipe = (
        2,
        {place: edits for place, edits in RECIPES[name].items() if place != "output"},
    )
    layer = Attention(4, heads, 0.0, 0.0)
    append(layer, recipe, 4)
    randomise(layer)
    leaves = {
        "q": torch.randn(2, heads, 3, 2),
        "k": torch.randn(2, heads, 5, 2),
        "v": torch.randn(2, heads, 5, 2),
    }
    if "bias" in added:
        leaves["bias"] = torch.randn(1, heads, 3, 5)
    if "mask" in added:
        leaves["mask"] = torch.randn(2, 1, 3, 5)
    source = torch.randn(2, 5, 4)
    edits = {
        key: value
        for key, value in parameters(layer).items()
        if key.startswith("edits.")
    }
    if name in ("gated", "all"):
        edits["source"] = source

    def reference(at: Arrays) -> np.ndarray:
        tokens = at.get("source", source.detach().double().numpy())
        return merged(
            at["q"] * layer.scale,
            at["k"],
            at["v"],
            tokens,
            recipe,
            at,
            at.get("bias", 0),
            at.get("mask", 0),
        )

    agree(
        lambda: layer.attend(**leaves, source=source),
        {**leaves, **edits},
        reference,
        entries=24,
    )


@pytest.mark.parametrize("name", ["none", "all"])
def test_masked_keys_have_no_part(name: str) -> None:
    """A mask of minus infinity gives what attention to the other keys alone gives (with
    edits that keep zero weights zero).
    """
    torch.manual_seed(9)
    layer = Attention(4, 2, 0.0, 0.0)
    append(
        layer,
        {
            "logits": RECIPES[name].get("logits", []),
            "value": RECIPES[name].get("value", []),
        },
        4,
    )
    randomise(layer)
    q, k, v, source = (
        torch.randn(2, 2, 3, 2),
        torch.randn(2, 2, 5, 2),
        torch.randn(2, 2, 5, 2),
        torch.randn(2, 5, 4),
    )
    mask = torch.zeros(1, 1, 1, 5).masked_fill(
        torch.tensor([False, True, False, False, True]), -math.inf
    )
    kept = [0, 2, 3]
    found = layer.attend(q, k, v, source, mask=mask.expand(1, 1, 3, 5))
    torch.testing.assert_close(
        found,
        layer.attend(q, k[:, :, kept], v[:, :, kept], source[:, kept]),
        rtol=1e-5,
        atol=1e-5,
    )


def test_an_observer_sees_what_was_computed_and_changes_nothing() -> None:
    torch.manual_seed(10)
    heads, recipe = 2, RECIPES["all"]
    layer = Attention(4, heads, 0.0, 0.0)
    append(layer, recipe, 4)
    randomise(layer)
    x = torch.randn(2, 3, 4)
    at = {
        "x": x.double().numpy(),
        **{name: p.detach().double().numpy() for name, p in layer.named_parameters()},
    }
    q, k = (
        heads_of(at["x"] @ at["qkv.weight"][part * 4 : part * 4 + 4].T, heads)
        for part in range(2)
    )
    logits = edited(
        "logits", recipe, at, np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(2), at["x"]
    )
    before = layer(x)
    seen: list[Seen] = []
    layer.observer = seen.append
    after = layer(x)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert len(seen) == 1
    np.testing.assert_allclose(seen[0].source.numpy(), at["x"], atol=1e-6)
    np.testing.assert_allclose(seen[0].logits.detach().numpy(), logits, atol=1e-5)
    weights = edited("weights", recipe, at, softmax(logits), at["x"])
    np.testing.assert_allclose(seen[0].weights.detach().numpy(), weights, atol=1e-5)
    assert torch.equal(seen[0].output, after)


@pytest.mark.parametrize("recipe", ["none", "value", "output"])
def test_the_fused_call_is_the_same_as_the_observed_one(recipe: str) -> None:
    torch.manual_seed(11)
    layer = Attention(6, 3, 0.0, 0.0)
    append(layer, RECIPES[recipe], 6)
    randomise(layer)
    x = torch.randn(2, 5, 6)
    fused = layer(x)
    layer.observer = lambda seen: None
    torch.testing.assert_close(layer(x), fused, rtol=1e-5, atol=1e-5)


def test_value_weight_projects_tokens_to_values() -> None:
    """The weight that diagnostics take for the values is the one that values come from:
    with uniform attention (zero queries) and an identity output, the result is the mean
    of X Wv^T.
    """
    torch.manual_seed(12)
    x = torch.randn(1, 4, 6)
    for layer, call in (
        (Attention(6, 2, 0.0, 0.0), ()),
        (SelfAttention(6, 2), ((2, 2),)),
    ):
        randomise(layer)
        with torch.no_grad():
            (
                layer.qkv.weight[:6] if isinstance(layer, Attention) else layer.q.weight
            ).zero_()
            if isinstance(layer, SelfAttention):
                layer.q.bias.zero_()
                layer.kv.bias.zero_()
            layer.proj.weight.copy_(torch.eye(6))
            layer.proj.bias.zero_()
        values = (
            x[0].double().numpy() @ layer.value_weight().detach().double().numpy().T
        )
        np.testing.assert_allclose(
            layer(x, *call)[0].detach().numpy(),
            np.tile(values.mean(0), (4, 1)),
            atol=1e-5,
        )


@pytest.mark.parametrize(
    ("width", "blocks", "count"),
    [(8, 1, 1), (8, 2, 2), (6, 2, 3), (10, 2, 1), (4, 4, 2), (5, 1, 2)],
)
def test_circulant_projection_with_bias(width: int, blocks: int, count: int) -> None:
    torch.manual_seed(13)
    layer = CirculantProjection(width, blocks, count, bias=True)
    assert sum(p.numel() for p in layer.parameters()) == count * (
        blocks * width + width
    )
    randomise(layer)
    z = torch.randn(2, 3, width)

    def reference(at: Arrays) -> np.ndarray:
        return np.stack(
            [
                at["z"] @ block_circulant(at["c"][t]) + at["bias"][t]
                for t in range(count)
            ],
            axis=-2,
        )

    agree(lambda: layer(z), {"z": z, **parameters(layer)}, reference, entries=24)


@pytest.mark.parametrize("width", [1, 4, 5])
def test_circulant_projection_in_the_domain_of_eq_14(width: int) -> None:
    """With explicit transforms F: circ(c) is F^-1 diag(F c) F, and the transform of z
    circ(c) is that of z times the conjugate of that of c.
    """
    torch.manual_seed(18)
    layer = CirculantProjection(width, 1)
    randomise(layer)
    z, f = torch.randn(3, width), dft(width)
    z64, c = z.double().numpy(), layer.c[0, 0, 0].detach().double().numpy()
    theta = np.linalg.inv(f) @ np.diag(f @ c) @ f
    np.testing.assert_allclose(theta, block_circulant(c[None, None]), atol=1e-12)
    out = layer(z)[:, 0].detach().double().numpy()
    np.testing.assert_allclose(out, z64 @ theta.real, atol=1e-5)
    np.testing.assert_allclose(out @ f, (z64 @ f) * (f @ c).conj(), atol=1e-5)


def test_circulant_projection_with_bias_starts_as_published() -> None:
    """Uniform in +-1 / sqrt(width), as a linear layer of that width starts."""
    torch.manual_seed(14)
    layer = CirculantProjection(256, 4, 2, bias=True)
    for parameter in layer.parameters():
        assert parameter.abs().max() <= 1 / 16
        assert abs(parameter.std().item() * 16 * math.sqrt(3) - 1) < 0.1


@pytest.mark.parametrize("count", [1, 2])
def test_dense_projection_with_bias(count: int) -> None:
    torch.manual_seed(15)
    layer = DenseProjection(4, count, bias=True)
    assert sum(p.numel() for p in layer.parameters()) == count * (4 * 4 + 4)
    randomise(layer)
    z = torch.randn(2, 3, 4)

    def reference(at: Arrays) -> np.ndarray:
        paths = []
        for t in range(count):
            rows = slice(4 * t, 4 * t + 4)
            paths.append(
                at["z"] @ at["linear.weight"][rows].T + at["linear.bias"][rows]
            )
        return np.stack(paths, axis=-2)

    agree(lambda: layer(z), {"z": z, **parameters(layer)}, reference)


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_of_the_orders_of_a_shortcut(bias: bool) -> None:
    torch.manual_seed(16)
    z = torch.randn(2, 3, 6)

    def path(at: Arrays, t: int, x: np.ndarray) -> np.ndarray:
        return x @ block_circulant(at["projection.c"][t]) + (
            at["projection.bias"][t] if bias else 0
        )

    formulas = {
        ProjectionActivation: (
            lambda at: gelu(path(at, 0, at["z"])) + gelu(path(at, 1, at["z"]))
        ),
        ActivationProjection: (
            lambda at: path(at, 0, gelu(at["z"])) + path(at, 1, gelu(at["z"]))
        ),
        ProjectionOnly: lambda at: path(at, 0, at["z"]) + path(at, 1, at["z"]),
    }
    for order, formula in formulas.items():
        layer = order(CirculantProjection(6, 2, 2, bias=bias))
        randomise(layer)
        agree(
            lambda layer=layer: layer(z),
            {"z": z, **parameters(layer)},
            formula,
            entries=12,
        )


def laid_out(tokens: Tensor, layout: str, height: int, across: int) -> Tensor:
    """Tokens in row-major order of their grid, put into a layout one number at a time."""
    batch, _, width = tokens.shape
    shape = {
        "grid": (batch, height, across, width),
        "image": (batch, width, height, across),
        "tokens": tuple(tokens.shape),
    }
    made = torch.empty(shape[layout])
    for image in range(batch):
        for i in range(height):
            for j in range(across):
                for c in range(width):
                    value, at = (
                        tokens[image, i * across + j, c],
                        (
                            image,
                            i * across + j,
                            c,
                        ),
                    )
                    made[
                        {
                            "grid": (image, i, j, c),
                            "image": (image, c, i, j),
                            "tokens": at,
                        }[layout]
                    ] = value
    return made


@pytest.mark.parametrize("layout", ["tokens", "grid", "image"])
def test_layouts_there_and_back(layout: str) -> None:
    tokens = torch.arange(2.0 * 6 * 4).reshape(2, 6, 4)
    x = laid_out(tokens, layout, 2, 3)
    assert torch.equal(to_tokens(x, layout), tokens)
    assert torch.equal(from_tokens(tokens, x, layout), x)
    assert torch.equal(from_tokens(to_tokens(x, layout), x, layout), x)


@pytest.mark.parametrize("layout", ["tokens", "grid", "image"])
def test_a_module_on_tokens_in_any_layout(layout: str) -> None:
    """A module that treats every token and channel differently gives the same through
    any layout, and the same gradients.
    """

    class Uneven(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Parameter(torch.randn(6, 6))
            self.turn = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.mix @ x @ self.turn

    torch.manual_seed(17)
    layer = OnTokens(Uneven(), layout)
    x = laid_out(torch.randn(2, 6, 4), layout, 2, 3)

    def reference(at: Arrays) -> np.ndarray:
        result = np.zeros_like(at["x"])
        for image in range(2):
            one = at["x"][image]
            tokens = {
                "tokens": one,
                "grid": one.reshape(6, 4),
                "image": one.reshape(4, 6).T,
            }[layout]
            new = at["module.mix"] @ tokens @ at["module.turn"]
            result[image] = (new.T if layout == "image" else new).reshape(one.shape)
        return result

    agree(lambda: layer(x), {"x": x, **parameters(layer)}, reference)
