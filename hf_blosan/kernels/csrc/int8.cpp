// Linear maps with weights in int8, of features that are rounded to int8 row by row; int8.py packs the weights.

#if defined(__x86_64__)
#include "int8.h"

#include "products.h"

namespace hf_blosan {
namespace avx2 {
extern const Int8Loop int8_loop;
}
namespace avx512 {
extern const Int8Loop int8_loop;
}

namespace {

// Not every processor with AVX-512 has VNNI.
Int8Loop choose() {
  const int64_t bytes = loops<float>().lanes * sizeof(float);
  check(bytes >= 32, "int8_linear needs a processor with AVX2");
  return bytes == 64 && __builtin_cpu_supports("avx512vnni") ? avx512::int8_loop : avx2::int8_loop;
}

Tensor int8_linear(const Tensor& x, const Tensor& packed, const Tensor& shifts, const Tensor& scale,
                   const MaybeTensor& bias) {
  Sizes sizes = sizes_of(x);
  check(!sizes.empty() && scale.dim() == 1, "x: give (..., in), scale: give (out)");
  const RowsOf rows("x", x, ScalarType::Float, sizes);
  const int64_t out = sizes.back() = scale.size(0), depth = (rows.size + 2 * int8_depth - 1) / (2 * int8_depth) * 2;
  const int64_t panels = (out + int8_columns - 1) / int8_columns;
  const Tensor packed_ = checked("packed", packed, ScalarType::Char, {panels, depth, int8_columns, int8_depth});
  const Tensor shifts_ = checked("shifts", shifts, ScalarType::Int, {out});
  const Tensor scale_ = checked("scale", scale, ScalarType::Float, {out});
  const MaybeTensor bias_ = checked("bias", bias, ScalarType::Float, {out});
  const Tensor y = allocate(x, sizes);
  const Int8Linear arguments{.rows = rows.count,
                             .in = rows.size,
                             .out = out,
                             .step = rows.step,
                             .depth = depth,
                             .x = read<float>(rows.tensor),
                             .packed = read<int8_t>(packed_),
                             .shifts = read<int32_t>(shifts_),
                             .scale = read<float>(scale_),
                             .bias = read<float>(bias_),
                             .y = write<float>(y)};
  static const Int8Loop loop = choose();
  const int64_t groups = (rows.count + int8_rows - 1) / int8_rows;
  run<Int8Linear>(loop, arguments, groups, rows.count * out * 4, int8_rows * depth * int8_depth);
  return y;
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CompositeExplicitAutograd, m) {
  m.impl("int8_linear", TORCH_BOX(&hf_blosan::int8_linear));
}
#endif
