// Steps of layers on rows of features, each with its matrix products; schemas and gradients in pointwise.py.

#include <algorithm>
#include <cstring>
#include <tuple>

#include "products.h"
#include "steps.h"

namespace hf_blosan {
namespace {

// x W' + bias, or its elu or gelu

struct LinearSizes {
  Sizes x, y;
  int64_t rows, in, out;

  LinearSizes(const Tensor& x_, const Tensor& weight) : x(sizes_of(x_)) {
    check(!x.empty() && weight.dim() == 2, "x: give (..., in), weight: give (out, in)");
    in = x.back();
    out = weight.size(0);
    y = x;
    y.back() = out;
    rows = product_of(Sizes(x.begin(), x.end() - 1));
  }
};

template <class T>
void activate_rows(const BiasActivation<T>& arguments) {
  if (arguments.activation != Activation::linear || arguments.bias) {
    run_groups(loops<T>().bias_activation, arguments);
  }
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, Activation activation) {
  return by_type("x", x, [&]<class T>(T) {
    const LinearSizes sizes(x, weight);
    const RowsOf x_("x", x, type_of<T>, sizes.x);
    check_tensor("weight", weight, type_of<T>, {sizes.out, sizes.in});
    const MaybeTensor bias_ = checked("bias", bias, type_of<T>, {sizes.out});
    Tensor y = allocate(x, sizes.y);
    multiply(matrix(y, sizes.rows, sizes.out, sizes.out), matrix(x_.tensor, sizes.rows, sizes.in, x_.step),
             transposed(weight));
    BiasActivation<T> arguments{chunks(1, sizes.rows, sizes.out), activation};
    arguments.x = {read<T>(y), 0, sizes.out};
    arguments.bias = read<T>(bias_);
    arguments.y = {write<T>(y), 0, sizes.out};
    activate_rows(arguments);
    return y;
  });
}

// For contiguous x.
void activate(const Tensor& x, Activation activation) {
  by_type("x", x, [&]<class T>(T) {
    const int64_t size = x.size(x.dim() - 1);
    BiasActivation<T> arguments{chunks(1, x.numel() / std::max<int64_t>(1, size), size), activation};
    arguments.x = {read<T>(x), 0, size};
    arguments.y = {write<T>(x), 0, size};
    activate_rows(arguments);
  });
}

namespace {

Tensor linear_or_elu(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, bool elu) {
  return linear(x, weight, bias, elu ? Activation::elu : Activation::linear);
}

Tensor activated(const Tensor& x, const std::string& name) {
  const Activation activation = activation_by_name(name);
  check(activation != Activation::linear, "activation is 'linear'; choose elu or gelu");
  return by_type("x", x, [&]<class T>(T) {
    const Sizes sizes = sizes_of(x);
    check(!sizes.empty(), "x: give (..., D)");
    const RowsOf rows("x", x, type_of<T>, sizes);
    Tensor y = allocate(x, sizes);
    BiasActivation<T> arguments{chunks(1, rows.count, rows.size), activation};
    arguments.x = rows.place<T>();
    arguments.y = {write<T>(y), 0, rows.size};
    activate_rows(arguments);
    return y;
  });
}

// The gradients of x, of the weight and of the bias. Without ELU there is no y.
std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   const MaybeTensor& y, bool need_x, bool need_weight,
                                                   bool need_bias) {
  return by_type("x", x, [&]<class T>(T) {
    const LinearSizes sizes(x, weight);
    const int64_t in = sizes.in, out = sizes.out, rows = sizes.rows;
    const RowsOf x_("x", x, type_of<T>, sizes.x), grad_("grad", grad, type_of<T>, sizes.y);
    check_tensor("weight", weight, type_of<T>, {out, in});
    Tensor to_y = matrix(grad_.tensor, rows, out, grad_.step), to_bias = nothing(x);
    if (y || need_bias) {
      const MaybeTensor y_ = checked("y", y, type_of<T>, sizes.y);
      to_y = allocate(x, {rows, out});
      BiasActivation<T> arguments{chunks(1, rows, out), y ? Activation::elu : Activation::linear};
      const int64_t groups = groups_of_head(arguments.groups);
      const Tensor sums = allocate(x, {groups, out});
      arguments.grad = grad_.template place<T>();
      arguments.result = {read<T>(y_), 0, out};
      arguments.grad_x = {write<T>(to_y), 0, out};
      arguments.sums = write<T>(sums);
      run_groups(loops<T>().bias_activation_backward, arguments);
      to_bias = sum_rows<T>(sums, 1, groups, out, {out});
    }
    Tensor to_x = need_x ? allocate(x, sizes.x) : nothing(x);
    Tensor to_weight = need_weight ? allocate(x, {out, in}) : nothing(x);
    if (need_x) multiply(matrix(to_x, rows, in, in), to_y, weight);
    if (need_weight) multiply(to_weight, transposed(to_y), matrix(x_.tensor, rows, in, x_.step));
    return std::make_tuple(to_x, to_weight, to_bias);
  });
}

// F first + (1 - F) second with F = sigmoid(first W1' + second W2' + biases). Where dropout changes the products'
// inputs, first_input and second_input replace first and second there.

template <class T>
Tensor sum_of_biases(const Tensor& like, const std::vector<MaybeTensor>& biases, int64_t size) {
  Tensor sum = allocate(like, {size});
  T* to = write<T>(sum);
  std::fill(to, to + size, T(0));
  for (const MaybeTensor& bias : biases) {
    const MaybeTensor bias_ = checked("bias", bias, type_of<T>, {size});
    for (int64_t i = 0; bias_ && i < size; i++) to[i] += read<T>(bias_)[i];
  }
  return sum;
}

// What the forward and the backward pass share, and the tensors that keep its memory alive.
template <class T>
struct GateInputs {
  Sizes sizes;
  RowsOf first, second, first_input, second_input;
  MaybeTensor mask;
  int64_t rows, size;
  Tensor first_rows, second_rows;
  Gate<T> arguments;

