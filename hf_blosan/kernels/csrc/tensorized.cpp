// Multi-mask tensorized attention (MTSA) by matrix products over tiles; schema and gradient in tensorized/operator.py.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <tuple>

#include "products.h"

namespace hf_blosan {
namespace {

// Queries per tile: enough for matrix products at full speed, few enough to skip most hidden keys and to keep a tile
// in the cache. Elements of [v E_S; E_S] of the sentences that are processed together.
constexpr int64_t tile_queries = 128;
constexpr int64_t group_elements = 1 << 20;

struct Tile {
  int64_t first_query, queries, first_key, keys;
};

// Sentences processed together: rows of one head, or all rows of several.
struct Together {
  int64_t head, heads, row, rows;
  int64_t sentences() const { return heads * rows; }
};

// (B, H, N, D) in memory: sentence b of head h begins at h * head + b * row. A copy if features are not contiguous, or
// if heads are to be processed together but are not adjacent.
struct ByHead {
  Tensor tensor;
  int64_t head, row, token;

  ByHead(const Tensor& x, const Sizes& sizes, bool merge) : tensor(x) {
    const auto [B, H, N, D] = std::tuple(sizes[0], sizes[1], sizes[2], sizes[3]);
    head = x.stride(1), row = x.stride(0), token = x.stride(2);
    if ((x.stride(3) == 1 || D == 1) && (!merge || head == B * row)) return;
    tensor = torch::stable::contiguous(view(x, {H, B, N, D}, {head, row, token, x.stride(3)}));
    head = B * N * D, row = N * D, token = D;
  }

  template <class T>
  Place<const T> place(const Together& part) const {
    return {read<T>(tensor) + part.head * head + part.row * row, row, token};
  }
  // Tokens first ... first + count - 1 of these sentences, (sentences, count, size).
  Tensor some(const Together& part, int64_t first, int64_t count, int64_t size) const {
    return view(tensor, {part.sentences(), count, size}, {row, token, 1},
                part.head * head + part.row * row + first * token);
  }
};

// New memory for (B, H, N, D), head by head, so that a head's products need no copy.
struct Result : ByHead {
  explicit Result(const Tensor& like, const Sizes& sizes)
      : ByHead(view(allocate(like, {sizes[1], sizes[0], sizes[2], sizes[3]}), sizes,
                    {sizes[2] * sizes[3], sizes[0] * sizes[2] * sizes[3], sizes[3], 1}),
               sizes, false) {}

  template <class T>
  Place<T> place_to_write(const Together& part) const {
    return {write<T>(tensor) + part.head * head + part.row * row, row, token};
  }
};

// Memory reused by every tile: fresh memory costs more than the arithmetic on it.
class Reused {
 public:
  explicit Reused(const Tensor& like) : like_(like) {}
  Tensor stack(int64_t count, int64_t rows, int64_t columns) {
    const int64_t size = count * rows * columns;
    if (!memory_ || memory_->numel() < size) memory_ = allocate(like_, {size});
    return view(*memory_, {count, rows, columns}, {rows * columns, columns, 1});
  }

 private:
  const Tensor& like_;
  MaybeTensor memory_;
};

// Rows first ... first + count - 1 of every matrix of a contiguous stack.
Tensor some_rows(const Tensor& stack, int64_t first, int64_t count) {
  const int64_t n = stack.size(0), rows = stack.size(1), columns = stack.size(2);
  return view(stack, {n, count, columns}, {rows * columns, columns, 1}, first * columns);
}

std::vector<Seen> parse(const std::string& directions, const std::vector<int64_t>& windows, bool include_self) {
  std::vector<Seen> heads;
  std::stringstream names(directions);
  for (std::string name; std::getline(names, name, ',');) {
    check(heads.size() < windows.size(), "directions and windows: give one of each for every head");
    heads.push_back(seen_by(name, windows[heads.size()], include_self));
  }
  return heads;
}

template <class T>
class Attention {
 public:
  int64_t B, H, N, D;
  Sizes sizes;

  Attention(const Tensor& v, const MaybeTensor& key_mask, const std::string& directions,
            const std::vector<int64_t>& windows, const std::string& score_function, bool include_self)
      : sizes(sizes_of(v)), seen_(parse(directions, windows, include_self)), sigmoid_(score_function == "sigmoid") {
    check(sizes.size() == 4, "v: give (B, H, N, D)");
    B = sizes[0], H = sizes[1], N = sizes[2], D = sizes[3];
    check(sigmoid_ || score_function == "exp", "score_function is '", score_function, "'; choose one of sigmoid, exp");
    check(int64_t(seen_.size()) == H && windows.size() == seen_.size(),
          "directions and windows: give one of each for every head");
    mask_ = checked("key_mask", key_mask, ScalarType::Bool, {B, N});
    if (mask_ && !std::memchr(read<bool>(mask_), 0, B * N)) mask_.reset();
    if (mask_) real_ = numbers(v);
    const int64_t most = std::max<int64_t>(1, group_elements / std::max<int64_t>(1, 2 * N * D));
    rows_ = std::min(B, most);
    heads_ = N <= tile_queries ? std::max<int64_t>(1, std::min(H, most / std::max<int64_t>(1, B))) : 1;
  }

