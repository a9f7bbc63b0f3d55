// The attention operators for CPU tensors; their schemas, gradients and fake forms are in Python.

#include <algorithm>
#include <tuple>

#include "products.h"
#include "steps.h"

namespace hf_blosan {
namespace {

constexpr double max_half_range = 2.4;  // in units of c; up to it, per-token exponentials are accurate enough

Sizes three_dimensional(const Tensor& x) {
  check(x.dim() == 3, "values: the shape is ", sizes_of(x), "; give (B, N, D)");
  return sizes_of(x);
}

// How sentences are divided, and the starts that the shape points to.
struct Parts {
  std::vector<int64_t> starts;
  Shape shape;

  Parts(const Tensor& values, const std::optional<int64_t>& block_length, const MaybeTensor& cu_seqlens) {
    const int64_t sentence = values.size(1);
    check(!block_length || *block_length >= 1, "block_length is ", block_length.value_or(0),
          "; give a number of tokens, 1 or more");
    const int64_t length = std::min(sentence, block_length.value_or(sentence));
    const int64_t parts = std::max<int64_t>(1, (sentence + length - 1) / std::max<int64_t>(1, length));
    shape = {.length = length, .size = values.size(2), .sentence = sentence, .parts = parts};
    if (!cu_seqlens) return;
    check(!block_length, "cu_seqlens and block_length exclude each other; give one of them");
    check(values.size(0) == 1 && cu_seqlens->dim() == 1 && cu_seqlens->size(0) >= 1,
          "cu_seqlens: give (S + 1) where S sentences lie one after the other in a single row of tokens");
    const Tensor starts_ = checked("cu_seqlens", *cu_seqlens, ScalarType::Long, sizes_of(*cu_seqlens));
    starts.assign(read<int64_t>(starts_), read<int64_t>(starts_) + starts_.size(0));
    shape.length = 0;
    for (size_t i = 1; i < starts.size(); i++) {
      check(starts[i] >= starts[i - 1], "cu_seqlens falls from ", starts[i - 1], " to ", starts[i],
            "; give the places where sentences start, in order");
      shape.length = std::max(shape.length, starts[i] - starts[i - 1]);
    }
    check(starts.front() == 0 && starts.back() == sentence, "cu_seqlens goes from ", starts.front(), " to ",
          starts.back(), "; give the places where sentences start, from 0 to the number of tokens, ", sentence);
    shape.parts = int64_t(starts.size()) - 1;
    starts.push_back(sentence);
    shape.starts = starts.data();
  }
  Parts(const Parts&) = delete;
};

// Items of a loop: one register of features of each part of each sentence.
template <class T>
int64_t num_items(const Tensor& values, const Shape& shape) {
  return shape.sentence ? values.size(0) * shape.parts * slices<T>(shape.size) : 0;
}

// The arguments that both passes of directional attention share, and the tensors that keep their memory alive.
template <class T>
struct DirectionalInputs {
  Sizes sizes;
  RowsOf keys, queries;
  Tensor values;
  MaybeTensor bias, key_mask, token_mask;
  Parts parts;
  Directional<T> arguments;

  DirectionalInputs(const Tensor& keys_, const Tensor& queries_, const Tensor& values_, const MaybeTensor& bias_,
                    const MaybeTensor& key_mask_, const MaybeTensor& token_mask_, const MaybeTensor& cu_seqlens,
                    const std::string& direction, double scale, const std::optional<int64_t>& window,
                    const std::string& implementation, const std::optional<int64_t>& block_length,
                    Expansion::Use use)
      : sizes(three_dimensional(values_)),
        keys("keys", keys_, type_of<T>, sizes),
        queries("queries", queries_, type_of<T>, sizes),
        values(checked("values", values_, type_of<T>, sizes)),
        bias(checked("bias", bias_, type_of<T>, {sizes[2]})),
        key_mask(checked("key_mask", key_mask_, ScalarType::Bool, {sizes[0], sizes[1]})),
        token_mask(token_mask_),
        parts(values, block_length, cu_seqlens),
        arguments{} {
    check(scale > 0 && scale <= HF_BLOSAN_MAX_SCALE, "scale is ", scale, "; give a bound of the scores above 0 and up to ",
          HF_BLOSAN_MAX_SCALE);
    check(implementation == "auto" || implementation == "fused" || implementation == "linear", "implementation is '",
          implementation, "'; choose one of auto, fused, linear");
    arguments.shape = parts.shape;
    arguments.seen = seen_by(direction, window, false);
    arguments.scale = T(scale);
    arguments.limit = T(max_half_range * scale);
    if (type_of<T> == ScalarType::Float && !token_mask && implementation != "fused" && parts.shape.length > CHUNK) {
      arguments.expansion = expansion_for(scale, implementation == "linear" ? Expansion::always : use);
    }
    arguments.keys = keys.template place<T>();
    arguments.queries = queries.template place<T>();
    arguments.bias = read<T>(bias);
    arguments.values = read<T>(values);
    arguments.mask = read<bool>(key_mask);
    if (!token_mask) return;
    check(!block_length && !cu_seqlens, "token_mask and ", block_length ? "block_length" : "cu_seqlens",
          " exclude each other; give one of them");
    check_tensor("token_mask", *token_mask, ScalarType::Bool, {sizes[0], sizes[1], sizes[1]});
    arguments.token_mask = read<uint8_t>(token_mask);
    arguments.mask_row = token_mask->stride(0);
    arguments.mask_query = token_mask->stride(1);
    arguments.mask_key = token_mask->stride(2);
  }

