// Separate dense layers and gates for every head; schemas and gradients in pointwise.py.

#include <cstring>
#include <tuple>

#include "products.h"

namespace hf_blosan {
namespace {

// (B, H, N, D) head by head, with evenly spaced rows; a copy where they are not.
struct HeadRows {
  Tensor tensor;
  int64_t heads, rows, size, head, step;

  HeadRows(const char* name, const Tensor& x, ScalarType type, const Sizes& sizes)
      : tensor(x), heads(sizes[1]), rows(sizes[0] * sizes[2]), size(sizes[3]), head(rows * size), step(size) {
    check_tensor(name, x, type, sizes);
    const int64_t B = sizes[0], N = sizes[2], row = x.stride(2);
    const bool even = (B == 1 || x.stride(0) == N * row) && (size == 1 || x.stride(3) == 1) && row >= size;
    if (even) {
      head = x.stride(1), step = row;
    } else {
      tensor = torch::stable::contiguous(
          view(x, {heads, B, N, size}, {x.stride(1), x.stride(0), row, x.stride(3)}));
    }
  }

  // (heads, rows, D), also as a Place.
  Tensor stack() const { return view(tensor, {heads, rows, size}, {head, step, 1}); }
  template <class T>
  Place<const T> place() const { return {read<T>(tensor), head, step}; }
};

// A contiguous (H, B, N, D) as (B, H, N, D).
Tensor heads_second(const Tensor& x, int64_t B, int64_t H, int64_t N, int64_t D) {
  return view(x, {B, H, N, D}, {N * D, B * N * D, D, 1});
}

// Many heads have small matrices: from here on, copying them costs less than a product per head.
constexpr size_t many_heads = 3;

struct HeadSizes {
  int64_t B, N, H, in, out;
  bool shared, joint;  // one input for all heads; one product for them
  Sizes x, y;

