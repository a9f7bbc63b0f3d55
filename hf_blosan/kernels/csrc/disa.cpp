// DiSA, the layer of directional self-attention, in one call for inference; its schema is in directional/disa.py.
//
// For one sentence what Python does between its operators takes longer than they do.

#include <cstring>

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
    if (!int8) return linear(x, parts[0], bias, activation);
    const Tensor y = int8_linear(x, parts[0], parts[1], parts[2], bias);
    activate(y, activation);
    return y;
  }
};

Activation activation_by_name(const std::string& name) {
  if (name == "elu") return Activation::elu;
  if (name == "gelu") return Activation::gelu;
  check(name == "linear", "activation is '", name, "'; choose one of linear, elu, gelu");
  return Activation::linear;
}

// Rows (1, V, D) at their places (B, N).
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

Tensor disa(const Tensor& x, const MaybeTensor& places, const MaybeTensor& mask, const MaybeTensor& cu_seqlens,
            const Tensors& dense, const Tensors& key, const Tensors& query, const Tensor& attention_bias,
            const Tensors& first, const Tensors& second, const Tensor& gate_bias, const std::string& activation,
            const std::string& direction, double scale, const std::optional<int64_t>& window,
            const std::string& implementation) {
  return by_type("x", x, [&]<class T>(T) {
    check(x.dim() == 3, "x: the shape is ", sizes_of(x), "; give (B, N, in)");
    check(!places || (x.size(0) == 1 && places->dim() == 2), "places: give (B, N), and words as (1, V, in)");
    const Map first_map("first", first), second_map("second", second);
    const MaybeTensor places_ =
        places ? checked("places", places, ScalarType::Long, sizes_of(*places)) : MaybeTensor();
    const auto in_rows = [&](const Tensor& y) { return places_ ? at_places<T>(y, *places_) : y; };
    const Tensor of_words = Map("dense", dense)(x, activation_by_name(activation)), mapped = in_rows(of_words);
    const Tensor keys = in_rows(Map("key", key)(of_words)), queries = in_rows(Map("query", query)(of_words));
    const Tensor attended =
        std::get<0>(directional_attention(keys, queries, mapped, attention_bias, mask, {}, cu_seqlens, direction,
                                          scale, window, implementation, {}, false));
    if (!places && !first_map.int8 && !second_map.int8) {
      return std::get<0>(fusion_gate(mapped, attended, {}, {}, first[0], second[0], gate_bias, first_map.bias,
                                     second_map.bias, mask, false));
    }
    return fusion_gate_of_scores(mapped, attended, in_rows(first_map(of_words)), second_map(attended), gate_bias, mask);
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("disa", TORCH_BOX(&hf_blosan::disa));
}
