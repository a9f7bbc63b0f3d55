"""Vectors of 16 numbers for numba: what its automatic vectorisation leaves to chance is written down.

A :class:`Vector` lives in registers. ``load`` and ``store`` move rows of memory of shape (rows, 16); +, -, *, / work
between vectors of one kind, and with scalars. LLVM splits a vector for processors whose registers are narrower.
Memory is a bare address with the type of its numbers: numba counts the references to an array wherever one is handed
on, which costs more than the work on a row, and what is kept in registers is lost to each call.
"""

import operator

try:
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils, config
    from numba.core.codegen import get_host_cpu_features
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
def skip(typingctx, memory, count):
    """The memory from number ``count`` on."""

    def codegen(context, builder, signature, values):
        return builder.gep(values[0], [context.cast(builder, values[1], count, types.intp)])

    return memory(memory, count), codegen


MEMORIES = {"f": types.float32, "d": types.float64, "i": types.int64, "b": types.boolean}
NUMBERS = {"n": types.int64, "x": types.float64}


@intrinsic(prefer_literal=True)
def unpack(typingctx, arguments, first, kinds):
    """A tuple of what stands in an array of 8-byte fields from field ``first`` on, by a letter for each kind.

    Memory of float32 f, float64 d, int64 i, bool b, by its address; int64 n and float64 x themselves.
    """
    letters = kinds.literal_value
    fields = [types.CPointer(MEMORIES[x]) if x in MEMORIES else NUMBERS[x] for x in letters]

    def codegen(context, builder, signature, values):
        fields_at = builder.bitcast(values[0], ir.IntType(64).as_pointer())
        start = context.cast(builder, values[1], signature.args[1], types.intp)
        items = []
        for i, (letter, kind) in enumerate(zip(letters, fields, strict=True)):
            place = builder.gep(fields_at, [builder.add(start, ir.Constant(start.type, i))])
            value_type = context.get_value_type(kind)
            if letter in MEMORIES:
                items.append(builder.inttoptr(builder.load(place), value_type))
            else:
                items.append(builder.load(builder.bitcast(place, value_type.as_pointer())))
        return context.make_tuple(builder, signature.return_type, items)

    return types.Tuple(fields)(arguments, first, kinds), codegen


@intrinsic(prefer_literal=True)
def memory_at(typingctx, address, letter):
    """The memory at an address, of the type of a letter of :data:`MEMORIES`."""
    kind = types.CPointer(MEMORIES[letter.literal_value])

    def codegen(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(kind))

    return kind(types.int64, letter), codegen


@intrinsic
def call(typingctx, address):
    """The number a C function without arguments returns."""

    def codegen(context, builder, signature, values):
        function = ir.FunctionType(ir.IntType(32), [])
        return builder.sext(builder.call(builder.inttoptr(values[0], function.as_pointer()), []), ir.IntType(64))

    return types.int64(address), codegen


@intrinsic
def get(typingctx, memory, i):
    """Number i."""

    def codegen(context, builder, signature, values):
        offset = context.cast(builder, values[1], i, types.intp)
        return context.unpack_value(builder, memory.dtype, builder.gep(values[0], [offset]))

    return memory.dtype(memory, i), codegen


@intrinsic
def put(typingctx, memory, i, number):
    """Write number i."""

    def codegen(context, builder, signature, values):
        offset = context.cast(builder, values[1], i, types.intp)
        value = context.cast(builder, values[2], number, memory.dtype)
        context.pack_value(builder, memory.dtype, value, builder.gep(values[0], [offset]))
        return context.get_dummy_value()

    return types.void(memory, i, number), codegen


