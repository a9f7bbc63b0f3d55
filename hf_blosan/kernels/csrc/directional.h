// Directional attention, forward and backward; an item is lanes<T> features of one part of a sentence.
//
// Pairs one by one: with p = exp(2 k_i / c) exp(2 q_j / c) and t = (p - 1) / (p + 1) the score c tanh((k_i + q_j) / c)
// is c t. A pair costs one quotient and one short exponential; tanh' = 1 - t^2 comes for free. Exponentials are kept
// as exp - 1, which is exact for small scores. Distant keys go through the expansion (expansion.h). Long sums are
// taken chunk by chunk. The gradient to agree with, in plain torch: backward in directional/chunks.py.

// exp(2 u / c) is capped at exp(80), where tanh has long been 1.
template <class T>
constexpr T largest_exponent = 80;

// One thread's memory, in rows of lanes<T>; the same code computes its size and its layout.
template <class T>
struct Buffers {
  int32_t *real, *first_real, *all_positions, *chosen;
  T *k, *q, *x, *ones, *exp_k, *exp_q;                // inputs of a part
  T *num, *den;                                       // forward
  T *shares, *out, *to_keys, *to_queries, *to_values;  // backward
  T* sums;                                            // two rows for each token of a chunk
  void* moments;
  int64_t bytes;

  Buffers(void* memory, int64_t length, const Expansion& e) {
    const int64_t terms = e.most_terms;
    char* const start = static_cast<char*>(memory);
    int64_t used = 0;
    const auto take = [&](auto*& pointer, int64_t count) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(start + used);
      used += (count * int64_t(sizeof(*pointer)) + 63) / 64 * 64;
    };
    take(real, length);
    take(first_real, length + 1);
    take(all_positions, length + 1);
    take(chosen, CHUNK);
    for (T** rows : {&k, &q, &x, &ones, &exp_k, &exp_q, &num, &den, &to_values}) take(*rows, length * lanes<T>);
    shares = num;
    out = den;
    for (T** rows : {&to_keys, &to_queries}) take(*rows, length * lanes<T>);
    take(sums, 2 * CHUNK * lanes<T>);
    char* end;
    take(end, terms ? (num_chunks(length) * 2 + 2 + 2 + 3) * terms * lanes<T> * int64_t(sizeof(double)) : 0);
    moments = end;
    bytes = used;
  }

  template <class N>
  Moments<N> moments_of(int64_t length, int64_t terms) const {
    double* const total = static_cast<double*>(moments);
    N* const of_chunks = reinterpret_cast<N*>(total + 2 * terms * lanes<T>);
    N* const current = of_chunks + num_chunks(length) * 2 * terms * lanes<T>;
    return {of_chunks, total, current, current + 2 * terms * lanes<T>};
  }
};

template <class T>
int64_t directional_scratch(int64_t length, const Expansion& expansion) {
  return Buffers<T>(nullptr, length, expansion).bytes;
}

// Where an item lies. Features vary fastest, then parts, then sentences. `next` avoids divisions, which cost as much
// as a token.
struct Item {
  int64_t part, begin, first, length;  // part within the sentence; first token, first feature, number of tokens

  Item(const Shape& shape, int64_t lanes, int64_t item) {
    const int64_t slices = (shape.size + lanes - 1) / lanes, row = item / slices;
    part = row % shape.parts;
    begin = shape.starts ? shape.starts[part] : row / shape.parts * shape.sentence + part * shape.length;
    first = item % slices * lanes;
    measure(shape);
  }
  INLINE void next(const Shape& shape, int64_t lanes) {
    first += lanes;
    if (first < shape.size) return;
    first = 0;
    begin += length;
    part = part + 1 < shape.parts || shape.starts ? part + 1 : 0;
    measure(shape);
  }

 private:
  INLINE void measure(const Shape& shape) {
    length = shape.starts ? shape.starts[part + 1] - shape.starts[part]
                          : smaller(shape.length, shape.sentence - part * shape.length);
  }
};

// Features of a token; prefetches those of the same token in the next part.
template <class T>
INLINE Vector<T> read(const T* data, int64_t step, int64_t token, const Item& item, const Shape& shape) {
  const T* row = data + (item.begin + token) * step;
  __builtin_prefetch(row + item.length * step + item.first);
  return load_features(row, item.first, shape.size);
}
template <class T>
INLINE void write(T* data, int64_t token, const Item& item, const Shape& shape, Vector<T> v) {
  T* row = data + (item.begin + token) * shape.size;
  __builtin_prefetch(row + item.length * shape.size + item.first, 1);
  store_features(row, item.first, shape.size, v);
}

