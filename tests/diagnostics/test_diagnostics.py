"""Each diagnostic against a closed form: equal tokens, random tokens, attention of all
1/N, a linear network.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate import diagnostics
from ablate.diagnostics.diagnostic import Layer
from ablate.diagnostics.lipschitz import SLOPES, bound
from ablate.diagnostics.observe import measure
from ablate.errors import DiagnosticError, UnknownName
from ablate.families import resolve
from ablate.layers.attention import Seen
from ablate.models import build, make_editable
from ablate.records import Level, Measurement


def of_tokens(name: str, tokens: Tensor) -> Tensor:
    return diagnostics.find(name).measure(Layer(tokens, None, None))[""]


def of_weights(name: str, weights: Tensor) -> Tensor:
    seen = Seen(
        source=torch.zeros(1), logits=weights, weights=weights, output=torch.zeros(1)
    )
    return diagnostics.find(name).measure(
        Layer(torch.zeros(1, 1, 1), (nn.Module(), seen), None)
    )[""]


EQUAL = torch.randn(2, 1, 5, generator=torch.Generator().manual_seed(0)).expand(2, 7, 5)
RANDOM = torch.randn(3, 400, 300, generator=torch.Generator().manual_seed(1))
UNIFORM = torch.full((2, 3, 8, 8), 1 / 8)
IDENTITY = torch.eye(8).expand(2, 3, 8, 8)


def test_equal_tokens_have_no_diversity() -> None:
    for name in ("diversity", "diversity_frobenius", "high_frequency"):
        assert of_tokens(name, EQUAL).abs().max() < 1e-6
    assert torch.allclose(of_tokens("token_cosine", EQUAL), torch.ones(2))
    assert torch.allclose(of_tokens("token_similarity", EQUAL), torch.ones(2, 7, 7))


def test_random_tokens_are_nearly_orthogonal() -> None:
    assert of_tokens("token_cosine", RANDOM).abs().max() < 0.01
    share = of_tokens("high_frequency", RANDOM)
    assert torch.allclose(share, torch.full((3,), math.sqrt(1 - 1 / 400)), atol=1e-3)
    assert torch.allclose(
        of_tokens("diversity_frobenius", RANDOM),
        torch.full((3,), math.sqrt(399 * 300)),
        rtol=0.01,
    )


def test_two_opposite_tokens() -> None:
    tokens = torch.tensor([[[3.0, -4.0], [-3.0, 4.0]]])
    assert of_tokens("token_cosine", tokens).item() == pytest.approx(-1)
    # The mean is 0: column sums 6 and 8, row sums 7 and 7.
    assert of_tokens("diversity", tokens).item() == pytest.approx(math.sqrt(8 * 7))
    assert of_tokens("diversity_frobenius", tokens).item() == pytest.approx(
        math.sqrt(50)
    )
    assert of_tokens("high_frequency", tokens).item() == pytest.approx(1)


def test_uniform_attention() -> None:
    assert of_weights("attention_deviation", UNIFORM).abs().max() < 1e-7
    assert torch.allclose(of_weights("attention_cosine", UNIFORM), torch.ones(2))
    spectrum = of_weights("attention_spectrum", UNIFORM)
    assert torch.allclose(spectrum, torch.eye(8)[0].expand(2, 8), atol=1e-6), (
        "it passes frequency 0 alone"
    )


def test_attention_that_keeps_every_token() -> None:
    assert torch.allclose(
        of_weights("attention_deviation", IDENTITY), torch.full((2,), math.sqrt(7) / 8)
    )
    assert of_weights("attention_cosine", IDENTITY).abs().max() < 1e-7
    assert torch.allclose(
        of_weights("attention_spectrum", IDENTITY), torch.ones(2, 8), atol=1e-6
    ), "it passes everything"


def test_the_spectrum_is_that_of_explicit_fourier_matrices() -> None:
    weights = torch.randn(
        1, 1, 6, 6, generator=torch.Generator().manual_seed(2)
    ).softmax(-1)
    frequencies = np.outer(np.arange(6), np.arange(6))
    fourier = np.exp(-2j * np.pi * frequencies / 6)
    response = fourier @ weights[0, 0].double().numpy() @ np.linalg.inv(fourier)
    np.testing.assert_allclose(
        of_weights("attention_spectrum", weights)[0],
        np.linalg.norm(response, axis=1),
        atol=1e-6,
    )


def test_the_map_of_attention_lies_on_the_image() -> None:
    """All tokens attend to patch (1, 2) of a grid of 2 x 3, behind a class token."""
    weights = torch.eye(7)[1 + 3 + 2].expand(1, 2, 7, 7)
    seen = Seen(
        source=torch.zeros(1), logits=weights, weights=weights, output=torch.zeros(1)
    )
    layer = Layer(torch.zeros(1, 6, 1), (nn.Module(), seen), None, grid=(2, 3))
    (drawn,) = diagnostics.find("attention_map").measure(layer)[""]
    assert drawn.tolist() == [[0, 0, 0], [0, 0, 1]]
    # Windows have no place on the image.
    layer = Layer(torch.zeros(1, 6, 1), (nn.Module(), seen), None, grid=(4, 6))
    assert diagnostics.find("attention_map").measure(layer) == {}


@pytest.mark.proof
@pytest.mark.parametrize(
    "settings", [{}, {"registers": 4}, {"registers": 4, "size.pool": "mean"}], ids=str
)
def test_maps_lie_on_the_patches_whatever_stands_before_them(
    settings: dict[str, Level],
) -> None:
    names = ["attention_map", "feature_map"]
    for taken in measure(network(**settings), "vit", [images()], names):
        assert taken.layer >= 0
        columns = 4 if taken.name == "attention_map" else 16
        assert np.shape(taken.values) == (4, columns)


def test_a_feature_map_has_channels_side_by_side() -> None:
    tokens = torch.arange(6.0).unsqueeze(1) + 10 * torch.arange(8.0)
    layer = Layer(tokens.unsqueeze(0), None, None, grid=(2, 3))
    (drawn,) = diagnostics.find("feature_map").measure(layer)[""]
    assert drawn.tolist() == [
        [10 * channel + token for channel in range(4) for token in range(3)],
        [10 * channel + token for channel in range(4) for token in range(3, 6)],
    ]


@pytest.mark.parametrize("activation", ["gelu", "softplus", "rprelu"])
def test_the_shape_of_an_activation(activation: str) -> None:
    inputs = torch.linspace(-3, 3, 25)
    plain = {
        "gelu": F.gelu(inputs),
        "softplus": F.softplus(inputs),
        "rprelu": F.leaky_relu(inputs, 0.25),
    }[activation]
    for settings in ({}, {"ffn.agelu": 2}):
        model = network(**{"ffn.activation": activation, **settings})
        taken = measure(model, "vit", [images()], ["activation_shape"])
        shapes = [layer.values for layer in taken]
        assert len(shapes) == 3
        for shape in shapes:
            assert shape == pytest.approx(plain.tolist(), abs=1e-4)


def network(**settings: Level) -> nn.Module:
    sizes: dict[str, Level] = {
        "size.patch_size": 4,
        "size.width": 12,
        "size.depth": 3,
        "size.heads": 2,
        "size.mlp_ratio": 2.0,
    }
    torch.manual_seed(0)
    return build(resolve("vit", 16, 3, 10, {**sizes, **settings}))


def images(count: int = 4) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(3))


def by_name(found: tuple[Measurement, ...], name: str) -> list[Measurement]:
    return [taken for taken in found if taken.name == name]


def test_the_spectrum_of_each_head() -> None:
    weights = torch.stack((UNIFORM[0, 0], IDENTITY[0, 0]))[None]
    spectra = of_weights("attention_spectra", weights)
    expected = torch.stack((torch.eye(8)[0], torch.ones(8)))[None]
    assert torch.allclose(spectra, expected, atol=1e-6)


def test_learnt_scales_are_read_from_their_layers() -> None:
    model = network(attnscale=True, featscale="text")
    for layer in range(3):
        edits = model.get_submodule(f"blocks.{layer}.attn.edits")
        edits.weights[0].w.data = torch.tensor([1.0, 4.0]) * layer
        edits.output[0].s.data.fill_(-layer)
        edits.output[0].t.data.fill_(2 * layer)
    found = measure(model, "vit", [images()], ["attention_scale", "feature_scale"])

    def of(name: str) -> list[float | None]:
        return [taken.value for taken in by_name(found, name)]

    assert of("attention_scale") == [0, 2.5, 5]
    assert of("attention_scale.least") == [0, 1, 2]
    assert of("attention_scale.largest") == [0, 4, 8]
    assert of("feature_scale.low") == [0, -1, -2]
    assert of("feature_scale.high") == [0, 2, 4]


def test_measured_smoothing_keeps_theorem_3s_bound() -> None:
    model = network()
    for parameter in model.parameters():
        parameter.data *= 3  # so that attention is far from uniform
    found = measure(model, "vit", [images()], ["smoothing"])
    measured, bounds = (
        by_name(found, "smoothing.measured"),
        by_name(found, "smoothing.bound"),
    )
    assert len(measured) == len(bounds) == 3
    for low, high in zip(measured, bounds, strict=True):
        assert 0 < low.value <= high.value


def test_uniform_attention_leaves_no_high_frequencies_and_its_bound_is_small() -> None:
    model = network()
    for name, parameter in model.named_parameters():
        if "qkv" in name and name.endswith("weight"):
            parameter.data[:24] = 0  # queries and keys: all logits equal
        if "qkv" in name and name.endswith("bias"):
            parameter.data.zero_()
    found = measure(model, "vit", [images()], ["smoothing", "attention_deviation"])
    assert all(taken.value < 1e-5 for taken in by_name(found, "smoothing.measured"))
    assert all(taken.value < 1e-7 for taken in by_name(found, "attention_deviation"))


def test_an_edit_of_the_weights_leaves_the_theorem() -> None:
    assert not by_name(
        measure(network(attnscale=True), "vit", [images()], ["smoothing"]),
        "smoothing.bound",
    )
    assert by_name(
        measure(network(talking_heads="before"), "vit", [images()], ["smoothing"]),
        "smoothing.bound",
    )


def matrix(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


@pytest.mark.proof
def test_a_linear_network_has_its_product_as_constant() -> None:
    w0, w1 = matrix(6, 4, 0), matrix(3, 6, 1)
    ones = np.ones(6)
    assert bound(w0, [(w1, ones, ones)]) == pytest.approx(
        np.linalg.norm(w1 @ w0, 2), rel=1e-3
    )
    twice = bound(w0, [(w1, 2 * ones, 2 * ones), (-w1, ones, ones)])
    assert twice == pytest.approx(3 * np.linalg.norm(w1 @ w0, 2), rel=1e-3)


def test_one_neuron_has_its_greatest_slope_as_constant() -> None:
    least, greatest = np.array([-0.5]), np.array([2.0])
    assert bound(
        np.array([[3.0]]), [(np.array([[4.0]]), least, greatest)]
    ) == pytest.approx(3 * 4 * 2.0, rel=1e-3)


def test_slopes_are_those_of_the_activations() -> None:
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64, requires_grad=True)
    for name in ("GELU", "SiLU", "Softplus", "ELU"):
        slope = torch.autograd.grad(getattr(nn, name)()(x).sum(), x)[0]
        assert slope.min().item() == pytest.approx(SLOPES[name][0], abs=2e-5)
        assert slope.max().item() == pytest.approx(SLOPES[name][1], abs=2e-5)


@pytest.mark.proof
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ffn.agelu": 2, "ffn.kernel": 3},
        {"ffn.agelu": 1, "ffn.activation": "swish"},
    ],
)
def test_the_bound_is_above_what_is_sampled_and_below_the_product_of_norms(
    settings: dict[str, Level],
) -> None:
    model = network(**settings)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(4)
        )
    found = measure(model, "vit", [images()], ["lipschitz"])
    for low, high in zip(
        by_name(found, "lipschitz.sampled"),
        by_name(found, "lipschitz.bound"),
        strict=True,
    ):
        ffn = model.get_submodule(f"blocks.{low.layer}.mlp")
        product = torch.linalg.matrix_norm(
            ffn.fc1.weight, 2
        ) * torch.linalg.matrix_norm(ffn.fc2.weight, 2)
        gain = (
            1.2 * (ffn.act.alpha * ffn.act.beta).abs().max().item() * 2
            if settings
            else 1.2
        )
        assert 0 < low.value <= high.value <= gain * product.item()


def test_without_cvxpy_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    pytest.importorskip("cvxpy")
    monkeypatch.delitem(sys.modules, "cvxpy")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DiagnosticError, match=r"pip install 'ablate-harness\[sdp\]'"):
        diagnostics.require(["token_cosine", "lipschitz"])
    diagnostics.require(["token_cosine"])


def test_what_would_not_end_or_not_fit_is_refused() -> None:
    with pytest.raises(DiagnosticError, match="would not end"):
        bound(np.ones((700, 200)), [(np.ones((200, 700)), np.ones(700), np.ones(700))])
    with pytest.raises(DiagnosticError, match="too large a matrix"):
        of_tokens("token_similarity", torch.zeros(1, 1025, 2))


def test_what_a_network_has_not_is_known_too() -> None:
    found = measure(network(attnscale=True), "vit", [images()], ["smoothing"], epoch=3)
    assert found == (Measurement(epoch=3, name="smoothing", layer=-1, value=None),)


@pytest.mark.parametrize(
    "backbone",
    [
        pytest.param("swin_tiny_patch4_window7_224", marks=pytest.mark.proof),
        "pvt_tiny",
        "poolformer_s12",
        "lvt_r1",
        "pvt_v2_b0",
    ],
)
def test_other_families_are_looked_into_too(backbone: str) -> None:
    torch.manual_seed(0)
    model = build(resolve(backbone, 64, 3, 10, {}))
    picture = torch.randn(1, 3, 64, 64)
    found = measure(model, backbone, [picture], list(diagnostics.usual()))
    found = tuple(taken for taken in found if taken.layer >= 0)
    layers = {taken.layer for taken in by_name(found, "token_cosine")}
    assert layers == set(range(len(layers)))
    assert all(taken.value is None or math.isfinite(taken.value) for taken in found)
    attends = bool(by_name(found, "attention_deviation"))
    assert attends == (backbone != "poolformer_s12")


def test_looking_changes_nothing_and_draws_nothing() -> None:
    model = network().train()
    before, random = (
        {k: v.clone() for k, v in model.state_dict().items()},
        torch.get_rng_state(),
    )
    found = measure(
        model, "vit", [images(3), images(2)], list(diagnostics.usual()), epoch=7
    )
    assert model.training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not isinstance(
        model.get_submodule("blocks.0.attn"), type(make_editable_type())
    )
    assert {taken.epoch for taken in found} == {7}
    whole = measure(model, "vit", [torch.cat((images(3), images(2)))], ["token_cosine"])
    parts = by_name(found, "token_cosine")
    assert [taken.value for taken in whole] == pytest.approx(
        [taken.value for taken in parts]
    )


def make_editable_type() -> nn.Module:
    """An attention that was made editable."""
    from ablate import families

    model = network()
    family = families.find("vit")
    return make_editable(model, family, family.blocks(model)[0])


def test_unknown_diagnostics_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'token_cosine'"):
        diagnostics.find("token_cosin")


def test_every_diagnostic_says_what_it_is() -> None:
    for diagnostic in diagnostics.catalogue().values():
        assert diagnostic.about
        assert diagnostic.source
        assert diagnostic.axis
        assert diagnostic.form in ("number", "vector", "matrix")
