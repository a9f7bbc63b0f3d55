// SIMD vectors, by the compilers' vector extension, and the short functions that every loop needs.
//
// This file is compiled once for each instruction set (see loops.inc), inside a namespace of that set. VECTOR_BYTES is
// the width of a register. A lane holds one feature; loops work on LANES features of one row at a time.

template <class T>
constexpr int lanes = VECTOR_BYTES / int(sizeof(T));

// Number of vectors for `size` features.
template <class T>
INLINE int64_t num_slices(int64_t size) { return (size + lanes<T> - 1) / lanes<T>; }

// Two vectors used as one, where a register of this instruction set is too narrow.
template <class V>
struct Pair {
  V low, high;
};

template <class T, int count, bool fits = (count * sizeof(T) <= VECTOR_BYTES)>
struct VectorType {
  typedef T type __attribute__((vector_size(count * sizeof(T))));
};

template <class T, int count>
struct VectorType<T, count, false> {
  using type = Pair<typename VectorType<T, count / 2>::type>;
};

// A row of LANES features in type T; the same number of lanes in another type N (float64 sums of float32 features).
template <class T, class N = T>
using Vector = typename VectorType<N, lanes<T>>::type;

template <class V>
INLINE Pair<V> operator+(Pair<V> a, Pair<V> b) { return {a.low + b.low, a.high + b.high}; }
template <class V>
INLINE Pair<V> operator-(Pair<V> a, Pair<V> b) { return {a.low - b.low, a.high - b.high}; }
template <class V>
INLINE Pair<V> operator*(Pair<V> a, Pair<V> b) { return {a.low * b.low, a.high * b.high}; }
template <class V, class N>
INLINE Pair<V> operator*(Pair<V> a, N b) { return {a.low * b, a.high * b}; }
template <class V, class N>
INLINE Pair<V> operator/(Pair<V> a, N b) { return {a.low / b, a.high / b}; }

// All lanes the same. (x - 0 is x; 0 + x is not, for x = -0.)
template <class V>
struct Fill {
  template <class N>
  static INLINE V with(N x) { return x - V{}; }
};
template <class V>
struct Fill<Pair<V>> {
  template <class N>
  static INLINE Pair<V> with(N x) { return {Fill<V>::with(x), Fill<V>::with(x)}; }
};
template <class V, class N>
INLINE V fill(N x) { return Fill<V>::with(x); }

// Memory need only be aligned to its element size.
template <class V>
struct Memory {
  typedef V type __attribute__((may_alias, aligned(4)));
  template <class T>
  static INLINE V load(const T* from) { return *reinterpret_cast<const type*>(from); }
  template <class T>
  static INLINE void store(T* to, V v) { *reinterpret_cast<type*>(to) = v; }
};
template <class V>
struct Memory<Pair<V>> {
  template <class T>
  static INLINE Pair<V> load(const T* from) {
    return {Memory<V>::load(from), Memory<V>::load(from + sizeof(V) / sizeof(T))};
  }
  template <class T>
  static INLINE void store(T* to, Pair<V> v) {
    Memory<V>::store(to, v.low);
    Memory<V>::store(to + sizeof(V) / sizeof(T), v.high);
  }
};
template <class V, class T>
INLINE V load(const T* from) { return Memory<V>::load(from); }
template <class V, class T>
INLINE void store(T* to, V v) { Memory<V>::store(to, v); }

// float32 features converted to the type of sums, and back.
INLINE Vector<float> to_sum(Vector<float> v, float) { return v; }
INLINE Vector<float> to_feature(Vector<float> v) { return v; }
INLINE Vector<float, double> to_sum(Vector<float> v, double) {
  typedef float Half __attribute__((vector_size(VECTOR_BYTES / 2)));
  using Wide = decltype(Vector<float, double>::low);
  auto* halves = reinterpret_cast<Half*>(&v);
  return {__builtin_convertvector(halves[0], Wide), __builtin_convertvector(halves[1], Wide)};
}
INLINE Vector<float> to_feature(Vector<float, double> v) {
  typedef float Half __attribute__((vector_size(VECTOR_BYTES / 2)));
  Vector<float> both;
  auto* halves = reinterpret_cast<Half*>(&both);
  halves[0] = __builtin_convertvector(v.low, Half);
  halves[1] = __builtin_convertvector(v.high, Half);
  return both;
}