// Fills the buffers with an item's tokens, and with exp - 1 of its keys and queries. Returns the half range H of the
// scores.
//
// Keys and queries of each feature are shifted in opposite directions so that both fit into the smallest [-H, H];
// their sums do not change. If H exceeds the limit, nothing is shifted, and exp_k and exp_q hold keys and queries
// themselves: per-token exponentials would lose digits if these are far apart, so each pair is added first.
template <class T>
T set_up(const Directional<T>& a, const Item& item, Buffers<T>& b) {
  using V = Vector<T>;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  V high = fill<V>(-infinity), low = high, no_number{};  // NaN where a number is not finite, else 0
  const V bias = a.bias ? load_features(a.bias, item.first, a.shape.size) : V{};
  const V one = fill<V>(T(1));
  int32_t count = 0;
  for (int64_t i = 0; i < item.length; i++) {
    b.first_real[i] = count;
    const V query = read(a.queries.data, a.queries.row, i, item, a.shape) + bias;
    put(b.q, i, query);
    high = maximum<V>(-query, high);
    low = maximum<V>(query, low);
    no_number = no_number + query * T(0);
    V key{}, value{}, real{};
    if (!a.mask || a.mask[item.begin + i]) {
      key = read(a.keys.data, a.keys.row, i, item, a.shape);
      high = maximum<V>(key, high);
      low = maximum<V>(-key, low);
      no_number = no_number + key * T(0);
      value = read(a.values, a.shape.size, i, item, a.shape);
      real = one;
      b.real[count++] = int32_t(i);
    }
    put(b.k, i, key);
    put(b.x, i, value);
    put(b.ones, i, real);
  }
  b.first_real[item.length] = count;
  const V shift = (high - low) * T(0.5);
  const T half_range = largest<T>((high + low) * T(0.5) + no_number);  // infinite if a number is not finite
  const bool wide = half_range > a.limit;
  const V moved = wide ? V{} : shift;
  const T factor = T(2) / a.scale;
  for (int64_t i = 0; i < item.length; i++) {
    const V key = at(b.k, i) - moved * at(b.ones, i), query = at(b.q, i) + moved;
    put(b.k, i, key);
    put(b.q, i, query);
    put(b.exp_k, i, wide ? key : expm1<T>(key * factor));
    put(b.exp_q, i, wide ? query : expm1<T>(query * factor));
  }
  return half_range;
}

// The keys that a query sees, as a list of positions.
struct Keys {
  const int32_t* positions;
  int64_t count;
};

// The keys of chunk n that query j sees. If it sees both sides but not itself, side 0 is the keys before it and side 1
// those after; otherwise side 0 is all.
template <class T>
INLINE Keys visible(const Directional<T>& a, const Item& item, const Buffers<T>& b, int64_t j, int64_t n, int side) {
  const Seen& seen = a.seen;
  int64_t start = j - seen.before, stop = j + 1 + seen.after;
  if (!seen.same) {
    if (side == 1 || !seen.before) start = j + 1;
    if (side == 0 && seen.before) stop = j;
  }
  start = larger(start, n * CHUNK);
  stop = smaller(smaller(stop, (n + 1) * CHUNK), item.length);
  if (start >= stop) return {b.real, 0};
  Keys keys{b.real + b.first_real[start], b.first_real[stop] - b.first_real[start]};
  if (a.token_mask) {
    const int64_t sentence = item.begin / a.shape.sentence;
    const uint8_t* row = a.token_mask + sentence * a.mask_row + j * a.mask_query;
    int64_t chosen = 0;
    for (int64_t r = 0; r < keys.count; r++) {
      b.chosen[chosen] = keys.positions[r];
      chosen += row[keys.positions[r] * a.mask_key] != 0;  // a bool's byte may hold any value
    }
    keys = {b.chosen, chosen};
  }
  return keys;
}
INLINE int num_sides(const Seen& seen) { return seen.before && seen.after && !seen.same ? 2 : 1; }
INLINE int64_t window(const Seen& seen) { return larger(seen.before, seen.after); }

// tanh((k + q) / c) from exp(2 k / c) - 1 and exp(2 q / c) - 1; wide: from k and q themselves and 2 / c.
template <bool wide, class V, class T>
INLINE V tanh_of_pair(V key, V query, T factor) {
  V m;
  if constexpr (wide) {
    const V y = (key + query) * factor;
    m = expm1<T>(at_least(at_most(y, largest_exponent<T>), -largest_exponent<T>));
  } else {
    m = key * query + (key + query);
  }
  return quotient(m, m + T(2));
}

