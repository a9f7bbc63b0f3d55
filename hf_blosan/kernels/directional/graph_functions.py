"""Directional attention as functions of ONNX, in standard operators; graph.py says what they compute.

They are written for ONNX because torch.export traces nested loops and branches again and again, which takes minutes.

Shapes: B rows, N tokens, D features; Q queries and K keys of a step of pairs; S terms of the expansion, M chunks of R
tokens, V = 2 sums, of weighted values and of weights.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx.numpy_helper import from_array
from onnx_ir.passes import common as passes
from onnxscript import graph, script
from onnxscript import opset18 as op
from onnxscript.values import OnnxFunction, Opset

from .graph import DOMAIN

OWN = Opset(DOMAIN, 1)


def of(direction: str) -> Opset:
    """The domain of a direction: a function has the same name in each."""
    return Opset(f"{DOMAIN}.{direction}", 1)


# Numbers of all pairs, with every feature, up to which there is no loop over queries: 4 MB.
AT_ONCE = 1 << 20
# Queries of a step of that loop: the best of 1 to 64 from 1 x 12 to 2 x 256.
QUERIES = 4
# Tokens of a step of the expansion's loop. More leave the cache, fewer have more steps.
CHUNK = 8
# Features whose range needs more terms, h = 2.8 c at c = 5, are left to pairs: float32 has errors of 1e-4 there.
MOST_TERMS = 40
# Coefficients below this part of the largest are left out.
NEGLIGIBLE = 1e-7
# All pairs take as long as the expansion with t terms if there are PAIRS_PER_TERM (t + FIXED_TERMS) tokens.
PAIRS_PER_TERM = 3.0
FIXED_TERMS = 3.0
# Fewer than six terms are for very small ranges only: sentences for which six do not pay are not asked for a range.
SHORT = int(PAIRS_PER_TERM * (6 + FIXED_TERMS))
SMALLEST_RANGE = 1e-2
INFINITY = float("inf")
# Sizes of reshaped dimensions: lists in functions hold numbers only.
QUERIES_BY_SIZE, STEPS_BY_QUERIES, CHUNK_BY_SIZE = [QUERIES, -1], [-1, QUERIES], [CHUNK, -1]

# Chebyshev nodes: so many that the coefficients of the widest range fade.
_DEGREES = np.arange(64.0)
_ANGLES = (_DEGREES + 0.5) * (math.pi / len(_DEGREES))
_PARTS = np.where(_DEGREES > 0, 2, 1)[:, None] / len(_DEGREES)
DEGREES, COSINES = from_array(_DEGREES), from_array(np.cos(_ANGLES))
_TRANSFORM = _PARTS * np.cos(np.outer(_DEGREES, _ANGLES))
TRANSFORM = from_array(_TRANSFORM)
_ONES = np.ones((CHUNK, CHUNK), np.float32)
EARLIER, LATER = from_array(np.tril(_ONES, -1)), from_array(np.triu(_ONES, 1))


@script(OWN, default_opset=op)
def divide(numerators, denominators):
    return numerators / op.Where(denominators > 0.0, denominators, 1.0)


@script(OWN, default_opset=op)
def attend(keys_BKD, queries_BQD, values_BKD, visible_BQK, scale: float):
    """The equation for a few queries; keys and queries are divided by c."""
    sums_BQKD = op.Unsqueeze(queries_BQD, [2]) + op.Unsqueeze(keys_BKD, [1])
    # `Where` takes four times as long.
    weights_BQKD = op.Exp(op.Tanh(sums_BQKD) * scale) * op.Unsqueeze(op.CastLike(visible_BQK, keys_BKD), [3])
    numerators_BQD = op.ReduceSum(weights_BQKD * op.Unsqueeze(values_BKD, [1]), [2], keepdims=0)
    return divide(numerators_BQD, op.ReduceSum(weights_BQKD, [2], keepdims=0))


@script(OWN, default_opset=op)
def before(distance):
    return distance < 0


@script(OWN, default_opset=op)
def after(distance):
    return distance > 0


@script(OWN, default_opset=op)
def elsewhere(distance):
    return op.Not(distance == 0)


@script(OWN, default_opset=op)
def anywhere(distance):
    return distance == distance


def pairs_at_once(direction: str, sees: OnnxFunction) -> OnnxFunction:
    """All pairs."""

    @script(of(direction), default_opset=op)
    def at_once(keys, queries, values, real, scale: float):
        rows_N = op.Range(0, op.Squeeze(op.Shape(keys, start=1, end=2)), 1)
        visible_BNN = op.And(sees(rows_N - op.Unsqueeze(rows_N, [1])), op.Unsqueeze(real, [1]))
        return attend(keys / scale, queries / scale, values, visible_BNN, scale=scale)

    return at_once


def pairs_in_steps(direction: str, sees: OnnxFunction) -> OnnxFunction:
    """All pairs, a few queries at a time."""

    @script(of(direction), default_opset=op)
    def in_steps(keys, queries, values, real, scale: float):
        length = op.Shape(keys, start=1, end=2)
        steps = (length + (QUERIES - 1)) / QUERIES
        padded = op.Pad(queries / scale, op.Concat([0, 0, 0, 0], steps * QUERIES - length, [0], axis=0))
        queries_BMQD = op.Reshape(padded, op.Concat([0], steps, QUERIES_BY_SIZE, axis=0))
        rows_MQ = op.Reshape(op.Range(0, op.Squeeze(steps * QUERIES), 1), STEPS_BY_QUERIES)
        columns_K = op.Range(0, op.Squeeze(length), 1)
        scaled_BKD = keys / scale
        real_B1K = op.Unsqueeze(real, [1])

        @graph()
        def step(queries_BQD, rows_Q):
            visible_BQK = op.And(sees(columns_K - op.Unsqueeze(rows_Q, [1])), real_B1K)
            return attend(scaled_BKD, queries_BQD, values, visible_BQK, scale=scale)

        found_BMQD = op.Scan(
            queries_BMQD, rows_MQ, body=step, num_scan_inputs=2, scan_input_axes=[1, 0], scan_output_axes=[1]
        )
        found = op.Reshape(found_BMQD, op.Concat([0], steps * QUERIES, [-1], axis=0))
        return op.Slice(found, [0], length, [1])

    return in_steps


def all_pairs(direction: str, at_once: OnnxFunction, in_steps: OnnxFunction) -> OnnxFunction:
    """All pairs, at once if they are few: decided when the graph runs."""

    @script(of(direction), default_opset=op)
    def pairs(keys, queries, values, real, scale: float):
        if op.Size(keys) * op.Squeeze(op.Shape(keys, start=1, end=2)) <= AT_ONCE:
            found = at_once(keys, queries, values, real, scale=scale)
        else:
            found = in_steps(keys, queries, values, real, scale=scale)
        return found

    return pairs


def pairs_in_window(direction: str, sees: OnnxFunction) -> OnnxFunction:
    """The pairs of a window: the keys of a few queries are those from `reach` before the first to `reach` after the
    last, among which visibility depends on distances alone."""

    @script(of(direction), default_opset=op)
    def window(keys, queries, values, real, scale: float, window: int):
        length = op.Shape(keys, start=1, end=2)
        reach = op.Min(length, window)
        behind = reach + (length + (QUERIES - 1)) / QUERIES * QUERIES - length
        margins = op.Concat([0], reach, [0, 0], behind, [0], axis=0)
        all_keys = op.Pad(keys / scale, margins)
        all_queries = op.Pad(queries / scale, margins)
        all_values = op.Pad(values, margins)
        all_real = op.Pad(real, op.Concat([0], reach, [0], behind, axis=0))
        columns_K = op.Range(0, op.Squeeze(reach * 2 + QUERIES), 1)
        inner_Q = op.Range(0, QUERIES, 1) + reach
        distances_QK = columns_K - op.Unsqueeze(inner_Q, [1])
        near_QK = op.And(sees(distances_QK), op.Abs(distances_QK) <= window)
        starts_M = op.Range(0, op.Squeeze(length), QUERIES)

        @graph()
        def step(places_K):
            visible_BQK = op.And(near_QK, op.Unsqueeze(op.Gather(all_real, places_K, axis=1), [1]))
            queries_BQD = op.Gather(all_queries, op.Gather(places_K, inner_Q), axis=1)
            keys_BKD = op.Gather(all_keys, places_K, axis=1)
            values_BKD = op.Gather(all_values, places_K, axis=1)
            return attend(keys_BKD, queries_BQD, values_BKD, visible_BQK, scale=scale)

        found_BMQD = op.Scan(
            op.Unsqueeze(starts_M, [1]) + columns_K, body=step, num_scan_inputs=1, scan_output_axes=[1]
        )
        found = op.Reshape(found_BMQD, op.Concat([0, -1], op.Shape(keys, start=2), axis=0))
        return op.Slice(found, [0], length, [1])

    return window


@script(OWN, default_opset=op)
def centred(keys, queries, real):
    """Keys and queries, shifted against each other for each feature so that both fit into the smallest [-h, h]; and h
    of each feature in all rows, (D). No sum of a key and a query changes."""
    real_BN1 = op.Unsqueeze(real, [2])
    low_key = op.ReduceMin(op.Where(real_BN1, keys, INFINITY), [1])
    low_query = op.ReduceMin(op.Where(real_BN1, queries, INFINITY), [1])
    high_key = op.ReduceMax(op.Where(real_BN1, keys, -INFINITY), [1])
    high_query = op.ReduceMax(op.Where(real_BN1, queries, -INFINITY), [1])
    widths = op.Max(high_key - low_key, high_query - low_query)
    half_ranges = op.Max(widths, op.Abs(high_key + high_query), op.Abs(low_key + low_query)) / 2.0
    shifts = op.Max(-half_ranges - low_key, high_query - half_ranges)
    known = op.ReduceMax(op.CastLike(real_BN1, keys), [1]) > 0.0  # a row without tokens has no range
    shifts = op.Where(known, shifts, 0.0)
    return keys + shifts, queries - shifts, op.ReduceMax(op.Where(known, half_ranges, 0.0), [0, 1], keepdims=0)


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
def in_chunks(x, chunks):
    """(V, B, N, D) -> (M, V, B, R, D), filled up with zeros."""
    missing = chunks * CHUNK - op.Shape(x, start=2, end=3)
    padded = op.Pad(x, op.Concat([0, 0, 0, 0, 0, 0], missing, [0], axis=0))
    return op.Transpose(op.Reshape(padded, op.Concat([0, 0], chunks, CHUNK_BY_SIZE, axis=0)), perm=[2, 0, 1, 3, 4])


def prefix_sums(direction: str, triangle, reverse: int) -> OnnxFunction:
    """The sums over the keys before or after each query, (M, V, B, R, D)."""
    directions = [reverse, reverse, reverse]

    @script(of(direction), default_opset=op)
    def sums(coefficients, degrees, key_angles, query_angles, weighted):
        earlier_RR = op.CastLike(op.Constant(value=triangle), weighted)
        sizes = op.Shape(weighted, start=2)
        shape_SBRD = op.Concat(op.Shape(degrees, end=1), sizes, axis=0)
        states = op.Concat(op.Shape(weighted, start=1, end=3), [1], op.Shape(weighted, start=4), axis=0)
        start = op.Expand(op.CastLike(0.0, weighted), op.Concat(op.Shape(degrees, end=1), states, axis=0))

        @graph()
        def step(state_SVB1D, keys_1BRD, queries_1BRD, weighted_VBRD):
            # cos(s arccos x) = T_s(x), in one row for each s
            key_terms = op.MatMul(coefficients, op.Cos(degrees * op.Reshape(keys_1BRD, [1, -1])))
            query_terms = op.Cos(degrees * op.Reshape(queries_1BRD, [1, -1]))
            terms_SVBRD = op.Unsqueeze(op.Reshape(key_terms, shape_SBRD), [1]) * weighted_VBRD
            sums_SVBRD = op.MatMul(earlier_RR, terms_SVBRD) + state_SVB1D
            queries_S1BRD = op.Unsqueeze(op.Reshape(query_terms, shape_SBRD), [1])
            found_VBRD = op.ReduceSum(sums_SVBRD * queries_S1BRD, [0], keepdims=0)
            return state_SVB1D + op.ReduceSum(terms_SVBRD, [3]), found_VBRD

        end, found = op.Scan(
            start,
            key_angles,
            query_angles,
            weighted,
            body=step,
            num_scan_inputs=3,
            scan_input_directions=directions,
            scan_output_directions=[reverse],
        )
        return found

    return sums


sums_before = prefix_sums("forward", EARLIER, 0)
sums_after = prefix_sums("backward", LATER, 1)


@script(OWN, default_opset=op)
def sums_elsewhere(coefficients, degrees, key_angles, query_angles, weighted):
    first = sums_before(coefficients, degrees, key_angles, query_angles, weighted)
    return first + sums_after(coefficients, degrees, key_angles, query_angles, weighted)


@script(OWN, default_opset=op)
def without_own(sums_VBND, keys, queries, values, real_BN1, tilt, scale: float):
    """The sums are all; the arguments are those of :func:`with_own`, in whose place this stands."""
    return divide(op.Gather(sums_VBND, 0), op.Gather(sums_VBND, 1))


@script(OWN, default_opset=op)
def with_own(sums_VBND, keys, queries, values, real_BN1, tilt, scale: float):
    """The token of the query itself is a key, too."""
    own = op.Exp(op.Tanh((keys + queries) / scale) * scale - tilt * queries) * real_BN1
    return divide(op.Gather(sums_VBND, 0) + own * values, op.Gather(sums_VBND, 1) + own)


def expansion(direction: str, sums: OnnxFunction, finish: OnnxFunction) -> OnnxFunction:
    """Keys and queries by :func:`centred`, the rest by :func:`coefficients_of`."""

    @script(of(direction), default_opset=op)
    def expanded(keys, queries, values, real, half_range, tilt, coefficients, terms, scale: float):
        length = op.Shape(keys, start=1, end=2)
        chunks = (length + (CHUNK - 1)) / CHUNK
        number = op.Reshape(op.CastLike(terms, length), [1])
        counted = op.Slice(coefficients, [0, 0], op.Concat(number, number, axis=0), [0, 1])
        counted_SS = op.CastLike(counted, keys)
        degrees_S = op.Slice(op.CastLike(op.Constant(value=DEGREES), keys), [0], number)
        slope = op.CastLike(tilt, keys)
        real_BN1 = op.Unsqueeze(op.CastLike(real, keys), [2])
        key_positions = op.Clip(keys / half_range, -1.0, 1.0)  # padding may lie anywhere
        query_positions = op.Clip(queries / half_range, -1.0, 1.0)
        weights = op.Exp(key_positions * (slope * half_range)) * real_BN1
        weighted = op.Concat(op.Unsqueeze(weights * values, [0]), op.Unsqueeze(weights, [0]), axis=0)
        found = sums(
            counted_SS,
            op.Unsqueeze(degrees_S, [1]),
            in_chunks(op.Unsqueeze(op.Acos(key_positions), [0]), chunks),
            in_chunks(op.Unsqueeze(op.Acos(query_positions), [0]), chunks),
            in_chunks(weighted, chunks),
        )
        in_rows = op.Reshape(
            op.Transpose(found, perm=[1, 2, 0, 3, 4]), op.Concat([0, 0], chunks * CHUNK, [-1], axis=0)
        )
        sums_VBND = op.Slice(in_rows, [0], length, [2])
        return finish(sums_VBND, keys, queries, values, real_BN1, slope, scale=scale)

    return expanded


def attention(direction: str, pairs: OnnxFunction, expanded: OnnxFunction) -> OnnxFunction:
    """By the expansion where it is exact and faster, else pair by pair: decided when the graph runs.

    ``widest`` is the half range of a feature from which the expansion is not exact.
    """

    @script(of(direction), default_opset=op)
    def attention(keys, queries, values, real, scale: float, widest: float):
        length = op.Squeeze(op.Shape(keys, start=1, end=2))
        if length > SHORT:
            moved_keys, moved_queries, half_ranges_D = centred(keys, queries, real)
            wide_D = half_ranges_D > widest
            ranges_D = op.Where(wide_D, 0.0, half_ranges_D)
            half_range = op.Max(op.ReduceMax(ranges_D, keepdims=0), SMALLEST_RANGE)
            tilt, coefficients, terms = coefficients_of(half_range, scale=scale)
            narrow_tokens = op.ReduceMean(op.Where(wide_D, 0.0, op.CastLike(length, keys)), keepdims=0)
            if op.CastLike(narrow_tokens, terms) > (terms + FIXED_TERMS) * PAIRS_PER_TERM:
                narrow = expanded(
                    moved_keys, moved_queries, values, real, half_range, tilt, coefficients, terms, scale=scale
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
    "forward": (before, sums_before, without_own),
    "backward": (after, sums_after, without_own),
    "diagonal": (elsewhere, sums_elsewhere, without_own),
    "full": (anywhere, sums_elsewhere, with_own),
}


def _functions() -> list[OnnxFunction]:
    found = [divide, attend, centred, coefficients_of, in_chunks, sums_before, sums_after, sums_elsewhere]
    found += [without_own, with_own]
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
            widest = widest_range(node.attributes["scale"].as_float())
            node.attributes["widest"] = ir.AttrFloat32("widest", widest)
    for function in _functions():
        added = ir.from_proto(function.to_function_proto())
        model.functions[added.identifier()] = added
    passes.InlinePass()(model)
    passes.RemoveUnusedOpsetsPass()(model)
