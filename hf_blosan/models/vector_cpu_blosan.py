"""Vectors of 16 numbers for numba: what its automatic vectorisation leaves to chance is written down.

A :class:`Vector` lives in registers. ``load`` and ``store`` move rows of an array of shape (rows, 16); +, -, *, / work
between vectors of one kind, and with scalars. LLVM splits a vector for processors whose registers are narrower.
"""

import operator

try:
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic, models, overload, register_model
except ImportError:  # kernels_cpu_blosan goes without
    raise

LANES = 16
# Products and sums may be fused; nothing may be reordered, and infinities keep their meaning.
FLAGS = ("contract",)


class Vector(types.Type):
    """16 numbers of one float type."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")


KINDS = {types.float32: Vector(types.float32), types.float64: Vector(types.float64)}


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        element = ir.DoubleType() if fe_type.dtype == types.float64 else ir.FloatType()
        super().__init__(dmm, fe_type, ir.VectorType(element, LANES))


def _splat(builder, scalar):
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(first, first, zeros)


def _as_vector(context, builder, kind, value, value_type):
    """A vector of this kind from a vector of another or from a scalar."""
    if isinstance(value_type, Vector):
        target = context.get_value_type(kind)
        if value_type == kind:
            return value
        return (builder.fpext if kind.dtype == types.float64 else builder.fptrunc)(value, target)
    return _splat(builder, context.cast(builder, value, value_type, kind.dtype))


def _kind(a, b):
    """The wider kind of the vectors among two operands."""
    kinds = [x for x in (a, b) if isinstance(x, Vector)]
    return max(kinds, key=lambda kind: kind.dtype.bitwidth)


def _operator(function, instruction):
    @intrinsic
    def compute(typingctx, a, b):
        kind = _kind(a, b)

        def codegen(context, builder, signature, values):
            x, y = (_as_vector(context, builder, kind, v, t) for v, t in zip(values, signature.args, strict=True))
            return getattr(builder, instruction)(x, y, flags=FLAGS)

        return kind(a, b), codegen

    @overload(function)
    def implementation(a, b):
        if isinstance(a, Vector) or isinstance(b, Vector):
            return lambda a, b: compute(a, b)


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_function, _instruction)


@intrinsic
def load_at(typingctx, array, offset):
    """16 numbers of a C-contiguous float array of any shape, from the element at this offset on."""
    kind = KINDS[array.dtype]

    def codegen(context, builder, signature, values):
        pointer = _pointer(context, builder, signature.args, values, context.get_value_type(kind))
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return kind(array, offset), codegen


@intrinsic
def store_at(typingctx, array, offset, vector):
    """Write 16 numbers, as :func:`load_at` reads them."""
    kind = KINDS[array.dtype]

    def codegen(context, builder, signature, values):
        pointer = _pointer(context, builder, signature.args, values, context.get_value_type(kind))
        value = _as_vector(context, builder, kind, values[2], signature.args[2])
        builder.store(value, pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, offset, vector), codegen


def _pointer(context, builder, kinds, values, vector_type):
    """Where the element at offset values[1] of the array values[0] lies, as a pointer to a vector."""
    data = context.make_array(kinds[0])(context, builder, value=values[0]).data
    offset = context.cast(builder, values[1], kinds[1], types.intp)
    return builder.bitcast(builder.gep(data, [offset]), vector_type.as_pointer())


@njit
def load(array, row):
    """The row of a C-contiguous float array of shape (rows, 16)."""
    return load_at(array, row * LANES)


@njit
def store(array, row, vector):
    """Write a row of a C-contiguous float array of shape (rows, 16)."""
    store_at(array, row * LANES, vector)


@intrinsic
def load_part_at(typingctx, array, offset, count):
    """As :func:`load_at`, but the first ``count`` numbers only, and 0 behind them."""
    kind = KINDS[array.dtype]

    def codegen(context, builder, signature, values):
        vector = context.get_value_type(kind)
        pointer = _pointer(context, builder, signature.args, values, vector)
        mask = _first_lanes(context, builder, values[2], signature.args[2])
        arguments = [pointer, ir.IntType(32)(array.dtype.bitwidth // 8), mask, ir.Constant(vector, None)]
        return _call(builder, f"llvm.masked.load.v{LANES}f{array.dtype.bitwidth}.p0", vector, arguments)

    return kind(array, offset, count), codegen


@intrinsic
def store_part_at(typingctx, array, offset, vector, count):
    """Write the first ``count`` numbers of a vector."""
    kind = KINDS[array.dtype]

    def codegen(context, builder, signature, values):
        pointer = _pointer(context, builder, signature.args, values, context.get_value_type(kind))
        mask = _first_lanes(context, builder, values[3], signature.args[3])
        arguments = [values[2], pointer, ir.IntType(32)(array.dtype.bitwidth // 8), mask]
        _call(builder, f"llvm.masked.store.v{LANES}f{array.dtype.bitwidth}.p0", ir.VoidType(), arguments)
        return context.get_dummy_value()

    return types.void(array, offset, vector, count), codegen


@intrinsic
def prefetch_at(typingctx, array, offset):
    """Have the element at this offset brought into the cache; it need not exist."""

    def codegen(context, builder, signature, values):
        pointer = _pointer(context, builder, signature.args, values, ir.IntType(8))
        options = [ir.IntType(32)(option) for option in (0, 3, 1)]  # to read, into the nearest cache, data
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, *options])
        return context.get_dummy_value()

    return types.void(array, offset), codegen


def _first_lanes(context, builder, count, count_type):
    """The mask of the first ``count`` lanes."""
    integers = ir.VectorType(ir.IntType(64), LANES)
    counts = _splat(builder, context.cast(builder, count, count_type, types.int64))
    return builder.icmp_signed("<", ir.Constant(integers, list(range(LANES))), counts)


def _call(builder, name, result, arguments):
    """Call one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


