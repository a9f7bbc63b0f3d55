// Multi-mask tensorized attention without its matrix products. See tensorized/operator.py.

// Exponents of source weights.
constexpr int lowest_source = -85, highest_source = 75;

// E_S = exp(S - shift) for lanes<T> features of a sentence. The shift, the same for all tokens, makes the largest
// exponent half the range, at most 75: subtracting the largest score would make queries that see only low ones divide
// 0 by 0.
template <class T>
struct SourceSlice {
  using V = Vector<T>;
  const SourceWeights<T>& a;
  const int64_t s, first;
  const bool* mask;
  V shift;

  INLINE SourceSlice(const SourceWeights<T>& a_, int64_t s_, int64_t first_)
      : a(a_), s(s_), first(first_), mask(a.mask ? a.mask + (a.first + s % a.batch) * a.length : nullptr) {
    V top = fill<V>(-std::numeric_limits<T>::infinity()), low = -top;
    for (int64_t i = 0; i < a.length; i++) {
      if (mask && !mask[i]) continue;
      const V score = load_features<T>(at(a.scores, s, i), first, a.size);
      top = maximum(score, top);
      low = score < low ? score : low;
    }
    shift = top - at_least(at_most<V>((top - low) / 2, T(highest_source)), T(0));
  }

  // E_S and v E_S of a token; saves E_S if requested.
  INLINE void weigh(int64_t i, V& weight, V& value) const {
    V saved{};
    weight = value = V{};
    if (!mask || mask[i]) {
      const V exponent = load_features<T>(at(a.scores, s, i), first, a.size) - shift;
      weight = exp<T>(at_least(at_most(exponent, T(highest_source)), T(lowest_source)));
      value = weight * load_features<T>(at(a.v, s, i), first, a.size);
      // Only rounding can exceed the upper limit.
      saved = exponent < fill<V>(T(lowest_source)) ? -weight : weight;
    }
    if (a.source.data) store_features<T>(at(a.source, s, i), first, a.size, saved);
  }
};

// An item is lanes<T> features of a sentence.
template <class T>
void source_weights(const SourceWeights<T>& a, int64_t start, int64_t stop, void*) {
  const int64_t slices = num_slices<T>(a.size);
  for (int64_t item = start; item < stop; item++) {
    const SourceSlice<T> slice(a, item / slices, item % slices * lanes<T>);
    for (int64_t i = 0; i < a.length; i++) {
      Vector<T> weight{}, value{};
      slice.weigh(i, weight, value);
      T* values = a.values + (slice.s * a.length + i) * 2 * a.size;
      store_features<T>(values, slice.first, a.size, value);
      store_features<T>(values + a.size, slice.first, a.size, weight);
    }
  }
}

// An item is lanes<T> features of a sentence; scratch holds two vectors per token. Four queries at a time share loads.
// Weights of hidden keys are 0; most of these keys are skipped.
template <class T>
void attend(const Attend<T>& a, int64_t start, int64_t stop, void* scratch) {
  using V = Vector<T>;
  constexpr int64_t together = 4;
  const int64_t length = a.source.length, size = a.source.size, slices = num_slices<T>(size);
  V* values = static_cast<V*>(scratch);
  for (int64_t item = start; item < stop; item++) {
    const SourceSlice<T> slice(a.source, item / slices, item % slices * lanes<T>);
    for (int64_t i = 0; i < length; i++) slice.weigh(i, values[2 * i + 1], values[2 * i]);
    const Seen& seen = a.seen[slice.s / a.per_head];
    const T* weights = a.weights + slice.s * length * length;
    for (int64_t i = 0; i < length; i += together) {
      const int64_t count = smaller(together, length - i);
      const int64_t low = i > seen.before ? i - seen.before : 0, high = smaller(length, i + count + seen.after);
      V products[together] = {}, sums[together] = {};
      const T* rows[together];
      for (int64_t q = 0; q < together; q++) rows[q] = weights + smaller(i + q, length - 1) * length;
      for (int64_t j = low; j < high; j++) {
        const V value = values[2 * j], weight = values[2 * j + 1];
#pragma GCC unroll 4
        for (int64_t q = 0; q < together; q++) {
          products[q] = products[q] + rows[q][j] * value;
          sums[q] = sums[q] + rows[q][j] * weight;
        }
      }
#pragma GCC unroll 4
      for (int64_t q = 0; q < together; q++) {
        if (q >= count) break;
        const V divisor = sums[q] == V{} ? fill<V>(T(1)) : sums[q];
        store_features<T>(at(a.out, slice.s, i + q), slice.first, size, products[q] / divisor);
        if (a.divisors.data) store_features<T>(at(a.divisors, slice.s, i + q), slice.first, size, divisor);
      }
    }
  }
}

