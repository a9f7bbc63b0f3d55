// Source2token attention; an item is lanes<T> features of one part of a sentence. See source2token.py.

// Its exp is a normal number, tiny next to weights of 1.
template <class T>
constexpr T lowest_exponent = sizeof(T) == sizeof(float) ? -87 : -700;

template <class T>
void source2token(const SourceToToken<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const Shape& shape = a.shape;
  Item item(shape, lanes<T>, start);
  const int64_t slices = num_slices<T>(shape.size);
  int64_t row = start / slices;
  for (; start < stop; start++) {
    const bool* mask = a.mask + item.begin;
    V top = fill<V>(-std::numeric_limits<T>::infinity());
    for (int64_t i = 0; i < item.length; i++) {
      if (mask[i]) top = maximum<V>(top, read(a.scores, shape.size, i, item, shape));
    }
    V num{}, den{};
    for (int64_t m = 0; m < item.length; m += CHUNK) {
      V products{}, weights{};
      for (int64_t i = m; i < smaller(item.length, m + CHUNK); i++) {
        if (!mask[i]) continue;
        const V score = read(a.scores, shape.size, i, item, shape) - top;
        const V weight = exp<T>(at_least(score, lowest_exponent<T>));
        weights = weights + weight;
        products = products + weight * read(a.values, shape.size, i, item, shape);
      }
      num = num + products;
      den = den + weights;
    }
    const int64_t to = row * shape.size;
    store_features(a.out + to, item.first, shape.size, divide_or_zero(num, den));
    if (a.tops) {
      store_features(a.tops + to, item.first, shape.size, top);
      store_features(a.totals + to, item.first, shape.size, den);
    }
    item.next(shape, lanes<T>);
    row += item.first == 0;
  }
}

// With weights w: grad_values = w grad, grad_scores = w (values - out) grad.
template <class T>
void source2token_backward(const SourceToToken<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const Shape& shape = a.shape;
  Item item(shape, lanes<T>, start);
  const int64_t slices = num_slices<T>(shape.size);
  int64_t row = start / slices;
  for (; start < stop; start++) {
    const int64_t from = row * shape.size;
    const V top = load_features<T>(a.saved_tops + from, item.first, shape.size);
    const V result = load_features<T>(a.saved_out + from, item.first, shape.size);
    const V total = load_features<T>(a.saved_totals + from, item.first, shape.size);
    const V scaled = divide_or_zero(load_features(a.grad + from, item.first, shape.size), total);
    for (int64_t i = 0; i < item.length; i++) {
      V to_value{}, to_score{};
      if (a.mask[item.begin + i]) {
        const V score = read(a.scores, shape.size, i, item, shape) - top;
        to_value = exp<T>(at_least(score, lowest_exponent<T>)) * scaled;
        to_score = to_value * (read(a.values, shape.size, i, item, shape) - result);
      }
      write(a.grad_values, i, item, shape, to_value);
      write(a.grad_scores, i, item, shape, to_score);
    }
    item.next(shape, lanes<T>);
    row += item.first == 0;
  }
}