// The first `count` lanes, and 0 in the others.
template <class T>
INLINE Vector<T> load_part(const T* from, int64_t count) {
  alignas(VECTOR_BYTES) T part[lanes<T>] = {};
  for (int64_t i = 0; i < count; i++) part[i] = from[i];
  return load<Vector<T>>(part);
}
template <class T>
INLINE void store_part(T* to, Vector<T> v, int64_t count) {
  alignas(VECTOR_BYTES) T part[lanes<T>];
  store(part, v);
  for (int64_t i = 0; i < count; i++) to[i] = part[i];
}

#if defined(__AVX512F__)
INLINE Vector<float> load_part(const float* from, int64_t count) {
  return (Vector<float>)_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), from);
}
INLINE void store_part(float* to, Vector<float> v, int64_t count) {
  _mm512_mask_storeu_ps(to, __mmask16((1u << count) - 1), (__m512)v);
}
// a / b from the processor's estimate of 1 / b and one Newton step, exact up to the last bit.
INLINE Vector<float> quotient(Vector<float> a, Vector<float> b) {
  const Vector<float> guess = (Vector<float>)_mm512_maskz_rcp14_ps(__mmask16(-1), (__m512)b);
  const Vector<float> t = a * guess;
  return t + t * (1 - guess * b);
}
#elif defined(__AVX2__)
INLINE __m256i first_lanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE Vector<float> load_part(const float* from, int64_t count) {
  return (Vector<float>)_mm256_maskload_ps(from, first_lanes(count));
}
INLINE void store_part(float* to, Vector<float> v, int64_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), (__m256)v);
}
#endif
template <class V>
INLINE V quotient(V a, V b) { return a / b; }

// The larger of each pair, b where one of them is NaN.
template <class V>
INLINE V maximum(V a, V b) { return a > b ? a : b; }
// The smaller of each number and a limit, NaN where the number is NaN.
template <class V, class N>
INLINE V at_most(V v, N limit) { return v > fill<V>(limit) ? fill<V>(limit) : v; }
template <class V, class N>
INLINE V at_least(V v, N limit) { return v < fill<V>(limit) ? fill<V>(limit) : v; }

// a / b, and 0 where b is 0.
template <class V>
INLINE V divide_or_zero(V a, V b) { return b == V{} ? V{} : a / b; }

// The largest lane; halves are compared while each fills a register.
template <class T, class V>
INLINE T largest_lane(V v) {
  if constexpr (sizeof(V) > 16) {
    typedef T Half __attribute__((vector_size(sizeof(V) / 2), may_alias));
    const Half* halves = reinterpret_cast<const Half*>(&v);
    return largest_lane<T>(maximum<Half>(halves[0], halves[1]));
  } else {
    T top = v[0];
    for (unsigned i = 1; i < sizeof(V) / sizeof(T); i++) top = v[i] > top ? v[i] : top;
    return top;
  }
}
// The largest of all lanes, infinity if any is NaN.
template <class T>
INLINE T largest(Vector<T> v) {
  return largest_lane<T>(v == v ? v : fill<Vector<T>>(std::numeric_limits<T>::infinity()));
}

// Constants of the exponential: 2^f on [-1/2, 1/2] as a polynomial, and ln 2 in two parts.
template <class T>
struct Exponential;
template <>
struct Exponential<float> {
  using Bits = uint32_t;
  static constexpr int mantissa = 23;
  static constexpr float round = 0x1.8p23f;  // adding it leaves the nearest integer in the lowest bits
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  // Interpolation at Chebyshev points, accurate to 4e-9.
  static constexpr float coefficients[] = {
      1.0f, 0.6931471824645996f, 0.24022650718688965f, 0.05550327152013779f,
      0.009618056938052177f, 0.0013400427997112274f, 0.00015461444854736328f};
};
template <>
struct Exponential<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52;
  static constexpr double round = 0x1.8p52;
  static constexpr double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
  // The Taylor series (ln 2)^k / k!, whose next term is below 1e-17.
  static constexpr double coefficients[] = {
      1.0, 0.6931471805599453, 0.2402265069591007, 0.055504108664821576,
      0.009618129107628477, 0.0013333558146428441, 0.00015403530393381606, 1.5252733804059838e-05,
      1.3215486790144305e-06, 1.0178086009239696e-07, 7.054911620801121e-09, 4.44553827187081e-10,
      2.5678435993488196e-11, 1.3691488853904124e-12};
};
template <class T>
constexpr T log2_e = T(1.4426950408889634074);

