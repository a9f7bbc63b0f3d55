// Masked block self-attention in all directions of a layer, in one call for inference; the schema is in
// directional/mblosa.py. As the authors' code has it: one map for keys and queries, one for the scores of a block's
// tokens, and DiSA between blocks.

#include "layers.h"

namespace hf_blosan {
namespace {

// Sets rows where the mask is false to 0.
template <class T>
void clear_padding(const Tensor& x, const Tensor& mask) {
  const int64_t size = x.size(x.dim() - 1);
  for (int64_t row = 0; row < mask.numel(); row++) {
    if (!read<bool>(mask)[row]) std::fill_n(write<T>(x) + row * size, size, T(0));
  }
}

// Which blocks, (B, M), have a real token.
Tensor real_blocks(const Tensor& mask, int64_t length) {
  const int64_t B = mask.size(0), N = mask.size(1), M = (N + length - 1) / length;
  const Tensor found = allocate(mask, {B, M});
  for (int64_t block = 0; block < B * M; block++) {
    const bool* const row = read<bool>(mask) + block / M * N;
    const int64_t first = block % M * length;
    write<bool>(found)[block] = std::find(row + first, row + std::min(N, first + length), true) - row <
                                std::min(N, first + length);
  }
  return found;
}

// [h; local; the vector of the token's block], (B, N, 2 D or 3 D).
template <class T>
Tensor beside_blocks(const Tensor& h, const MaybeTensor& local, const Tensor& blocks, int64_t length) {
  const int64_t B = h.size(0), N = h.size(1), size = h.size(2), M = blocks.size(1), parts = local ? 3 : 2;
  check_tensor("blocks", blocks, type_of<T>, {B, M, size});
  const Tensor out = allocate(h, {B, N, parts * size});
  for (int64_t row = 0; row < B * N; row++) {
    T* const to = write<T>(out) + row * parts * size;
    std::copy_n(read<T>(h) + row * size, size, to);
    if (local) std::copy_n(read<T>(*local) + row * size, size, to + size);
    const int64_t block = row / N * M + row % N / length;
    std::copy_n(read<T>(blocks) + block * size, size, to + (parts - 1) * size);
  }
  return out;
}

template <class T>
struct MaskedBlocks {
  struct Direction {
    std::string name;
    Tensors dense, alignment, pooling, fusion;
    Tensor bias;
    Disa<T> between;  // the blocks
  };
  static constexpr Activation activation = Activation::elu;  // as in fuse_blocks
  std::vector<Direction> directions = {};
  int64_t length;
  bool mask_padding, fuse_local;
  double scale;
  std::string implementation;

  // The second matrices of products with a row for each token, and for each block. Of the fusion, which fuse_blocks
  // takes some columns at a time, the last are for blocks.
  Tensors factors_of_tokens() const {
    Tensors found;
    for (const Direction& one : directions) {
      append(found, {&one.dense, &one.alignment, &one.pooling});
      const Tensors fusion = fusion_of(one);
      if (!fusion.empty()) found.insert(found.end(), fusion.begin(), fusion.end() - 1);
    }
    return found;
  }
  Tensors factors_of_blocks() const {
    Tensors found;
    for (const Direction& one : directions) {
      const auto& between = one.between.directions[0];
      append(found, {&between.dense, &between.key, &between.query, &between.first, &between.second});
      const Tensors fusion = fusion_of(one);
      if (!fusion.empty()) found.push_back(fusion.back());
    }
    return found;
  }

  // Of each direction h, its keys and queries side by side, and for words what h adds to the scores of the fusion.
  std::vector<Tensors> map(const Tensor& x, bool of_words) const {
    std::vector<Map> dense;
    for (const Direction& one : directions) dense.emplace_back("dense", one.dense);
    std::vector<Tensors> found;
    for (const Tensor& h : Map::results(dense, x, activation)) {
      found.push_back({h, Map("alignment", directions[found.size()].alignment)(h)});
      const int64_t size = h.size(2);
      check(found.back()[1].size(2) == 2 * size, "alignment: give a map of ", size, " features to ", 2 * size);
      const Map fusion("fusion", directions[found.size() - 1].fusion);
      if (!of_words || fusion.int8) continue;
      check_tensor("fusion", fusion.parts[0], type_of<T>, {2 * size, (fuse_local ? 3 : 2) * size});
      found.back().push_back(linear(h, narrow(fusion.parts[0], 1, 0, size), {}, Activation::linear));
    }
    return found;
  }

