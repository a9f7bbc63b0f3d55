// Parts of layers that disa.cpp and mblosa.cpp compute in one call, for inference.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>

#include "products.h"
#include "steps.h"

namespace hf_blosan {

// A linear map: its weight, or a weight in int8 as int8_linear takes it, and its bias if there is one.
struct Map {
  const Tensors& parts;
  bool int8;
  MaybeTensor bias;

  Map(const char* name, const Tensors& parts_) : parts(parts_) {
    int8 = !parts.empty() && parts[0].scalar_type() == ScalarType::Char;
    const size_t needed = int8 ? 3 : 1;
    check(parts.size() == needed || parts.size() == needed + 1, name, ": there are ", parts.size(), " tensors; give ",
          int8 ? "a packed weight, shifts and scale" : "a weight", ", and a bias if the map has one");
    if (parts.size() > needed) bias = parts[needed];
  }

  Tensor operator()(const Tensor& x, Activation activation = Activation::linear) const {
    return results({*this}, x, activation)[0];
  }

  // For several maps of one x.
  static Tensors results(const std::vector<Map>& maps, const Tensor& x, Activation activation = Activation::linear) {
    Tensors found;
    std::vector<Int8Weight> weights;
    for (const Map& map : maps) {
      if (map.int8) weights.push_back({map.parts[0], map.parts[1], map.parts[2], map.bias});
    }
    const Tensors rounded = weights.empty() ? Tensors() : int8_linear(x, weights);
    size_t used = 0;
    for (const Map& map : maps) {
      found.push_back(map.int8 ? rounded[used++] : linear(x, map.parts[0], map.bias, activation));
      if (map.int8) activate(found.back(), activation);
    }
    return found;
  }
};

// Rows of (1, V, D) at places (B, N).
template <class T>
Tensor at_places(const Tensor& rows, const Tensor& places) {
  const int64_t count = rows.size(1), size = rows.size(2);
  const Tensor out = allocate(rows, {places.size(0), places.size(1), size});
  const int64_t* const numbers = read<int64_t>(places);
  const T* const from = read<T>(rows);
  T* const to = write<T>(out);
  for (int64_t i = 0; i < places.numel(); i++) {
    check(numbers[i] >= 0 && numbers[i] < count, "places: ", numbers[i], " is not one of the ", count, " words");
    std::memcpy(to + i * size, from + numbers[i] * size, size * sizeof(T));
  }
  return out;
}

// Writes the concatenated parts, (B, N, size), or LN(x + parts) with a norm's weight and bias. x may be words at
// places, whose indices at_places has checked.
template <class T>
void side_by_side(const Tensor& out, const Tensors& parts, const Tensor& x, const MaybeTensor& places,
                  const Tensor* norm, double epsilon) {
  std::vector<const T*> memory;
  Sizes widths;
  for (const Tensor& part : parts) {
    memory.push_back(read<T>(part));
    widths.push_back(part.size(2));
  }
  const int64_t size = out.size(2);
  AddNorm<T> arguments{.groups = chunks(1, out.size(0) * out.size(1), size),
                       .places = read<int64_t>(places),
                       .parts = memory.data(),
                       .widths = widths.data(),
                       .count = int64_t(parts.size()),
                       .epsilon = T(epsilon),
                       .y = write<T>(out)};
  Tensor weight, bias;
  if (norm) {
    check(x.size(2) == size, "norms: ", x.size(2), " features cannot be added to ", size);
    weight = checked("norms", norm[0], type_of<T>, {size});
    bias = checked("norms", norm[1], type_of<T>, {size});
    arguments.x = read<T>(x);
    arguments.weight = read<T>(weight);
    arguments.bias = read<T>(bias);
  }
  run_groups(loops<T>().add_norm, arguments);
}

// Sentences one after another from a token on: some of a batch.
struct Some {
  int64_t sentence, sentences, token, tokens;
};

// Tokens for which a thread of their own is worth starting.
constexpr int64_t tokens_of_thread = 16;

// The most that a thread may have, in units of an equal share; else threads divide the steps of all sentences together.
constexpr double most_of_thread = 1.25;

// A thread takes about this many tokens at a time, or up to twice as many: the tensors between steps, each of about
// half a megabyte, then stay in its cache and in memory that it has used before.
constexpr int64_t tokens_at_a_time = 512;

// Up to `count` consecutive parts of some sentences, of about the same number of tokens. `starts`: the token with which
// each sentence of the batch starts.
inline std::vector<Some> divided(const Sizes& starts, const Some& some, int64_t count) {
  std::vector<Some> parts;
  int64_t sentence = some.sentence;
  const int64_t last = some.sentence + some.sentences;
  for (int64_t i = 1; i <= count; i++) {
    const int64_t share = some.token + some.tokens * i / count;
    int64_t until = std::lower_bound(starts.begin(), starts.begin() + last, share) - starts.begin();
    if (until > sentence && share - starts[until - 1] < starts[until] - share) until--;  // the start before is nearer
    if (i == count) until = last;
    if (starts[until] == starts[sentence]) continue;
    parts.push_back({sentence, until - sentence, starts[sentence], starts[until] - starts[sentence]});
    sentence = until;
  }
  return parts;
}

// For each thread the parts of a batch that it takes one after another, through all steps: threads meet once instead
// of at every step. One part of everything where threads divide the steps.
inline std::vector<std::vector<Some>> parts_for_threads(int64_t sentences, int64_t tokens,
                                                        const MaybeTensor& cu_seqlens) {
  const Some all{0, sentences, 0, cu_seqlens ? tokens : sentences * tokens};
  Sizes starts;
  if (!cu_seqlens) {
    for (int64_t i = 0; i <= sentences; i++) starts.push_back(i * tokens);
  } else if (cu_seqlens->scalar_type() == ScalarType::Long && cu_seqlens->dim() == 1 && cu_seqlens->is_contiguous()) {
    starts.assign(read<int64_t>(*cu_seqlens), read<int64_t>(*cu_seqlens) + cu_seqlens->size(0));
  }
  // What is wrong with others is said by directional_attention.
  const bool ordered = !starts.empty() && !starts.front() && starts.back() == all.tokens;
  if (!all.tokens || !ordered || !std::is_sorted(starts.begin(), starts.end())) return {{all}};
  const int64_t most = std::max<int64_t>(1, all.tokens / tokens_of_thread);
  const int64_t threads = std::min<int64_t>(torch::stable::get_num_threads(), most);
  std::vector<std::vector<Some>> found;
  for (const Some& share : divided(starts, {0, int64_t(starts.size()) - 1, 0, all.tokens}, threads)) {
    if (double(share.tokens) * double(threads) > most_of_thread * double(all.tokens)) return {{all}};
    found.push_back(divided(starts, share, std::max<int64_t>(1, share.tokens / tokens_at_a_time)));
  }
  return found;
}

// The most tokens, and the most sentences, of any part.
inline Some largest(const std::vector<std::vector<Some>>& threads) {
  Some found{};
  for (const std::vector<Some>& parts : threads) {
    for (const Some& part : parts) {
      found.tokens = std::max(found.tokens, part.tokens);
      found.sentences = std::max(found.sentences, part.sentences);
    }
  }
  return found;
}

// Where these sentences start in a row of their own.
inline MaybeTensor starts_of(const MaybeTensor& cu_seqlens, const Some& some) {
  if (!cu_seqlens) return {};
  const Tensor starts = allocate(*cu_seqlens, {some.sentences + 1});
  for (int64_t i = 0; i <= some.sentences; i++) {
    write<int64_t>(starts)[i] = read<int64_t>(*cu_seqlens)[some.sentence + i] - some.token;
  }
  return starts;
}

// What a layer is given: tokens, (B, N, in), or the words of a batch, (1, V, in), at places (B, N); and the names of its
// directions.
struct LayerInputs {
  std::vector<std::string> directions;
  Tensor x;
  MaybeTensor places;
  int64_t B, N;

