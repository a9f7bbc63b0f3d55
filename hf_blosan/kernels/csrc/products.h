// Matrix products of tensors and parts of tensors, by torch. They do not check their arguments.
#pragma once

#include <algorithm>
#include <utility>

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include "tensors.h"

namespace hf_blosan {

// Part of a tensor's memory in another shape.
inline Tensor view(const Tensor& base, const Sizes& sizes, const Sizes& strides, int64_t offset = 0) {
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch__reinterpret_tensor(base.get(), sizes.size(), sizes.data(), strides.data(), offset, &made));
  return Tensor(made);
}

// Rows `step` elements apart: a whole contiguous tensor or some of its columns.
inline Tensor matrix(const Tensor& base, int64_t rows, int64_t columns, int64_t step, int64_t offset = 0) {
  return view(base, {rows, columns}, {step, 1}, offset);
}

// With the last two dimensions exchanged.
inline Tensor transposed(const Tensor& x) {
  Sizes sizes = sizes_of(x), strides;
  for (int64_t i = 0; i < int64_t(sizes.size()); i++) strides.push_back(x.stride(i));
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  std::swap(strides[sizes.size() - 1], strides[sizes.size() - 2]);
  return view(x, sizes, strides);
}

// Some rows or columns of a matrix or of all matrices of a stack.
inline Tensor narrow(const Tensor& x, int64_t dim, int64_t first, int64_t count) {
  Sizes sizes = sizes_of(x), strides;
  for (int64_t i = 0; i < x.dim(); i++) strides.push_back(x.stride(i));
  sizes[dim] = count;
  return view(x, sizes, strides, first * strides[dim]);
}

// Rows of a product that torch computes in one call: for 4,096 rows of 300 features, one MKL call takes a third longer
// than four with 1,024, and splitting is free at other widths.
constexpr int64_t rows_of_product = 1024;

// Whether the package's own loops are faster than torch for a product of two matrices; out = a b, or out += a b, by
// them: products.cpp.
bool suits_own_product(const Tensor& a, const Tensor& b);
void multiply_by_own_product(const Tensor& out, const Tensor& a, const Tensor& b, bool add);

// Second matrices of products, packed once for all threads that multiply by them while a `Use` exists there.
class PackedMatrices {
 public:
  // Packs matrices, unless the package's own loops do not serve products of so few rows.
  void add(const Tensors& matrices, int64_t rows);

  // The packed form of a matrix, or null.
  const float* find(const Tensor& b) const;

  class Use {
   public:
    explicit Use(const PackedMatrices& packed) : before_(used()) { used() = &packed; }
    ~Use() { used() = before_; }
    Use(const Use&) = delete;

   private:
    const PackedMatrices* before_;
  };

  // Those that this thread uses, or null.
  static const PackedMatrices*& used();

 private:
  Tensors matrices_, packed_;
};

// out = a b, or out += a b, of matrices or of stacks of them.
inline void multiply(const Tensor& out, const Tensor& a, const Tensor& b, bool add = false) {
  const int64_t dim = a.dim() - 2, rows = a.size(dim);
  if (dim == 0 && suits_own_product(a, b)) {
    multiply_by_own_product(out, a, b, add);
  } else if (dim == 0 && rows > rows_of_product) {
    for (int64_t row = 0; row < rows; row += rows_of_product) {
      const int64_t count = std::min(rows_of_product, rows - row);
      multiply(narrow(out, 0, row, count), narrow(a, 0, row, count), b, add);
    }
  } else if (add) {
    const auto product = dim == 0 ? aoti_torch_cpu_addmm_out : aoti_torch_cpu_baddbmm_out;
    STABLE_TORCH_ERROR_CODE_CHECK(product(out.get(), out.get(), a.get(), b.get(), 1, 1));
  } else {
    const auto product = dim == 0 ? aoti_torch_cpu_mm_out : aoti_torch_cpu_bmm_out;
    STABLE_TORCH_ERROR_CODE_CHECK(product(out.get(), a.get(), b.get()));
  }
}

inline int64_t product_of(const Sizes& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// (..., size) as evenly spaced rows of contiguous features; a copy where they are not.
struct RowsOf {
  Tensor tensor;
  int64_t count, size, step;

  RowsOf(const char* name, const Tensor& x, ScalarType type, const Sizes& sizes)
      : tensor(x), count(product_of(sizes) / std::max<int64_t>(1, sizes.back())), size(sizes.back()), step(size) {
    check_tensor(name, x, type, sizes);
    if (x.is_contiguous()) return;
    if (!evenly_spaced(x, sizes)) {
      tensor = torch::stable::contiguous(x);
      step = size;
    }
  }

  template <class T>
  Place<const T> place() const { return {read<T>(tensor), 0, step}; }

 private:
  bool evenly_spaced(const Tensor& x, const Sizes& sizes) {
    const int64_t last = int64_t(sizes.size()) - 1;
    if (last < 1 || x.stride(last) != 1) return false;
    step = x.stride(last - 1);
    for (int64_t i = last - 1, rows = 1; i >= 0; i--) {
      if (sizes[i] != 1 && x.stride(i) != rows * step) return false;
      rows *= sizes[i];
    }
    return step >= size;
  }
};

// Rows per item of a loop where nothing else divides them.
constexpr int64_t rows_of_group = 32;

inline Groups chunks(int64_t heads, int64_t rows, int64_t size) {
  return {heads, rows, size, std::max<int64_t>(1, rows), rows_of_group};
}

inline int64_t groups_of_head(const Groups& groups) {
  return groups.rows / groups.sentence * ((groups.sentence + groups.length - 1) / groups.length);
}

// Runs a loop over all groups.
template <class Arguments>
void run_groups(Loop<Arguments> loop, const Arguments& arguments) {
  const Groups& groups = arguments.groups;
  run(loop, arguments, groups.heads * groups_of_head(groups), groups.heads * groups.rows * groups.size);
}

// (heads, rows, size) -> the sums over rows, (heads, size).
template <class T>
Tensor sum_rows(const Tensor& x, int64_t heads, int64_t rows, int64_t size, const Sizes& sizes) {
  const Tensor out = allocate(x, sizes);
  const Sums<T> arguments{heads, rows, size, read<T>(x), write<T>(out)};
  run(loops<T>().sums, arguments, heads * slices<T>(size), x.numel());
  return out;
}

inline Tensor nothing(const Tensor& like) { return allocate(like, {0}); }

}  // namespace hf_blosan
