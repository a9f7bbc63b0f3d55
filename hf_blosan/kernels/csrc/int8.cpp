// Linear maps with weights in int8, of features that are rounded to int8 row by row; int8.py packs the weights.

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "int8.h"

#include "products.h"
#include "steps.h"

namespace hf_blosan {
namespace avx2 {
extern const Int8Loop int8_loop;
}
namespace avx512 {
extern const Int8Loop int8_loop;
}
namespace amx {
extern const Int8Loop int8_loop;
}

namespace {

// Whether the processor has AMX, and Linux gives this process the memory for its tiles; HF_BLOSAN_INSTRUCTION_SET, for
// tests, turns it off.
bool find_amx() {
#if defined(__linux__)
  constexpr unsigned tile = 1 << 24, int8 = 1 << 25;
  constexpr long request_permission = 0x1023, tile_data = 18;
  unsigned a, b, c, features;
  return !std::getenv("HF_BLOSAN_INSTRUCTION_SET") && __get_cpuid_count(7, 0, &a, &b, &c, &features) &&
         (features & tile) && (features & int8) && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

bool uses_amx() {
  static const bool found = find_amx();
  return found;
}

// Not every processor with AVX-512 has VNNI, and not every one with VNNI has AMX.
Int8Loop choose(int64_t depth) {
  const int64_t bytes = loops<float>().lanes * sizeof(float);
  check(bytes >= 32, "int8_linear needs a processor with AVX2");
  if (bytes == 32 || !__builtin_cpu_supports("avx512vnni")) return avx2::int8_loop;
  return uses_amx() && depth % amx_depth == 0 ? amx::int8_loop : avx512::int8_loop;
}

}  // namespace

Tensor int8_linear(const Tensor& x, const Tensor& packed, const Tensor& shifts, const Tensor& scale,
                   const MaybeTensor& bias) {
  Sizes sizes = sizes_of(x);
  check(!sizes.empty() && scale.dim() == 1, "x: give (..., in), scale: give (out)");
  const RowsOf rows("x", x, ScalarType::Float, sizes);
  check(packed.dim() == 4 && packed.size(1) % 2 == 0 && packed.size(1) * int8_depth >= rows.size,
        "packed: give (out / 16, in / 4, 16, 4) with an even number of groups of features");
  const int64_t out = sizes.back() = scale.size(0), depth = packed.size(1);
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
  const int64_t groups = (rows.count + int8_rows - 1) / int8_rows;
  run<Int8Linear>(choose(depth), arguments, groups, rows.count * out * 4, int8_rows * depth * int8_depth);
  return y;
}

}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CompositeExplicitAutograd, m) {
  m.impl("int8_linear", TORCH_BOX(&hf_blosan::int8_linear));
  m.impl("uses_amx", TORCH_BOX(&hf_blosan::uses_amx));
}
#else
#include <stdexcept>

#include "steps.h"

namespace hf_blosan {
Tensor int8_linear(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const MaybeTensor&) {
  throw std::runtime_error("int8_linear needs an x86-64 processor");
}
}  // namespace hf_blosan
#endif
