// Products in int8 with AVX-512 VNNI, which adds four products to each of 16 sums in one instruction.
// Compiled with the flags of loops_avx512.cpp and -mavx512vnni.

#include <immintrin.h>

#include "int8_lanes.h"

#define INSTRUCTION_SET avx512
namespace hf_blosan {
namespace INSTRUCTION_SET {
namespace {

struct Lanes {
  static constexpr int64_t rows = 16;

  __m512i all = _mm512_setzero_si512();

  // Of two groups of features.
  void add_products(const uint8_t* x, const int8_t* weights) {
    int32_t four[2];
    __builtin_memcpy(four, x, sizeof four);
    all = _mm512_dpbusd_epi32(all, _mm512_set1_epi32(four[0]), _mm512_loadu_si512(weights));
    all = _mm512_dpbusd_epi32(all, _mm512_set1_epi32(four[1]), _mm512_loadu_si512(weights + int8_group));
  }

  void store(int32_t* to) const { _mm512_storeu_si512(to, all); }
};

using Unit = Rows<Lanes>;

}  // namespace
}  // namespace INSTRUCTION_SET
}  // namespace hf_blosan

#include "int8.inc"
