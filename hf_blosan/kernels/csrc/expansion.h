// Distant keys of directional attention, by the expansion in expansion.cpp: the moments of each chunk of keys are
// summed over the chunks that a query sees, turned into a polynomial in the query, and evaluated. Sums are taken in N:
// float, or double in the wide tiers, whose terms cancel. The gradient to agree with: backward in
// directional/chunks.py.

INLINE int64_t num_chunks(int64_t length) { return (length + CHUNK - 1) / CHUNK; }
template <class N>
INLINE N smaller(N a, N b) { return a < b ? a : b; }
template <class N>
INLINE N larger(N a, N b) { return a > b ? a : b; }

// One tier: |keys|, |queries| <= half_range; K(u) = exp(tilt u) sum_rs weight[r, s] T_r T_s, K' likewise with slope.
template <class N>
struct Tier {
  N half_range;
  float tilt;
  int64_t terms;
  const N *weight, *slope;
};

// Moments of every chunk; their sum over the chunks in view, in double; that sum as N; terms for one chunk.
template <class N>
struct Moments {
  N* of_chunks;
  double* total;
  N *current, *terms;
};

template <class N>
INLINE Vector<float, N> load_sum(const N* from, int64_t row) {
  return load<Vector<float, N>>(from + row * lanes<float>);
}
template <class N>
INLINE void store_sum(N* to, int64_t row, Vector<float, N> v) { store(to + row * lanes<float>, v); }
template <class T>
INLINE Vector<T> at(const T* rows, int64_t row) { return load<Vector<T>>(rows + row * lanes<T>); }
template <class T>
INLINE void put(T* rows, int64_t row, Vector<T> v) { store(rows + row * lanes<T>, v); }
template <class T>
INLINE void add(T* rows, int64_t row, Vector<T> v) { put(rows, row, at(rows, row) + v); }

// Row (2 m) terms + r: sum of starts exp(tilt a) T_r(a / h) over chunk m; (2 m + 1) terms + r: value-weighted.
// Two points at a time halve the loads and stores of sums; an odd last point is paired with one of weight 0.
template <class N>
void gather(const float* points, int64_t length, const Tier<N>& tier, const float* starts, const float* values,
            N* moments) {
  using W = Vector<float, N>;
  const int64_t terms = tier.terms;
  for (int64_t m = 0; m < num_chunks(length); m++) {
    N* one = moments + 2 * m * terms * lanes<float>;
    N* other = one + terms * lanes<float>;
    for (int64_t r = 0; r < 2 * terms; r++) store_sum<N>(one, r, W{});
    const int64_t last = smaller(length, (m + 1) * CHUNK);
    for (int64_t i = m * CHUNK; i < last; i += 2) {
      const int64_t i1 = smaller(i + 1, last - 1);
      const Vector<float> a = at(points, i), b = at(points, i1);
      W y0 = to_sum(exp<float>(a * tier.tilt) * at(starts, i), N());
      W z0 = to_sum(exp<float>(b * tier.tilt) * at(starts, i1) * float(i1 - i), N());
      W y = to_sum(a, N()) / tier.half_range, z = to_sum(b, N()) / tier.half_range;
      W y1 = y0 * y, z1 = z0 * z;
      y = y + y;
      z = z + z;
      const W v = to_sum(at(values, i), N()), w = to_sum(at(values, i1), N());
      for (int64_t r = 0; r < terms; r++) {
        store_sum<N>(one, r, load_sum(one, r) + (y0 + z0));
        store_sum<N>(other, r, load_sum(other, r) + (y0 * v + z0 * w));
        const W y2 = y * y1 - y0, z2 = z * z1 - z0;
        y0 = y1;
        y1 = y2;
        z0 = z1;
        z1 = z2;
      }
    }
  }
}

// sums[s] = exp(tilt x) sum_r terms[s terms + r] T_r(x / h) for `count` sets s.
template <int count, class N>
INLINE void evaluate(Vector<float> x, const Tier<N>& tier, const N* terms, Vector<float>* sums) {
  using W = Vector<float, N>;
  W z = to_sum(x, N()) / tier.half_range;
  W z0 = to_sum(exp<float>(x * tier.tilt), N());
  W z1 = z0 * z;
  z = z + z;
  W totals[count] = {};
  for (int64_t r = 0; r < tier.terms; r++) {
    for (int s = 0; s < count; s++) totals[s] = totals[s] + z0 * load_sum(terms, s * tier.terms + r);
    const W z2 = z * z1 - z0;
    z0 = z1;
    z1 = z2;
  }
  for (int s = 0; s < count; s++) sums[s] = to_feature(totals[s]);
}

// to[r] = sum_s table[r, s] moments[s].
template <class N>
void expand(const Tier<N>& tier, const N* table, const N* moments, N* to) {
  using W = Vector<float, N>;
  for (int64_t r = 0; r < tier.terms; r += 4) {
    W sums[4] = {};
    const N* row = table + r * tier.terms;
    for (int64_t s = 0; s < tier.terms; s++) {
      const W moment = load_sum(moments, s);
      for (int k = 0; k < 4; k++) sums[k] = sums[k] + moment * row[k * tier.terms + s];
    }
    for (int k = 0; k < 4; k++) store_sum<N>(to, r + k, sums[k]);
  }
}