  GateInputs(const Tensor& first_, const Tensor& second_, const MaybeTensor& first_input_,
             const MaybeTensor& second_input_, const MaybeTensor& first_weight, const MaybeTensor& second_weight,
             const MaybeTensor& mask_)
      : sizes(not_empty(first_)),
        first("first", first_, type_of<T>, sizes),
        second("second", second_, type_of<T>, sizes),
        first_input("first_input", first_input_.value_or(first_), type_of<T>, sizes),
        second_input("second_input", second_input_.value_or(second_), type_of<T>, sizes),
        mask(checked("mask", mask_, ScalarType::Bool, Sizes(sizes.begin(), sizes.end() - 1))),
        rows(first.count),
        size(first.size),
        arguments{} {
    if (first_weight) check_tensor("first_weight", *first_weight, type_of<T>, {size, size});
    if (second_weight) check_tensor("second_weight", *second_weight, type_of<T>, {size, size});
    first_rows = matrix(first_input.tensor, rows, size, first_input.step);
    second_rows = matrix(second_input.tensor, rows, size, second_input.step);
    arguments.groups = chunks(1, rows, size);
    arguments.first = first.template place<T>();
    arguments.second = second.template place<T>();
    arguments.mask = read<bool>(mask);
  }

  Tensor rows_of(const Tensor& x) const { return matrix(x, rows, size, size); }
  static Sizes not_empty(const Tensor& first) {
    check(first.dim() >= 1, "first: give (..., D)");
    return sizes_of(first);
  }
};

// Writes the gate's result to `out`, which may alias the scores; returns the sum of the biases.
template <class T>
Tensor write_gate(GateInputs<T>& inputs, const Tensor& out, const std::vector<MaybeTensor>& biases) {
  const Tensor bias = sum_of_biases<T>(out, biases, inputs.size);
  inputs.arguments.bias = read<T>(bias);
  inputs.arguments.out = {write<T>(out), 0, inputs.size};
  run_groups(loops<T>().gate, inputs.arguments);
  return bias;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> fusion_gate(const Tensor& first, const Tensor& second,
                                               const MaybeTensor& first_input, const MaybeTensor& second_input,
                                               const Tensor& first_weight, const Tensor& second_weight,
                                               const Tensor& bias, const MaybeTensor& first_bias,
                                               const MaybeTensor& second_bias, const MaybeTensor& mask, bool save) {
  return by_type("first", first, [&]<class T>(T) {
    GateInputs<T> inputs(first, second, first_input, second_input, first_weight, second_weight, mask);
    const Tensor scores = allocate(first, inputs.sizes), out = save ? allocate(first, inputs.sizes) : scores;
    const Tensor score_rows = inputs.rows_of(scores);
    multiply(score_rows, inputs.first_rows, transposed(first_weight));
    multiply(score_rows, inputs.second_rows, transposed(second_weight), true);
    inputs.arguments.scores = {read<T>(scores), 0, inputs.size};
    const Tensor sum = write_gate(inputs, out, {bias, first_bias, second_bias});
    return std::make_tuple(out, save ? scores : nothing(first), sum);
  });
}

// The same for given products, each including its bias.
Tensor fusion_gate_of_scores(const Tensor& first, const Tensor& second, const Tensor& first_scores,
                             const Tensor& second_scores, const Tensor& bias, const MaybeTensor& mask) {
  return by_type("first", first, [&]<class T>(T) {
    GateInputs<T> inputs(first, second, {}, {}, {}, {}, mask);
    const RowsOf first_scores_("first_scores", first_scores, type_of<T>, inputs.sizes);
    const RowsOf second_scores_("second_scores", second_scores, type_of<T>, inputs.sizes);
    inputs.arguments.scores = first_scores_.template place<T>();
    inputs.arguments.more_scores = second_scores_.template place<T>();
    const Tensor out = allocate(first, inputs.sizes);
    write_gate(inputs, out, {bias});
    return out;
  });
}

namespace {

// Gradients of first, second, their inputs (empty where these are first and second themselves), weights and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> fusion_gate_backward(
    const Tensor& grad, const Tensor& first, const Tensor& second, const MaybeTensor& first_input,
    const MaybeTensor& second_input, const Tensor& first_weight, const Tensor& second_weight, const MaybeTensor& mask,
    const Tensor& scores, const Tensor& bias) {
  return by_type("first", first, [&]<class T>(T) {
    GateInputs<T> inputs(first, second, first_input, second_input, first_weight, second_weight, mask);
    const int64_t rows = inputs.rows, size = inputs.size;
    auto& arguments = inputs.arguments;
    const RowsOf grad_("grad", grad, type_of<T>, inputs.sizes);
    const Tensor scores_ = checked("scores", scores, type_of<T>, inputs.sizes);
    const Tensor bias_ = checked("bias", bias, type_of<T>, {size});
    const int64_t groups = groups_of_head(arguments.groups);
    Tensor to_first = allocate(first, inputs.sizes), to_second = allocate(first, inputs.sizes);
    const Tensor to_scores = allocate(first, {rows, size}), sums = allocate(first, {groups, size});
    arguments.scores = {read<T>(scores_), 0, size};
    arguments.bias = read<T>(bias_);
    arguments.grad = grad_.template place<T>();
    arguments.grad_scores = {write<T>(to_scores), 0, size};
    arguments.grad_first = {write<T>(to_first), 0, size};
    arguments.grad_second = {write<T>(to_second), 0, size};
    arguments.sums = write<T>(sums);
    run_groups(loops<T>().gate_backward, arguments);
    Tensor to_first_input = first_input ? allocate(first, inputs.sizes) : nothing(first);
    Tensor to_second_input = second_input ? allocate(first, inputs.sizes) : nothing(first);
    const auto through = [&](const Tensor& weight, const Tensor& to, const Tensor& to_input, bool separate) {
      multiply(inputs.rows_of(separate ? to_input : to), to_scores, weight, !separate);
    };
    through(first_weight, to_first, to_first_input, first_input.has_value());
    through(second_weight, to_second, to_second_input, second_input.has_value());
    Tensor to_first_weight = allocate(first, {size, size}), to_second_weight = allocate(first, {size, size});
    multiply(to_first_weight, transposed(to_scores), inputs.first_rows);
    multiply(to_second_weight, transposed(to_scores), inputs.second_rows);
    return std::make_tuple(to_first, to_second, to_first_input, to_second_input, to_first_weight, to_second_weight,
                           sum_rows<T>(sums, 1, groups, size, {size}));
  });
}

// [a; b] = W [mapped; local; blocks] + bias, then F elu(a) + (1 - F) mapped with F = sigmoid(b)

template <class T>
struct FusionInputs {
  Sizes sizes, block_sizes;
  Tensor mapped, weight;
  MaybeTensor local, blocks;
  int64_t rows, size, num_blocks, parts;
  Candidate<T> arguments;

  FusionInputs(const Tensor& mapped_, const MaybeTensor& local_, const MaybeTensor& blocks_, const Tensor& weight_,
               const std::optional<int64_t>& block_length)
      : sizes(sizes_of(mapped_)), weight(weight_), arguments{} {
    check(sizes.size() == 3, "mapped: give (B, N, D)");
    mapped = checked("mapped", mapped_, type_of<T>, sizes);
    local = checked("local", local_, type_of<T>, sizes);
    rows = sizes[0] * sizes[1];
    size = sizes[2];
    check(blocks_.has_value() == block_length.has_value(), "blocks and block_length: give both or neither");
    check(!block_length || *block_length >= 1, "block_length: give a number of tokens, 1 or more");
    arguments.groups = chunks(1, rows, size);
    if (blocks_) {
      const int64_t length = *block_length, per_sentence = sizes[1] / length + (sizes[1] % length != 0);
      block_sizes = {sizes[0], per_sentence, size};
      blocks = checked("blocks", blocks_, type_of<T>, block_sizes);
      num_blocks = sizes[0] * per_sentence;
      arguments.groups.sentence = std::max<int64_t>(1, sizes[1]);
      arguments.groups.length = std::min(length, arguments.groups.sentence);
    }
    parts = 1 + local.has_value() + blocks.has_value();
    check_tensor("weight", weight, type_of<T>, {2 * size, parts * size});
    if (!weight.is_contiguous()) weight = torch::stable::contiguous(weight);
    arguments.mapped = read<T>(mapped);
  }

  void point_at(const Tensor& scores, const Tensor& added) {
    arguments.scores = read<T>(scores);
    arguments.bias = read<T>(added);
    arguments.bias_step = blocks ? 2 * size : 0;
  }
  // The columns of the weight, or of its gradient, that belong to a part: (2 D, D).
  Tensor columns(const Tensor& of, int64_t part) const { return matrix(of, 2 * size, size, parts * size, part * size); }
  Tensor tokens(const Tensor& x) const { return matrix(x, rows, size, size); }
  Tensor block_rows(const Tensor& x) const { return matrix(x, num_blocks, size, size); }
};

// Scores (rows, 2 D) from the tokens' own parts, and what is added to them: per block, or the same for all. Those of
// `mapped` may be known; the scores are then in their place.
template <class T>
std::tuple<Tensor, Tensor> fusion_scores(FusionInputs<T>& inputs, const Tensor& bias, const MaybeTensor& of_mapped) {
  const int64_t wide = 2 * inputs.size;
  Tensor added = checked("bias", bias, type_of<T>, {wide});
  const Tensor scores = of_mapped ? matrix(*of_mapped, inputs.rows, wide, wide)
                                  : allocate(inputs.mapped, {inputs.rows, wide});
  if (!of_mapped) multiply(scores, inputs.tokens(inputs.mapped), transposed(inputs.columns(inputs.weight, 0)));
  if (inputs.local) multiply(scores, inputs.tokens(*inputs.local), transposed(inputs.columns(inputs.weight, 1)), true);
  if (inputs.blocks) {
    const Tensor of_blocks = allocate(inputs.mapped, {inputs.num_blocks, wide});
    for (int64_t i = 0; i < inputs.num_blocks; i++) {
      std::memcpy(write<T>(of_blocks) + i * wide, read<T>(added), wide * sizeof(T));
    }
    multiply(of_blocks, inputs.block_rows(*inputs.blocks),
             transposed(inputs.columns(inputs.weight, inputs.parts - 1)), true);
    added = of_blocks;
  }
  return {scores, added};
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> fuse_blocks(const Tensor& mapped, const MaybeTensor& of_mapped,
                                               const MaybeTensor& local, const MaybeTensor& blocks,
                                               const Tensor& weight, const Tensor& bias,
                                               const std::optional<int64_t>& block_length, bool save) {
  return by_type("mapped", mapped, [&]<class T>(T) {
    FusionInputs<T> inputs(mapped, local, blocks, weight, block_length);
    Tensor out = allocate(mapped, inputs.sizes);
    if (of_mapped) {
      check_tensor("of_mapped", *of_mapped, type_of<T>, {inputs.sizes[0], inputs.sizes[1], 2 * inputs.size});
    }
    const auto [scores, added] = fusion_scores<T>(inputs, bias, of_mapped);
    inputs.point_at(scores, added);
    inputs.arguments.out = write<T>(out);
    run_groups(loops<T>().candidate, inputs.arguments);
    // A result must not be an input: without blocks the backward pass takes the bias again.
    return std::make_tuple(out, save ? scores : nothing(mapped), save && blocks ? added : nothing(mapped));
  });
}

// The same for given scores, all of them and with the bias.
Tensor block_fusion_of_scores(const Tensor& mapped, const Tensor& scores) {
  return by_type("mapped", mapped, [&]<class T>(T) {
    Sizes sizes = sizes_of(mapped);
    check(sizes.size() == 3, "mapped: give (B, N, D)");
    const Tensor mapped_ = checked("mapped", mapped, type_of<T>, sizes), out = allocate(mapped, sizes);
    const int64_t rows = sizes[0] * sizes[1], size = sizes[2];
    sizes[2] = 2 * size;
    const Tensor scores_ = checked("scores", scores, type_of<T>, sizes), nought = allocate(mapped, {2 * size});
    std::fill(write<T>(nought), write<T>(nought) + 2 * size, T(0));
    run_groups(loops<T>().candidate, Candidate<T>{.groups = chunks(1, rows, size),
                                                  .scores = read<T>(scores_),
                                                  .bias = read<T>(nought),
                                                  .mapped = read<T>(mapped_),
                                                  .out = write<T>(out)});
    return out;
  });
}

namespace {

std::tuple<Tensor, Tensor, Tensor> block_fusion(const Tensor& mapped, const MaybeTensor& local,
                                                const MaybeTensor& blocks, const Tensor& weight, const Tensor& bias,
                                                const std::optional<int64_t>& block_length, bool save) {
  return fuse_blocks(mapped, {}, local, blocks, weight, bias, block_length, save);
}

// Gradients of mapped, local, blocks, weight and bias; empty for what was not given.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> block_fusion_backward(
    const Tensor& grad, const Tensor& mapped, const MaybeTensor& local, const MaybeTensor& blocks,
    const Tensor& weight, const Tensor& scores, const Tensor& added, const std::optional<int64_t>& block_length) {
  return by_type("mapped", mapped, [&]<class T>(T) {
    FusionInputs<T> inputs(mapped, local, blocks, weight, block_length);
    const int64_t rows = inputs.rows, size = inputs.size, wide = 2 * size;
    auto& arguments = inputs.arguments;
    const RowsOf grad_("grad", grad, type_of<T>, inputs.sizes);
    const Tensor scores_ = checked("scores", scores, type_of<T>, {rows, wide});
    const Tensor added_ =
        checked("added", added, type_of<T>, blocks ? Sizes{inputs.num_blocks, wide} : Sizes{wide});
    inputs.point_at(scores_, added_);
    const int64_t groups = groups_of_head(arguments.groups);
    const Tensor to_scores = allocate(mapped, {rows, wide}), sums = allocate(mapped, {groups, wide});
    Tensor to_mapped = allocate(mapped, inputs.sizes), to_weight = allocate(mapped, {wide, inputs.parts * size});
    Tensor to_local = local ? allocate(mapped, inputs.sizes) : nothing(mapped);
    Tensor to_blocks = blocks ? allocate(mapped, inputs.block_sizes) : nothing(mapped);
    arguments.grad = grad_.template place<T>();
    arguments.grad_scores = write<T>(to_scores);
    arguments.grad_mapped = write<T>(to_mapped);
    arguments.sums = write<T>(sums);
    run_groups(loops<T>().candidate_backward, arguments);
    const auto part_backward = [&](int64_t part, const Tensor& from, const Tensor& x, const Tensor& to_x, bool add) {
      multiply(to_x, from, inputs.columns(inputs.weight, part), add);
      multiply(inputs.columns(to_weight, part), transposed(from), x);
    };
    part_backward(0, to_scores, inputs.tokens(inputs.mapped), inputs.tokens(to_mapped), true);
    if (local) part_backward(1, to_scores, inputs.tokens(*inputs.local), inputs.tokens(to_local), false);
    if (blocks) {
      part_backward(inputs.parts - 1, sums, inputs.block_rows(*inputs.blocks), inputs.block_rows(to_blocks), false);
    }
    return std::make_tuple(to_mapped, to_local, to_blocks, to_weight, sum_rows<T>(sums, 1, groups, wide, {wide}));
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("linear", TORCH_BOX(&hf_blosan::linear_or_elu));
  m.impl("activated", TORCH_BOX(&hf_blosan::activated));
  m.impl("linear_backward", TORCH_BOX(&hf_blosan::linear_backward));
  m.impl("fusion_gate", TORCH_BOX(&hf_blosan::fusion_gate));
  m.impl("fusion_gate_of_scores", TORCH_BOX(&hf_blosan::fusion_gate_of_scores));
  m.impl("fusion_gate_backward", TORCH_BOX(&hf_blosan::fusion_gate_backward));
  m.impl("block_fusion", TORCH_BOX(&hf_blosan::block_fusion));
  m.impl("block_fusion_backward", TORCH_BOX(&hf_blosan::block_fusion_backward));
}
