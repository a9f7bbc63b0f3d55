// Compiled with the flags of loops_avx512.cpp.
#include "products_avx512.h"

#include <immintrin.h>

namespace hf_blosan::avx512 {
namespace {

constexpr int64_t lanes = 16;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

__mmask16 first_lanes(int64_t count) { return __mmask16((1u << least(count, lanes)) - 1); }

// 16 x 16 numbers: pairs of rows exchange what lies off the diagonal of blocks of 2 x 2, of 4 x 4 and so on.
inline void transpose(__m512 (&rows)[lanes]) {
#pragma GCC unroll 4
  for (int step = 1; step < lanes; step *= 2) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i bit = _mm512_set1_epi32(step), other = _mm512_set1_epi32(lanes);
    const __mmask16 high = _mm512_test_epi32_mask(lane, bit);
    // In the upper row's place: its own even blocks, and the lower row's; a lane from 16 on is the lower row's.
    const __m512i upper = _mm512_mask_add_epi32(lane, high, _mm512_sub_epi32(lane, bit), other);
    const __m512i lower = _mm512_mask_add_epi32(_mm512_add_epi32(lane, bit), high, lane, other);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; i++) {
      if (i & step) continue;
      const __m512 one = rows[i], two = rows[i + step];
      rows[i] = _mm512_permutex2var_ps(one, upper, two);
      rows[i + step] = _mm512_permutex2var_ps(one, lower, two);
    }
  }
}

// `count` vectors of `depth` numbers, side by side, `size` to a row; filled up with zeros. Numbers of a vector are
// `along` apart, vectors `across`.
template <int64_t size>
void pack(const float* from, int64_t across, int64_t along, int64_t count, int64_t depth, float* to) {
  for (int64_t first = 0; first < size; first += lanes) {
    const float* const x = from + first * across;
    const int64_t vectors = least(lanes, count - first);
    const __mmask16 columns = first_lanes(size - first), filled = vectors > 0 ? first_lanes(vectors) : 0;
    for (int64_t k = 0; k < depth; k += lanes) {
      const int64_t numbers = least(lanes, depth - k);
      float* const y = to + k * size + first;
      if (along == 1) {
        __m512 rows[lanes];
#pragma GCC unroll 16
        for (int64_t i = 0; i < lanes; i++) {
          const __mmask16 those = i < vectors ? first_lanes(numbers) : 0;
          rows[i] = _mm512_maskz_loadu_ps(those, x + i * across + k);
        }
        transpose(rows);
#pragma GCC unroll 16
        for (int64_t i = 0; i < lanes; i++) {
          if (i < numbers) _mm512_mask_storeu_ps(y + i * size, columns, rows[i]);
        }
      } else if (across == 1) {
        for (int64_t i = 0; i < numbers; i++) {
          _mm512_mask_storeu_ps(y + i * size, columns, _mm512_maskz_loadu_ps(filled, x + (k + i) * along));
        }
      } else {
        for (int64_t i = 0; i < numbers; i++) {
          for (int64_t v = 0; v < least(lanes, size - first); v++) {
            y[i * size + v] = v < vectors ? x[v * across + (k + i) * along] : 0.0f;
          }
        }
      }
    }
  }
}

// A tile of the result, of `vectors` times 16 columns, from a panel and rows, packed or `a_step` apart.
template <int vectors, bool packed>
void tile(const float* a, int64_t a_step, const float* b, int64_t depth, float* out, int64_t step, int64_t rows,
          int64_t columns, bool add) {
  __m512 sums[tile_rows][vectors];
#pragma GCC unroll 12
  for (int64_t row = 0; row < tile_rows; row++) {
    for (int v = 0; v < vectors; v++) sums[row][v] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < depth; k++) {
    __m512 weights[vectors];
    for (int v = 0; v < vectors; v++) weights[v] = _mm512_loadu_ps(b + k * panel + v * lanes);
#pragma GCC unroll 12
    for (int64_t row = 0; row < tile_rows; row++) {
      const __m512 x = _mm512_set1_ps(packed ? a[k * tile_rows + row] : a[k + row * a_step]);
      for (int v = 0; v < vectors; v++) sums[row][v] = _mm512_fmadd_ps(x, weights[v], sums[row][v]);
    }
  }
  const __mmask16 last = __mmask16((1u << (columns - (vectors - 1) * lanes)) - 1);
#pragma GCC unroll 12
  for (int64_t row = 0; row < tile_rows; row++) {
    if (row >= rows) break;
    for (int v = 0; v < vectors; v++) {
      const __mmask16 those = v + 1 < vectors ? __mmask16(-1) : last;
      float* const to = out + row * step + v * lanes;
      const __m512 before = add ? _mm512_maskz_loadu_ps(those, to) : _mm512_setzero_ps();
      _mm512_mask_storeu_ps(to, those, _mm512_add_ps(before, sums[row][v]));
    }
  }
}

}  // namespace

void pack_panels(const Product& p, int64_t start, int64_t stop, void*) {
  const int64_t panels = up(p.columns, panel);
  for (int64_t item = start; item < stop; item++) {
    const int64_t first = item / panels * p.part, column = item % panels * panel;
    const float* const from = p.b.data + first * p.b.row + column * p.b.column;
    const int64_t depth = least(p.part, p.depth - first);
    pack<panel>(from, p.b.column, p.b.row, least(panel, p.columns - column), depth, p.packed + item * p.part * panel);
  }
}

void multiply_tiles(const Product& p, int64_t start, int64_t stop, void* scratch) {
  float* const a = static_cast<float*>(scratch);
  const int64_t panels = up(p.columns, panel);
  for (int64_t first_tile = start; first_tile < stop; first_tile += most_tiles) {
    const int64_t first = first_tile * tile_rows;
    const int64_t end = least(p.rows, least(stop, first_tile + most_tiles) * tile_rows);
    for (int64_t k = 0; k < p.depth; k += p.part) {
      const int64_t depth = least(p.part, p.depth - k);
      const auto needs_packing = [&](int64_t row) { return p.a.column != 1 || end - row < tile_rows; };
      for (int64_t row = first; row < end; row += tile_rows) {
        if (!needs_packing(row)) continue;
        const float* const from = p.a.data + row * p.a.row + k * p.a.column;
        pack<tile_rows>(from, p.a.row, p.a.column, least(tile_rows, end - row), depth, a + (row - first) * depth);
      }
      for (int64_t i = 0; i < panels; i++) {
        const float* const b = p.packed + (k / p.part * panels + i) * p.part * panel;
        const int64_t columns = least(panel, p.columns - i * panel);
        for (int64_t row = first; row < end; row += tile_rows) {
          float* const out = p.out + row * p.out_row + i * panel;
          const bool add = p.add || k > 0;
          if (needs_packing(row)) {
            const auto compute = columns > lanes ? tile<2, true> : tile<1, true>;
            compute(a + (row - first) * depth, 0, b, depth, out, p.out_row, least(tile_rows, end - row), columns, add);
          } else {
            const auto compute = columns > lanes ? tile<2, false> : tile<1, false>;
            compute(p.a.data + row * p.a.row + k, p.a.row, b, depth, out, p.out_row, tile_rows, columns, add);
          }
        }
      }
    }
  }
}

}  // namespace hf_blosan::avx512