  HeadSizes(const Tensor& x_, const Tensors& weights) : x(sizes_of(x_)) {
    check(!weights.empty() && weights[0].dim() == 2 && (x.size() == 3 || x.size() == 4),
          "x: give (B, N, in) or (B, H, N, in), weights: give (out, in) for each of H heads");
    H = weights.size(), out = weights[0].size(0), in = weights[0].size(1);
    shared = x.size() == 3;
    B = x[0], N = x[x.size() - 2];
    check(x.back() == in && (shared || x[1] == H), "x: its shape is ", x, ", there are ", H,
          " weights, the first of shape ", sizes_of(weights[0]),
          "; give (B, N, in) or (B, H, N, in), and (out, in) for each of H heads");
    joint = shared && weights.size() >= many_heads;
    y = {B, H, N, out};
  }
  int64_t rows() const { return B * N; }
};

// Matrices or vectors one after another, each of `sizes`.
template <class T>
Tensor stacked(const Tensors& list, Sizes sizes) {
  const int64_t size = product_of(sizes);
  sizes.insert(sizes.begin(), list.size());
  const Tensor stack = allocate(list[0], sizes);
  for (size_t h = 0; h < list.size(); h++) std::memcpy(write<T>(stack) + h * size, read<T>(list[h]), size * sizeof(T));
  return stack;
}

template <class T>
MaybeTensor stacked_biases(const Tensors& biases, int64_t H, int64_t out) {
  if (biases.empty()) return MaybeTensor();
  check(int64_t(biases.size()) == H, "biases: there are ", biases.size(), "; give one for each of ", H, " heads");
  return stacked<T>(checked("biases", biases, type_of<T>, {out}), {out});
}

Tensor one_of(const Tensor& stack, int64_t i) {
  return view(stack, {stack.size(1), stack.size(2)}, {stack.stride(1), stack.stride(2)}, i * stack.stride(0));
}

// out = a factor, or out += a factor, for every head; factor(h) is the matrix of head h.
template <class Factor>
void multiply_heads(const Tensor& out, const Tensor& a, const Factor& factor, bool add = false) {
  for (int64_t h = 0; h < out.size(0); h++) multiply(one_of(out, h), one_of(a, h), factor(h), add);
}

// The weights of heads that share their input, (H out, in).
template <class T>
Tensor side_by_side(const Tensors& weights, int64_t out, int64_t in) {
  const Tensor stack = stacked<T>(checked("weights", weights, type_of<T>, {out, in}), {out, in});
  return matrix(stack, weights.size() * out, in, in);
}

// The input as (H, rows, in): one for each head, or one for all.
template <class T>
Tensor input_of_heads(const Tensor& x, const HeadSizes& sizes) {
  if (!sizes.shared) return HeadRows("x", x, type_of<T>, sizes.x).stack();
  const RowsOf rows("x", x, type_of<T>, sizes.x);
  return view(rows.tensor, {sizes.H, sizes.rows(), sizes.in}, {0, rows.step, 1});
}

Tensor heads_linear(const Tensor& x, const Tensors& weights, const Tensors& biases, bool elu) {
  return by_type("x", x, [&]<class T>(T) {
    const HeadSizes sizes(x, weights);
    const int64_t H = sizes.H, rows = sizes.rows(), in = sizes.in, out = sizes.out;
    const MaybeTensor bias = stacked_biases<T>(biases, H, out);
    check_tensor("x", x, type_of<T>, sizes.x);
    const Tensor y = allocate(x, {H, rows, out}), inputs = input_of_heads<T>(x, sizes);
    BiasActivation<T> arguments{chunks(H, rows, out), elu ? Activation::elu : Activation::linear};
    arguments.bias = read<T>(bias);
    arguments.y = {write<T>(y), rows * out, out};
    if (sizes.joint) {
      const Tensor product = allocate(x, {rows, H * out}), weight = side_by_side<T>(weights, out, in);
      multiply(product, one_of(inputs, 0), transposed(weight));
      arguments.x = {read<T>(product), out, H * out};
      run_groups(loops<T>().bias_activation, arguments);
    } else {
      const Tensors weights_ = checked("weights", weights, type_of<T>, {out, in});
      multiply_heads(y, inputs, [&](int64_t h) { return transposed(weights_[h]); });
      arguments.x = {read<T>(y), rows * out, out};
      if (elu || bias) run_groups(loops<T>().bias_activation, arguments);
    }
    return heads_second(y, sizes.B, H, sizes.N, out);
  });
}

// The gradients of x, of the weights (H, out, in) and of the biases (H, out).
std::tuple<Tensor, Tensor, Tensor> heads_linear_backward(const Tensor& grad, const Tensor& x, const Tensors& weights,
                                                         const MaybeTensor& y, bool need_x, bool need_bias) {
  return by_type("x", x, [&]<class T>(T) {
    const HeadSizes sizes(x, weights);
    const int64_t B = sizes.B, N = sizes.N, H = sizes.H, in = sizes.in, rows = sizes.rows(), out = sizes.out;
    check_tensor("x", x, type_of<T>, sizes.x);
    const Tensor inputs = input_of_heads<T>(x, sizes);
    const HeadRows grad_("grad", grad, type_of<T>, sizes.y);
    BiasActivation<T> arguments{chunks(H, rows, out), y ? Activation::elu : Activation::linear};
    MaybeTensor y_memory;
    if (y) {
      const HeadRows y_("y", *y, type_of<T>, sizes.y);
      y_memory = y_.tensor;
      arguments.result = y_.template place<T>();
    }
    const int64_t groups = groups_of_head(arguments.groups);
    Tensor to_heads = grad_.stack(), to_bias = nothing(x);
    // If no elementwise step is needed, the products can take the gradient as it is.
    if (y || need_bias || sizes.joint) {
      const Tensor sums = allocate(x, {H, groups, out}), to_y = allocate(x, {rows * H * out});
      const Place<T> by_head{write<T>(to_y), rows * out, out}, side_by_side{write<T>(to_y), out, H * out};
      const Place<T> place = sizes.joint ? side_by_side : by_head;
      arguments.grad = grad_.template place<T>();
      arguments.grad_x = place;
      arguments.sums = write<T>(sums);
      run_groups(loops<T>().bias_activation_backward, arguments);
      to_heads = view(to_y, {H, rows, out}, {place.matrix, place.row, 1});
      if (need_bias) to_bias = sum_rows<T>(sums, H, groups, out, {H, out});
    }
    Tensor to_x = nothing(x), to_weight = allocate(x, {H, out, in});
    if (sizes.joint) {
      const Tensor to_rows = matrix(to_heads, rows, H * out, H * out);
      multiply(matrix(to_weight, H * out, in, in), transposed(to_rows), one_of(inputs, 0));
      if (need_x) {
        to_x = allocate(x, sizes.x);
        multiply(matrix(to_x, rows, in, in), to_rows, side_by_side<T>(weights, out, in));
      }
    } else {
      const Tensors weights_ = checked("weights", weights, type_of<T>, {out, in});
      multiply_heads(to_weight, transposed(to_heads), [&](int64_t h) { return one_of(inputs, h); });
      if (need_x && sizes.shared) {
        to_x = allocate(x, sizes.x);
        const Tensor to_rows = matrix(to_x, rows, in, in);
        for (int64_t h = 0; h < H; h++) multiply(to_rows, one_of(to_heads, h), weights_[h], h > 0);
      } else if (need_x) {
        const Tensor by_head = allocate(x, {H, rows, in});
        multiply_heads(by_head, to_heads, [&](int64_t h) { return weights_[h]; });
        to_x = heads_second(by_head, B, H, N, in);
      }
    }
    return std::make_tuple(to_x, to_weight, to_bias);
  });
}

// What both passes of the gate share, and the tensors that keep its memory alive.
template <class T>
struct HeadGateInputs {
  Sizes sizes;
  int64_t B, H, N, D, rows;
  HeadRows v, attended;
  Tensors weights;
  Tensor bias, mask;
  Gate<T> arguments;

