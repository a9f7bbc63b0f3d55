// Directional self-attention in all directions of a layer, and what surrounds it in a stack, in one call for
// inference; the schema is in directional/disa.py.
//
// For one sentence, Python's work between the operators takes longer than they do.

#include <cstring>
#include <iterator>

#include "products.h"
#include "steps.h"

namespace hf_blosan {
namespace {

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

Activation activation_by_name(const std::string& name) {
  if (name == "elu") return Activation::elu;
  if (name == "gelu") return Activation::gelu;
  check(name == "linear", "activation is '", name, "'; choose one of linear, elu, gelu");
  return Activation::linear;
}

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

// The concatenated parts, (B, N, size), or LN(x + parts) with a norm's weight and bias. x may be words at places,
// whose indices at_places has checked.
template <class T>
Tensor side_by_side(const Tensors& parts, const Tensor& x, const MaybeTensor& places, const Tensor* norm,
                    double epsilon) {
  if (parts.size() == 1 && !norm) return parts[0];
  std::vector<const T*> memory;
  Sizes widths, sizes = sizes_of(parts[0]);
  sizes[2] = 0;
  for (const Tensor& part : parts) {
    memory.push_back(read<T>(part));
    widths.push_back(part.size(2));
    sizes[2] += part.size(2);
  }
  const Tensor out = allocate(parts[0], sizes);
  AddNorm<T> arguments{.groups = chunks(1, sizes[0] * sizes[1], sizes[2]),
                       .places = read<int64_t>(places),
                       .parts = memory.data(),
                       .widths = widths.data(),
                       .count = int64_t(parts.size()),
                       .epsilon = T(epsilon),
                       .y = write<T>(out)};
  Tensor weight, bias;
  if (norm) {
    check(x.size(2) == sizes[2], "norms: ", x.size(2), " features cannot be added to ", sizes[2]);
    weight = checked("norms", norm[0], type_of<T>, {sizes[2]});
    bias = checked("norms", norm[1], type_of<T>, {sizes[2]});
    arguments.x = read<T>(x);
    arguments.weight = read<T>(weight);
    arguments.bias = read<T>(bias);
  }
  run_groups(loops<T>().add_norm, arguments);
  return out;
}

Tensor disa(const Tensor& x, const MaybeTensor& places, const MaybeTensor& mask, const MaybeTensor& cu_seqlens,
            const Tensors& tensors, const Sizes& counts, const Tensors& biases, const Tensors& norms,
            const std::string& activation, const std::string& names, const Sizes& windows,
            double scale, const std::vector<double>& epsilons, const std::string& implementation) {
  return by_type("x", x, [&]<class T>(T) {
    std::istringstream words(names);
    const std::vector<std::string> directions{std::istream_iterator<std::string>(words), {}};
    const size_t D = directions.size();
    check(x.dim() == 3, "x: the shape is ", sizes_of(x), "; give (B, N, in)");
    check(!places || (x.size(0) == 1 && places->dim() == 2), "places: give (B, N), and words as (1, V, in)");
    check(D > 0 && windows.size() == D && biases.size() == 2 * D && counts.size() == 5 * D + (norms.empty() ? 0 : 2),
          "directions: give each a window, two biases and five maps, and two maps more with norms");
    check(norms.empty() || norms.size() == 4, "norms: give two of them, weight and bias each");
    check(epsilons.size() == norms.size() / 2, "epsilons: give one for each norm");
    const MaybeTensor places_ =
        places ? checked("places", places, ScalarType::Long, sizes_of(*places)) : MaybeTensor();
    const auto in_rows = [&](const Tensor& y) { return places_ ? at_places<T>(y, *places_) : y; };
    size_t map = 0, used = 0;
    const auto next = [&] {
      const size_t from = used;
      used += counts[map++];
      check(counts[map - 1] >= 0 && used <= tensors.size(), "counts: there are ", tensors.size(), " tensors of maps");
      return Tensors(tensors.begin() + from, tensors.begin() + used);
    };
    const Activation act = activation_by_name(activation);
    Tensor inputs = checked("x", x, type_of<T>, sizes_of(x));
    if (!norms.empty()) {
      const Tensors feed = next(), feed_output = next();
      Tensor added = Map("feed", feed)(inputs, act);
      if (!feed_output.empty()) added = Map("feed_output", feed_output)(added);
      inputs = side_by_side<T>({added}, inputs, {}, norms.data(), epsilons[0]);
    }
    struct Direction {
      Tensors dense, key, query, first, second;
    };
    std::vector<Direction> given;
    std::vector<Map> dense;
    for (size_t d = 0; d < D; d++) given.push_back({next(), next(), next(), next(), next()});
    for (const Direction& one : given) dense.emplace_back("dense", one.dense);
    const Tensors of_words = Map::results(dense, inputs, act);
    Tensors results;
    for (size_t d = 0; d < D; d++) {
      const Direction& one = given[d];
      const Map first("first", one.first), second("second", one.second);
      const bool one_by_one = places || first.int8 || second.int8;
      std::vector<Map> maps{{"key", one.key}, {"query", one.query}};
      if (one_by_one) maps.push_back(first);
      Tensors found = Map::results(maps, of_words[d]);
      for (Tensor& tensor : found) tensor = in_rows(tensor);
      const Tensor mapped = in_rows(of_words[d]);
      const Tensor attended =
          std::get<0>(directional_attention(found[0], found[1], mapped, biases[2 * d], mask, {}, cu_seqlens,
                                            directions[d], scale, windows[d], implementation, {}, false));
      const Tensor& gate_bias = biases[2 * d + 1];
      if (one_by_one) {
        results.push_back(fusion_gate_of_scores(mapped, attended, found[2], second(attended), gate_bias, mask));
      } else {
        results.push_back(std::get<0>(fusion_gate(mapped, attended, {}, {}, first.parts[0], second.parts[0], gate_bias,
                                                  first.bias, second.bias, mask, false)));
      }
    }
    if (norms.empty()) return side_by_side<T>(results, inputs, {}, nullptr, 0);
    return side_by_side<T>(results, inputs, places_, norms.data() + 2, epsilons[1]);
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("disa", TORCH_BOX(&hf_blosan::disa));
}
