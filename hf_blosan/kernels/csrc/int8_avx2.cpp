// Products in int8 with AVX2; compiled with -mavx2 -mfma.

#include <immintrin.h>

#include "int8.h"

#define INSTRUCTION_SET avx2
namespace hf_blosan {
namespace INSTRUCTION_SET {
namespace {

struct Lanes {
  static constexpr int64_t rows = 4;  // whose sums fit into the registers

  struct Weights {
    __m256i half[2];
    explicit Weights(const int8_t* from) {
      for (int i = 0; i < 2; i++) half[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + i);
    }
  };

  __m256i half[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};

  void add_products(const uint8_t* x, const Weights& w) {
    int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    const __m256i features = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
    for (int i = 0; i < 2; i++) {
      const __m256i pairs = _mm256_maddubs_epi16(features, w.half[i]);
      half[i] = _mm256_add_epi32(half[i], _mm256_madd_epi16(pairs, ones));
    }
  }

  void store(int32_t* to) const {
    for (int i = 0; i < 2; i++) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + i, half[i]);
  }
};

}  // namespace
}  // namespace INSTRUCTION_SET
}  // namespace hf_blosan

#include "int8.inc"
