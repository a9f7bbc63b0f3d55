// Dropout without a mask in memory: random numbers are functions of their position. An item is a row.

// SplitMix64 (Steele et al., 2014): neighbouring inputs give unrelated numbers.
INLINE uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// 32 random bits for each feature of a row: C. Wellons' hash "lowbias32" of the feature plus one half of the row's
// key, with the other mixed in midway.
struct RandomRow {
  uint32_t first, second;

  RandomRow(int64_t seed, int64_t row) {
    const uint64_t key = mixed(uint64_t(seed) ^ mixed(uint64_t(row)));
    first = uint32_t(key), second = uint32_t(key >> 32);
  }
  INLINE uint32_t at(uint32_t feature) const {
    uint32_t x = feature + first;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15) ^ second) * 0x846CA68Bu;
    return x ^ (x >> 16);
  }
};

INLINE int64_t row_offset(const int64_t* counts, const int64_t* steps, int64_t row) {
  const int64_t outer = row / counts[2];
  return row % counts[2] * steps[2] + outer % counts[1] * steps[1] + outer / counts[1] * steps[0];
}

// y = dropout(x), or y += dropout(x).
template <class T>
INLINE void keep(const T* __restrict__ x, T* __restrict__ y, int64_t size, RandomRow random, uint32_t dropped, T scale,
                 bool add) {
  for (int64_t i = 0; i < size; i++) {
    const T kept = random.at(uint32_t(i)) >= dropped ? x[i] * scale : T(0);
    y[i] = add ? y[i] + kept : kept;
  }
}

template <class T>
void dropout(const Dropout<T>& a, int64_t start, int64_t stop, void*) {
  for (int64_t item = start; item < stop; item++) {
    const int64_t copy = item / a.rows, row = item % a.rows;
    const T* const x = a.x + row_offset(a.counts, a.x_steps, row);
    T* const y = a.y + copy * a.y_copy_step + row_offset(a.counts, a.y_steps, row);
    keep(x, y, a.size, RandomRow(a.seed, item), a.dropped, a.scale, false);
  }
}

// x: gradients of all copies; y: that of the original, their sum.
template <class T>
void dropout_backward(const Dropout<T>& a, int64_t start, int64_t stop, void*) {
  for (int64_t row = start; row < stop; row++) {
    T* const y = a.y + row_offset(a.counts, a.y_steps, row);
    const T* const x = a.x + row_offset(a.counts, a.x_steps, row);
    keep(x, y, a.size, RandomRow(a.seed, row), a.dropped, a.scale, false);
    for (int64_t copy = 1; copy < a.copies; copy++) {
      keep(x + copy * a.x_copy_step, y, a.size, RandomRow(a.seed, copy * a.rows + row), a.dropped, a.scale, true);
    }
  }
}