  ByHead input(const char* name, const Tensor& x) const {
    check_tensor(name, x, type_of<T>, sizes);
    return ByHead(x, sizes, heads_ > 1);
  }

  template <class Work>
  void for_each_group(const Work& work) const {
    for (int64_t head = 0; head < H; head += heads_) {
      for (int64_t row = 0; row < B; row += rows_) {
        work(Together{head, std::min(heads_, H - head), row, std::min(rows_, B - row)});
      }
    }
  }

  // With several tiles, a group has one head.
  template <class Work>
  void for_each_tile(const Together& part, const Work& work) const {
    const Seen& seen = seen_[part.head];
    for (int64_t start = 0; start < N; start += tile_queries) {
      const int64_t stop = std::min(N, start + tile_queries);
      const int64_t first = N <= tile_queries ? 0 : std::max<int64_t>(0, start - seen.before);
      const int64_t last = N <= tile_queries ? N : std::min(N, stop + seen.after);
      work(Tile{start, stop - start, first, last - first});
    }
  }

  SourceWeights<T> source(const Together& part) const {
    return {.sentences = part.sentences(),
            .length = N,
            .size = D,
            .mask = read<bool>(mask_),
            .batch = part.rows,
            .first = part.row};
  }

  // A tile's weights from its products of queries and keys, and the products' gradients from the weights'.
  void weigh(const Together& part, const Tile& tile, const Tensor& weights, const MaybeTensor& grads) const {
    const TokenWeights<T> arguments{.sentences = part.sentences(),
                                    .queries = tile.queries,
                                    .keys = tile.keys,
                                    .first_query = tile.first_query,
                                    .first_key = tile.first_key,
                                    .length = N,
                                    .seen = &seen_[part.head],
                                    .per_head = part.rows,
                                    .real = read<T>(real_),
                                    .batch = part.rows,
                                    .first = part.row,
                                    .sigmoid = sigmoid_,
                                    .scale = T(1 / std::sqrt(double(D))),
                                    .weights = write<T>(weights),
                                    .grads = grads ? write<T>(*grads) : nullptr};
    run(loops<T>().token_weights, arguments, part.sentences() * tile.queries, 4 * weights.numel());
  }

  Attend<T> attend(const Together& part, const SourceWeights<T>& source, const Tensor& weights) const {
    return {.source = source, .weights = read<T>(weights), .seen = &seen_[part.head], .per_head = part.rows};
  }
  void run_attend(Loop<Attend<T>> loop, const Attend<T>& arguments) const {
    const int64_t n = arguments.source.sentences;
    run(loop, arguments, n * slices<T>(D), (4 + N) * n * N * D, 2 * N * loops<T>().lanes * int64_t(sizeof(T)));
  }

 private:
  std::vector<Seen> seen_;
  bool sigmoid_;
  MaybeTensor mask_, real_;
  int64_t rows_, heads_;

