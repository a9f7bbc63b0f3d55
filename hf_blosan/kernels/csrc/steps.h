// Operators that the layers of disa.cpp and mblosa.cpp call one after another.
#pragma once

#include <string>
#include <tuple>

#include "tensors.h"

namespace hf_blosan {

// operators.cpp: the attended values; the second tensor is for the gradient.
std::tuple<Tensor, Tensor> directional_attention(
    const Tensor& keys, const Tensor& queries, const Tensor& values, const MaybeTensor& bias,
    const MaybeTensor& key_mask, const MaybeTensor& token_mask, const MaybeTensor& cu_seqlens,
    const std::string& direction, double scale, const std::optional<int64_t>& window,
    const std::string& implementation, const std::optional<int64_t>& block_length, bool save);

// operators.cpp: the vector of each block, (B, M, D); the other tensors are for the gradient.
std::tuple<Tensor, Tensor, Tensor> source2token_attention(const Tensor& scores, const Tensor& values,
                                                          const Tensor& mask, const MaybeTensor& cu_seqlens,
                                                          const std::optional<int64_t>& block_length, bool save);

inline Activation activation_by_name(const std::string& name) {
  if (name == "elu") return Activation::elu;
  if (name == "gelu") return Activation::gelu;
  check(name == "linear", "activation is '", name, "'; choose one of linear, elu, gelu");
  return Activation::linear;
}

// pointwise.cpp: activation(x W' + bias), and activation(x) in place; both gates, the first of which also returns
// tensors for the gradient.
Tensor linear(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, Activation activation);
void activate(const Tensor& x, Activation activation);
std::tuple<Tensor, Tensor, Tensor> fusion_gate(const Tensor& first, const Tensor& second,
                                               const MaybeTensor& first_input, const MaybeTensor& second_input,
                                               const Tensor& first_weight, const Tensor& second_weight,
                                               const Tensor& bias, const MaybeTensor& first_bias,
                                               const MaybeTensor& second_bias, const MaybeTensor& mask, bool save);
Tensor fusion_gate_of_scores(const Tensor& first, const Tensor& second, const Tensor& first_scores,
                             const Tensor& second_scores, const Tensor& bias, const MaybeTensor& mask);

// pointwise.cpp: tokens fused with their blocks; the other tensors are for the gradient. `of_mapped`, (B, N, 2 D), is
// the part of the scores that comes from `mapped`, and is overwritten; by default it is computed.
std::tuple<Tensor, Tensor, Tensor> fuse_blocks(const Tensor& mapped, const MaybeTensor& of_mapped,
                                               const MaybeTensor& local, const MaybeTensor& blocks,
                                               const Tensor& weight, const Tensor& bias,
                                               const std::optional<int64_t>& block_length, bool save);
Tensor block_fusion_of_scores(const Tensor& mapped, const Tensor& scores);

// int8.cpp: results of several maps of the same x, which is rounded once.
struct Int8Weight {
  Tensor packed, shifts, scale;
  MaybeTensor bias;
};
Tensors int8_linear(const Tensor& x, const std::vector<Int8Weight>& weights);

}  // namespace hf_blosan
