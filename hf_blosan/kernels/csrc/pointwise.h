// Elementwise steps of layers, each in one pass over memory; an item is a group of rows. See pointwise.py.

// exp of plus or minus this is a normal number.
template <class T>
constexpr T exponent_limit = sizeof(T) == sizeof(float) ? 87 : 700;

template <class T>
INLINE Vector<T> sigmoid(Vector<T> x) {
  const Vector<T> minus = at_least(at_most<Vector<T>>(-x, exponent_limit<T>), -exponent_limit<T>);
  return quotient<Vector<T>>(fill<Vector<T>>(T(1)), 1 + exp<T>(minus));
}

template <class T>
INLINE Vector<T> elu(Vector<T> x) {
  const Vector<T> negative = at_least(at_most(x, T(0)), -exponent_limit<T>);
  return maximum(Vector<T>{}, x) + expm1<T>(negative);
}

// x (1 + erf(x / sqrt(2))) / 2. In float32, erf is x times a ratio of polynomials in x^2, fitted to 5e-8 up to 5.6,
// and 1 or -1 beyond.
template <class T>
INLINE Vector<T> gelu(Vector<T> x) {
  Vector<T> erf;
  if constexpr (sizeof(T) == sizeof(float)) {
    constexpr T above[] = {0.7978842258453369f,     0.07421974092721939f,   0.009174752980470657f,
                           0.0003648779820650816f,  6.7224405029244744e-06f, -4.3992301357320684e-08f,
                           2.1604922018081396e-10f};
    constexpr T below[] = {1.0f, 0.2596847712993622f, 0.029784435406327248f, 0.001901313429698348f,
                           6.623782246606424e-05f};
    const Vector<T> z = at_least(at_most(x, T(5.6)), T(-5.6)), square = z * z;
    const auto polynomial = [&](const auto& coefficients) INLINE_LAMBDA {
      constexpr int degree = sizeof(coefficients) / sizeof(T) - 1;
      Vector<T> y = fill<Vector<T>>(coefficients[degree]);
#pragma GCC unroll 8
      for (int k = degree - 1; k >= 0; k--) y = y * square + coefficients[k];
      return y;
    };
    erf = quotient<Vector<T>>(z * polynomial(above), polynomial(below));
    erf = x > T(5.6) ? fill<Vector<T>>(T(1)) : erf;
    erf = x < T(-5.6) ? fill<Vector<T>>(T(-1)) : erf;
  } else {
    for (int i = 0; i < lanes<T>; i++) erf[i] = std::erf(x[i] * M_SQRT1_2);
  }
  return x * ((erf + 1) * T(0.5));
}

struct Group {
  int64_t head, begin, end;
};

INLINE Group group_at(const Groups& g, int64_t item) {
  const int64_t per_sentence = (g.sentence + g.length - 1) / g.length;
  const int64_t per_head = g.rows / g.sentence * per_sentence;
  const int64_t i = item % per_head, begin = i % per_sentence * g.length;
  const int64_t sentence = i / per_sentence * g.sentence;
  return {item / per_head, sentence + begin, sentence + smaller(g.sentence, begin + g.length)};
}

template <class T>
INLINE T* at(const Place<T>& place, int64_t matrix, int64_t row) {
  return place.data + matrix * place.matrix + row * place.row;
}

template <class T>
INLINE void add_features(T* row, int64_t first, int64_t size, Vector<T> v) {
  store_features<T>(row, first, size, load_features<T>(row, first, size) + v);
}

template <class T>
INLINE void clear(T* row, int64_t size) {
  for (int64_t i = 0; i < size; i++) row[i] = 0;
}

// Calls work(item, head, row) for the rows of items start ... stop - 1, after clearing their item's sums.
template <class T, class Work>
INLINE void for_rows(const Groups& groups, int64_t start, int64_t stop, T* sums, int64_t width, const Work& work) {
  for (int64_t item = start; item < stop; item++) {
    const Group group = group_at(groups, item);
    if (sums) clear(sums + item * width, width);
    for (int64_t row = group.begin; row < group.end; row++) work(item, group.head, row);
  }
}

template <class T, Activation activation>
INLINE void bias_activation_rows(const BiasActivation<T>& a, int64_t start, int64_t stop) {
  const int64_t size = a.groups.size;
  for_rows<T>(a.groups, start, stop, nullptr, 0, [&](int64_t, int64_t head, int64_t row) INLINE_LAMBDA {
    const T *x = at(a.x, head, row), *bias = a.bias ? a.bias + head * size : nullptr;
    T* y = at(a.y, head, row);
    for (int64_t i = 0; i < size; i += lanes<T>) {
      Vector<T> v = load_features<T>(x, i, size);
      if (bias) v = v + load_features<T>(bias, i, size);
      if constexpr (activation == Activation::elu) v = elu<T>(v);
      if constexpr (activation == Activation::gelu) v = gelu<T>(v);
      store_features<T>(y, i, size, v);
    }
  });
}

