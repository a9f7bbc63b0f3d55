// Matrix products by oneDNN, which ships with torch, where it is faster than torch's default.
//
// torch computes float32 products with MKL, whose AVX-512 code runs only on Intel processors; on others MKL uses AVX2.
// oneDNN has AVX-512 code for all of them.

#include "products.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>

#include <cstdlib>
#include <cstring>

// As in torch/csrc/inductor/aoti_torch/c/shim_cpu.h. Null if torch is built without oneDNN. torch does not promise to
// keep it: it is called only if torch's headers are known to declare it so.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_cpu__linear_pointwise(
    AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* bias, const char* attr, const double** scalars,
    int64_t number_of_scalars, const char** algorithm, AtenTensorHandle* result);

namespace hf_blosan {
namespace {

// oneDNN compiles code for every new shape, which takes a millisecond. The dimension that differs from batch to batch
// is therefore cut into powers of two in this range, and torch gets the remainder.
constexpr int64_t shortest = 64, longest = 1024;
// Products with a smaller weight are not worth the call.
constexpr int64_t smallest_weight = 128 * 128;
// The first torch whose headers have not been compared with the declaration above: 2.16. All from 2.10 on agree.
constexpr uint64_t first_unknown_torch = uint64_t(2) << 56 | uint64_t(16) << 48;

// For tests, HF_BLOSAN_ONEDNN=1 or 0 overrides the processor check.
bool choose_onednn() {
  if (!aoti_torch_cpu__linear_pointwise || aoti_torch_abi_version() >= first_unknown_torch) return false;
  if (const char* const chosen = std::getenv("HF_BLOSAN_ONEDNN")) return !std::strcmp(chosen, "1");
  unsigned leaf, ebx, ecx, edx;
  if (!__get_cpuid(0, &leaf, &ebx, &ecx, &edx)) return false;
  const bool intel = ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx && edx == signature_INTEL_edx;
  const bool avx512 = loops<float>().lanes * sizeof(float) == 64;
  return !intel && avx512;
}

bool uses_onednn() {
  static const bool chosen = choose_onednn();
  return chosen;
}

// The gradient of a weight: a product that sums over the rows of a batch.
bool sums_rows(const Tensor& a) { return a.stride(0) == 1 && a.stride(1) != 1; }

// oneDNN is many times slower for a matrix with gaps in its memory.
Tensor without_gaps(const Tensor& x) {
  const bool dense = x.is_contiguous() || (x.stride(0) == 1 && x.stride(1) == x.size(0));
  return dense ? x : torch::stable::contiguous(x);
}

Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor weight = transposed(without_gaps(b));
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_cpu__linear_pointwise(a.get(), weight.get(), nullptr, "none", nullptr, 0, nullptr, &made));
  return Tensor(made);
}

struct Rows {
  const float* from;
  float* to;
  int64_t columns, step;  // step: between rows of `to`
  bool add;
};

void write_rows(const Rows& a, int64_t start, int64_t stop, void*) {
  for (int64_t row = start; row < stop; row++) {
    const float* from = a.from + row * a.columns;
    float* to = a.to + row * a.step;
    if (!a.add) std::memcpy(to, from, a.columns * sizeof(float));
    for (int64_t i = 0; a.add && i < a.columns; i++) to[i] += from[i];
  }
}

void write_to(const Tensor& out, const Tensor& x, bool add) {
  run<Rows>(write_rows, {read<float>(x), write<float>(out), x.size(1), out.stride(0), add}, x.size(0), x.numel());
}

}  // namespace

bool suits_onednn(const Tensor& a, const Tensor& b) {
  if (!uses_onednn() || a.scalar_type() != ScalarType::Float) return false;
  const int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1);
  const bool sum = sums_rows(a);
  const int64_t length = sum ? depth : rows, width = sum ? rows : depth;
  return length >= shortest && width > 1 && columns > 1 && width * columns >= smallest_weight;
}

void multiply_by_onednn(const Tensor& out, const Tensor& a, const Tensor& b, bool add) {
  const bool sum = sums_rows(a);
  const Tensor factor = sum ? b : without_gaps(b);
  const int64_t length = a.size(sum);
  int64_t start = 0;
  for (int64_t count = longest; count >= shortest; count /= 2) {
    for (; length - start >= count; start += count) {
      const Tensor part = narrow(a, sum, start, count);
      if (sum) {
        write_to(out, product(part, narrow(factor, 0, start, count)), add || start > 0);
      } else {
        write_to(narrow(out, 0, start, count), product(part, factor), add);
      }
    }
  }
  if (start == length) return;
  const Tensor part = narrow(a, sum, start, length - start);
  if (sum) {
    multiply(out, part, narrow(factor, 0, start, length - start), true);
  } else {
    multiply(narrow(out, 0, start, length - start), part, factor, add);
  }
}

}  // namespace hf_blosan

#else

namespace hf_blosan {

namespace {
bool uses_onednn() { return false; }
}  // namespace

bool suits_onednn(const Tensor&, const Tensor&) { return false; }
void multiply_by_onednn(const Tensor&, const Tensor&, const Tensor&, bool) {}

}  // namespace hf_blosan

#endif

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CompositeExplicitAutograd, m) {
  m.impl("uses_onednn", TORCH_BOX(&hf_blosan::uses_onednn));
}