  HeadGateInputs(const Tensor& v_, const Tensor& attended_, const Tensors& weights_, const Tensors& biases,
                 const Tensor& mask_)
      : sizes(four(v_)),
        B(sizes[0]),
        H(sizes[1]),
        N(sizes[2]),
        D(sizes[3]),
        rows(B * N),
        v("v", v_, type_of<T>, sizes),
        attended("attended", attended_, type_of<T>, sizes),
        weights(checked("weights", weights_, type_of<T>, {D, 2 * D})),
        bias(one_of_each(biases)),
        mask(checked("mask", mask_, ScalarType::Bool, {B, N})),
        arguments{} {
    arguments.groups = chunks(H, rows, D);
    arguments.bias = read<T>(bias);
    arguments.first = v.template place<T>();
    arguments.second = attended.template place<T>();
    arguments.mask = read<bool>(mask);
  }

  static Sizes four(const Tensor& v) {
    check(v.dim() == 4 && v.size(1) > 0, "v: give (B, H, N, D)");
    return sizes_of(v);
  }
  // The columns of a head's weight that v, or the attended values, are multiplied by.
  Tensor weight_of_v(int64_t h) const { return narrow(weights[h], 1, 0, D); }
  Tensor weight_of_attended(int64_t h) const { return narrow(weights[h], 1, D, D); }