@intrinsic
def zeros_like(typingctx, like):
    """A vector of zeros of the element type of an array or vector."""
    kind = KINDS[like.dtype]
    return kind(like), lambda context, builder, signature, values: ir.Constant(context.get_value_type(kind), None)


@intrinsic
def scale_by_power(typingctx, vector, rounded):
    """vector * 2^n for float32; n stands in the lowest bits of ``rounded`` (it was added to 1.5 2^23)."""

    def codegen(context, builder, signature, values):
        integers = ir.VectorType(ir.IntType(32), LANES)
        value, exponent = (builder.bitcast(x, integers) for x in values)
        shift = ir.Constant(integers, [23] * LANES)
        return builder.bitcast(builder.add(value, builder.shl(exponent, shift)), values[0].type)

    return vector(vector, rounded), codegen


@intrinsic
def maximum(typingctx, a, b):
    """The larger of each pair, b where one is NaN."""

    def codegen(context, builder, signature, values):
        return builder.select(builder.fcmp_ordered(">", *values), *values)

    return a(a, b), codegen


@intrinsic
def minimum(typingctx, a, b):
    """The smaller of each pair of numbers of a vector and a scalar, NaN where the vector is NaN."""

    def codegen(context, builder, signature, values):
        limit = _as_vector(context, builder, a, values[1], b)
        return builder.select(builder.fcmp_ordered(">", values[0], limit), limit, values[0])

    return a(a, b), codegen


@intrinsic
def largest(typingctx, vector):
    """The largest of 16 numbers, infinity where one is NaN."""

    def codegen(context, builder, signature, values):
        (x,) = values
        infinity = ir.Constant(x.type, [float("inf")] * LANES)
        x = builder.select(builder.fcmp_ordered("ord", x, x), x, infinity)
        for step in (8, 4, 2, 1):
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [(i + step) % LANES for i in range(LANES)])
            other = builder.shuffle_vector(x, x, lanes)
            x = builder.select(builder.fcmp_ordered(">", x, other), x, other)
        return builder.extract_element(x, ir.IntType(32)(0))

    return vector.dtype(vector), codegen


@intrinsic
def divide_or_zero(typingctx, a, b):
    """a / b, and 0 where b is 0."""

    def codegen(context, builder, signature, values):
        zero = ir.Constant(values[1].type, None)
        empty = builder.fcmp_ordered("==", values[1], zero)
        return builder.select(empty, zero, builder.fdiv(*values, flags=FLAGS))

    return a(a, b), codegen