// Real tokens in chunks start ... stop - 1.
INLINE int64_t count_real(const int32_t* first_real, int64_t length, int64_t start, int64_t stop) {
  return first_real[smaller(length, larger<int64_t>(0, stop * CHUNK))] -
         first_real[smaller(length, larger<int64_t>(0, start * CHUNK))];
}

// Which chunks of a sentence a chunk has in view: those up to `far` away on the visible sides.
struct View {
  int64_t length;
  bool before, after;
  int64_t far;
  const int32_t* first_real;
};

// Slides the total from the chunks in view of chunk m - 1 to those in view of m. The total is float64, so that
// subtracting a chunk costs no accuracy; with no token left in view it is reset, so that not even a rounding error
// remains.
template <class N>
void slide(const Moments<N>& moments, int64_t terms, int64_t m, const View& view) {
  const int64_t rows = 2 * terms, chunks = num_chunks(view.length), far = view.far;
  const auto add = [&](int64_t n, double sign) {
    const N* chunk = moments.of_chunks + n * rows * lanes<float>;
    for (int64_t i = 0; i < rows * lanes<float>; i++) moments.total[i] += chunk[i] * sign;
  };
  const auto clear = [&] {
    for (int64_t i = 0; i < rows * lanes<float>; i++) moments.total[i] = 0;
  };
  if (m == 0) {
    clear();
    for (int64_t n = 1; view.after && n < smaller(chunks, far + 1); n++) add(n, 1);
  }
  if (m > 0 && view.before) {
    add(m - 1, 1);
    if (m - 1 - far >= 0) add(m - 1 - far, -1);
  }
  if (m > 0 && view.after) {
    add(m, -1);
    if (m + far < chunks) add(m + far, 1);
  }
  const int64_t left = view.before ? count_real(view.first_real, view.length, m - far, m) : 0;
  if (left + (view.after ? count_real(view.first_real, view.length, m + 1, m + 1 + far) : 0) == 0) clear();
  for (int64_t i = 0; i < rows * lanes<float>; i++) moments.current[i] = N(moments.total[i]);
}

// A sum for a point over the moments in view: with K (weight) or K' (slope), with or without values.
template <class N>
struct FarSum {
  const N* table;
  bool of_values;
};

// Calls work(i, sums) for every point i, with its sums over the chunks in view.
template <int count, class N, class Work>
INLINE void far_sums(const Tier<N>& tier, const Moments<N>& moments, const FarSum<N> (&wanted)[count],
                     const float* points, const View& view, const Work& work) {
  const int64_t set = tier.terms * lanes<float>;
  for (int64_t m = 0; m < num_chunks(view.length); m++) {
    slide(moments, tier.terms, m, view);
    for (int s = 0; s < count; s++) {
      expand(tier, wanted[s].table, moments.current + (wanted[s].of_values ? set : 0), moments.terms + s * set);
    }
    for (int64_t i = m * CHUNK; i < smaller(view.length, (m + 1) * CHUNK); i++) {
      Vector<float> sums[count];
      evaluate<count>(at(points, i), tier, moments.terms, sums);
      work(i, sums);
    }
  }
}

// Adds the keys of the chunks in view to every query.
template <class N>
void far_forward(const Tier<N>& tier, const Moments<N>& moments, const float* keys, const float* queries,
                 const float* ones, const float* values, const View& view, float* numerator, float* denominator) {
  gather(keys, view.length, tier, ones, values, moments.of_chunks);
  far_sums<2>(tier, moments, {{tier.weight, false}, {tier.weight, true}}, queries, view, [&](int64_t j, auto* sums) {
    add(denominator, j, sums[0]);
    add(numerator, j, sums[1]);
  });
}

// The same for gradients, see near_backward.
template <class N>
void far_backward(const Tier<N>& tier, const Moments<N>& moments, const float* keys, const float* queries,
                  const float* ones, const float* values, const float* shares, const float* out, const View& view,
                  const int32_t* all_positions, float* to_keys, float* to_queries, float* to_values) {
  gather(keys, view.length, tier, ones, values, moments.of_chunks);
  far_sums<2>(tier, moments, {{tier.slope, false}, {tier.slope, true}}, queries, view, [&](int64_t j, auto* sums) {
    add(to_queries, j, at(shares, j) * (sums[1] - at(out, j) * sums[0]));
  });
  // Gradients flow from queries to keys, so visibility is mirrored: keys before a query see it after them.
  const View mirrored{view.length, view.after, view.before, view.far, all_positions};
  const FarSum<N> wanted[] = {{tier.weight, false}, {tier.slope, false}, {tier.slope, true}};
  gather(queries, view.length, tier, shares, out, moments.of_chunks);
  far_sums<3>(tier, moments, wanted, keys, mirrored, [&](int64_t i, auto* sums) {
    add(to_values, i, sums[0] * at(ones, i));
    add(to_keys, i, (at(values, i) * sums[1] - sums[2]) * at(ones, i));
  });
}