  // The features of all directions side by side, in `out`.
  void fuse(const std::vector<Tensors>& mapped, const MaybeTensor& places, const Tensor& mask,
            const Tensor& out) const {
    Tensors results;
    for (size_t d = 0; d < directions.size(); d++) {
      const Direction& one = directions[d];
      const auto in_rows = [&](const Tensor& x) { return places ? at_places<T>(x, *places) : x; };
      const Tensor h = in_rows(mapped[d][0]), aligned = in_rows(mapped[d][1]);
      const int64_t size = h.size(2);
      const Tensor local = std::get<0>(
          directional_attention(narrow(aligned, 2, 0, size), narrow(aligned, 2, size, size), h, one.bias, mask, {}, {},
                                one.name, scale, {}, implementation, length, false));
      clear_padding<T>(local, mask);
      const Tensor scores = Map("pooling", one.pooling)(local);
      const Tensor vectors = std::get<0>(source2token_attention(scores, local, mask, {}, length, false));
      const MaybeTensor real = mask_padding ? real_blocks(mask, length) : MaybeTensor();
      const Tensor blocks = one.between.fuse(one.between.map(vectors), {}, real, {}, {});
      const MaybeTensor fused_local = fuse_local ? local : MaybeTensor();
      const Map fusion("fusion", one.fusion);
      if (fusion.int8) {
        results.push_back(block_fusion_of_scores(h, fusion(beside_blocks<T>(h, fused_local, blocks, length))));
      } else {
        check(fusion.bias.has_value(), "fusion: give a map with a bias");
        const MaybeTensor of_h = places ? in_rows(mapped[d][2]) : MaybeTensor();
        results.push_back(std::get<0>(
            fuse_blocks(h, of_h, fused_local, blocks, fusion.parts[0], *fusion.bias, length, false)));
      }
    }
    side_by_side<T>(out, results, {}, {}, nullptr, 0);
  }

 private:
  static void append(Tensors& to, std::initializer_list<const Tensors*> maps) {
    for (const Tensors* map : maps) {
      for (const Tensor& factor : factors(*map)) to.push_back(factor);
    }
  }
  static Tensors fusion_of(const Direction& one) {
    const int64_t size = one.bias.numel();
    Tensors found;
    for (const Tensor& fusion : factors(one.fusion)) {
      for (int64_t k = 0; k + size <= fusion.size(0); k += size) found.push_back(narrow(fusion, 0, k, size));
    }
    return found;
  }
};

Tensor mblosa(const Tensor& x, const MaybeTensor& places, const Tensor& mask, const Tensors& tensors,
              const Sizes& counts, const Tensors& biases, const std::string& names, int64_t length,
              bool mask_padding, bool fuse_local, double scale, const std::string& implementation) {
  return by_type("x", x, [&]<class T>(T) {
    const LayerInputs given(x, places, names);
    const auto& directions = given.directions;
    const int64_t B = given.B, N = given.N;
    const size_t D = directions.size();
    check(D > 0 && biases.size() == 3 * D && counts.size() == 9 * D,
          "directions: give each three biases and nine maps");
    check(length >= 1, "block_length is ", length, "; give a number of tokens, 1 or more");
    const Tensor mask_ = checked("mask", mask, ScalarType::Bool, {B, N});
    check(N > 0, "x: rows of no tokens have no blocks");
    length = std::min(length, N);
    MapTensors maps(tensors, counts);
    MaskedBlocks<T> layer{.length = length, .mask_padding = mask_padding, .fuse_local = fuse_local,
                          .scale = scale, .implementation = implementation};
    constexpr int64_t any_distance = int64_t(1) << 40;
    for (size_t d = 0; d < D; d++) {
      const Tensor* const own = biases.data() + 3 * d;
      check(own[0].dim() == 1 && own[0].numel() > 0, "biases: give the attention in blocks (D)");
      typename MaskedBlocks<T>::Direction one{directions[d], maps.next(), maps.next(), maps.next(), maps.next(),
                                              own[0],
                                              {.activation = layer.activation,
                                               .scale = scale,
                                               .implementation = implementation}};
      one.between.directions.push_back({directions[d], any_distance, maps.next(), maps.next(), maps.next(),
                                        maps.next(), maps.next(), own[1], own[2]});
      layer.directions.push_back(std::move(one));
    }
    const auto threads = parts_for_threads(B, N, {});
    PackedMatrices packed;
    packed.add(layer.factors_of_tokens(), largest(threads).tokens);
    packed.add(layer.factors_of_blocks(), largest(threads).sentences * ((N + length - 1) / length));
    const PackedMatrices::Use use(packed);
    std::vector<Tensors> of_words;
    if (places) of_words = layer.map(given.x, true);
    const Tensor out = allocate(x, {B, N, width_of(layer.directions)});
    for_each_part(threads, packed, [&](const Some& some) {
      const PartOf part{some, false};
      layer.fuse(places ? of_words : layer.map(part(given.x), false), part(given.places), part(mask_), part(out));
    });
    return out;
  });
}

}  // namespace
}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("mblosa", TORCH_BOX(&hf_blosan::mblosa));
}