  void run(Loop<Directional<T>> loop) const {
    const auto& shape = arguments.shape;
    hf_blosan::run(loop, arguments, num_items<T>(values, shape), values.numel() * shape.length,
                   loops<T>().directional_scratch(shape.length, arguments.expansion));
  }
};

}  // namespace

std::tuple<Tensor, Tensor> directional_attention(
    const Tensor& keys, const Tensor& queries, const Tensor& values, const MaybeTensor& bias,
    const MaybeTensor& key_mask, const MaybeTensor& token_mask, const MaybeTensor& cu_seqlens,
    const std::string& direction, double scale, const std::optional<int64_t>& window,
    const std::string& implementation, const std::optional<int64_t>& block_length, bool save) {
  return by_type("values", values, [&]<class T>(T) {
    DirectionalInputs<T> inputs(keys, queries, values, bias, key_mask, token_mask, cu_seqlens, direction, scale,
                                window, implementation, block_length,
                                save ? Expansion::training : Expansion::inference);
    const Sizes& sizes = inputs.sizes;
    Tensor out = allocate(values, sizes), denominators = allocate(values, {save ? sizes[0] : 0, sizes[1], sizes[2]});
    inputs.arguments.out = write<T>(out);
    inputs.arguments.denominators = save ? write<T>(denominators) : nullptr;
    inputs.run(loops<T>().directional);
    return std::make_tuple(out, denominators);
  });
}

namespace {

std::tuple<Tensor, Tensor, Tensor> directional_attention_backward(
    const Tensor& grad, const Tensor& keys, const Tensor& queries, const Tensor& values, const MaybeTensor& bias,
    const MaybeTensor& key_mask, const MaybeTensor& token_mask, const MaybeTensor& cu_seqlens, const Tensor& out,
    const Tensor& denominators, const std::string& direction, double scale, const std::optional<int64_t>& window,
    const std::string& implementation, const std::optional<int64_t>& block_length) {
  return by_type("values", values, [&]<class T>(T) {
    DirectionalInputs<T> inputs(keys, queries, values, bias, key_mask, token_mask, cu_seqlens, direction, scale,
                                window, implementation, block_length, Expansion::training);
    const Sizes& sizes = inputs.sizes;
    const Tensor grad_ = checked("grad", grad, type_of<T>, sizes), out_ = checked("out", out, type_of<T>, sizes);
    const Tensor denominators_ = checked("denominators", denominators, type_of<T>, sizes);
    Tensor to_keys = allocate(values, sizes), to_queries = allocate(values, sizes),
           to_values = allocate(values, sizes);
    inputs.arguments.grad = read<T>(grad_);
    inputs.arguments.saved_out = read<T>(out_);
    inputs.arguments.saved_denominators = read<T>(denominators_);
    inputs.arguments.grad_keys = write<T>(to_keys);
    inputs.arguments.grad_queries = write<T>(to_queries);
    inputs.arguments.grad_values = write<T>(to_values);
    inputs.run(loops<T>().directional_backward);
    return std::make_tuple(to_keys, to_queries, to_values);
  });
}

// What both passes of source2token attention share.
template <class T>
struct PoolingInputs {
  Sizes sizes;
  Tensor scores, values, mask;
  Parts parts;
  Sizes pooled;
  SourceToToken<T> arguments;

  PoolingInputs(const Tensor& scores_, const Tensor& values_, const Tensor& mask_, const MaybeTensor& cu_seqlens,
                const std::optional<int64_t>& block_length)
      : sizes(three_dimensional(values_)),
        scores(checked("scores", scores_, type_of<T>, sizes)),
        values(checked("values", values_, type_of<T>, sizes)),
        mask(checked("mask", mask_, ScalarType::Bool, {sizes[0], sizes[1]})),
        parts(values, block_length, cu_seqlens),
        pooled{sizes[0], parts.shape.parts, sizes[2]},
        arguments{.shape = parts.shape,
                  .scores = read<T>(scores),
                  .values = read<T>(values),
                  .mask = read<bool>(mask)} {}