// Before the products of the backward pass; an item is a token.
template <class T>
void source_weights_again(const SourceWeights<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  for (int64_t item = start; item < stop; item++) {
    const int64_t s = item / a.length, i = item % a.length;
    const T *source = at(a.saved_source, s, i), *v = at(a.v, s, i), *out = at(a.out, s, i);
    const T *divisors = at(a.denominators, s, i), *grad = at(a.grad, s, i);
    T *values = a.values + item * 2 * a.size, *share = a.share + item * 2 * a.size;
    for (int64_t d = 0; d < a.size; d += lanes<T>) {
      const V saved = load_features<T>(source, d, a.size), weight = saved < V{} ? -saved : saved;
      const V value = weight == V{} ? V{} : weight * load_features<T>(v, d, a.size);
      store_features<T>(values, d, a.size, value);
      store_features<T>(values + a.size, d, a.size, weight);
      const V to_numerator = load_features<T>(grad, d, a.size) / load_features<T>(divisors, d, a.size);
      store_features<T>(share, d, a.size, to_numerator);
      store_features<T>(share + a.size, d, a.size, -to_numerator * load_features<T>(out, d, a.size));
    }
  }
}

// Gradients of a token's value and source score from those of [v E_S; E_S], for lanes<T> features.
template <class T>
INLINE void source_backward(const SourceWeights<T>& a, int64_t s, int64_t i, int64_t d, Vector<T> grad_value,
                            Vector<T> grad_weight) {
  using V = Vector<T>;
  const V saved = load_features<T>(at(a.saved_source, s, i), d, a.size), weight = saved < V{} ? -saved : saved;
  const V to_value = weight * grad_value;
  const V to_score = weight * grad_weight + to_value * load_features<T>(at(a.v, s, i), d, a.size);
  store_features<T>(at(a.grad_v, s, i), d, a.size, to_value);
  // 0 at padding and where the exponent was clamped.
  store_features<T>(at(a.grad_scores, s, i), d, a.size, saved > V{} ? to_score : V{});
}

// After the products; an item is a token.
template <class T>
void source_weights_backward(const SourceWeights<T>& a, int64_t start, int64_t stop, void*) {
  for (int64_t item = start; item < stop; item++) {
    const T* grads = a.grad_values + item * 2 * a.size;
    for (int64_t d = 0; d < a.size; d += lanes<T>) {
      source_backward<T>(a, item / a.length, item % a.length, d, load_features<T>(grads, d, a.size),
                         load_features<T>(grads + a.size, d, a.size));
    }
  }
}

// An item is lanes<T> features of a sentence, as in `attend`; here four keys at a time share loads.
template <class T>
void attend_backward(const Attend<T>& a, int64_t start, int64_t stop, void* scratch) {
  using V = Vector<T>;
  constexpr int64_t together = 4;
  const int64_t length = a.source.length, size = a.source.size, slices = num_slices<T>(size);
  V* share = static_cast<V*>(scratch);
  for (int64_t item = start; item < stop; item++) {
    const int64_t s = item / slices, first = item % slices * lanes<T>;
    for (int64_t i = 0; i < length; i++) {
      const T* row = a.source.share + (s * length + i) * 2 * size;
      share[2 * i] = load_features<T>(row, first, size);
      share[2 * i + 1] = load_features<T>(row + size, first, size);
    }
    const Seen& seen = a.seen[s / a.per_head];
    const T* weights = a.weights + s * length * length;
    for (int64_t j = 0; j < length; j += together) {
      const int64_t count = smaller(together, length - j);
      const int64_t low = j > seen.after ? j - seen.after : 0, high = smaller(length, j + count + seen.before);
      int64_t columns[together];
      for (int64_t k = 0; k < together; k++) columns[k] = smaller(j + k, length - 1);
      V to_values[together] = {}, to_weights[together] = {};
      for (int64_t i = low; i < high; i++) {
        const V numerator = share[2 * i], denominator = share[2 * i + 1];
        const T* row = weights + i * length;
#pragma GCC unroll 4
        for (int64_t k = 0; k < together; k++) {
          to_values[k] = to_values[k] + row[columns[k]] * numerator;
          to_weights[k] = to_weights[k] + row[columns[k]] * denominator;
        }
      }
#pragma GCC unroll 4
      for (int64_t k = 0; k < together; k++) {
        if (k >= count) break;
        source_backward<T>(a.source, s, j + k, first, to_values[k], to_weights[k]);
      }
    }
  }
}

