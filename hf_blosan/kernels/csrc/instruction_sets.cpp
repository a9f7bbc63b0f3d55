// Chooses this processor's instruction set; setup.py says which are compiled.

#include <cstdlib>
#include <cstring>

#include "tensors.h"

namespace hf_blosan {

#define DECLARE(set)                       \
  namespace set {                          \
  extern const Loops<float> float_loops;   \
  extern const Loops<double> double_loops; \
  }
DECLARE(baseline)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
#endif

namespace {

struct Choice {
  const char* name;
  const Loops<float>* of_float;
  const Loops<double>* of_double;
};

// The best set the processor has, up to the one that HF_BLOSAN_INSTRUCTION_SET names (for tests).
Choice choose() {
#if defined(__x86_64__)
  const char* const most = std::getenv("HF_BLOSAN_INSTRUCTION_SET");
  const auto allowed = [&](const char* set) { return !most || !std::strcmp(most, set); };
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512 && allowed("avx512")) return {"avx512", &avx512::float_loops, &avx512::double_loops};
  if (avx2 && (allowed("avx512") || allowed("avx2"))) return {"avx2", &avx2::float_loops, &avx2::double_loops};
#endif
  return {"baseline", &baseline::float_loops, &baseline::double_loops};
}

const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

std::string instruction_set() { return choice().name; }

}  // namespace

template <>
const Loops<float>& loops<float>() { return *choice().of_float; }
template <>
const Loops<double>& loops<double>() { return *choice().of_double; }

}  // namespace hf_blosan

STABLE_TORCH_LIBRARY_IMPL(hf_blosan_kernels, CompositeExplicitAutograd, m) {
  m.impl("instruction_set", TORCH_BOX(&hf_blosan::instruction_set));
}