  void run(Loop<SourceToToken<T>> loop) const {
    hf_blosan::run(loop, arguments, num_items<T>(values, parts.shape), values.numel());
  }
};

}  // namespace

std::tuple<Tensor, Tensor, Tensor> source2token_attention(const Tensor& scores, const Tensor& values,
                                                          const Tensor& mask, const MaybeTensor& cu_seqlens,
                                                          const std::optional<int64_t>& block_length,
                                                          bool save) {
  return by_type("values", values, [&]<class T>(T) {
    PoolingInputs<T> inputs(scores, values, mask, cu_seqlens, block_length);
    const Sizes& pooled = inputs.pooled;
    const Sizes saved{save ? pooled[0] : 0, pooled[1], pooled[2]};
    Tensor out = allocate(values, pooled), tops = allocate(values, saved), totals = allocate(values, saved);
    check(inputs.sizes[1] > 0 || pooled[0] * pooled[2] == 0, "values: sentences of no tokens have no average");
    inputs.arguments.out = write<T>(out);
    inputs.arguments.tops = save ? write<T>(tops) : nullptr;
    inputs.arguments.totals = save ? write<T>(totals) : nullptr;
    inputs.run(loops<T>().source2token);
    return std::make_tuple(out, tops, totals);
  });
}

namespace {

std::tuple<Tensor, Tensor> source2token_attention_backward(const Tensor& grad, const Tensor& scores,
                                                           const Tensor& values, const Tensor& mask,
                                                           const MaybeTensor& cu_seqlens, const Tensor& out,
                                                           const Tensor& tops, const Tensor& totals,
                                                           const std::optional<int64_t>& block_length) {
  return by_type("values", values, [&]<class T>(T) {
    PoolingInputs<T> inputs(scores, values, mask, cu_seqlens, block_length);
    const Sizes& pooled = inputs.pooled;
    const Tensor grad_ = checked("grad", grad, type_of<T>, pooled), out_ = checked("out", out, type_of<T>, pooled);
    const Tensor tops_ = checked("tops", tops, type_of<T>, pooled);
    const Tensor totals_ = checked("totals", totals, type_of<T>, pooled);
    Tensor to_scores = allocate(values, inputs.sizes), to_values = allocate(values, inputs.sizes);
    inputs.arguments.saved_out = read<T>(out_);
    inputs.arguments.saved_tops = read<T>(tops_);
    inputs.arguments.saved_totals = read<T>(totals_);
    inputs.arguments.grad = read<T>(grad_);
    inputs.arguments.grad_scores = write<T>(to_scores);
    inputs.arguments.grad_values = write<T>(to_values);
    inputs.run(loops<T>().source2token_backward);
    return std::make_tuple(to_scores, to_values);
  });
}

Tensor linear_recurrence(const Tensor& forget, const Tensor& values) {
  return by_type("values", values, [&]<class T>(T) {
    const Sizes sizes = three_dimensional(values);
    const Tensor forget_ = checked("forget", forget, type_of<T>, sizes);
    const Tensor values_ = checked("values", values, type_of<T>, sizes);
    Tensor states = allocate(values, sizes);
    const Recurrence<T> arguments{.length = sizes[1],
                                  .size = sizes[2],
                                  .forget = read<T>(forget_),
                                  .values = read<T>(values_),
                                  .states = write<T>(states)};
    run(loops<T>().recurrence, arguments, sizes[0] * slices<T>(sizes[2]), values.numel());
    return states;
  });
}

std::tuple<Tensor, Tensor> linear_recurrence_backward(const Tensor& grad, const Tensor& forget, const Tensor& values,
                                                      const Tensor& states) {
  return by_type("values", values, [&]<class T>(T) {
    const Sizes sizes = three_dimensional(values);
    const Tensor grad_ = checked("grad", grad, type_of<T>, sizes);
    const Tensor forget_ = checked("forget", forget, type_of<T>, sizes);
    const Tensor values_ = checked("values", values, type_of<T>, sizes);
    const Tensor states_ = checked("states", states, type_of<T>, sizes);
    Tensor to_forget = allocate(values, sizes), to_values = allocate(values, sizes);
    const Recurrence<T> arguments{.length = sizes[1],
                                  .size = sizes[2],
                                  .forget = read<T>(forget_),
                                  .values = read<T>(values_),
                                  .saved_states = read<T>(states_),
                                  .grad = read<T>(grad_),
                                  .grad_forget = write<T>(to_forget),
                                  .grad_values = write<T>(to_values)};
    run(loops<T>().recurrence_backward, arguments, sizes[0] * slices<T>(sizes[2]), values.numel());
    return std::make_tuple(to_forget, to_values);
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("directional_attention", TORCH_BOX(&hf_blosan::directional_attention));
  m.impl("directional_attention_backward", TORCH_BOX(&hf_blosan::directional_attention_backward));
  m.impl("source2token_attention", TORCH_BOX(&hf_blosan::source2token_attention));
  m.impl("source2token_attention_backward", TORCH_BOX(&hf_blosan::source2token_attention_backward));
  m.impl("linear_recurrence", TORCH_BOX(&hf_blosan::linear_recurrence));
  m.impl("linear_recurrence_backward", TORCH_BOX(&hf_blosan::linear_recurrence_backward));
}
