// The coefficients of the expansion that directional attention uses for distant keys.
//
// The weight of a pair is a function of one sum, K(u) = exp(c tanh(u / c)). On |a|, |b| <= h
//     K(a + b) = exp(tilt (a + b)) sum_rs C_rs T_r(a / h) T_s(b / h)        T: Chebyshev polynomials
// to float32 accuracy with few terms, as the tilt flattens K. K' = K (1 - tanh^2) has coefficients of its own.
//
// A Fourier series would need no chunks, but takes two to three times the operations per token, and in float32 its
// error is 2 to 40 times the equation's (worst at the first tokens, which see few keys).

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <numbers>

#include "tensors.h"

namespace hf_blosan {
namespace {

constexpr int64_t nodes = 128;
constexpr double tolerance = 5e-8;
// Above it, exp(-c) is lost in the rounding errors of sums of exp(c), and the widest tiers do not converge.
constexpr double largest_scale = 10;

// Half range in units of c; whether sums are taken in float32 (terms cancel in the wide tiers); and the lengths from
// which the tier is faster than all pairs under a forward mask, in the forward and the backward pass:
// benchmarks/crossovers.py. Training, mostly spent in the backward pass, uses its length in both.
struct Range {
  double half_range;
  bool narrow;
  int64_t forward, backward;
};
constexpr Range ranges[] = {
    {0.3, true, 40, 56}, {0.4, true, 40, 64}, {0.6, false, 64, 96}, {0.8, false, 72, 112},
    {1.2, false, 96, 144}, {1.6, false, 112, 192}, {2.4, false, 192, 320},
};

using Matrix = std::vector<double>;  // (nodes, nodes)

// cosines[k, n]: T_k at node n; the last node is nearest to -1.
Matrix make_cosines() {
  Matrix x(nodes * nodes);
  for (int64_t k = 0; k < nodes; k++) {
    for (int64_t n = 0; n < nodes; n++) {
      x[k * nodes + n] = std::cos(std::numbers::pi * double(k * (2 * n + 1) % (4 * nodes)) / (2 * nodes));
    }
  }
  return x;
}

// From values at pairs of nodes [i, j], the coefficients [j, r] of T_r in the first variable.
Matrix transform(const Matrix& cosines, const Matrix& values) {
  Matrix found(nodes * nodes);
  for (int64_t r = 0; r < nodes; r++) {
    double sums[nodes] = {};
    for (int64_t i = 0; i < nodes; i++) {
      for (int64_t j = 0; j < nodes; j++) sums[j] += cosines[r * nodes + i] * values[i * nodes + j];
    }
    for (int64_t j = 0; j < nodes; j++) found[j * nodes + r] = sums[j] * (r ? 2.0 : 1.0) / nodes;
  }
  return found;
}

// Whether the first `terms` terms match the values within tolerance * flat at every other node.
bool suffice(int64_t terms, const Matrix& cosines, const Matrix& coefficients, const Matrix& values,
             const Matrix& flat) {
  for (int64_t i = 0; i < nodes; i += 2) {
    double sums[nodes] = {}, found[nodes] = {};
    for (int64_t r = 0; r < terms; r++) {
      for (int64_t s = 0; s < terms; s++) sums[s] += cosines[r * nodes + i] * coefficients[r * nodes + s];
    }
    for (int64_t s = 0; s < terms; s++) {
      for (int64_t j = 0; j < nodes; j++) found[j] += sums[s] * cosines[s * nodes + j];
    }
    for (int64_t j = 0; j < nodes; j += 2) {
      if (std::abs(found[j] - values[i * nodes + j]) > tolerance * flat[i * nodes + j]) return false;
    }
  }
  return true;
}

// Expansions for one scale, and the memory that they point to.
struct Tables {
  std::deque<std::vector<double>> wide;
  std::deque<std::vector<float>> narrow;
  std::vector<ExpansionTier> tiers;
  int64_t most_terms = 0;

  explicit Tables(double scale) {
    if (scale > largest_scale) return;
    static const Matrix cosines = make_cosines();
    for (const Range& range : ranges) add(scale, range, cosines);
  }

  void add(double scale, const Range& range, const Matrix& cosines) {
    const double half_range = scale * range.half_range, tilt = std::tanh(2 * range.half_range) / (2 * range.half_range);
    Matrix flat(nodes * nodes), slope(nodes * nodes);
    for (int64_t i = 0; i < nodes; i++) {
      for (int64_t j = 0; j <= i; j++) {
        const double u = half_range * (cosines[nodes + i] + cosines[nodes + j]), tanh = std::tanh(u / scale);
        flat[i * nodes + j] = flat[j * nodes + i] = std::exp(scale * tanh - tilt * u);
        slope[i * nodes + j] = slope[j * nodes + i] = flat[i * nodes + j] * (1 - tanh * tanh);
      }
    }
    const Matrix of_flat = transform(cosines, transform(cosines, flat));
    const Matrix of_slope = transform(cosines, transform(cosines, slope));
    int64_t terms = 4;
    while (!suffice(terms, cosines, of_flat, flat, flat) || !suffice(terms, cosines, of_slope, slope, flat)) {
      terms += 4;
      check(terms < nodes, "no expansion for scale ", scale, " and half range ", half_range, "; lower largest_scale");
    }
    auto& table = wide.emplace_back();
    for (const Matrix* const coefficients : {&of_flat, &of_slope}) {
      for (int64_t r = 0; r < terms; r++) {
        table.insert(table.end(), &(*coefficients)[r * nodes], &(*coefficients)[r * nodes] + terms);
      }
    }
    tiers.push_back({.half_range = half_range,
                     .tilt = tilt,
                     .terms = terms,
                     .shortest = {range.forward, range.backward, 0},
                     .narrow = range.narrow ? narrow.emplace_back(table.begin(), table.end()).data() : nullptr,
                     .wide = table.data()});
    most_terms = std::max(most_terms, terms);
  }
};

// (half range, tilt, number of terms) of every tier, and coefficients (tiers, 2, terms, terms) in float64, zero-padded
// for tiers with fewer terms: for kernels on other devices.
std::tuple<Tensor, Tensor> expansion(const Tensor& like, double scale) {
  check_tensor("like", like, ScalarType::Double, sizes_of(like));
  const Expansion found = expansion_for(scale, Expansion::always);
  const int64_t width = found.most_terms;
  Tensor sizes = allocate(like, {found.num_tiers, 3}), table = allocate(like, {found.num_tiers, 2, width, width});
  double *size = write<double>(sizes), *rows = write<double>(table);
  std::fill(rows, rows + table.numel(), 0.0);
  for (int64_t t = 0; t < found.num_tiers; t++, size += 3) {
    const ExpansionTier& tier = found.tiers[t];
    size[0] = tier.half_range, size[1] = tier.tilt, size[2] = double(tier.terms);
    for (int64_t r = 0; r < 2 * tier.terms; r++) {
      const int64_t row = (2 * t + r / tier.terms) * width + r % tier.terms;
      std::copy_n(tier.wide + r * tier.terms, tier.terms, rows + row * width);
    }
  }
  return {sizes, table};
}

}  // namespace

Expansion expansion_for(double scale, Expansion::Use use) {
  static std::mutex mutex;
  static auto& known = *new std::map<double, Tables>();  // outlives every thread
  const std::lock_guard lock(mutex);
  const Tables& tables = known.try_emplace(scale, scale).first->second;
  return {int64_t(tables.tiers.size()), tables.most_terms, tables.tiers.data(), use};
}

}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CPU, m) {
  m.impl("expansion", TORCH_BOX(&hf_blosan::expansion));
}
