// Matrix products in loops of this package, where they are faster than torch's.
//
// torch computes float32 products with MKL, whose AVX-512 code runs only on Intel processors; on others MKL uses AVX2.

#include "products.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdlib>
#include <cstring>

#include "products_avx512.h"

namespace hf_blosan {
namespace {

// Fewer rows are not worth packing the other matrix, fewer multiplications not the two loops.
constexpr int64_t fewest_rows = 16, fewest_multiplications = 1 << 14;

// For tests, HF_BLOSAN_PRODUCTS=1 or 0 overrides the choice.
bool choose_own_products() {
  if (!__builtin_cpu_supports("avx512f")) return false;
  if (const char* const chosen = std::getenv("HF_BLOSAN_PRODUCTS")) return !std::strcmp(chosen, "1");
  unsigned leaf, ebx, ecx, edx;
  if (!__get_cpuid(0, &leaf, &ebx, &ecx, &edx)) return false;
  const bool intel = ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx && edx == signature_INTEL_edx;
  const bool avx512 = loops<float>().lanes * sizeof(float) == 64;
  return !intel && avx512;
}

bool has_own_products() {
  static const bool chosen = choose_own_products();
  return chosen;
}

avx512::Matrix matrix_of(const Tensor& x) { return {read<float>(x), x.stride(0), x.stride(1)}; }

}  // namespace

bool suits_own_product(const Tensor& a, const Tensor& b) {
  if (!has_own_products() || a.scalar_type() != ScalarType::Float) return false;
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  return rows >= fewest_rows && columns > 1 && rows * depth * columns >= fewest_multiplications;
}

void multiply_by_own_product(const Tensor& out, const Tensor& a, const Tensor& b, bool add) {
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  const int64_t parts = avx512::up(depth, avx512::most_depth), part = avx512::up(depth, parts);
  const int64_t panels = avx512::up(columns, avx512::panel) * parts;
  const Tensor packed = allocate(a, {panels * part * avx512::panel});
  const avx512::Product product{.a = matrix_of(a), .b = matrix_of(b), .out = write<float>(out),
                                .out_row = out.stride(0), .rows = rows, .depth = depth, .columns = columns,
                                .add = add, .part = part, .packed = write<float>(packed)};
  run<avx512::Product>(avx512::pack_panels, product, panels, depth * columns);
  run<avx512::Product>(avx512::multiply_tiles, product, avx512::up(rows, avx512::tile_rows),
                       rows * depth * columns / 16, avx512::scratch_bytes);
}

}  // namespace hf_blosan

#else

namespace hf_blosan {

namespace {
bool has_own_products() { return false; }
}  // namespace

bool suits_own_product(const Tensor&, const Tensor&) { return false; }
void multiply_by_own_product(const Tensor&, const Tensor&, const Tensor&, bool) {}

}  // namespace hf_blosan

#endif

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CompositeExplicitAutograd, m) {
  m.impl("has_own_products", TORCH_BOX(&hf_blosan::has_own_products));
}
