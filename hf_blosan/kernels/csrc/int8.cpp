// Linear maps with int8 weights, of features that are rounded to int8 row by row; int8.py packs the weights.

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

// Whether the processor has AMX, and Linux grants this process memory for its tiles; HF_BLOSAN_INSTRUCTION_SET, for
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

Tensors int8_linear(const Tensor& x, const std::vector<Int8Weight>& weights) {
  Sizes sizes = sizes_of(x);
  check(!sizes.empty(), "x: give (..., in)");
  const RowsOf rows("x", x, ScalarType::Float, sizes);
  const int64_t depth = weights[0].packed.dim() == 4 ? weights[0].packed.size(1) : 0;
  check(depth % 2 == 0 && depth * int8_depth >= rows.size,
        "packed: give (out / 16, in / 4, 16, 4) with an even number of groups of features");
  Tensors results, kept;
  std::vector<Int8Map> maps;
  int64_t numbers = 0;
  const auto keep = [&](const Tensor& tensor) { return kept.emplace_back(tensor); };
  for (const Int8Weight& weight : weights) {
    check(weight.scale.dim() == 1, "scale: give (out)");
    const int64_t out = sizes.back() = weight.scale.size(0), panels = (out + int8_columns - 1) / int8_columns;
    const Sizes shape{panels, depth, int8_columns, int8_depth};
    results.push_back(allocate(x, sizes));
    numbers += rows.count * out;
    maps.push_back({.out = out,
                    .packed = read<int8_t>(keep(checked("packed", weight.packed, ScalarType::Char, shape))),
                    .shifts = read<int32_t>(keep(checked("shifts", weight.shifts, ScalarType::Int, {out}))),
                    .scale = read<float>(keep(checked("scale", weight.scale, ScalarType::Float, {out}))),
                    .bias = weight.bias ? read<float>(keep(checked("bias", *weight.bias, ScalarType::Float, {out})))
                                        : nullptr,
                    .y = write<float>(results.back())});
  }
  const Int8Linear arguments{.rows = rows.count,
                             .in = rows.size,
                             .step = rows.step,
                             .depth = depth,
                             .x = read<float>(rows.tensor),
                             .maps = maps.data(),
                             .count = int64_t(maps.size())};
  const int64_t groups = (rows.count + int8_rows - 1) / int8_rows;
  run<Int8Linear>(choose(depth), arguments, groups, numbers * 4, int8_rows * depth * int8_depth);
  return results;
}

namespace {

Tensor one_int8_linear(const Tensor& x, const Tensor& packed, const Tensor& shifts, const Tensor& scale,
                       const MaybeTensor& bias) {
  return int8_linear(x, {{packed, shifts, scale, bias}})[0];
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CompositeExplicitAutograd, m) {
  m.impl("int8_linear", TORCH_BOX(&hf_blosan::one_int8_linear));
  m.impl("uses_amx", TORCH_BOX(&hf_blosan::uses_amx));
}
#else
#include <stdexcept>

#include "steps.h"

namespace hf_blosan {
Tensors int8_linear(const Tensor&, const std::vector<Int8Weight>&) {
  throw std::runtime_error("int8_linear needs an x86-64 processor");
}
}  // namespace hf_blosan
#endif
