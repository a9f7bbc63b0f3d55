// Products in int8 with AVX2; compiled with -mavx2 -mfma.

#include <immintrin.h>

#include "int8_lanes.h"

#define INSTRUCTION_SET avx2
namespace hf_blosan {
namespace INSTRUCTION_SET {
namespace {

struct Lanes {
  static constexpr int64_t rows = 3, panels = 1;

  __m256i half[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};

  // For two feature groups.
  void add_products(const uint8_t* x, const int8_t* weights) {
    int32_t four[2];
    __builtin_memcpy(four, x, sizeof four);
    const __m256i features[2] = {_mm256_set1_epi32(four[0]), _mm256_set1_epi32(four[1])};
    const __m256i ones = _mm256_set1_epi16(1);
    const auto pairs = [&](int group, int i) {
      const auto* from = reinterpret_cast<const __m256i*>(weights + group * int8_group);
      return _mm256_maddubs_epi16(features[group], _mm256_loadu_si256(from + i));
    };
    for (int i = 0; i < 2; i++) {
      half[i] = _mm256_add_epi32(half[i], _mm256_madd_epi16(_mm256_add_epi16(pairs(0, i), pairs(1, i)), ones));
    }
  }

  void store(int32_t* to) const {
    for (int i = 0; i < 2; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + i, half[i]);
  }
};

using Unit = Rows<Lanes>;

}  // namespace
}  // namespace INSTRUCTION_SET
}  // namespace hf_blosan

#include "int8.inc"
