// Dense layers and gates of their own for every head; schemas and gradients in pointwise/operator.py.

#include <cstring>

#include "products.h"

namespace hf_blosan {
namespace {

// (B, H, N, D) with all rows of a head one step apart, head by head; a copy where they are not.
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

  // (heads, rows, D), and one head of it.
  Tensor stack() const { return view(tensor, {heads, rows, size}, {head, step, 1}); }
  template <class T>
  Place<const T> place() const { return {read<T>(tensor), head, step}; }
};

// A contiguous (H, B, N, D) as (B, H, N, D).
Tensor heads_second(const Tensor& x, int64_t B, int64_t H, int64_t N, int64_t D) {
  return view(x, {B, H, N, D}, {N * D, B * N * D, D, 1});
}

// Heads of one input from which one product for all of them is worth a copy of the weights.
constexpr int64_t heads_for_one_product = 3;

struct HeadSizes {
  int64_t B, N, H, in, out;
  bool shared, joint;  // one input for all heads; one product for them
  Sizes x, y;

  HeadSizes(const Tensor& x_, const Tensor& weight) : x(sizes_of(x_)) {
    check(weight.dim() == 3 && (x.size() == 3 || x.size() == 4),
          "x: give (B, N, in) or (B, H, N, in), weight: give (H, in, out)");
    H = weight.size(0), in = weight.size(1), out = weight.size(2);
    shared = x.size() == 3;
    B = x[0], N = x[x.size() - 2];
    check(x.back() == in && (shared || x[1] == H), "x: its shape is ", text(x), ", the weight's ",
          text(sizes_of(weight)), "; give (B, N, in) or (B, H, N, in), and (H, in, out)");
    joint = shared && H >= heads_for_one_product;
    y = {B, H, N, out};
  }
  int64_t rows() const { return B * N; }
};

// (H, in, out) <-> (in, H out).
template <class T>
void exchange(const T* from, T* to, int64_t H, int64_t in, int64_t out, bool pack) {
  for (int64_t h = 0; h < H; h++) {
    for (int64_t i = 0; i < in; i++) {
      const int64_t by_head = (h * in + i) * out, side_by_side = (i * H + h) * out;
      std::memcpy(to + (pack ? side_by_side : by_head), from + (pack ? by_head : side_by_side), out * sizeof(T));
    }
  }
}

template <class T>
Tensor pack(const Tensor& weight, const HeadSizes& sizes) {
  const Tensor packed = allocate(weight, {sizes.in, sizes.H * sizes.out});
  exchange(read<T>(weight), write<T>(packed), sizes.H, sizes.in, sizes.out, true);
  return packed;
}

// The input as (H, rows, in): of each head its own, or one for all.
template <class T>
Tensor input_of_heads(const Tensor& x, const HeadSizes& sizes) {
  if (!sizes.shared) return HeadRows("x", x, type_of<T>, sizes.x).stack();
  const RowsOf rows("x", x, type_of<T>, sizes.x);
  return view(rows.tensor, {sizes.H, sizes.rows(), sizes.in}, {0, rows.step, 1});
}

Tensor one_of(const Tensor& stack, int64_t i) {
  return view(stack, {stack.size(1), stack.size(2)}, {stack.stride(1), stack.stride(2)}, i * stack.stride(0));
}

Tensor heads_linear(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, bool elu) {
  return by_type("x", x, [&](auto type) {
    using T = decltype(type);
    const HeadSizes sizes(x, weight);
    const int64_t H = sizes.H, rows = sizes.rows(), out = sizes.out;
    const Tensor weight_ = checked("weight", weight, type_of<T>, {H, sizes.in, out});
    const MaybeTensor bias_ = checked("bias", bias, type_of<T>, {H, out});
    check_tensor("x", x, type_of<T>, sizes.x);
    const Tensor y = allocate(x, {H, rows, out}), inputs = input_of_heads<T>(x, sizes);
    BiasElu<T> arguments{chunks(H, rows, out), elu};
    arguments.bias = read<T>(bias_);
    arguments.y = {write<T>(y), rows * out, out};
    if (sizes.joint) {
      const Tensor product = allocate(x, {rows, H * out});
      multiply(product, one_of(inputs, 0), pack<T>(weight_, sizes));
      arguments.x = {read<T>(product), out, H * out};
      run_groups(loops<T>().bias_elu, arguments);
    } else {
      multiply(y, inputs, weight_);
      arguments.x = {read<T>(y), rows * out, out};
      if (elu || bias_) run_groups(loops<T>().bias_elu, arguments);
    }
    return heads_second(y, sizes.B, H, sizes.N, out);
  });
}

std::tuple<Tensor, Tensor, Tensor> heads_linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                         const MaybeTensor& y, bool need_x, bool need_bias) {
  return by_type("x", x, [&](auto type) {
    using T = decltype(type);
    const HeadSizes sizes(x, weight);
    const int64_t B = sizes.B, N = sizes.N, H = sizes.H, in = sizes.in, rows = sizes.rows(), out = sizes.out;
    const Tensor weight_ = checked("weight", weight, type_of<T>, {H, in, out});
    check_tensor("x", x, type_of<T>, sizes.x);
    const Tensor inputs = input_of_heads<T>(x, sizes);
    const HeadRows grad_("grad", grad, type_of<T>, sizes.y);
    BiasElu<T> arguments{chunks(H, rows, out), y.has_value()};
    MaybeTensor y_memory;
    if (y) {
      const HeadRows y_("y", *y, type_of<T>, sizes.y);
      y_memory = y_.tensor;
      arguments.result = y_.template place<T>();
    }
    const int64_t groups = groups_of_head(arguments.groups);
    Tensor to_heads = grad_.stack(), to_bias = nothing(x);
    // Where nothing is to be done number by number the products can take the gradient as it is.
    if (y || need_bias || sizes.joint) {
      const Tensor sums = allocate(x, {H, groups, out}), to_y = allocate(x, {rows * H * out});
      const Place<T> by_head{write<T>(to_y), rows * out, out}, side_by_side{write<T>(to_y), out, H * out};
      const Place<T> place = sizes.joint ? side_by_side : by_head;
      arguments.grad = grad_.template place<T>();
      arguments.grad_x = place;
      arguments.sums = write<T>(sums);
      run_groups(loops<T>().bias_elu_backward, arguments);
      to_heads = view(to_y, {H, rows, out}, {place.head, place.row, 1});
      if (need_bias) to_bias = sum_rows<T>(sums, H, groups, out, {H, out});
    }
    Tensor to_x = nothing(x), to_weight = allocate(x, {H, in, out});
    if (sizes.joint) {
      const Tensor to_rows = matrix(to_heads, rows, H * out, H * out), packed = allocate(x, {in, H * out});
      multiply(packed, transposed(one_of(inputs, 0)), to_rows);
      exchange(read<T>(packed), write<T>(to_weight), H, in, out, false);
      if (need_x) {
        to_x = allocate(x, sizes.x);
        multiply(matrix(to_x, rows, in, in), to_rows, transposed(pack<T>(weight_, sizes)));
      }
    } else {
      multiply(to_weight, transposed(inputs), to_heads);
      if (need_x && !sizes.shared) {
        const Tensor by_head = allocate(x, {H, rows, in});
        multiply(by_head, to_heads, transposed(weight_));
        to_x = heads_second(by_head, B, H, N, in);
      } else if (need_x) {
        to_x = allocate(x, sizes.x);
        const Tensor to_rows = matrix(to_x, rows, in, in);
        if (H == 0) std::memset(write<T>(to_x), 0, to_x.numel() * sizeof(T));
        for (int64_t h = 0; h < H; h++) {
          multiply(to_rows, one_of(to_heads, h), transposed(one_of(weight_, h)), h > 0);
        }
      }
    }
    return std::make_tuple(to_x, to_weight, to_bias);
  });
}

