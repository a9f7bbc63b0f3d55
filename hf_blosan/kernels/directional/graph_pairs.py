"""Pairs of tokens as functions of ONNX; graph_functions.py chooses between them and the expansion.

Shapes: B rows, N tokens, D features; Q queries and K keys of a step, M steps.
"""

from __future__ import annotations

from onnxscript import graph, script
from onnxscript import opset18 as op
from onnxscript.values import OnnxFunction, Opset

from .graph import DOMAIN, LEAST

OWN = Opset(DOMAIN, 1)


def of(direction: str) -> Opset:
    """The domain of a direction: a function has the same name in each."""
    return Opset(f"{DOMAIN}.{direction}", 1)


# Numbers of all pairs, with every feature, up to which there is no loop over queries: 4 MB.
AT_ONCE = 1 << 20
# Queries of a step of that loop: the best of 1 to 64 from 1 x 12 to 2 x 256.
QUERIES = 4
# Sizes of reshaped dimensions: lists in functions hold numbers only.
QUERIES_BY_SIZE, STEPS_BY_QUERIES = [QUERIES, -1], [-1, QUERIES]


@script(OWN, default_opset=op)
def attend(keys_BKD, queries_BQD, values_BKD, visible_BQK, scale: float):
    """The equation for a few queries; keys and queries are divided by c."""
    sums_BQKD = op.Unsqueeze(queries_BQD, [2]) + op.Unsqueeze(keys_BKD, [1])
    # `Where` takes four times as long.
    weights_BQKD = op.Exp(op.Tanh(sums_BQKD) * scale) * op.Unsqueeze(op.CastLike(visible_BQK, keys_BKD), [3])
    numerators_BQD = op.ReduceSum(weights_BQKD * op.Unsqueeze(values_BKD, [1]), [2], keepdims=0)
    return numerators_BQD / op.Max(op.ReduceSum(weights_BQKD, [2], keepdims=0), op.Constant(value_float=LEAST))


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
            # In the same shape: onnxruntime before 1.24 asks how many dimensions a result has, and sees it here.
            return op.Reshape(attend(keys_BKD, queries_BQD, values_BKD, visible_BQK, scale=scale), [0, 0, -1])

        found_BMQD = op.Scan(
            op.Unsqueeze(starts_M, [1]) + columns_K, body=step, num_scan_inputs=1, scan_output_axes=[1]
        )
        found = op.Reshape(found_BMQD, op.Concat([0, -1], op.Shape(keys, start=2), axis=0))
        return op.Slice(found, [0], length, [1])

    return window
