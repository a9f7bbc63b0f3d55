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
constexpr int64_t fewest_rows = 24, fewest_multiplications = 1 << 14;

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

// How a matrix is packed, and how many panels that takes.
struct Packing {
  int64_t parts, part, panels;

  explicit Packing(const Tensor& b)
      : parts(avx512::up(b.size(0), avx512::most_depth)),
        part(avx512::up(b.size(0), std::max<int64_t>(1, parts))),
        panels(avx512::up(b.size(1), avx512::panel) * parts) {}

  Tensor allocate_for(const Tensor& b) const { return allocate(b, {panels * part * avx512::panel}); }
  avx512::Product product(const Tensor& b, const float* packed) const {
    return {.b = matrix_of(b), .depth = b.size(0), .columns = b.size(1), .part = part,
            .packed = const_cast<float*>(packed)};
  }
};

bool same_matrix(const Tensor& a, const Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.size(0) == b.size(0) && a.size(1) == b.size(1) &&
         a.stride(0) == b.stride(0) && a.stride(1) == b.stride(1);
}

}  // namespace

void PackedMatrices::add(const Tensors& matrices, int64_t rows) {
  if (!has_own_products() || rows < fewest_rows) return;
  const int64_t known = matrices_.size();
  for (const Tensor& matrix : matrices) {
    if (matrix.scalar_type() != ScalarType::Float) continue;
    matrices_.push_back(matrix);
    packed_.push_back(Packing(matrix).allocate_for(matrix));
  }
  parallel(int64_t(matrices_.size()) - known, 1, [&](int64_t start, int64_t stop) {
    for (int64_t i = known + start; i < known + stop; i++) {
      const Packing packing(matrices_[i]);
      avx512::pack_panels(packing.product(matrices_[i], write<float>(packed_[i])), 0, packing.panels, nullptr);
    }
  });
}

const float* PackedMatrices::find(const Tensor& b) const {
  for (size_t i = 0; i < matrices_.size(); i++) {
    if (same_matrix(matrices_[i], b)) return read<float>(packed_[i]);
  }
  return nullptr;
}

bool suits_own_product(const Tensor& a, const Tensor& b) {
  if (!has_own_products() || a.scalar_type() != ScalarType::Float) return false;
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  return rows >= fewest_rows && columns > 1 && rows * depth * columns >= fewest_multiplications;
}

void multiply_by_own_product(const Tensor& out, const Tensor& a, const Tensor& b, bool add) {
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  const Packing packing(b);
  const PackedMatrices* const known = PackedMatrices::used();
  const float* packed = known ? known->find(b) : nullptr;
  MaybeTensor own;
  if (!packed) {
    own = packing.allocate_for(b);
    packed = read<float>(own);
    run<avx512::Product>(avx512::pack_panels, packing.product(b, packed), packing.panels, depth * columns);
  }
  avx512::Product product = packing.product(b, packed);
  product.a = matrix_of(a);
  product.out = write<float>(out);
  product.out_row = out.stride(0);
  product.rows = rows;
  product.add = add;
  run<avx512::Product>(avx512::multiply_tiles, product, avx512::up(rows, avx512::tile_rows),
                       rows * depth * columns / 16, avx512::scratch_bytes);
}

}  // namespace hf_blosan

#else

namespace hf_blosan {

namespace {
bool has_own_products() { return false; }
}  // namespace

void PackedMatrices::add(const Tensors&, int64_t) {}
const float* PackedMatrices::find(const Tensor&) const { return nullptr; }

bool suits_own_product(const Tensor&, const Tensor&) { return false; }
void multiply_by_own_product(const Tensor&, const Tensor&, const Tensor&, bool) {}

}  // namespace hf_blosan

#endif

namespace hf_blosan {
const PackedMatrices*& PackedMatrices::used() {
  thread_local const PackedMatrices* packed = nullptr;
  return packed;
}
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CompositeExplicitAutograd, m) {
  m.impl("has_own_products", TORCH_BOX(&hf_blosan::has_own_products));
}
