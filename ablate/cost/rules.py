"""How much each operator computes. One multiply-add counts as one.

Every operator that a traced network runs must be in exactly one of the tables below.
One that is in none is an error, because fvcore would silently count it as nothing.
Names are those of torch's JIT graph.

    MATRIX       convolutions, linear layers, matrix products, attention: in both totals
    OTHER        norms, pooling, Fourier transforms: only in the executed total
    ELEMENTWISE  one operation per output element: in neither total (fvcore's
                 convention), reported beside them
    FREE         moves or creates data, computes nothing

An operator of MATRIX or ELEMENTWISE with a complex result counts four times, and in
OTHER: a product of complex numbers is four real multiply-adds.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

with warnings.catch_warnings():
    # fvcore compiles an unrelated loss on import, with a call that torch deprecates.
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    from fvcore.nn import jit_handles as fvcore_rules
    from fvcore.nn.jit_handles import get_shape

from ablate.errors import UncountedOperator
from ablate.own import registry
from ablate.records.own_parts import OwnOperator

CountingRule = Callable[[list[Any], list[Any]], Any]
Handle = Callable[[list[Any], list[Any]], Counter[str]]


def is_complex(value: Any) -> bool:
    """Whether a traced value is a complex tensor."""
    tensor = value.type()
    if tensor.kind() != "TensorType":
        return False
    dtype = tensor.dtype()
    return dtype is not None and bool(dtype.is_complex)


def elements(value: Any) -> int:
    """Returns the number of elements of a traced tensor; 0 for anything else."""
    shape = get_shape(value)
    if shape is not None:
        return math.prod(shape)
    return 0


def _attention(inputs: list[Any], outputs: list[Any]) -> float:
    """Counts scaled_dot_product_attention: the two products Q K^T and A V.

    Each is batch x heads x N x N x head width.
    """
    query, key, value = (get_shape(x) for x in inputs[:3])
    assert query and key and value
    # The fused call hides its two matrix products from the trace.
    pairs = math.prod(query[:-1]) * key[-2]
    return float(pairs * (query[-1] + value[-1]))


def _attention_activations(inputs: list[Any], outputs: list[Any]) -> int:
    """Counts scores and output, as if the call were not fused.

    The number does not depend on whether the attention call can be fused.
    """
    query = get_shape(inputs[0])
    key = get_shape(inputs[1])
    assert query and key
    return int(math.prod(query[:-1]) * key[-2]) + elements(outputs[0])


def _real_fft(signal: Callable[[list[Any], list[Any]], Any]) -> CountingRule:
    """Counts n log2 n for each real transform of length n.

    See augmented-shortcuts, section 3.2, and its reference on FFTs.
    """

    def counted(inputs: list[Any], outputs: list[Any]) -> float:
        # n is the length of the real signal: the input of a forward transform, but the
        # output of an inverse one, whose input has only n // 2 + 1 frequencies.
        shape = get_shape(signal(inputs, outputs))
        assert shape
        return float(math.prod(shape) * math.log2(max(shape[-1], 1)))

    return counted


def _norm(inputs: list[Any], outputs: list[Any]) -> float:
    """Applies fvcore's layer norm rule: 5 per element, or 4 without an affine map."""
    return float(fvcore_rules.norm_flop_counter(2)(inputs, outputs))


def _rms_norm(inputs: list[Any], outputs: list[Any]) -> float:
    """Counts 4 per element, or 3 without weights.

    A layer norm has one more: it also subtracts the mean.
    """
    weighted = get_shape(inputs[2]) is not None
    return float(elements(inputs[0]) * (4 if weighted else 3))


def _batch_norm(inputs: list[Any], outputs: list[Any]) -> float:
    return float(fvcore_rules.batchnorm_flop_jit(inputs, outputs))


def _upsampling(operations: int) -> CountingRule:
    """Counts operations per output element: one for each sample that it weighs.

    fvcore counts nearest and bilinear neighbours so.
    """
    return lambda inputs, outputs: elements(outputs[0]) * operations


def _roi_align(inputs: list[Any], outputs: list[Any]) -> float:
    """Counts one bilinear sample as four; each output is a mean of some samples.

    See Mask R-CNN, arXiv 1703.06870, section 3. The sampling ratio is the sixth input.
    """
    ratio = max(int(inputs[5].toIValue()), 1)
    return float(elements(outputs[0]) * 4 * ratio**2)


MATRIX: dict[str, CountingRule] = {
    "aten::_convolution": fvcore_rules.conv_flop_jit,
    "aten::addmm": fvcore_rules.addmm_flop_jit,
    "aten::bmm": fvcore_rules.bmm_flop_jit,
    "aten::einsum": fvcore_rules.einsum_flop_jit,
    "aten::linear": fvcore_rules.linear_flop_jit,
    "aten::matmul": fvcore_rules.matmul_flop_jit,
    "aten::mm": fvcore_rules.matmul_flop_jit,
    "aten::scaled_dot_product_attention": _attention,
}