  Tensor numbers(const Tensor& like) const {
    const Tensor real = allocate(like, {B, N});
    for (int64_t i = 0; i < B * N; i++) write<T>(real)[i] = T(read<bool>(mask_)[i]);
    return real;
  }
};

std::tuple<Tensor, Tensor, Tensor> tensorized_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        const Tensor& source_scores, const MaybeTensor& key_mask,
                                                        const std::string& directions,
                                                        const std::vector<int64_t>& windows,
                                                        const std::string& score_function, bool include_self,
                                                        bool save) {
  return by_type("v", v, [&]<class T>(T) {
    const Attention<T> attention(v, key_mask, directions, windows, score_function, include_self);
    const int64_t N = attention.N, D = attention.D;
    const ByHead q_ = attention.input("q", q), k_ = attention.input("k", k), v_ = attention.input("v", v);
    const ByHead scores_ = attention.input("source_scores", source_scores);
    const Sizes saved{save ? attention.B : 0, attention.H, N, D};
    const Result out(v, attention.sizes), source(v, saved), denominators(v, saved);
    Reused values_memory(v), weights_memory(v), both_memory(v);
    attention.for_each_group([&](const Together& part) {
      const int64_t n = part.sentences();
      SourceWeights<T> arguments = attention.source(part);
      arguments.scores = scores_.template place<T>(part);
      arguments.v = v_.template place<T>(part);
      if (save) arguments.source = source.template place_to_write<T>(part);
      if (N <= tile_queries) {  // a separate loop sums over keys faster than a matrix product
        const Tensor weights = weights_memory.stack(n, N, N);
        multiply(weights, q_.some(part, 0, N, D), transposed(k_.some(part, 0, N, D)));
        attention.weigh(part, {0, N, 0, N}, weights, {});
        Attend<T> attend = attention.attend(part, arguments, weights);
        attend.out = out.template place_to_write<T>(part);
        if (save) attend.divisors = denominators.template place_to_write<T>(part);
        attention.run_attend(loops<T>().attend, attend);
        return;
      }
      const Tensor values = values_memory.stack(n, N, 2 * D);
      arguments.values = write<T>(values);
      run(loops<T>().source_weights, arguments, n * slices<T>(D), 4 * n * N * D);
      attention.for_each_tile(part, [&](const Tile& tile) {
        const Tensor weights = weights_memory.stack(n, tile.queries, tile.keys);
        multiply(weights, q_.some(part, tile.first_query, tile.queries, D),
                 transposed(k_.some(part, tile.first_key, tile.keys, D)));
        attention.weigh(part, tile, weights, {});
        const Tensor both = both_memory.stack(n, tile.queries, 2 * D);
        multiply(both, weights, some_rows(values, tile.first_key, tile.keys));
        Quotients<T> quotients{.queries = tile.queries,
                               .size = D,
                               .both = read<T>(both),
                               .out = out.template place_to_write<T>(part)};
        quotients.out.data += tile.first_query * quotients.out.row;
        if (save) {
          quotients.divisors = denominators.template place_to_write<T>(part);
          quotients.divisors.data += tile.first_query * quotients.divisors.row;
        }
        run(loops<T>().quotients, quotients, n * tile.queries, n * tile.queries * D);
      });
    });
    return std::make_tuple(out.tensor, source.tensor, denominators.tensor);
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> tensorized_attention_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const MaybeTensor& key_mask,
    const Tensor& out, const Tensor& source, const Tensor& denominators, const std::string& directions,
    const std::vector<int64_t>& windows, const std::string& score_function, bool include_self) {
  return by_type("v", v, [&]<class T>(T) {
    const Attention<T> attention(v, key_mask, directions, windows, score_function, include_self);
    const int64_t N = attention.N, D = attention.D;
    const ByHead q_ = attention.input("q", q), k_ = attention.input("k", k), v_ = attention.input("v", v);
    const ByHead grad_ = attention.input("grad", grad), out_ = attention.input("out", out);
    const ByHead source_ = attention.input("source", source);
    const ByHead denominators_ = attention.input("denominators", denominators);
    const Result to_q(v, attention.sizes), to_k(v, attention.sizes), to_v(v, attention.sizes);
    const Result to_scores(v, attention.sizes);
    Reused values_memory(v), to_values_memory(v), share_memory(v), weights_memory(v), to_weights_memory(v);
    attention.for_each_group([&](const Together& part) {
      const int64_t n = part.sentences();
      const Tensor values = values_memory.stack(n, N, 2 * D);
      const bool several = N > tile_queries;  // then sums over queries accumulate
      const Tensor to_values = to_values_memory.stack(several ? n : 0, N, 2 * D);
      const Tensor share = share_memory.stack(n, N, 2 * D);
      SourceWeights<T> arguments = attention.source(part);
      arguments.v = v_.template place<T>(part);
      arguments.values = write<T>(values);
      arguments.saved_source = source_.template place<T>(part);
      arguments.out = out_.template place<T>(part);
      arguments.denominators = denominators_.template place<T>(part);
      arguments.grad = grad_.template place<T>(part);
      arguments.share = write<T>(share);
      arguments.grad_values = read<T>(to_values);
      arguments.grad_v = to_v.template place_to_write<T>(part);
      arguments.grad_scores = to_scores.template place_to_write<T>(part);
      run(loops<T>().source_weights_again, arguments, n * N, 3 * n * N * D);
      if (several) {
        std::memset(write<T>(to_values), 0, to_values.numel() * sizeof(T));
        for (int64_t s = 0; s < n; s++) {
          std::memset(to_k.template place_to_write<T>(part).data + s * to_k.row, 0, N * D * sizeof(T));
        }
      }
      attention.for_each_tile(part, [&](const Tile& tile) {
        const Tensor weights = weights_memory.stack(n, tile.queries, tile.keys);
        const Tensor to_weights = to_weights_memory.stack(n, tile.queries, tile.keys);
        const Tensor queries = q_.some(part, tile.first_query, tile.queries, D);
        const Tensor keys = k_.some(part, tile.first_key, tile.keys, D);
        const Tensor share_of_queries = some_rows(share, tile.first_query, tile.queries);
        multiply(weights, queries, transposed(keys));
        multiply(to_weights, share_of_queries, transposed(some_rows(values, tile.first_key, tile.keys)));
        attention.weigh(part, tile, weights, to_weights);
        if (several) {
          multiply(some_rows(to_values, tile.first_key, tile.keys), transposed(weights), share_of_queries, true);
        } else {
          attention.run_attend(loops<T>().attend_backward, attention.attend(part, arguments, weights));
        }
        multiply(to_q.some(part, tile.first_query, tile.queries, D), to_weights, keys);
        multiply(to_k.some(part, tile.first_key, tile.keys, D), transposed(to_weights), queries, several);
      });
      if (several) run(loops<T>().source_weights_backward, arguments, n * N, 3 * n * N * D);
    });
    return std::make_tuple(to_q.tensor, to_k.tensor, to_v.tensor, to_scores.tensor);
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("tensorized_attention", TORCH_BOX(&hf_blosan::tensorized_attention));
  m.impl("tensorized_attention_backward", TORCH_BOX(&hf_blosan::tensorized_attention_backward));
}