template <class T>
void bias_activation(const BiasActivation<T>& a, int64_t start, int64_t stop, void*) {
  switch (a.activation) {
    case Activation::linear: return bias_activation_rows<T, Activation::linear>(a, start, stop);
    case Activation::elu: return bias_activation_rows<T, Activation::elu>(a, start, stop);
    case Activation::gelu: return bias_activation_rows<T, Activation::gelu>(a, start, stop);
  }
}

// The slope is 1 for positive results y and y + 1 for others.
template <class T, bool activate>
INLINE void bias_activation_rows_backward(const BiasActivation<T>& a, int64_t start, int64_t stop) {
  const int64_t size = a.groups.size;
  for_rows(a.groups, start, stop, a.sums, size, [&](int64_t item, int64_t head, int64_t row) INLINE_LAMBDA {
    const T *grad = at(a.grad, head, row), *y = activate ? at(a.result, head, row) : nullptr;
    T *grad_x = at(a.grad_x, head, row), *sums = a.sums ? a.sums + item * size : nullptr;
    for (int64_t i = 0; i < size; i += lanes<T>) {
      Vector<T> g = load_features<T>(grad, i, size);
      if (activate) g = g * at_most<Vector<T>>(load_features<T>(y, i, size) + 1, T(1));
      store_features<T>(grad_x, i, size, g);
      if (sums) add_features<T>(sums, i, size, g);
    }
  });
}

template <class T>
void bias_activation_backward(const BiasActivation<T>& a, int64_t start, int64_t stop, void*) {
  a.activation == Activation::elu ? bias_activation_rows_backward<T, true>(a, start, stop)
                                  : bias_activation_rows_backward<T, false>(a, start, stop);
}

// The sum over a row of work(features); features beyond its end do not count.
template <class T, class Work>
INLINE T sum_of_row(const T* row, int64_t size, const Work& work) {
  Vector<T> total{};
  int64_t i = 0;
  for (; i + lanes<T> <= size; i += lanes<T>) total = total + work(load<Vector<T>>(row + i));
  const Vector<T> rest = i < size ? work(load_part(row + i, size - i)) : Vector<T>{};
  T sum = 0;
  for (int64_t k = 0; k < lanes<T>; k++) sum += i + k < size ? total[k] + rest[k] : total[k];
  return sum;
}

template <class T>
void add_norm(const AddNorm<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const int64_t size = a.groups.size;
  for_rows<T>(a.groups, start, stop, nullptr, 0, [&](int64_t, int64_t, int64_t row) INLINE_LAMBDA {
    T* const y = a.y + row * size;
    const T* const x = a.weight ? a.x + (a.places ? a.places[row] : row) * size : nullptr;
    for (int64_t k = 0, first = 0; k < a.count; first += a.widths[k++]) {
      const int64_t width = a.widths[k];
      const T* const part = a.parts[k] + row * width;
      for (int64_t i = 0; i < width; i += lanes<T>) {
        V v = load_features<T>(part, i, width);
        if (x) v = v + load_features<T>(x + first, i, width);
        store_features<T>(y + first, i, width, v);
      }
    }
    if (!a.weight) return;
    const T mean = sum_of_row<T>(y, size, [](V v) INLINE_LAMBDA { return v; }) / size;
    const T squares = sum_of_row<T>(y, size, [&](V v) INLINE_LAMBDA { return (v - mean) * (v - mean); });
    const T factor = 1 / std::sqrt(squares / size + a.epsilon);
    for (int64_t i = 0; i < size; i += lanes<T>) {
      const V v = (load_features<T>(y, i, size) - mean) * factor;
      store_features<T>(y, i, size, v * load_features<T>(a.weight, i, size) + load_features<T>(a.bias, i, size));
    }
  });
}

template <class T>
void gate(const Gate<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const int64_t size = a.groups.size;
  for_rows<T>(a.groups, start, stop, nullptr, 0, [&](int64_t, int64_t head, int64_t row) INLINE_LAMBDA {
    T* out = at(a.out, head, row);
    if (a.mask && !a.mask[row]) return clear(out, size);
    const T *scores = at(a.scores, head, row), *bias = a.bias + head * size;
    const T* more_scores = a.more_scores.data ? at(a.more_scores, head, row) : nullptr;
    const T *first = at(a.first, head, row), *second = at(a.second, head, row);
    for (int64_t i = 0; i < size; i += lanes<T>) {
      V score = load_features<T>(scores, i, size) + load_features<T>(bias, i, size);
      if (more_scores) score = score + load_features<T>(more_scores, i, size);
      const V f = sigmoid<T>(score);
      const V other = load_features<T>(second, i, size);
      store_features<T>(out, i, size, other + f * (load_features<T>(first, i, size) - other));
    }
  });
}