OTHER: dict[str, CountingRule] = {
    "aten::layer_norm": _norm,
    "aten::group_norm": _norm,
    "aten::rms_norm": _rms_norm,
    "aten::batch_norm": _batch_norm,
    "aten::mean": lambda inputs, outputs: elements(inputs[0]),
    "aten::sum": lambda inputs, outputs: elements(inputs[0]),
    "aten::amax": lambda inputs, outputs: elements(inputs[0]),
    "aten::col2im": lambda inputs, outputs: elements(inputs[0]),
    "aten::adaptive_avg_pool2d": lambda inputs, outputs: elements(inputs[0]),
    "aten::avg_pool1d": lambda inputs, outputs: elements(inputs[0]),
    "aten::max_pool2d": lambda inputs, outputs: elements(inputs[0]),
    "aten::linalg_vector_norm": lambda inputs, outputs: elements(inputs[0]),
    "aten::cumsum": lambda inputs, outputs: elements(inputs[0]),
    "aten::avg_pool2d": lambda inputs, outputs: elements(inputs[0]),
    "aten::upsample_nearest2d": _upsampling(1),
    "aten::upsample_bilinear2d": _upsampling(4),
    "aten::_upsample_bicubic2d_aa": _upsampling(16),
    "torchvision::roi_align": _roi_align,
    "aten::fft_rfft": _real_fft(lambda inputs, outputs: inputs[0]),
    "aten::fft_irfft": _real_fft(lambda inputs, outputs: outputs[0]),
}


def _aten(names: str) -> frozenset[str]:
    """Names of operators, as torch's JIT graph writes them."""
    return frozenset(f"aten::{name}" for name in names.split())


ELEMENTWISE = _aten(
    "add add_ sub rsub mul mul_ div div_ neg pow reciprocal sqrt rsqrt exp log log2 ne sin"
    " cos abs addcmul maximum minimum where clamp clamp_ masked_fill gelu relu"
    " relu_ silu silu_ elu softplus sigmoid square tanh softmax log_softmax clamp_min ceil"
    " hardsigmoid hardswish hardswish_ hardtanh hardtanh_ leaky_relu leaky_relu_"
)
FREE = _aten(
    "Int IntImplicit ScalarImplicit NumToTensor _conj arange cat chunk clone conj"
    " constant_pad_nd contiguous copy_ detach dropout dropout_ embedding empty expand"
    " fill_ linspace scatter"
    " expand_as feature_dropout flatten flip full full_like gather im2col imag index"
    " index_select lift_fresh meshgrid movedim narrow new_empty new_full new_ones"
    " new_zeros numpy_T ones ones_like pad permute real repeat repeat_interleave reshape"
    " reshape_as resolve_conj roll select size slice split split_with_sizes squeeze"
    " squeeze_ stack t tensor tile to"
    " transpose type_as unbind unflatten unsqueeze unsqueeze_ view view_as zeros"
    " zeros_like"
)


def _matrix_handle(name: str, rule: CountingRule) -> Handle:
    def handle(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
        counted = rule(inputs, outputs)
        number = float(
            sum(counted.values()) if isinstance(counted, Counter) else counted
        )
        if is_complex(outputs[0]):
            # Products in the Fourier domain belong to circulant projections, which the
            # papers count by a formula of their own: keep them out of `matrix`.
            return Counter({f"other/complex {name}": 4 * number})
        fused = name == "aten::scaled_dot_product_attention"
        if fused:
            activations = _attention_activations(inputs, outputs)
        else:
            activations = elements(outputs[0])
        return Counter({f"matrix/{name}": number, "activations/": activations})

    return handle


def _other_handle(name: str, rule: CountingRule) -> Handle:
    return lambda inputs, outputs: Counter({f"other/{name}": rule(inputs, outputs)})


def _elementwise_handle(name: str) -> Handle:
    def handle(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
        if is_complex(outputs[0]):
            return Counter({f"other/complex {name}": 4 * elements(outputs[0])})
        return Counter({f"elementwise/{name}": elements(outputs[0])})

    return handle


def handles() -> dict[str, Handle | None]:
    """Returns a handle for fvcore, by operator.

    Each handle returns a counter with the key `class/operator`, in MATRIX also
    `activations/`. It is None for an operator that computes nothing.
    """
    by_operator: dict[str, Handle | None] = {
        name: _matrix_handle(name, rule) for name, rule in MATRIX.items()
    }
    by_operator |= {name: _other_handle(name, rule) for name, rule in OTHER.items()}
    by_operator |= {name: _elementwise_handle(name) for name in ELEMENTWISE}
    by_operator |= dict.fromkeys(FREE)
    for name, operator in registry.of_kind("operator").items():
        by_operator[name] = _other_handle(name, partial(_own_count, operator))
    return by_operator


def _own_count(operator: OwnOperator, inputs: list[Any], outputs: list[Any]) -> float:
    """Returns the multiply-adds of an operator by the rule of a user.

    Raises:
        UncountedOperator: the rule fails, or does not return a number.
    """
    given = [get_shape(value) for value in inputs]
    made = [get_shape(value) for value in outputs]
    try:
        number = float(operator.count(given, made))
    except Exception as error:
        raise UncountedOperator(
            f"the rule for {operator.name} fails with the shapes {given} and {made}:"
            f" {type(error).__name__}: {error}"
        ) from error
    if not 0 <= number < math.inf:
        raise UncountedOperator(f"the rule for {operator.name} returns {number}")
    return number