 private:
  Tensor one_of_each(const Tensors& biases) const {
    for (const size_t count : {weights.size(), biases.size()}) {
      check(int64_t(count) == H, "weights, biases: there are ", count, "; give one for each of ", H, " heads");
    }
    return stacked<T>(checked("biases", biases, type_of<T>, {D}), {D});
  }
};

std::tuple<Tensor, Tensor> heads_fusion_gate(const Tensor& v, const Tensor& attended, const Tensors& weights,
                                             const Tensors& biases, const Tensor& mask, bool save) {
  return by_type("v", v, [&]<class T>(T) {
    HeadGateInputs<T> inputs(v, attended, weights, biases, mask);
    const int64_t H = inputs.H, D = inputs.D, rows = inputs.rows;
    Tensor out = allocate(v, {inputs.B, inputs.N, H * D});
    const Tensor scores = allocate(v, {H, rows, D});
    const auto of_v = [&](int64_t h) { return transposed(inputs.weight_of_v(h)); };
    const auto of_attended = [&](int64_t h) { return transposed(inputs.weight_of_attended(h)); };
    multiply_heads(scores, inputs.v.stack(), of_v);
    multiply_heads(scores, inputs.attended.stack(), of_attended, true);
    inputs.arguments.scores = {read<T>(scores), rows * D, D};
    inputs.arguments.out = {write<T>(out), D, H * D};
    run_groups(loops<T>().gate, inputs.arguments);
    return std::make_tuple(out, save ? scores : nothing(v));
  });
}

// The gradients of v, of the attended values, of the weights (H, D, 2 D) and of the biases (H, D).
std::tuple<Tensor, Tensor, Tensor, Tensor> heads_fusion_gate_backward(const Tensor& grad, const Tensor& v,
                                                                      const Tensor& attended, const Tensors& weights,
                                                                      const Tensors& biases, const Tensor& mask,
                                                                      const Tensor& scores) {
  return by_type("v", v, [&]<class T>(T) {
    HeadGateInputs<T> inputs(v, attended, weights, biases, mask);
    auto& arguments = inputs.arguments;
    const int64_t B = inputs.B, H = inputs.H, N = inputs.N, D = inputs.D, rows = inputs.rows;
    const RowsOf grad_("grad", grad, type_of<T>, {B, N, H * D});
    const Tensor scores_ = checked("scores", scores, type_of<T>, {H, rows, D});
    const int64_t groups = groups_of_head(arguments.groups);
    const Tensor to_v = allocate(v, {H, rows, D}), to_attended = allocate(v, {H, rows, D});
    const Tensor to_scores = allocate(v, {H, rows, D}), sums = allocate(v, {H, groups, D});
    arguments.scores = {read<T>(scores_), rows * D, D};
    arguments.grad = {read<T>(grad_.tensor), D, grad_.step};
    arguments.grad_scores = {write<T>(to_scores), rows * D, D};
    arguments.grad_first = {write<T>(to_v), rows * D, D};
    arguments.grad_second = {write<T>(to_attended), rows * D, D};
    arguments.sums = write<T>(sums);
    run_groups(loops<T>().gate_backward, arguments);
    multiply_heads(to_v, to_scores, [&](int64_t h) { return inputs.weight_of_v(h); }, true);
    multiply_heads(to_attended, to_scores, [&](int64_t h) { return inputs.weight_of_attended(h); }, true);
    Tensor to_weight = allocate(v, {H, D, 2 * D});
    const Tensor v_ = inputs.v.stack(), attended_ = inputs.attended.stack(), from_scores = transposed(to_scores);
    multiply_heads(narrow(to_weight, 2, 0, D), from_scores, [&](int64_t h) { return one_of(v_, h); });
    multiply_heads(narrow(to_weight, 2, D, D), from_scores, [&](int64_t h) { return one_of(attended_, h); });
    return std::make_tuple(heads_second(to_v, B, H, N, D), heads_second(to_attended, B, H, N, D), to_weight,
                           sum_rows<T>(sums, H, groups, D, {H, D}));
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("heads_linear", TORCH_BOX(&hf_blosan::heads_linear));
  m.impl("heads_linear_backward", TORCH_BOX(&hf_blosan::heads_linear_backward));
  m.impl("heads_fusion_gate", TORCH_BOX(&hf_blosan::heads_fusion_gate));
  m.impl("heads_fusion_gate_backward", TORCH_BOX(&hf_blosan::heads_fusion_gate_backward));
}
