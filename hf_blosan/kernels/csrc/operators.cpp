// The attention operators for CPU tensors; their schemas, gradients and fake forms are in */operator.py.

#include <array>
#include <map>
#include <mutex>

#include "tensors.h"

namespace hf_blosan {
namespace {

constexpr double max_half_range = 2.4;  // in units of c: up to there exponentials of single tokens are exact enough
constexpr int64_t unlimited = int64_t(1) << 40;

// From which sentence length each tier of the expansion is faster than all pairs under a forward mask:
// benchmarks/crossovers.py on 2 cores of an Intel Xeon with AVX-512, with earlier loops of the same arithmetic.
constexpr int64_t forward_crossovers[] = {40, 48, 64, 72, 96, 128, 224};
constexpr int64_t backward_crossovers[] = {56, 56, 96, 112, 160, 192, 384};
constexpr int64_t always[] = {0, 0, 0, 0, 0, 0, 0};

// The expansions for a scale: made once, by the operator `expansion` (directional/expansion.py).
const Expansion& expansion_for(double scale) {
  struct Entry {
    Tensor tiers, float_table, double_table;
    Expansion expansion;
  };
  static std::mutex mutex;
  static auto& entries = *new std::map<double, Entry>();  // outlives every thread
  {
    const std::lock_guard lock(mutex);
    const auto found = entries.find(scale);
    if (found != entries.end()) return found->second.expansion;
  }
  // Without the lock: the operator is Python and waits for the interpreter.
  std::array<StableIValue, 3> stack{torch::stable::detail::from(scale)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("hf_blosan_kernels::expansion", "", stack.data(), TORCH_ABI_VERSION));
  Entry entry{torch::stable::detail::to<Tensor>(stack[0]), torch::stable::detail::to<Tensor>(stack[1]),
              torch::stable::detail::to<Tensor>(stack[2]), {}};
  entry.expansion = {entry.tiers.size(0),         read<double>(entry.tiers),        nullptr,
                     entry.float_table.size(0),   read<float>(entry.float_table),   entry.float_table.size(3),
                     read<double>(entry.double_table), entry.double_table.size(3)};
  const std::lock_guard lock(mutex);
  return entries.emplace(scale, std::move(entry)).first->second.expansion;
}

// The expansion with the lengths from which it is to be used; without tiers where it is not.
Expansion choose_expansion(double scale, const std::string& implementation, const int64_t* crossovers, bool usable) {
  if (!usable || implementation == "fused") return {};
  Expansion expansion = expansion_for(scale);
  check(expansion.num_tiers <= int64_t(std::size(always)), "the expansion has more tiers than crossovers");
  expansion.shortest = implementation == "linear" ? always : crossovers;
  return expansion;
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
    shape = {length, values.size(2), sentence, parts, nullptr};
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

int64_t num_items(const Tensor& values, const Shape& shape, int64_t lanes) {
  return shape.sentence ? values.size(0) * shape.parts * ((shape.size + lanes - 1) / lanes) : 0;
}

// Features side by side and tokens of all sentences a step apart, as the halves of a wider tensor are; or a copy.
struct Spaced {
  Tensor tensor;
  int64_t step;

  Spaced(const char* name, const Tensor& x, ScalarType type, const Sizes& sizes) : tensor(x), step(sizes[2]) {
    check_tensor(name, x, type, sizes);
    if (x.is_contiguous()) return;
    if (x.stride(2) == 1 && x.stride(0) == sizes[1] * x.stride(1) && x.stride(1) >= sizes[2]) {
      step = x.stride(1);
    } else {
      tensor = torch::stable::contiguous(x);
    }
  }
};

// The arguments that both directions of directional attention share, and the tensors that keep their memory alive.
template <class T>
struct DirectionalInputs {
  Sizes sizes;
  Spaced keys, queries;
  Tensor values;
  MaybeTensor bias, key_mask, token_mask;
  Parts parts;
  Directional<T> arguments;

  DirectionalInputs(const Tensor& keys_, const Tensor& queries_, const Tensor& values_, const MaybeTensor& bias_,
                    const MaybeTensor& key_mask_, const MaybeTensor& token_mask_, const MaybeTensor& cu_seqlens,
                    const std::string& direction, double scale, const std::optional<int64_t>& window,
                    const std::string& implementation, const std::optional<int64_t>& block_length,
                    const int64_t* crossovers)
      : sizes(three_dimensional(values_)),
        keys("keys", keys_, type_of<T>, sizes),
        queries("queries", queries_, type_of<T>, sizes),
        values(checked("values", values_, type_of<T>, sizes)),
        bias(checked("bias", bias_, type_of<T>, {sizes[2]})),
        key_mask(checked("key_mask", key_mask_, ScalarType::Bool, {sizes[0], sizes[1]})),
        token_mask(token_mask_),
        parts(values, block_length, cu_seqlens),
        arguments{} {
    check(scale > 0 && scale <= 40, "scale is ", scale, "; give a bound of the scores above 0 and up to 40");
    check(!window || *window >= 0, "window is ", window.value_or(0), "; give a number of tokens, 0 or more");
    check(implementation == "auto" || implementation == "fused" || implementation == "linear", "implementation is '",
          implementation, "'; choose one of auto, fused, linear");
    const bool before = direction != "backward", after = direction != "forward";
    check(!before || !after || direction == "diagonal" || direction == "full", "direction is '", direction,
          "'; choose one of forward, backward, diagonal, full");
    arguments.shape = parts.shape;
    arguments.visibility = {before, after, direction == "full", window ? std::min(*window, unlimited) : unlimited};
    arguments.scale = T(scale);
    arguments.limit = T(max_half_range * scale);
    arguments.expansion =
        choose_expansion(scale, implementation, crossovers,
                         sizeof(T) == sizeof(float) && !token_mask && arguments.shape.length > 16);
    arguments.keys = {read<T>(keys.tensor), keys.step};
    arguments.queries = {read<T>(queries.tensor), queries.step};
    arguments.bias = read<T>(bias);
    arguments.values = read<T>(values);
    arguments.mask = read<bool>(key_mask);
    if (token_mask) {
      check(!block_length && !cu_seqlens, "token_mask and ", block_length ? "block_length" : "cu_seqlens",
            " exclude each other; give one of them");
      check_tensor("token_mask", *token_mask, ScalarType::Bool, {sizes[0], sizes[1], sizes[1]});
      arguments.token_mask = read<uint8_t>(token_mask);
      arguments.mask_row = token_mask->stride(0);
      arguments.mask_query = token_mask->stride(1);
      arguments.mask_key = token_mask->stride(2);
    }
  }

  static Sizes three_dimensional(const Tensor& x) {
    check(x.dim() == 3, "values: the shape is ", text(sizes_of(x)), "; give (B, N, D)");
    return sizes_of(x);
  }

  void run(Loop<Directional<T>> loop) const {
    const auto& shape = arguments.shape;
    hf_blosan::run(loop, arguments, num_items(values, shape, loops<T>().lanes), values.numel() * shape.length,
                   loops<T>().directional_scratch(shape.length, arguments.expansion));
  }
};

std::tuple<Tensor, Tensor> directional_attention(
    const Tensor& keys, const Tensor& queries, const Tensor& values, const MaybeTensor& bias,
    const MaybeTensor& key_mask, const MaybeTensor& token_mask, const MaybeTensor& cu_seqlens,
    const std::string& direction, double scale, const std::optional<int64_t>& window,
    const std::string& implementation, const std::optional<int64_t>& block_length, bool save) {
  return by_type("values", values, [&](auto type) {
    using T = decltype(type);
    DirectionalInputs<T> inputs(keys, queries, values, bias, key_mask, token_mask, cu_seqlens, direction, scale,
                                window, implementation, block_length, forward_crossovers);
    Tensor out = allocate(values, inputs.sizes);
    Tensor denominators = allocate(values, {save ? inputs.sizes[0] : 0, inputs.sizes[1], inputs.sizes[2]});
    inputs.arguments.out = write<T>(out);
    inputs.arguments.denominators = save ? write<T>(denominators) : nullptr;
    inputs.run(loops<T>().directional);
    return std::make_tuple(out, denominators);
  });
}

std::tuple<Tensor, Tensor, Tensor> directional_attention_backward(
    const Tensor& grad, const Tensor& keys, const Tensor& queries, const Tensor& values, const MaybeTensor& bias,
    const MaybeTensor& key_mask, const MaybeTensor& token_mask, const MaybeTensor& cu_seqlens, const Tensor& out,
    const Tensor& denominators, const std::string& direction, double scale, const std::optional<int64_t>& window,
    const std::string& implementation, const std::optional<int64_t>& block_length) {
  return by_type("values", values, [&](auto type) {
    using T = decltype(type);
    DirectionalInputs<T> inputs(keys, queries, values, bias, key_mask, token_mask, cu_seqlens, direction, scale,
                                window, implementation, block_length, backward_crossovers);
    const auto& sizes = inputs.sizes;
    const Tensor grad_ = checked("grad", grad, type_of<T>, sizes), out_ = checked("out", out, type_of<T>, sizes);
    const Tensor denominators_ = checked("denominators", denominators, type_of<T>, sizes);
    Tensor to_keys = allocate(values, sizes), to_queries = allocate(values, sizes),
           to_values = allocate(values, sizes);
    inputs.arguments.grad = read<T>(grad_);
    inputs.arguments.out = write<T>(out_);  // read only in this direction
    inputs.arguments.denominators = write<T>(denominators_);
    inputs.arguments.grad_keys = write<T>(to_keys);
    inputs.arguments.grad_queries = write<T>(to_queries);
    inputs.arguments.grad_values = write<T>(to_values);
    inputs.run(loops<T>().directional_backward);
    return std::make_tuple(to_keys, to_queries, to_values);
  });
}

std::tuple<Tensor, Tensor, Tensor> source2token_attention(const Tensor& scores, const Tensor& values,
                                                          const Tensor& mask, const MaybeTensor& cu_seqlens,
                                                          const std::optional<int64_t>& block_length) {
  return by_type("values", values, [&](auto type) {
    using T = decltype(type);
    const Sizes sizes = DirectionalInputs<T>::three_dimensional(values);
    const Tensor scores_ = checked("scores", scores, type_of<T>, sizes);
    const Tensor values_ = checked("values", values, type_of<T>, sizes);
    const Tensor mask_ = checked("mask", mask, ScalarType::Bool, {sizes[0], sizes[1]});
    const Parts parts(values, block_length, cu_seqlens);
    const Shape& shape = parts.shape;
    const Sizes pooled{sizes[0], shape.parts, sizes[2]};
    Tensor out = allocate(values, pooled), tops = allocate(values, pooled), totals = allocate(values, pooled);
    check(shape.sentence > 0 || pooled[0] * pooled[2] == 0, "values: sentences of no tokens have no average");
    const SourceToToken<T> arguments{shape,         read<T>(scores_), read<T>(values_), read<bool>(mask_), write<T>(out),
                                     write<T>(tops), write<T>(totals), nullptr,          nullptr,           nullptr};
    run(loops<T>().source2token, arguments, num_items(values, shape, loops<T>().lanes), values.numel());
    return std::make_tuple(out, tops, totals);
  });
}

std::tuple<Tensor, Tensor> source2token_attention_backward(const Tensor& grad, const Tensor& scores,
                                                           const Tensor& values, const Tensor& mask,
                                                           const MaybeTensor& cu_seqlens,
                                                           const std::optional<int64_t>& block_length,
                                                           const Tensor& out, const Tensor& tops,
                                                           const Tensor& totals) {
  return by_type("values", values, [&](auto type) {
    using T = decltype(type);
    const Sizes sizes = DirectionalInputs<T>::three_dimensional(values);
    const Parts parts(values, block_length, cu_seqlens);
    const Shape& shape = parts.shape;
    const Sizes pooled{sizes[0], shape.parts, sizes[2]};
    const Tensor scores_ = checked("scores", scores, type_of<T>, sizes);
    const Tensor values_ = checked("values", values, type_of<T>, sizes);
    const Tensor mask_ = checked("mask", mask, ScalarType::Bool, {sizes[0], sizes[1]});
    const Tensor grad_ = checked("grad", grad, type_of<T>, pooled), out_ = checked("out", out, type_of<T>, pooled);
    const Tensor tops_ = checked("tops", tops, type_of<T>, pooled);
    const Tensor totals_ = checked("totals", totals, type_of<T>, pooled);
    Tensor to_scores = allocate(values, sizes), to_values = allocate(values, sizes);
    const SourceToToken<T> arguments{shape,
                                     read<T>(scores_),
                                     read<T>(values_),
                                     read<bool>(mask_),
                                     write<T>(out_),  // read only in this direction
                                     write<T>(tops_),
                                     write<T>(totals_),
                                     read<T>(grad_),
                                     write<T>(to_scores),
                                     write<T>(to_values)};
    run(loops<T>().source2token_backward, arguments, num_items(values, shape, loops<T>().lanes), values.numel());
    return std::make_tuple(to_scores, to_values);
  });
}

template <class T>
void run_recurrence(Loop<Recurrence<T>> loop, const Recurrence<T>& arguments, const Tensor& values) {
  const int64_t slices = (arguments.size + loops<T>().lanes - 1) / loops<T>().lanes;
  run(loop, arguments, values.size(0) * slices, values.numel());
}

Tensor linear_recurrence(const Tensor& forget, const Tensor& values) {
  return by_type("values", values, [&](auto type) {
    using T = decltype(type);
    const Sizes sizes = DirectionalInputs<T>::three_dimensional(values);
    const Tensor forget_ = checked("forget", forget, type_of<T>, sizes);
    const Tensor values_ = checked("values", values, type_of<T>, sizes);
    Tensor states = allocate(values, sizes);
    run_recurrence<T>(loops<T>().recurrence,
                      {sizes[1], sizes[2], read<T>(forget_), read<T>(values_), write<T>(states), nullptr, nullptr,
                       nullptr},
                      values);
    return states;
  });
}

std::tuple<Tensor, Tensor> linear_recurrence_backward(const Tensor& grad, const Tensor& forget, const Tensor& values,
                                                      const Tensor& states) {
  return by_type("values", values, [&](auto type) {
    using T = decltype(type);
    const Sizes sizes = DirectionalInputs<T>::three_dimensional(values);
    const Tensor grad_ = checked("grad", grad, type_of<T>, sizes);
    const Tensor forget_ = checked("forget", forget, type_of<T>, sizes);
    const Tensor values_ = checked("values", values, type_of<T>, sizes);
    const Tensor states_ = checked("states", states, type_of<T>, sizes);
    Tensor to_forget = allocate(values, sizes), to_values = allocate(values, sizes);
    run_recurrence<T>(loops<T>().recurrence_backward,
                      {sizes[1], sizes[2], read<T>(forget_), read<T>(values_), write<T>(states_), read<T>(grad_),
                       write<T>(to_forget), write<T>(to_values)},
                      values);
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