// f for the keys of a query, up to a factor that cancels. The largest exp is 1, and so is the largest sigmoid if all
// scores are below 0: with e = exp(score - top) and L = sigmoid(top), f is e / (1 - L + L e). Far below, L is 0.
template <class T>
struct ScoreFunction {
  using V = Vector<T>;
  static constexpr T sigmoid_is_exp = sizeof(T) == sizeof(float) ? -17 : -37;
  const T top, largest;  // f' = f (1 - largest f)

  INLINE ScoreFunction(bool use_sigmoid, T top_)
      : top(top_),
        largest(!use_sigmoid || top_ < sigmoid_is_exp ? T(0) : top_ < 0 ? sigmoid<T>(fill<V>(top_))[0] : T(1)) {}

  INLINE V operator()(V score) const {
    // Weights below e^-87 become 0: next to source weights of e^75 they would matter.
    const V exponent = largest < 1 ? score - top : score;
    V weight = largest < 1 ? exp<T>(at_least(exponent, -exponent_limit<T>)) : sigmoid<T>(score);
    if (0 < largest && largest < 1) weight = weight / ((1 - largest) + largest * weight);
    return exponent < fill<V>(-exponent_limit<T>) ? V{} : weight;
  }
};

// v with another number in all lanes from `count` on.
template <class T>
INLINE Vector<T> fill_tail(Vector<T> v, int64_t count, T other) {
  for (int64_t i = count; i < lanes<T>; i++) v[i] = other;
  return v;
}

// An item is a query. Hidden entries are not read and become 0.
template <class T>
void token_weights(const TokenWeights<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  for (int64_t item = start; item < stop; item++) {
    const int64_t s = item / a.queries, query = a.first_query + item % a.queries - a.first_key;  // as a column
    const Seen& seen = a.seen[s / a.per_head];
    const T* real = a.real ? a.real + (a.first + s % a.batch) * a.length + a.first_key : nullptr;
    int64_t low = query - seen.before, high = query + seen.after + 1;
    // With no keys on a side, the range excludes a hidden query too.
    if (!seen.same && seen.before == 0) low = query + 1;
    if (!seen.same && seen.after == 0) high = query;
    low = smaller(low < 0 ? 0 : low, a.keys);
    high = smaller(high, a.keys);
    high = high < low ? low : high;
    const bool hide_query = !seen.same && low <= query && query < high;
    T *weights = a.weights + item * a.keys, *grads = a.grads ? a.grads + item * a.keys : nullptr;
    clear(weights, low);
    clear(weights + high, a.keys - high);
    if (grads) clear(grads, low), clear(grads + high, a.keys - high);
    const int64_t count = high - low;
    T *w = weights + low, *g = grads ? grads + low : nullptr;
    if (hide_query) weights[query] = -infinity;
    V tops = fill<V>(-infinity);
    for (int64_t j = 0; j < count; j += lanes<T>) {
      V score = load_features<T>(w, j, count) * a.scale;
      if (j + lanes<T> > count) score = fill_tail<T>(score, count - j, -infinity);
      if (real) score = load_features<T>(real + low, j, count) == V{} ? fill<V>(-infinity) : score;
      tops = maximum(tops, score);
    }
    T top = largest_lane<T>(tops);
    if (top == -infinity) top = 0;
    const ScoreFunction<T> f(a.sigmoid, top);
    for (int64_t j = 0; j < count; j += lanes<T>) {
      V weight = f(load_features<T>(w, j, count) * a.scale);
      if (real) weight = load_features<T>(real + low, j, count) == V{} ? V{} : weight;
      store_features<T>(w, j, count, weight);
      if (!g) continue;
      const V slope = weight * (1 - f.largest * weight);
      V grad = slope * (load_features<T>(g, j, count) * a.scale);
      store_features<T>(g, j, count, weight == V{} ? V{} : grad);
    }
    if (hide_query) weights[query] = 0;
    if (hide_query && grads) grads[query] = 0;
  }
}

// An item is a query.
template <class T>
void quotients(const Quotients<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  for (int64_t item = start; item < stop; item++) {
    const int64_t s = item / a.queries, i = item % a.queries;
    const T* both = a.both + item * 2 * a.size;
    T *out = at(a.out, s, i), *divisors = a.divisors.data ? at(a.divisors, s, i) : nullptr;
    for (int64_t d = 0; d < a.size; d += lanes<T>) {
      const V total = load_features<T>(both + a.size, d, a.size), divisor = total == V{} ? fill<V>(T(1)) : total;
      store_features<T>(out, d, a.size, load_features<T>(both, d, a.size) / divisor);
      if (divisors) store_features<T>(divisors, d, a.size, divisor);
    }
  }
}