@intrinsic
def load_at(typingctx, memory, offset):
    """16 numbers from the one at this offset on."""
    kind = KINDS[memory.dtype]

    def codegen(context, builder, signature, values):
        place = _place(context, builder, signature.args, values, context.get_value_type(kind))
        return builder.load(place, align=memory.dtype.bitwidth // 8)

    return kind(memory, offset), codegen


@intrinsic
def store_at(typingctx, memory, offset, vector):
    """Write 16 numbers, as :func:`load_at` reads them."""
    kind = KINDS[memory.dtype]

    def codegen(context, builder, signature, values):
        place = _place(context, builder, signature.args, values, context.get_value_type(kind))
        value = _as_vector(context, builder, kind, values[2], signature.args[2])
        builder.store(value, place, align=memory.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(memory, offset, vector), codegen


def _place(context, builder, kinds, values, vector_type):
    """Where the number at offset values[1] of the memory values[0] lies, as a pointer to a vector."""
    offset = context.cast(builder, values[1], kinds[1], types.intp)
    return builder.bitcast(builder.gep(values[0], [offset]), vector_type.as_pointer())


@njit
def load(memory, row):
    """A row of memory of shape (rows, 16)."""
    return load_at(memory, row * LANES)


@njit
def store(memory, row, vector):
    """Write a row of memory of shape (rows, 16)."""
    store_at(memory, row * LANES, vector)


@intrinsic
def load_part_at(typingctx, memory, offset, count):
    """As :func:`load_at`, but the first ``count`` numbers only, and 0 behind them."""
    kind = KINDS[memory.dtype]

    def codegen(context, builder, signature, values):
        vector = context.get_value_type(kind)
        place = _place(context, builder, signature.args, values, vector)
        mask = _first_lanes(context, builder, values[2], signature.args[2])
        arguments = [place, ir.IntType(32)(memory.dtype.bitwidth // 8), mask, ir.Constant(vector, None)]
        return _call(builder, f"llvm.masked.load.v{LANES}f{memory.dtype.bitwidth}.p0", vector, arguments)

    return kind(memory, offset, count), codegen


@intrinsic
def store_part_at(typingctx, memory, offset, vector, count):
    """Write the first ``count`` numbers of a vector."""
    kind = KINDS[memory.dtype]

    def codegen(context, builder, signature, values):
        place = _place(context, builder, signature.args, values, context.get_value_type(kind))
        mask = _first_lanes(context, builder, values[3], signature.args[3])
        arguments = [values[2], place, ir.IntType(32)(memory.dtype.bitwidth // 8), mask]
        _call(builder, f"llvm.masked.store.v{LANES}f{memory.dtype.bitwidth}.p0", ir.VoidType(), arguments)
        return context.get_dummy_value()

    return types.void(memory, offset, vector, count), codegen


@intrinsic
def prefetch_at(typingctx, memory, offset):
    """Have the element at this offset brought into the cache; it need not exist."""

    def codegen(context, builder, signature, values):
        place = _place(context, builder, signature.args, values, ir.IntType(8))
        options = [ir.IntType(32)(option) for option in (0, 3, 1)]  # to read, into the nearest cache, data
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), [place, *options])
        return context.get_dummy_value()

    return types.void(memory, offset), codegen


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
    """A vector of zeros of the element type of a memory or vector."""
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
def multiply_add(typingctx, a, b, c):
    """a b + c of a vector a, with one rounding where the processor can."""

    def codegen(context, builder, signature, values):
        vectors = [_as_vector(context, builder, a, v, kind) for v, kind in zip(values, signature.args, strict=True)]
        name = f"llvm.fmuladd.v{LANES}f{a.dtype.bitwidth}"
        return _call(builder, name, vectors[0].type, vectors)

    return a(a, b, c), codegen


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
def reciprocal(typingctx, vector):
    """1 / vector: to 14 bits where the processor has an instruction for that (AVX-512), else to the last."""

    def codegen(context, builder, signature, values):
        (x,) = values
        if not (vector.dtype == types.float32 and "+avx512f" in _cpu_features()):
            return builder.fdiv(_splat(builder, ir.Constant(x.type.element, 1.0)), x)
        arguments = [x, ir.Constant(x.type, None), ir.Constant(ir.IntType(16), -1)]
        return _call(builder, "llvm.x86.avx512.rcp14.ps.512", x.type, arguments)

    return vector(vector), codegen


def _cpu_features() -> list[str]:
    """What numba compiles for."""
    return (get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES).split(",")


@intrinsic
def one_if_zero(typingctx, vector):
    """1 where the vector is 0, and the vector elsewhere."""

    def codegen(context, builder, signature, values):
        (x,) = values
        zero = builder.fcmp_ordered("==", x, ir.Constant(x.type, None))
        return builder.select(zero, _splat(builder, ir.Constant(x.type.element, 1.0)), x)

    return vector(vector), codegen


@intrinsic
def divide_or_zero(typingctx, a, b):
    """a / b, and 0 where b is 0."""

    def codegen(context, builder, signature, values):
        zero = ir.Constant(values[1].type, None)
        empty = builder.fcmp_ordered("==", values[1], zero)
        return builder.select(empty, zero, builder.fdiv(*values, flags=FLAGS))

    return a(a, b), codegen
