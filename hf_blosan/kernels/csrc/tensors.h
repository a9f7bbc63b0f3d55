// Tensors on their way from torch to the loops: checked here, before any memory is touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#ifdef HF_BLOSAN_OWN_THREADS
#include <thread>
#endif

#include "arguments.h"

namespace hf_blosan {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Sizes = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

inline std::ostream& operator<<(std::ostream& out, const Sizes& sizes) {
  out << "(";
  for (size_t i = 0; i < sizes.size(); i++) out << (i ? ", " : "") << sizes[i];
  return out << ")";
}

template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (holds) return;
  std::ostringstream message;
  (message << ... << parts);
  throw std::runtime_error(message.str());
}

inline Sizes sizes_of(const Tensor& x) {
  const auto sizes = x.sizes();
  return Sizes(sizes.begin(), sizes.end());
}

template <class T>
constexpr ScalarType type_of = sizeof(T) == sizeof(float) ? ScalarType::Float : ScalarType::Double;

inline void check_tensor(const char* name, const Tensor& x, ScalarType type, const Sizes& sizes) {
  check(x.is_cpu(), name, ": the tensor is not on the CPU, others are; move all of them to one device");
  check(x.scalar_type() == type, name, ": its dtype differs from that of the other tensors; give all the same");
  const Sizes own = sizes_of(x);
  check(own == sizes, name, ": its shape is ", own, "; give ", sizes);
}

// A tensor of this type and shape, contiguous.
inline Tensor checked(const char* name, const Tensor& x, ScalarType type, const Sizes& sizes) {
  check_tensor(name, x, type, sizes);
  return x.is_contiguous() ? x : torch::stable::contiguous(x);
}
inline MaybeTensor checked(const char* name, const MaybeTensor& x, ScalarType type, const Sizes& sizes) {
  if (!x) return x;
  return checked(name, *x, type, sizes);
}

inline Tensors checked(const char* name, const Tensors& list, ScalarType type, const Sizes& sizes) {
  Tensors found;
  for (const Tensor& x : list) found.push_back(checked(name, x, type, sizes));
  return found;
}

template <class T>
const T* read(const Tensor& x) { return static_cast<const T*>(x.const_data_ptr()); }
template <class T>
const T* read(const MaybeTensor& x) { return x ? read<T>(*x) : nullptr; }
template <class T>
T* write(const Tensor& x) { return static_cast<T*>(x.mutable_data_ptr()); }

// The keys that a query sees in a direction, at most `window` tokens away if given; itself with `include_self` or in
// "full".
inline Seen seen_by(const std::string& direction, const std::optional<int64_t>& window, bool include_self) {
  const bool before = direction != "backward", after = direction != "forward", full = direction == "full";
  check(!window || *window >= 0, "window is ", window.value_or(0), "; give a number of tokens, 0 or more");
  check(!before || !after || full || direction == "diagonal", "direction is '", direction,
        "'; choose one of forward, backward, diagonal, full");
  constexpr int64_t unlimited = int64_t(1) << 40;
  const int64_t distance = std::min(window.value_or(unlimited), unlimited);
  return {before ? distance : 0, after ? distance : 0, include_self || full};
}

// An uninitialised tensor with the dtype of another. torch::stable::new_empty does this through the dispatcher.
inline Tensor allocate(const Tensor& like, const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  int32_t type;
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &type));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(int64_t(sizes.size()), sizes.data(), strides.data(), type,
                                                         aoti_torch_device_type_cpu(), 0, &made));
  return Tensor(made);
}

// The expansions for a scale, computed once; `use` selects which of their `shortest` lengths apply.
Expansion expansion_for(double scale, Expansion::Use use);

// Calls work(float()) or work(double()), by the dtype of a tensor.
template <class Work>
auto by_type(const char* name, const Tensor& x, const Work& work) {
  const bool wide = x.scalar_type() == ScalarType::Double;
  check(wide || x.scalar_type() == ScalarType::Float, name, ": give float32 or float64 numbers");
  return wide ? work(double()) : work(float());
}

// Number of items of lanes<T> features that cover `size` features.
template <class T>
int64_t slices(int64_t size) { return (size + loops<T>().lanes - 1) / loops<T>().lanes; }

// Work from which a second thread is worth starting, in pairs of tokens times features or equally long steps (0.5 ns).
constexpr int64_t work_per_thread = 100'000;

// Aligned memory for one thread, kept for the thread's next call unless it is large.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) {
    thread_local Memory kept;
    Memory& memory = bytes > most_kept ? own_ : kept;
    memory.grow(bytes);
    data_ = memory.data;
  }
  void* data() const { return data_; }

 private:
  static constexpr int64_t most_kept = int64_t(1) << 22;

  struct Memory {
    void* data = nullptr;
    int64_t bytes = 0;

    void grow(int64_t wanted) {
      if (wanted <= bytes) return;
      std::free(data);
      bytes = 0;
      data = std::aligned_alloc(64, (wanted + 63) / 64 * 64);
      if (!data) throw std::bad_alloc();
      bytes = wanted;
    }
    ~Memory() { std::free(data); }
  };

  Memory own_;
  void* data_;
};

// Calls part(start, stop) for items 0 ... count - 1 on torch's threads, `grain` items or more in most calls; within
// another call, on the calling thread. The thread sanitizer does not see how OpenMP's threads synchronise, so it gets
// std::threads (make test-sanitize).
template <class Part>
void parallel(int64_t count, int64_t grain, const Part& part) {
#ifdef HF_BLOSAN_OWN_THREADS
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 3; i++) threads.emplace_back(part, count * i / 3, count * (i + 1) / 3);
  for (std::thread& thread : threads) thread.join();
#else
  torch::stable::parallel_for(0, count, grain, part);
#endif
}

// Runs a loop over items 0 ... count - 1 on torch's threads, or on the calling thread for little work.
template <class Arguments>
void run(Loop<Arguments> loop, const Arguments& arguments, int64_t count, int64_t work, int64_t scratch_bytes = 0) {
  if (count == 0) return;
  const auto part = [&](int64_t start, int64_t stop) {
    const Scratch scratch(scratch_bytes);
    loop(arguments, start, stop, scratch.data());
  };
  const int64_t threads = work > work_per_thread ? torch::stable::get_num_threads() : 1;
  parallel(count, (count + threads - 1) / threads, part);
}

}  // namespace hf_blosan