  LayerInputs(const Tensor& x_, const MaybeTensor& places_, const std::string& names) {
    std::istringstream words(names);
    directions.assign(std::istream_iterator<std::string>(words), {});
    check(x_.dim() == 3, "x: the shape is ", sizes_of(x_), "; give (B, N, in)");
    check(!places_ || (x_.size(0) == 1 && places_->dim() == 2), "places: give (B, N), and words as (1, V, in)");
    x = x_.is_contiguous() ? x_ : torch::stable::contiguous(x_);
    if (places_) places = checked("places", *places_, ScalarType::Long, sizes_of(*places_));
    const Tensor& rows = places ? *places : x;
    B = rows.size(0);
    N = rows.size(1);
  }
};

// Some sentences of tensors for all: rows, or tokens of a single row.
struct PartOf {
  const Some& some;
  bool single_row;

  Tensor operator()(const Tensor& whole) const {
    return single_row ? narrow(whole, 1, some.token, some.tokens) : narrow(whole, 0, some.sentence, some.sentences);
  }
  MaybeTensor operator()(const MaybeTensor& whole) const { return whole ? (*this)(*whole) : MaybeTensor(); }
};

// The second matrices of products with these weights; those in int8, and what is not a matrix, are left out.
inline Tensors factors(const Tensors& weights) {
  Tensors found;
  for (const Tensor& weight : weights) {
    if (weight.dim() == 2 && weight.scalar_type() != ScalarType::Char) found.push_back(transposed(weight));
  }
  return found;
}

// Calls work(part) for all parts, those of a thread one after another.
template <class Work>
void for_each_part(const std::vector<std::vector<Some>>& threads, const PackedMatrices& packed, const Work& work) {
  std::vector<std::exception_ptr> errors(threads.size());  // torch's threads lose what is thrown
  parallel(threads.size(), 1, [&](int64_t start, int64_t stop) {
    for (int64_t i = start; i < stop; i++) {
      try {
        const PackedMatrices::Use use(packed);
        for (const Some& part : threads[i]) work(part);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// The tensors of each map, in order, from a list of all.
class MapTensors {
 public:
  MapTensors(const Tensors& tensors, const Sizes& counts) : tensors_(tensors), counts_(counts) {}

  Tensors next() {
    const size_t from = used_;
    check(map_ < counts_.size() && counts_[map_] >= 0, "counts: give the number of tensors of each map");
    used_ += counts_[map_++];
    check(used_ <= tensors_.size(), "counts: there are ", tensors_.size(), " tensors of maps");
    return Tensors(tensors_.begin() + from, tensors_.begin() + used_);
  }

 private:
  const Tensors& tensors_;
  const Sizes& counts_;
  size_t map_ = 0, used_ = 0;
};

// What a token, or a word, has in each direction before it meets others.
struct Mapped {
  Tensor x;
  std::vector<Tensors> directions;  // h, its keys and queries and, if it is computed here, the gate's score of h
};

// The features of all directions of a layer.
template <class Direction>
int64_t width_of(const std::vector<Direction>& directions) {
  int64_t sum = 0;
  for (const Direction& one : directions) sum += one.bias.numel();
  return sum;
}

template <class T>
struct Disa {
  struct Direction {
    std::string name;
    int64_t window;
    Tensors dense, key, query, first, second;
    Tensor bias, gate_bias;
  };
  Activation activation;
  double scale;
  std::string implementation;
  bool of_words = false;  // x are words, so that the gate's score of h is computed once for each
  std::vector<Direction> directions = {};
  Tensors feed = {}, feed_output = {}, norms = {};  // norms: weights and biases of two, or none
  std::vector<double> epsilons = {};

  bool scores_first(const Direction& one) const {
    return of_words || Map("first", one.first).int8 || Map("second", one.second).int8;
  }

  Mapped map(Tensor x) const {
    if (!norms.empty()) {
      Tensor added = Map("feed", feed)(x, activation);
      if (!feed_output.empty()) added = Map("feed_output", feed_output)(added);
      const Tensor normed = allocate(added, sizes_of(added));
      side_by_side<T>(normed, {added}, x, {}, norms.data(), epsilons[0]);
      x = normed;
    }
    Mapped found{x, {}};
    std::vector<Map> dense;
    for (const Direction& one : directions) dense.emplace_back("dense", one.dense);
    const Tensors h = Map::results(dense, x, activation);
    for (size_t d = 0; d < directions.size(); d++) {
      const Direction& one = directions[d];
      std::vector<Map> maps{{"key", one.key}, {"query", one.query}};
      if (scores_first(one)) maps.emplace_back("first", one.first);
      Tensors own = Map::results(maps, h[d]);
      own.insert(own.begin(), h[d]);
      found.directions.push_back(std::move(own));
    }
    return found;
  }

  // The layer's result, in `out` if there is one.
  Tensor fuse(const Mapped& mapped, const MaybeTensor& places, const MaybeTensor& mask, const MaybeTensor& cu_seqlens,
              const MaybeTensor& out) const {
    Tensors results;
    for (size_t d = 0; d < directions.size(); d++) {
      const Direction& one = directions[d];
      Tensors own = mapped.directions[d];
      if (places) {
        for (Tensor& tensor : own) tensor = at_places<T>(tensor, *places);
      }
      const Tensor& h = own[0];
      const Tensor attended =
          std::get<0>(directional_attention(own[1], own[2], h, one.bias, mask, {}, cu_seqlens, one.name, scale,
                                            one.window, implementation, {}, false));
      const Map first("first", one.first), second("second", one.second);
      if (scores_first(one)) {
        results.push_back(fusion_gate_of_scores(h, attended, own[3], second(attended), one.gate_bias, mask));
      } else {
        results.push_back(std::get<0>(fusion_gate(h, attended, {}, {}, first.parts[0], second.parts[0], one.gate_bias,
                                                  first.bias, second.bias, mask, false)));
      }
    }
    if (norms.empty() && results.size() == 1 && !out) return results[0];
    Sizes sizes = sizes_of(results[0]);
    sizes[2] = width_of(directions);
    const Tensor made = out ? *out : allocate(results[0], sizes);
    side_by_side<T>(made, results, mapped.x, places, norms.empty() ? nullptr : norms.data() + 2,
                    norms.empty() ? 0 : epsilons[1]);
    return made;
  }
};

}  // namespace hf_blosan