// Adds the keys of chunk n to the queries of chunk m. Two keys at a time hide one another's latency.
template <bool wide, class T>
void near_forward(const Directional<T>& a, const Item& item, Buffers<T>& b, int64_t m, int64_t n) {
  using V = Vector<T>;
  const T c = a.scale * log2_e<T>, factor = T(2) / a.scale;
  const int sides = num_sides(a.seen);
  for (int64_t j = m * CHUNK; j < smaller(item.length, (m + 1) * CHUNK); j++) {
    const V q = at(b.exp_q, j);
    V num = at(b.num, j), den = at(b.den, j);
    for (int side = 0; side < sides; side++) {
      const Keys keys = visible(a, item, b, j, n, side);
      V part_num{}, part_den{};
      int64_t r = 0;
      for (; r + 1 < keys.count; r += 2) {
        const int64_t i = keys.positions[r], i1 = keys.positions[r + 1];
        const V weight = power_of_two<T>(tanh_of_pair<wide>(at(b.exp_k, i), q, factor), c);
        const V weight1 = power_of_two<T>(tanh_of_pair<wide>(at(b.exp_k, i1), q, factor), c);
        part_den = part_den + (weight + weight1);
        part_num = (part_num + weight * at(b.x, i)) + weight1 * at(b.x, i1);
      }
      if (r < keys.count) {
        const int64_t i = keys.positions[r];
        const V weight = power_of_two<T>(tanh_of_pair<wide>(at(b.exp_k, i), q, factor), c);
        part_den = part_den + weight;
        part_num = part_num + weight * at(b.x, i);
      }
      num = num + part_num;
      den = den + part_den;
    }
    put(b.num, j, num);
    put(b.den, j, den);
  }
}

// Gradients of query chunk m and key chunk n.
//
// The gradient of w_ij is G_j (x_i - s_j), with G = grad / denominator, the shares, and s the result. Times w_ij, this
// is the gradient of the score; times tanh' = 1 - t^2 as well, that of k_i and q_j.
template <bool wide, class T>
void near_backward(const Directional<T>& a, const Item& item, Buffers<T>& b, int64_t m, int64_t n) {
  using V = Vector<T>;
  const T c = a.scale * log2_e<T>, factor = T(2) / a.scale;
  const int sides = num_sides(a.seen);
  for (int64_t row = 0; row < 2 * CHUNK; row++) put(b.sums, row, V{});
  for (int64_t j = m * CHUNK; j < smaller(item.length, (m + 1) * CHUNK); j++) {
    const V q = at(b.exp_q, j), share = at(b.shares, j), s = at(b.out, j);
    V to_query{};
    // The gradients of a pair's value and of its score.
    const auto pair = [&](int64_t i, V& weight, V& score) INLINE_LAMBDA {
      const V t = tanh_of_pair<wide>(at(b.exp_k, i), q, factor);
      weight = power_of_two<T>(t, c) * share;
      score = weight * (at(b.x, i) - s) * (1 - t * t);
    };
    for (int side = 0; side < sides; side++) {
      const Keys keys = visible(a, item, b, j, n, side);
      int64_t r = 0;
      for (; r + 1 < keys.count; r += 2) {
        const int64_t i = keys.positions[r], i1 = keys.positions[r + 1];
        V weight, score, weight1, score1;
        pair(i, weight, score);
        pair(i1, weight1, score1);
        to_query = to_query + (score + score1);
        add(b.sums, 2 * (i - n * CHUNK), score);
        add(b.sums, 2 * (i - n * CHUNK) + 1, weight);
        add(b.sums, 2 * (i1 - n * CHUNK), score1);
        add(b.sums, 2 * (i1 - n * CHUNK) + 1, weight1);
      }
      if (r < keys.count) {
        const int64_t i = keys.positions[r];
        V weight, score;
        pair(i, weight, score);
        to_query = to_query + score;
        add(b.sums, 2 * (i - n * CHUNK), score);
        add(b.sums, 2 * (i - n * CHUNK) + 1, weight);
      }
    }
    add(b.to_queries, j, to_query);
  }
  for (int64_t i = n * CHUNK; i < smaller(item.length, (n + 1) * CHUNK); i++) {
    add(b.to_keys, i, at(b.sums, 2 * (i - n * CHUNK)));
    add(b.to_values, i, at(b.sums, 2 * (i - n * CHUNK) + 1));
  }
}

// Finds the tier for a half range; returns the number of distant chunks on a side, 0 if every pair is near.
template <class T>
INLINE int64_t reach(const Directional<T>& a, T half_range, int64_t length, const ExpansionTier*& tier) {
  if (length <= CHUNK || a.token_mask) return 0;
  const Expansion& e = a.expansion;
  for (tier = e.tiers; tier < e.tiers + e.num_tiers; tier++) {
    if (half_range <= tier->half_range) {
      const int64_t far = larger<int64_t>(0, (window(a.seen) + 1 - CHUNK) / CHUNK);
      return length >= tier->shortest[e.use] ? far : 0;
    }
  }
  return 0;
}

