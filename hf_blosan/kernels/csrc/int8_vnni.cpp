// Products in int8 with AVX-512 VNNI, which adds four products to each of 16 sums in one instruction.
// Compiled with the flags of loops_avx512.cpp and -mavx512vnni.

#include <immintrin.h>

#include "int8_lanes.h"

#define INSTRUCTION_SET avx512
namespace hf_blosan {
namespace INSTRUCTION_SET {
namespace {

struct Lanes {
  static constexpr int64_t rows = 8, panels = 2;

  __m512i all = _mm512_setzero_si512();

  // For two feature groups.
  void add_products(const uint8_t* x, const int8_t* weights) {
    for (int64_t group = 0; group < 2; group++) {
      all = _mm512_dpbusd_epi32(all, features(x + group * int8_depth), _mm512_loadu_si512(weights + group * int8_group));
    }
  }

  void store(int32_t* to) const { _mm512_storeu_si512(to, all); }

 private:
  // Broadcast from memory, at the cost of a load: set1 goes through a general register, making products wait.
  static __m512i features(const uint8_t* x) { return _mm512_maskz_broadcastd_epi32(-1, _mm_loadu_si32(x)); }
};

using Unit = Rows<Lanes>;

}  // namespace
}  // namespace INSTRUCTION_SET
}  // namespace hf_blosan

#include "int8.inc"
