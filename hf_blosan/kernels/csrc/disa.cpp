// Directional self-attention in all directions of a layer, and what surrounds it in a stack, in one call for
// inference; the schema is in directional/disa.py.
//
// For one sentence, Python's work between the operators takes longer than they do; for many, each thread takes all
// steps of its part of the batch.

#include "layers.h"

namespace hf_blosan {
namespace {

Tensor disa(const Tensor& x, const MaybeTensor& places, const MaybeTensor& mask, const MaybeTensor& cu_seqlens,
            const Tensors& tensors, const Sizes& counts, const Tensors& biases, const Tensors& norms,
            const std::string& activation, const std::string& names, const Sizes& windows,
            double scale, const std::vector<double>& epsilons, const std::string& implementation) {
  return by_type("x", x, [&]<class T>(T) {
    const LayerInputs given(x, places, names);
    const auto& directions = given.directions;
    const int64_t B = given.B, N = given.N;
    const size_t D = directions.size();
    check(D > 0 && windows.size() == D && biases.size() == 2 * D && counts.size() == 5 * D + (norms.empty() ? 0 : 2),
          "directions: give each a window, two biases and five maps, and two maps more with norms");
    check(norms.empty() || norms.size() == 4, "norms: give two of them, weight and bias each");
    check(epsilons.size() == norms.size() / 2, "epsilons: give one for each norm");
    const MaybeTensor mask_ = checked("mask", mask, ScalarType::Bool, {B, N});
    MapTensors maps(tensors, counts);
    Disa<T> layer{.activation = activation_by_name(activation),
                  .scale = scale,
                  .implementation = implementation,
                  .of_words = places.has_value(),
                  .norms = norms,
                  .epsilons = epsilons};
    if (!norms.empty()) {
      layer.feed = maps.next();
      layer.feed_output = maps.next();
    }
    for (size_t d = 0; d < D; d++) {
      layer.directions.push_back({directions[d], windows[d], maps.next(), maps.next(), maps.next(), maps.next(),
                                  maps.next(), biases[2 * d], biases[2 * d + 1]});
    }
    const auto threads = parts_for_threads(B, N, cu_seqlens);
    PackedMatrices packed;
    packed.add(factors(tensors), largest(threads).tokens);
    const PackedMatrices::Use use(packed);
    Mapped of_words;
    if (places) of_words = layer.map(given.x);
    if (threads.size() == 1 && threads[0].size() == 1) {
      return layer.fuse(places ? of_words : layer.map(given.x), given.places, mask_, cu_seqlens, {});
    }
    const Tensor out = allocate(x, {B, N, width_of(layer.directions)});
    for_each_part(threads, packed, [&](const Some& some) {
      const PartOf part{some, cu_seqlens.has_value()};
      layer.fuse(places ? of_words : layer.map(part(given.x)), part(given.places), part(mask_),
                 starts_of(cu_seqlens, some), part(out));
    });
    return out;
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("disa", TORCH_BOX(&hf_blosan::disa));
}