template <class T>
void gate_backward(const Gate<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const int64_t size = a.groups.size;
  for_rows(a.groups, start, stop, a.sums, size, [&](int64_t item, int64_t head, int64_t row) INLINE_LAMBDA {
    T *to_scores = at(a.grad_scores, head, row), *to_first = at(a.grad_first, head, row);
    T *to_second = at(a.grad_second, head, row), *sums = a.sums + item * size;
    if (a.mask && !a.mask[row]) {
      for (T* to : {to_scores, to_first, to_second}) clear(to, size);
      return;
    }
    const T *scores = at(a.scores, head, row), *bias = a.bias + head * size, *grad = at(a.grad, head, row);
    const T *first = at(a.first, head, row), *second = at(a.second, head, row);
    for (int64_t i = 0; i < size; i += lanes<T>) {
      const V f = sigmoid<T>(load_features<T>(scores, i, size) + load_features<T>(bias, i, size));
      const V g = load_features<T>(grad, i, size), one = g * f;
      const V change = load_features<T>(first, i, size) - load_features<T>(second, i, size);
      const V score = change * one * (1 - f);
      store_features<T>(to_first, i, size, one);
      store_features<T>(to_second, i, size, g - one);
      store_features<T>(to_scores, i, size, score);
      add_features<T>(sums, i, size, score);
    }
  });
}

// Gate and candidate of lanes<T> features, from rows of scores and bias: the candidate's half, then the gate's.
template <class T>
INLINE void gate_and_candidate(const T* scores, const T* bias, int64_t i, int64_t size, Vector<T>& f,
                               Vector<T>& value) {
  f = sigmoid<T>(load_features<T>(scores + size, i, size) + load_features<T>(bias + size, i, size));
  value = elu<T>(load_features<T>(scores, i, size) + load_features<T>(bias, i, size));
}

template <class T>
void candidate(const Candidate<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const int64_t size = a.groups.size;
  for_rows<T>(a.groups, start, stop, nullptr, 0, [&](int64_t item, int64_t, int64_t row) INLINE_LAMBDA {
    const T *scores = a.scores + row * 2 * size, *bias = a.bias + item * a.bias_step, *mapped = a.mapped + row * size;
    for (int64_t i = 0; i < size; i += lanes<T>) {
      V f{}, value{};
      gate_and_candidate<T>(scores, bias, i, size, f, value);
      const V other = load_features<T>(mapped, i, size);
      store_features<T>(a.out + row * size, i, size, other + f * (value - other));
    }
  });
}

template <class T>
void candidate_backward(const Candidate<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const int64_t size = a.groups.size;
  for_rows(a.groups, start, stop, a.sums, 2 * size, [&](int64_t item, int64_t, int64_t row) INLINE_LAMBDA {
    const T *scores = a.scores + row * 2 * size, *bias = a.bias + item * a.bias_step, *mapped = a.mapped + row * size;
    const T* grad = at(a.grad, 0, row);
    T *to_scores = a.grad_scores + row * 2 * size, *to_mapped = a.grad_mapped + row * size;
    T* sums = a.sums + item * 2 * size;
    for (int64_t i = 0; i < size; i += lanes<T>) {
      V f{}, value{};
      gate_and_candidate<T>(scores, bias, i, size, f, value);
      const V g = load_features<T>(grad, i, size), to_value = g * f;
      const V to_a = to_value * at_most<V>(value + 1, T(1));
      const V to_b = (value - load_features<T>(mapped, i, size)) * to_value * (1 - f);
      store_features<T>(to_scores, i, size, to_a);
      store_features<T>(to_scores + size, i, size, to_b);
      store_features<T>(to_mapped, i, size, g - to_value);
      add_features<T>(sums, i, size, to_a);
      add_features<T>(sums + size, i, size, to_b);
    }
  });
}

INLINE Vector<double> to_sum(Vector<double> v, double) { return v; }
INLINE Vector<double> to_feature(Vector<double> v) { return v; }

// An item is lanes<T> features of a head. The rows are already sums, so float32 would lose digits here.
template <class T>
void sums(const Sums<T>& a, int64_t start, int64_t stop, void*) {
  const int64_t slices = num_slices<T>(a.size);
  for (int64_t item = start; item < stop; item++) {
    const int64_t head = item / slices, i = item % slices * lanes<T>;
    Vector<T, double> total{};
    for (int64_t row = 0; row < a.rows; row++) {
      total = total + to_sum(load_features<T>(a.x + (head * a.rows + row) * a.size, i, a.size), double());
    }
    store_features<T>(a.out + head * a.size, i, a.size, to_feature(total));
  }
}
