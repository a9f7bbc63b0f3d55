// Dropout; schemas and gradients in dropout.py.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "products.h"

namespace hf_blosan {
namespace {

// How to walk through the rows of a tensor: at most three dimensions before the last, whose elements are contiguous.
struct Walk {
  Tensor tensor;
  int64_t counts[3] = {1, 1, 1}, steps[3] = {0, 0, 0}, rows = 1, size = 1;

  Walk(const Tensor& x, int64_t skipped) : tensor(x) {
    const int64_t last = x.dim() - 1;
    if (last < skipped) return;
    size = x.size(last);
    if (last - skipped > 3 || (x.stride(last) != 1 && size > 1)) tensor = torch::stable::contiguous(x);
    if (last - skipped > 3) {
      for (int64_t i = skipped; i < last; i++) rows *= x.size(i);
      counts[2] = rows, steps[2] = size;
      return;
    }
    for (int64_t i = last - 1, at = 2; i >= skipped; i--, at--) {
      counts[at] = std::max<int64_t>(1, tensor.size(i));
      steps[at] = tensor.stride(i);
      rows *= tensor.size(i);
    }
  }
};

// Memory in the shape of x, with the last dimension innermost and the others in the same order as in x's memory.
Tensor allocate_alike(const Tensor& x) {
  const Sizes sizes = sizes_of(x);
  Sizes strides(sizes.size()), order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto last = order.end() - !order.empty();
  std::stable_sort(order.begin(), last, [&](int64_t i, int64_t j) { return x.stride(i) > x.stride(j); });
  int64_t step = 1;
  for (auto i = order.rbegin(); i != order.rend(); i++) {
    strides[*i] = step;
    step *= std::max<int64_t>(1, sizes[*i]);
  }
  return view(allocate(x, {step}), sizes, strides);
}

// A tensor, or copies of it along an extra first dimension.
struct Copies {
  bool given;
  int64_t count;

  explicit Copies(int64_t number) : given(number > 0), count(std::max<int64_t>(1, number)) {}

  Sizes added_to(Sizes sizes) const {
    if (given) sizes.insert(sizes.begin(), count);
    return sizes;
  }
  Sizes removed_from(Sizes sizes) const {
    check(!given || (!sizes.empty() && sizes[0] == count), "grad: give (copies, ...)");
    if (given) sizes.erase(sizes.begin());
    return sizes;
  }
};

template <class T>
Dropout<T> arguments_of(const Walk& from, const Walk& to, const Copies& copies, double p, int64_t seed) {
  const double dropped = std::nearbyint(p * 4294967296.0);
  check(dropped > 0 && dropped < 4294967296.0, "p: give a probability between 0 and 1");
  Dropout<T> a{copies.count, from.rows, from.size, seed, uint32_t(dropped), T(4294967296.0 / (4294967296.0 - dropped))};
  std::copy(from.counts, from.counts + 3, a.counts);
  std::copy(from.steps, from.steps + 3, a.x_steps);
  std::copy(to.steps, to.steps + 3, a.y_steps);
  a.x = read<T>(from.tensor);
  a.y = write<T>(to.tensor);
  return a;
}

Tensor dropout(const Tensor& x, int64_t number, double p, int64_t seed) {
  return by_type("x", x, [&]<class T>(T) {
    const Copies copies(number);
    const Walk from(x, 0);
    Tensor y = copies.given ? allocate(x, copies.added_to(sizes_of(x))) : allocate_alike(from.tensor);
    Dropout<T> a = arguments_of<T>(from, Walk(y, copies.given), copies, p, seed);
    a.y_copy_step = from.rows * from.size;
    run(loops<T>().dropout, a, copies.count * from.rows, y.numel());
    return y;
  });
}

Tensor dropout_backward(const Tensor& grad, int64_t number, double p, int64_t seed) {
  return by_type("grad", grad, [&]<class T>(T) {
    const Copies copies(number);
    const Walk from(grad, copies.given);
    const Sizes sizes = copies.removed_from(sizes_of(grad));
    Tensor to_x = copies.given ? allocate(grad, sizes) : allocate_alike(from.tensor);
    Dropout<T> a = arguments_of<T>(from, Walk(to_x, 0), copies, p, seed);
    if (copies.given) a.x_copy_step = from.tensor.stride(0);
    run(loops<T>().dropout_backward, a, from.rows, grad.numel());
    return to_x;
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("dropout", TORCH_BOX(&hf_blosan::dropout));
  m.impl("dropout_backward", TORCH_BOX(&hf_blosan::dropout_backward));
}
