// What the operators (operators.cpp) pass to the loops (loops.inc), the same for every instruction set.
#pragma once

#include <cstdint>

namespace hf_blosan {

// Sentences of `sentence` tokens in `parts` parts of `length` tokens, the last of which may be shorter. Tokens of
// different parts do not see one another. Without blocks, a sentence is one part. With `starts`, parts have any length
// up to `length`: part p is starts[p] ... starts[p + 1] - 1 of a single row; an extra entry repeats the end.
struct Shape {
  int64_t length, size, sentence, parts;
  const int64_t* starts;
};

// A query sees up to `before` tokens before it, `after` tokens after it, and itself if `same`.
struct Seen {
  int64_t before, after;
  bool same;
};

// Tokens per chunk: long sums are taken chunk by chunk, and distant keys by whole chunks (expansion.h).
constexpr int64_t CHUNK = HF_BLOSAN_CHUNK;

// An expansion of the weights for scores in one range: coefficients (2, terms, terms) of K and of its derivative.
struct ExpansionTier {
  double half_range, tilt;
  int64_t terms;         // a multiple of 4
  int64_t shortest[3];   // lengths from which it pays off, see Expansion::use
  const float* narrow;   // for sums in float32; or null
  const double* wide;
};

// Tiers for one scale, from the narrowest range of scores to the widest (expansion.cpp).
struct Expansion {
  int64_t num_tiers, most_terms;
  const ExpansionTier* tiers;
  // Gradients subtract sums of the forward and the backward pass, which cancel only if both use the same form.
  enum Use { inference, training, always } use;
};

// Rows of features in matrices, one matrix per head or sentence: row r of matrix m begins at m * matrix + r * row.
template <class T>
struct Place {
  T* data;
  int64_t matrix, row;
};

template <class T>
struct Directional {
  Shape shape;
  Seen seen;
  T scale, limit;  // score bound c; half range up to which per-token exponentials are accurate enough
  Expansion expansion;
  Place<const T> keys, queries;
  const T* bias;     // added to every query, or null
  const T* values;   // (tokens, size), like all below
  const bool* mask;  // true at real tokens, or null
  const uint8_t* token_mask;  // (batch, query, key), strides below; or null
  int64_t mask_row, mask_query, mask_key;
  T *out, *denominators;  // denominators: or null
  // Backward, with saved results.
  const T *saved_out, *saved_denominators, *grad;
  T *grad_keys, *grad_queries, *grad_values;
};

template <class T>
struct SourceToToken {
  Shape shape;
  const T *scores, *values;
  const bool* mask;
  T *out, *tops, *totals;  // (parts, size): result; largest score and sum of exp(score - largest), or null
  const T *saved_out, *saved_tops, *saved_totals, *grad;
  T *grad_scores, *grad_values;
};

template <class T>
struct Recurrence {
  int64_t length, size;
  const T *forget, *values;
  T* states;
  const T *saved_states, *grad;
  T *grad_forget, *grad_values;
};

// The rows of each head in groups of `length`; no group crosses the end of a sentence of `sentence` rows. A loop's
// item is a group, and each group has a row of `sums`, so that sums do not depend on the number of threads.
struct Groups {
  int64_t heads, rows, size, sentence, length;
};

enum class Activation { linear, elu, gelu };

// y = activation(x + bias); gelu has no gradient.
template <class T>
struct BiasActivation {
  Groups groups;
  Activation activation;
  Place<const T> x;
  const T* bias;  // (heads, size), or null
  Place<T> y;
  Place<const T> grad, result;  // result: computed y, read for elu
  Place<T> grad_x;
  T* sums;  // (heads, groups, size), or null
};

// y = LN(x + concat(parts)), with weight and bias; without a weight, concat(parts) alone.
template <class T>
struct AddNorm {
  Groups groups;
  const T* x;
  const int64_t* places;  // row of x to add to each row; null: the same row
  const T* const* parts;
  const int64_t* widths;
  int64_t count;  // of parts
  const T *weight, *bias;
  T epsilon;
  T* y;
};

// out = F first + (1 - F) second with F = sigmoid(scores + more_scores + bias), 0 where the mask is false.
template <class T>
struct Gate {
  Groups groups;
  Place<const T> scores, more_scores;  // added up; more_scores.data may be null
  const T* bias;                       // (heads, size)
  Place<const T> first, second;
  const bool* mask;  // (rows), or null
  Place<T> out;
  Place<const T> grad;
  Place<T> grad_scores, grad_first, grad_second;
  T* sums;
};

// out = F elu(a) + (1 - F) mapped with [a; b] = scores + bias, F = sigmoid(b).
template <class T>
struct Candidate {
  Groups groups;
  const T *scores, *bias;  // rows of 2 size; one row of bias per group, or one for all
  int64_t bias_step;       // from group to group
  const T* mapped;
  T* out;
  Place<const T> grad;
  T *grad_scores, *grad_mapped, *sums;
};

// y = x * scale where the random number for `seed`, row and feature is at least `dropped`, else 0. Rows of copy c are
// numbered from c * rows. A row has three indices, the last varying fastest, with a stride each.
template <class T>
struct Dropout {
  int64_t copies, rows, size, seed;
  uint32_t dropped;
  T scale;
  int64_t counts[3];
  const T* x;
  T* y;
  int64_t x_steps[3], y_steps[3];
  int64_t x_copy_step, y_copy_step;  // between copies, of the tensor with copies
};

// out (heads, size): the sum of the rows of each head.
template <class T>
struct Sums {
  int64_t heads, rows, size;
  const T* x;
  T* out;
};

// E_S of one or more heads, laid out head by head along `sentences`.
template <class T>
struct SourceWeights {
  int64_t sentences, length, size;
  Place<const T> scores, v;
  const bool* mask;      // (batch, length), or null
  int64_t batch, first;  // sentence s uses mask row first + s % batch
  T* values;             // (sentences, length, 2 size): [v E_S; E_S]
  Place<T> source;       // E_S, negative where the exponent was clamped; data may be null
  Place<const T> saved_source;
  // Backward: share = [grad / denominators; -out grad / denominators], laid out as `values`.
  Place<const T> out, denominators, grad;
  T* share;
  const T* grad_values;
  Place<T> grad_v, grad_scores;
};

// A tile of E_R: (sentences, queries, keys), from products of queries and keys. `seen` changes every `per_head`
// sentences.
template <class T>
struct TokenWeights {
  int64_t sentences, queries, keys, first_query, first_key, length;
  const Seen* seen;
  int64_t per_head;
  const T* real;  // (batch, length): 0 at padding, or null
  int64_t batch, first;
  bool sigmoid;
  T scale;
  T *weights, *grads;  // grads: of the weights, then of the products; null in the forward pass
};

// Short sentences in one loop: E_S, both sums over keys and their quotient; backward: sums of `share` over queries,
// and the gradients. `values` and `grad_values` of `source` are not used.
template <class T>
struct Attend {
  SourceWeights<T> source;
  const T* weights;  // (sentences, length, length)
  const Seen* seen;
  int64_t per_head;
  Place<T> out, divisors;  // divisors.data may be null
};

// For halves [a; b] of each row of `both`: divisors = b, or 1 where b is 0; out = a / divisors.
template <class T>
struct Quotients {
  int64_t queries, size;
  const T* both;
  Place<T> out, divisors;  // divisors.data may be null
};

// Processes items start ... stop - 1; `scratch` is this thread's own memory.
template <class Arguments>
using Loop = void (*)(const Arguments&, int64_t start, int64_t stop, void* scratch);

template <class T>
struct Loops {
  int64_t lanes;  // features per item
  int64_t (*directional_scratch)(int64_t length, const Expansion& expansion);  // bytes of scratch
  Loop<Directional<T>> directional, directional_backward;
  Loop<SourceToToken<T>> source2token, source2token_backward;
  Loop<Recurrence<T>> recurrence, recurrence_backward;
  Loop<BiasActivation<T>> bias_activation, bias_activation_backward;
  Loop<AddNorm<T>> add_norm;
  Loop<Gate<T>> gate, gate_backward;
  Loop<Candidate<T>> candidate, candidate_backward;
  Loop<Dropout<T>> dropout, dropout_backward;
  Loop<Sums<T>> sums;
  Loop<SourceWeights<T>> source_weights, source_weights_again, source_weights_backward;
  Loop<TokenWeights<T>> token_weights;
  Loop<Attend<T>> attend, attend_backward;
  Loop<Quotients<T>> quotients;
};

// The loops for this processor's instruction set.
template <class T>
const Loops<T>& loops();
template <>
const Loops<float>& loops<float>();
template <>
const Loops<double>& loops<double>();

}  // namespace hf_blosan