// What both directions of the gate share, and the tensors that keep its memory alive.
template <class T>
struct HeadGateInputs {
  Sizes sizes;
  int64_t B, H, N, D, rows;
  HeadRows v, attended;
  Tensor weight, bias, mask;
  Gate<T> arguments;

  HeadGateInputs(const Tensor& v_, const Tensor& attended_, const Tensor& weight_, const Tensor& bias_,
                 const Tensor& mask_)
      : sizes(four(v_)),
        B(sizes[0]),
        H(sizes[1]),
        N(sizes[2]),
        D(sizes[3]),
        rows(B * N),
        v("v", v_, type_of<T>, sizes),
        attended("attended", attended_, type_of<T>, sizes),
        weight(checked("weight", weight_, type_of<T>, {H, 2 * D, D})),
        bias(checked("bias", bias_, type_of<T>, {H, D})),
        mask(checked("mask", mask_, ScalarType::Bool, {B, N})),
        arguments{} {
    arguments.groups = chunks(H, rows, D);
    arguments.bias = read<T>(bias);
    arguments.first = v.template place<T>();
    arguments.second = attended.template place<T>();
    arguments.mask = read<bool>(mask);
  }

  static Sizes four(const Tensor& v) {
    check(v.dim() == 4, "v: give (B, H, N, D)");
    return sizes_of(v);
  }
  // The rows of the weight that v (0) or the attended values (1) are multiplied with, (H, D, D).
  Tensor half(const Tensor& of, int64_t which) const { return view(of, {H, D, D}, {2 * D * D, D, 1}, which * D * D); }
};

