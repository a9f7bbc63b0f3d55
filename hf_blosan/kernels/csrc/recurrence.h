// The recurrence of simple recurrent units; an item is lanes<T> features of one row. See recurrence.py.

// states_t = f_t states_(t-1) + (1 - f_t) x_t.
template <class T>
void recurrence(const Recurrence<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const int64_t slices = num_slices<T>(a.size);
  for (int64_t item = start; item < stop; item++) {
    const int64_t row = item / slices, first = item % slices * lanes<T>;
    V state{};
    for (int64_t i = 0; i < a.length; i++) {
      const int64_t at = (row * a.length + i) * a.size;
      const V gate = load_features(a.forget + at, first, a.size);
      state = gate * state + (1 - gate) * load_features(a.values + at, first, a.size);
      store_features(a.states + at, first, a.size, state);
    }
  }
}

// With g_t = grad_t + f_(t+1) g_(t+1): grad_forget = g_t (c_(t-1) - x_t), grad_values = (1 - f_t) g_t.
template <class T>
void recurrence_backward(const Recurrence<T>& a, int64_t start, int64_t stop, void*) {
  using V = Vector<T>;
  const int64_t slices = num_slices<T>(a.size);
  for (int64_t item = start; item < stop; item++) {
    const int64_t row = item / slices, first = item % slices * lanes<T>;
    V later{};
    for (int64_t i = a.length - 1; i >= 0; i--) {
      const int64_t at = (row * a.length + i) * a.size;
      const V gate = load_features(a.forget + at, first, a.size);
      const V total = load_features(a.grad + at, first, a.size) + later;
      const V before = i > 0 ? load_features(a.saved_states + at - a.size, first, a.size) : V{};
      const V change = before - load_features(a.values + at, first, a.size);
      store_features<T>(a.grad_forget + at, first, a.size, total * change);
      store_features<T>(a.grad_values + at, first, a.size, (1 - gate) * total);
      later = gate * total;
    }
  }
}