// Calls far_work(tier, moments, view) if there are distant keys, with the tier's coefficients in the type of its sums,
// and near_work(wide, m, n) for all chunks m and n whose queries and keys are computed pair by pair; `wide` is a
// std::bool_constant.
template <class T, class FarWork, class NearWork>
INLINE void all_pairs(const Directional<T>& a, T half_range, int64_t length, const Buffers<T>& b,
                      const FarWork& far_work, const NearWork& near_work) {
  const Seen& seen = a.seen;
  const ExpansionTier* tier = nullptr;
  const int64_t far = reach(a, half_range, length, tier);
  if constexpr (sizeof(T) == sizeof(float)) {
    const auto call = [&]<class N>(const N* weight) {
      far_work(Tier<N>{N(tier->half_range), float(tier->tilt), tier->terms, weight, weight + tier->terms * tier->terms},
               b.template moments_of<N>(length, tier->terms),
               View{length, seen.before > 0, seen.after > 0, far, b.first_real});
    };
    if (far) tier->narrow ? call(tier->narrow) : call(tier->wide);
  }
  const int64_t count = num_chunks(length), last = num_chunks(window(seen));
  const auto meet = [&](int64_t m, int64_t start, int64_t stop) {
    for (int64_t n = start; n < stop; n++) {
      half_range > a.limit ? near_work(std::true_type(), m, n) : near_work(std::false_type(), m, n);
    }
  };
  for (int64_t m = 0; m < count; m++) {
    if (seen.before) meet(m, larger<int64_t>(0, m - last), m - far);
    meet(m, m, m + 1);
    if (seen.after) meet(m, m + far + 1, smaller(count, m + last + 1));
  }
}

template <class T>
void directional(const Directional<T>& a, int64_t start, int64_t stop, void* scratch) {
  using V = Vector<T>;
  Buffers<T> b(scratch, a.shape.length, a.expansion);
  Item item(a.shape, lanes<T>, start);
  for (; start < stop; start++, item.next(a.shape, lanes<T>)) {
    const T half_range = set_up(a, item, b);
    for (int64_t j = 0; j < item.length; j++) {
      put(b.num, j, V{});
      put(b.den, j, V{});
    }
    const auto far = [&](const auto& tier, const auto& moments, const View& view) {
      far_forward(tier, moments, b.k, b.q, b.ones, b.x, view, b.num, b.den);
    };
    all_pairs(a, half_range, item.length, b, far, [&](auto wide, int64_t m, int64_t n) {
      near_forward<wide.value>(a, item, b, m, n);
    });
    for (int64_t j = 0; j < item.length; j++) {
      const V total = at(b.den, j);
      write(a.out, j, item, a.shape, divide_or_zero(at(b.num, j), total));
      if (a.denominators) write(a.denominators, j, item, a.shape, total);
    }
  }
}

template <class T>
void directional_backward(const Directional<T>& a, int64_t start, int64_t stop, void* scratch) {
  using V = Vector<T>;
  Buffers<T> b(scratch, a.shape.length, a.expansion);
  for (int64_t i = 0; i <= a.shape.length; i++) b.all_positions[i] = int32_t(i);
  Item item(a.shape, lanes<T>, start);
  for (; start < stop; start++, item.next(a.shape, lanes<T>)) {
    const T half_range = set_up(a, item, b);
    for (int64_t j = 0; j < item.length; j++) {
      const V total = read(a.saved_denominators, a.shape.size, j, item, a.shape);
      put(b.shares, j, divide_or_zero(read(a.grad, a.shape.size, j, item, a.shape), total));
      put(b.out, j, read(a.saved_out, a.shape.size, j, item, a.shape));
      for (T* rows : {b.to_keys, b.to_queries, b.to_values}) put(rows, j, V{});
    }
    const auto far = [&](const auto& tier, const auto& moments, const View& view) {
      far_backward(tier, moments, b.k, b.q, b.ones, b.x, b.shares, b.out, view, b.all_positions, b.to_keys,
                   b.to_queries, b.to_values);
    };
    all_pairs(a, half_range, item.length, b, far, [&](auto wide, int64_t m, int64_t n) {
      near_backward<wide.value>(a, item, b, m, n);
    });
    for (int64_t i = 0; i < item.length; i++) {
      write(a.grad_keys, i, item, a.shape, at(b.to_keys, i));
      write(a.grad_queries, i, item, a.shape, at(b.to_queries, i));
      write(a.grad_values, i, item, a.shape, at(b.to_values, i));
    }
  }
}