// sum_{k >= first} coefficients[k] f^(k - first).
template <class T, int first>
INLINE Vector<T> power_series(Vector<T> f) {
  using E = Exponential<T>;
  constexpr int degree = sizeof(E::coefficients) / sizeof(T) - 1;
  Vector<T> y = fill<Vector<T>>(E::coefficients[degree]);
#pragma GCC unroll 16
  for (int k = degree - 1; k >= first; k--) y = y * f + E::coefficients[k];
  return y;
}

// v 2^n; n is in the lowest bits of `rounded`, to which Exponential::round was added. Garbage, but defined, where the
// result is not a normal number: discarded lanes may hold anything.
template <class T>
INLINE Vector<T> scale_by_power(Vector<T> v, Vector<T> rounded) {
  using E = Exponential<T>;
  typedef typename E::Bits Integers __attribute__((vector_size(VECTOR_BYTES)));
  return (Vector<T>)((Integers)v + ((Integers)rounded << E::mantissa));
}

// t c - n, where n is t c rounded to an integer. With a fused multiply-add the product is exact; without one its
// rounding would dominate the error of 2^(t c), so float32 factors are split into halves whose products are exact.
template <class T>
INLINE Vector<T> fraction_of_product(Vector<T> t, T c, Vector<T> n) {
#if !defined(__FMA__) && !defined(__ARM_FEATURE_FMA)
  if constexpr (sizeof(T) == sizeof(float)) {
    typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));
    constexpr int32_t high_bits = ~0xfff;
    const Vector<T> high = (Vector<T>)((Integers)t & high_bits);
    const T c_high = ((Vector<T>)((Integers)fill<Vector<T>>(c) & high_bits))[0];
    return (high * c_high - n) + (high * (c - c_high) + (t - high) * c);
  }
#endif
  return t * c - n;
}

// 2^(t c); |t c| must be within T's exponent range.
template <class T>
INLINE Vector<T> power_of_two(Vector<T> t, T c) {
  using E = Exponential<T>;
  const Vector<T> rounded = t * c + E::round;
  const Vector<T> f = fraction_of_product<T>(t, c, rounded - E::round);
  return scale_by_power<T>(power_series<T, 0>(f), rounded);
}

// n, f and round + n with exp(y) = 2^(n + f), |f| <= 1/2.
template <class T>
INLINE void reduce(Vector<T> y, Vector<T>& f, Vector<T>& rounded) {
  using E = Exponential<T>;
  rounded = y * log2_e<T> + E::round;
  const Vector<T> n = rounded - E::round;
  f = ((y - n * E::ln2_high) - n * E::ln2_low) * log2_e<T>;
}

// exp(y); the result must be a normal number.
template <class T>
INLINE Vector<T> exp(Vector<T> y) {
  Vector<T> f, rounded;
  reduce<T>(y, f, rounded);
  return scale_by_power<T>(power_series<T, 0>(f), rounded);
}

// exp(y) - 1, exact near 0 too.
template <class T>
INLINE Vector<T> expm1(Vector<T> y) {
  Vector<T> f, rounded;
  reduce<T>(y, f, rounded);
  const Vector<T> power = scale_by_power<T>(fill<Vector<T>>(T(1)), rounded);
  return power * (power_series<T, 1>(f) * f) + (power - 1);
}

// Features first ... first + LANES - 1 of a row in memory, 0 beyond the last of `size`.
template <class T>
INLINE Vector<T> load_features(const T* row, int64_t first, int64_t size) {
  return first + lanes<T> <= size ? load<Vector<T>>(row + first) : load_part(row + first, size - first);
}
template <class T>
INLINE void store_features(T* row, int64_t first, int64_t size, Vector<T> v) {
  if (first + lanes<T> <= size) {
    store(row + first, v);
  } else {
    store_part(row + first, v, size - first);
  }
}
