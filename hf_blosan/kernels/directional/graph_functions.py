"""Directional attention as functions of ONNX, in standard operators; graph.py says what they compute.

They are written for ONNX because torch.export traces nested loops and branches again and again, which takes minutes.

Here is the expansion, and the choice between it and pairs of tokens, which are in graph_pairs.py.

Shapes: B rows, N tokens, D features; S terms of the expansion, M chunks of R tokens, V = 2 sums, of weighted values
and of weights; X: the last dimensions in one.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx.numpy_helper import from_array
from onnx_ir.passes import common as passes
from onnxscript import graph, script
from onnxscript import opset18 as op
from onnxscript.values import OnnxFunction

from .graph import DOMAIN, LEAST
from .graph_pairs import (
    OWN,
    after,
    all_pairs,
    anywhere,
    attend,
    before,
    elsewhere,
    of,
    pairs_at_once,
    pairs_in_steps,
    pairs_in_window,
)

# Terms of all tokens in an average step of the expansion's loop, and the fewest and most tokens of a row in it. More
# leave the cache, fewer have more steps.
NUMBERS, SMALLEST, LARGEST = 384, 8, 32
# Features whose range needs more terms, h = 2.8 c at c = 5, are left to pairs: float32 has errors of 1e-4 there.
MOST_TERMS = 40
# With larger c terms cancel far more: all features are left to pairs.
LARGEST_SCALE = 5.0
# Coefficients below this part of the largest are left out.
NEGLIGIBLE = 1e-7
# All pairs take as long as the expansion with t terms if each of B rows has PAIRS_PER_TERM (t + FIXED_TERMS +
# TERMS_OF_STEPS / B) tokens; the last is the time that the operators of a step take whatever their size.
PAIRS_PER_TERM = 3.0
FIXED_TERMS = 3.0
TERMS_OF_STEPS = 7.0
# Fewer than six terms are for very small ranges only: sentences for which six do not pay are not asked for a range.
SHORT, SHORT_ALONE = int(PAIRS_PER_TERM * (6 + FIXED_TERMS)), int(PAIRS_PER_TERM * TERMS_OF_STEPS)
SMALLEST_RANGE = 1e-2
INFINITY = float("inf")

# Chebyshev nodes: so many that the coefficients of the widest range fade.
_DEGREES = np.arange(64.0)
_ANGLES = (_DEGREES + 0.5) * (math.pi / len(_DEGREES))
_PARTS = np.where(_DEGREES > 0, 2, 1)[:, None] / len(_DEGREES)
DEGREES, COSINES = from_array(_DEGREES), from_array(np.cos(_ANGLES))
_TRANSFORM = _PARTS * np.cos(np.outer(_DEGREES, _ANGLES))
TRANSFORM = from_array(_TRANSFORM)
# Chebyshev polynomials T_s in the basis of `products`: with m the highest bit of s and u_m = 2 T_m,
# T_s = u_m T_(s-m) - T_(2m-s), and T_m = u_m / 2.
_BASIS = np.zeros((len(_DEGREES), len(_DEGREES)))
_BASIS[0, 0] = 1.0
for _s in range(1, len(_DEGREES)):
    _m = 1 << (_s.bit_length() - 1)
    _BASIS[_s, _m:] = _BASIS[_s - _m, : len(_DEGREES) - _m]
    _BASIS[_s] = _BASIS[_s] - _BASIS[2 * _m - _s] if _s > _m else _BASIS[_s] / 2
BASIS, TRANSPOSED_BASIS = from_array(_BASIS), from_array(np.ascontiguousarray(_BASIS.T))
_ONES = np.ones((LARGEST, LARGEST), np.float32)
EARLIER, LATER = from_array(np.tril(_ONES, -1)), from_array(np.triu(_ONES, 1))


@script(OWN, default_opset=op)
def divide(numerators, denominators):
    return numerators / op.Max(denominators, op.Constant(value_float=LEAST))


@script(OWN, default_opset=op)
def centred(keys, queries, real):
    """Shifts (B, 1, D), which added to keys and subtracted from queries fit both into the smallest [-h, h] and change
    no sum of a key and a query; and h of each feature in all rows, (D)."""
    padding_BN1 = op.Where(op.Unsqueeze(real, [2]), 0.0, INFINITY)
    low_key = op.ReduceMin(keys + padding_BN1, [1])
    low_query = op.ReduceMin(queries + padding_BN1, [1])
    high_key = op.ReduceMax(keys - padding_BN1, [1])
    high_query = op.ReduceMax(queries - padding_BN1, [1])
    widths = op.Max(high_key - low_key, high_query - low_query)
    half_ranges = op.Max(widths, op.Abs(high_key + high_query), op.Abs(low_key + low_query)) / 2.0
    shifts = op.Max(-half_ranges - low_key, high_query - half_ranges)
    known = high_key >= low_key  # a row without tokens has no range
    shifts = op.Where(known, shifts, 0.0)
    return shifts, op.ReduceMax(op.Where(known, half_ranges, 0.0), [0, 1], keepdims=0)


@script(OWN, default_opset=op)
def coefficients_of(half_range, scale: float):
    """The tilt, the coefficients C of its interpolation, and how many of them count: float64."""
    degrees = op.Constant(value=DEGREES)
    transform = op.Constant(value=TRANSFORM)
    cosines = op.Constant(value=COSINES)
    half = op.CastLike(half_range, cosines)
    tilt = op.Tanh(half * 2.0 / scale) * scale / (half * 2.0)
    sums = half * (op.Unsqueeze(cosines, [1]) + cosines)
    weights = op.Exp(op.Tanh(sums / scale) * scale - tilt * sums)
    coefficients = op.MatMul(op.MatMul(transform, weights), op.Transpose(transform))
    sizes = op.ReduceMax(op.Abs(coefficients), [0], keepdims=0)  # the matrix is symmetric
    counts = sizes > op.ReduceMax(sizes, keepdims=0) * NEGLIGIBLE
    terms = op.ReduceMax(op.Where(counts, degrees, 0.0), keepdims=0) + 1.0
    return tilt, coefficients, terms


@script(OWN, default_opset=op)
def in_chunks(x, chunks, size):
    """(B, N) -> (M, R, B), filled up with zeros."""
    missing = chunks * size - op.Shape(x, start=1)
    padded = op.Pad(x, op.Concat([0, 0, 0], missing, axis=0))
    return op.Transpose(op.Reshape(padded, op.Concat([0], chunks, size, axis=0)), perm=[1, 2, 0])


@script(OWN, default_opset=op)
def products(doubled, number, several, many):
    """The first 4 G functions of the basis at keys and at queries, (1, G, 4, L) each.

    Function s is the product of u_m = 2 T_m(x) over the bits m of s, and u_2m = u_m^2 - 2. T_s itself, which is
    Cos(s Acos(x)), would take ten times as long.

    Args: 2x of both, (2, 1, 1, L); G, and whether it is above 1 and above 4.
    """
    two, zero = op.Constant(value_float=2.0), op.Constant(value_ints=[0])
    ones = op.Expand(op.Constant(value_float=1.0), op.Shape(doubled))
    second = doubled * doubled - two
    first = op.Concat(ones, doubled, second, doubled * second, axis=2)
    if several:
        fourth = second * second - two
        eighth = fourth * fourth - two
        few = op.Concat(ones, fourth, eighth, fourth * eighth, axis=1)
        if many:
            sixteenth = eighth * eighth - two
            more = op.Concat(few, few * sixteenth, axis=1)
            most = op.Concat(more, more * (sixteenth * sixteenth - two), axis=1)
            groups = op.Slice(most, zero, number, [1])
        else:
            groups = op.Slice(few, zero, number, [1])
        key_groups, query_groups = op.Split(groups, axis=0, num_outputs=2)
        key_first, query_first = op.Split(first, axis=0, num_outputs=2)
        keys = key_groups * key_first
        queries = query_groups * query_first
    else:
        keys, queries = op.Split(first, axis=0, num_outputs=2)
    return keys, queries


@script(OWN, default_opset=op)
def quotients(sums_RVBD):
    """The means, (R, 1, B, D)."""
    numerators, denominators = op.Split(sums_RVBD, axis=1, num_outputs=2)
    return divide(numerators, denominators)


@script(OWN, default_opset=op)
def both_sums(sums_RVBD):
    return op.Identity(sums_RVBD)


def prefix_sums(direction: str, triangle, reverse: int, result: OnnxFunction) -> OnnxFunction:
    """The sums over the keys before or after each query, (V, B, N, D), or what `result` makes of them.

    A step takes one chunk of all rows that reach it.
    """
    directions = [reverse, reverse, reverse, reverse]

    @script(of(direction), default_opset=op)
    def sums(keys, queries, values, real, shifts_B1D, half_range, slope, coefficients_SS):
        rows, length = op.Shape(keys, end=1), op.Shape(keys, start=1, end=2)
        width, terms = op.Shape(keys, start=2), op.Shape(coefficients_SS, end=1)

        # Rows in order of their ends: those that reach a chunk come first.
        positions_N = op.Range(0, op.Squeeze(length), 1)
        ends_B = op.ReduceMax(op.CastLike(real, length) * (positions_N + 1), [1], keepdims=0)
        sorted_B, order_B = op.TopK(ends_B, rows)
        tokens = op.Max(op.ReduceSum(ends_B), 1) * terms
        size = op.Max(op.Min(length * NUMBERS / tokens, LARGEST), SMALLEST)
        chunks = (length + (size - 1)) / size
        earlier_RR = op.Slice(op.CastLike(op.Constant(value=triangle), keys), [0, 0], op.Concat(size, size, axis=0))
        starts_M = op.Range(0, op.Squeeze(length), op.Squeeze(size))
        counts_M1 = op.Max(op.ReduceSum(op.CastLike(sorted_B > op.Unsqueeze(starts_M, [1]), length), [1]), 1)
        places_BN = op.Unsqueeze(order_B, [1]) * length + positions_N
        places_M1RB = op.Unsqueeze(in_chunks(places_BN, chunks, size), [1])
        places_M2RB = op.Concat(places_M1RB, places_M1RB + rows * length, axis=1)
        real_BN = op.CastLike(op.Gather(real, order_B), keys)
        real_MRB1 = op.Unsqueeze(in_chunks(real_BN, chunks, size), [3])

        to_tokens, to_terms = op.Concat([-1], width, axis=0), op.Concat(terms, [-1], axis=0)
        to_rows, to_state = op.Concat(terms, size, [-1], axis=0), op.Concat(terms, [1, -1], axis=0)
        to_queries, to_sums = op.Concat(terms, size, [1, -1], axis=0), op.Concat(terms, size, [2, -1], axis=0)
        to_both = op.Concat(size, [2, -1], axis=0)
        groups = terms / 4
        several, many = op.Squeeze(groups) > 1, op.Squeeze(groups) > 4
        # Of a known type: in place of a plain number, each step would have one more operator.
        zero, one, two = op.Constant(value_ints=[0]), op.Constant(value_ints=[1]), op.Constant(value_ints=[2])
        low, high = op.Constant(value_float=-2.0), op.Constant(value_float=2.0)
        all_2TD = op.Reshape(op.Concat(keys, queries, axis=0), to_tokens)
        values_TD = op.Reshape(values, to_tokens)
        doubling = 2.0 / half_range
        shifts_11BD = op.Unsqueeze(op.Squeeze(op.Gather(shifts_B1D, order_B), [1]), [0, 1])
        shifts_21BD = op.Concat(shifts_11BD, -shifts_11BD, axis=0)
        steepness = slope * half_range * 0.5
        ones_1S = op.Expand(op.CastLike(1.0, keys), op.Concat([1], terms, axis=0))
        ones_1R = op.Expand(op.CastLike(1.0, keys), op.Concat([1], size, axis=0))
        start = op.Expand(op.CastLike(0.0, keys), op.Concat(terms, [2], rows, width, axis=0))
        none_M1 = op.Expand([0], op.Shape(counts_M1))
        missing_M1 = rows - counts_M1
        before_MX = op.Expand([0, 0, 0, 0, 0, 0], op.Concat(chunks, [6], axis=0))
        margins_MX = op.Concat(before_MX, missing_M1, none_M1, axis=1)

        @graph()
        def step(state_SVBD, places_2RB, real_RB1, count, margins):
            places = op.Slice(places_2RB, zero, count, two)
            moved_2RBD = op.Gather(all_2TD, places) + op.Slice(shifts_21BD, zero, count, two)
            doubled_2RBD = op.Clip(moved_2RBD * doubling, low, high)  # padding may lie anywhere
            keys_1GFL, queries_1GFL = products(op.Reshape(doubled_2RBD, [2, 1, 1, -1]), groups, several, many)
            key_terms = op.MatMul(coefficients_SS, op.Reshape(keys_1GFL, to_terms))
            weights_1RBD = op.Exp(op.Slice(doubled_2RBD, zero, one) * steepness) * op.Slice(real_RB1, zero, count, one)
            weighted_1RBD = weights_1RBD * op.Gather(values_TD, op.Slice(places, zero, one))
            both_RVX = op.Reshape(op.Concat(weighted_1RBD, weights_1RBD, axis=2), to_both)
            terms_SRX = op.Reshape(op.Reshape(key_terms, to_queries) * both_RVX, to_rows)
            before_S1X = op.Reshape(op.Slice(state_SVBD, zero, count, two), to_state)
            sums_SRVX = op.Reshape(op.MatMul(earlier_RR, terms_SRX) + before_S1X, to_sums)
            summands = op.Reshape(sums_SRVX * op.Reshape(queries_1GFL, to_queries), to_terms)
            # onnxruntime's ReduceSum over the first dimension takes four to nine times as long.
            found_RVBD = result(op.Reshape(op.MatMul(ones_1S, summands), op.Concat(size, two, count, width, axis=0)))
            added = op.Reshape(op.MatMul(ones_1R, terms_SRX), op.Concat(terms, two, count, width, axis=0))
            # In the same shape: onnxruntime before 1.24 asks how many dimensions a result has, and sees it here.
            state = op.Reshape(state_SVBD + op.Pad(added, margins), [0, 0, 0, -1])
            return state, op.Pad(op.Reshape(found_RVBD, [0, 0, 0, -1]), margins)

        end, found_MRVBD = op.Scan(
            start,
            places_M2RB,
            real_MRB1,
            counts_M1,
            margins_MX,
            body=step,
            num_scan_inputs=4,
            scan_input_directions=directions,
            scan_output_directions=[reverse],
        )
        # Each token from its place in what was found.
        kinds = op.Shape(found_MRVBD, start=2, end=3)
        place_B1 = op.Unsqueeze(op.ScatterElements(order_B, order_B, op.Range(0, op.Squeeze(rows), 1)), [1])
        first_BN = positions_N * kinds * rows + place_B1
        kinds_V11 = op.Reshape(op.Range(0, op.Squeeze(kinds), 1), [-1, 1, 1])
        return op.Gather(op.Reshape(found_MRVBD, to_tokens), first_BN + kinds_V11 * rows)

    return sums


quotients_before = prefix_sums("forward", EARLIER, 0, quotients)
quotients_after = prefix_sums("backward", LATER, 1, quotients)
sums_before = prefix_sums("diagonal", EARLIER, 0, both_sums)
sums_after = prefix_sums("full", LATER, 1, both_sums)


@script(OWN, default_opset=op)
def sums_elsewhere(keys, queries, values, real, shifts_B1D, half_range, slope, coefficients_SS):
    first = sums_before(keys, queries, values, real, shifts_B1D, half_range, slope, coefficients_SS)
    return first + sums_after(keys, queries, values, real, shifts_B1D, half_range, slope, coefficients_SS)


@script(OWN, default_opset=op)
def as_they_are(quotients_1BND, keys, queries, values, real, shifts_B1D, slope, scale: float):
    """The arguments are those of :func:`with_own`, in whose place this stands."""
    return op.Squeeze(quotients_1BND, [0])


@script(OWN, default_opset=op)
def without_own(sums_VBND, keys, queries, values, real, shifts_B1D, slope, scale: float):
    """As :func:`as_they_are`."""
    return divide(op.Gather(sums_VBND, 0), op.Gather(sums_VBND, 1))


@script(OWN, default_opset=op)
def with_own(sums_VBND, keys, queries, values, real, shifts_B1D, slope, scale: float):
    """The token of the query itself is a key, too."""
    real_BN1 = op.Unsqueeze(op.CastLike(real, keys), [2])
    own = op.Exp(op.Tanh((keys + queries) / scale) * scale - slope * (queries - shifts_B1D)) * real_BN1
    return divide(op.Gather(sums_VBND, 0) + own * values, op.Gather(sums_VBND, 1) + own)


def expansion(direction: str, sums: OnnxFunction, finish: OnnxFunction) -> OnnxFunction:
    """Shifts by :func:`centred`, the rest by :func:`coefficients_of`."""

    @script(of(direction), default_opset=op)
    def expanded(keys, queries, values, real, shifts_B1D, half_range, tilt, coefficients, terms, scale: float):
        number = op.Reshape(op.CastLike(op.Ceil(terms / 4.0) * 4.0, op.Shape(keys)), [1])
        both = op.Concat(number, number, axis=0)
        # Transposed in advance: some onnxruntimes fuse a Transpose into a product that they lack in float64.
        left = op.Slice(op.Constant(value=TRANSPOSED_BASIS), [0, 0], both)
        right = op.Slice(op.Constant(value=BASIS), [0, 0], both)
        counted_SS = op.MatMul(left, op.MatMul(op.Slice(coefficients, [0, 0], both), right))
        slope = op.CastLike(tilt, keys)
        found = sums(keys, queries, values, real, shifts_B1D, half_range, slope, op.CastLike(counted_SS, keys))
        return finish(found, keys, queries, values, real, shifts_B1D, slope, scale=scale)

    return expanded


def attention(direction: str, pairs: OnnxFunction, expanded: OnnxFunction) -> OnnxFunction:
    """By the expansion where it is exact and faster, else pair by pair: decided when the graph runs.

    ``widest`` is the half range of a feature from which the expansion is not exact.
    """

    @script(of(direction), default_opset=op)
    def attention(keys, queries, values, real, scale: float, widest: float):
        # Of the mask, which is the same in all layers: onnxruntime takes these sizes once.
        rows, length = op.Squeeze(op.Shape(real, end=1)), op.Squeeze(op.Shape(real, start=1))
        if op.Size(real) > rows * SHORT + SHORT_ALONE:
            shifts_B1D, half_ranges_D = centred(keys, queries, real)
            wide_D = half_ranges_D > widest
            ranges_D = op.Where(wide_D, 0.0, half_ranges_D)
            half_range = op.Max(op.ReduceMax(ranges_D, keepdims=0), SMALLEST_RANGE)
            tilt, coefficients, terms = coefficients_of(half_range, scale=scale)
            narrow_tokens = op.ReduceMean(op.Where(wide_D, 0.0, op.CastLike(length, keys)), keepdims=0)
            fixed_terms = TERMS_OF_STEPS / op.CastLike(rows, terms) + FIXED_TERMS
            if op.CastLike(narrow_tokens, terms) > (terms + fixed_terms) * PAIRS_PER_TERM:
                narrow = expanded(
                    keys, queries, values, real, shifts_B1D, half_range, tilt, coefficients, terms, scale=scale
                )
                if op.ReduceMax(half_ranges_D, keepdims=0) > widest:
                    places_W = op.Squeeze(op.NonZero(wide_D), [0])
                    wide_keys = op.Gather(keys, places_W, axis=2)
                    wide_queries = op.Gather(queries, places_W, axis=2)
                    wide_values = op.Gather(values, places_W, axis=2)
                    exact = pairs(wide_keys, wide_queries, wide_values, real, scale=scale)
                    long = op.ScatterElements(narrow, op.Expand(places_W, op.Shape(exact)), exact, axis=2)
                else:
                    long = op.Identity(narrow)
            else:
                long = pairs(keys, queries, values, real, scale=scale)
            found = long
        else:
            found = pairs(keys, queries, values, real, scale=scale)
        return found

    return attention


# Which keys a query sees, the sums over them, and what is made of the sums.
PARTS = {
    "forward": (before, quotients_before, as_they_are),
    "backward": (after, quotients_after, as_they_are),
    "diagonal": (elsewhere, sums_elsewhere, without_own),
    "full": (anywhere, sums_elsewhere, with_own),
}


def _functions() -> list[OnnxFunction]:
    found = [divide, attend, centred, coefficients_of, in_chunks, products, quotients, both_sums]
    found += [quotients_before, quotients_after, sums_before, sums_after, sums_elsewhere]
    found += [as_they_are, without_own, with_own]
    for direction, (sees, sums, finish) in PARTS.items():
        at_once, in_steps = pairs_at_once(direction, sees), pairs_in_steps(direction, sees)
        pairs, expanded = all_pairs(direction, at_once, in_steps), expansion(direction, sums, finish)
        found += [sees, at_once, in_steps, pairs, expanded, attention(direction, pairs, expanded)]
        found.append(pairs_in_window(direction, sees))
    return found


def widest_range(scale: float) -> float:
    """The half range from which the expansion needs more than ``MOST_TERMS`` terms."""

    def terms(half: float) -> int:  # as in coefficients_of
        tilt = np.tanh(2 * half / scale) * scale / (2 * half)
        sums = half * np.add.outer(np.cos(_ANGLES), np.cos(_ANGLES))
        sizes = np.abs(_TRANSFORM @ np.exp(np.tanh(sums / scale) * scale - tilt * sums) @ _TRANSFORM.T).max(0)
        return np.flatnonzero(sizes > sizes.max() * NEGLIGIBLE)[-1] + 1

    low, high = SMALLEST_RANGE, 10 * scale
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if terms(middle) <= MOST_TERMS else (low, middle)
    return low


def add_functions(model: ir.Model) -> None:
    """Put the functions in the place of the operators that call them."""
    for node in model.graph.all_nodes():
        if node.domain.startswith(f"{DOMAIN}.") and node.op_type == "attention":
            scale = node.attributes["scale"].as_float()
            widest = widest_range(scale) if scale <= LARGEST_SCALE else 0.0
            node.attributes["widest"] = ir.AttrFloat32("widest", widest)
    for function in _functions():
        added = ir.from_proto(function.to_function_proto())
        model.functions[added.identifier()] = added
    passes.InlinePass()(model)
    passes.RemoveUnusedOpsetsPass()(model)