// The gradients of both halves of the weight, by way of memory without gaps: torch's batched product writes to others
// head by head.
template <class T>
void multiply_into_halves(const HeadGateInputs<T>& inputs, const Tensor& to_scores, const Tensor& to_weight) {
  const int64_t H = inputs.H, half = inputs.D * inputs.D;
  const Tensor product = allocate(to_weight, {H, inputs.D, inputs.D});
  for (const int64_t which : {0, 1}) {
    multiply(product, transposed((which ? inputs.attended : inputs.v).stack()), to_scores);
    for (int64_t h = 0; h < H; h++) {
      std::memcpy(write<T>(to_weight) + (2 * h + which) * half, read<T>(product) + h * half, half * sizeof(T));
    }
  }
}

std::tuple<Tensor, Tensor> heads_fusion_gate(const Tensor& v, const Tensor& attended, const Tensor& weight,
                                             const Tensor& bias, const Tensor& mask, bool save) {
  return by_type("v", v, [&](auto type) {
    using T = decltype(type);
    HeadGateInputs<T> inputs(v, attended, weight, bias, mask);
    const int64_t H = inputs.H, D = inputs.D, rows = inputs.rows;
    Tensor out = allocate(v, {inputs.B, inputs.N, H * D});
    const Tensor scores = allocate(v, {H, rows, D});
    multiply(scores, inputs.v.stack(), inputs.half(inputs.weight, 0));
    add_product(scores, inputs.attended.stack(), inputs.half(inputs.weight, 1));
    inputs.arguments.scores = {read<T>(scores), rows * D, D};
    inputs.arguments.out = {write<T>(out), D, H * D};
    run_groups(loops<T>().gate, inputs.arguments);
    return std::make_tuple(out, save ? scores : nothing(v));
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> heads_fusion_gate_backward(const Tensor& grad, const Tensor& v,
                                                                      const Tensor& attended, const Tensor& weight,
                                                                      const Tensor& bias, const Tensor& mask,
                                                                      const Tensor& scores) {
  return by_type("v", v, [&](auto type) {
    using T = decltype(type);
    HeadGateInputs<T> inputs(v, attended, weight, bias, mask);
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
    add_product(to_v, to_scores, transposed(inputs.half(inputs.weight, 0)));
    add_product(to_attended, to_scores, transposed(inputs.half(inputs.weight, 1)));
    Tensor to_weight = allocate(v, {H, 2 * D, D});
    multiply_into_halves<T>(inputs, to_scores, to_weight);
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
