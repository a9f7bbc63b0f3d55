// Compiled with the flags of loops_avx512.cpp.
#include "products_avx512.h"

#include <immintrin.h>

namespace hf_blosan::avx512 {
namespace {

constexpr int64_t lanes = 16;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// `count` vectors of `depth` numbers, side by side, `size` to a row; filled up with zeros. Numbers of a vector are
// `along` apart, vectors `across`.
template <int64_t size>
void pack(const float* from, int64_t across, int64_t along, int64_t count, int64_t depth, float* to) {
  int64_t first = 0;
  for (; along == 1 && first + 4 <= count; first += 4) {  // four numbers of four vectors at a time
    const float* const x = from + first * across;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      __m128 a = _mm_loadu_ps(x + k), b = _mm_loadu_ps(x + across + k);
      __m128 c = _mm_loadu_ps(x + 2 * across + k), d = _mm_loadu_ps(x + 3 * across + k);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* const y = to + k * size + first;
      _mm_storeu_ps(y, a);
      _mm_storeu_ps(y + size, b);
      _mm_storeu_ps(y + 2 * size, c);
      _mm_storeu_ps(y + 3 * size, d);
    }
    for (; k < depth; k++) {
      for (int64_t i = 0; i < 4; i++) to[k * size + first + i] = x[i * across + k];
    }
  }
  for (int64_t k = 0; k < depth; k++) {
    for (int64_t i = first; i < size; i++) to[k * size + i] = i < count ? from[i * across + k * along] : 0.0f;
  }
}

// A tile of the result, of `vectors` times 16 columns, from packed rows and a panel.
template <int vectors>
void tile(const float* a, const float* b, int64_t depth, float* out, int64_t step, int64_t rows, int64_t columns,
          bool add) {
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
      const __m512 x = _mm512_set1_ps(a[k * tile_rows + row]);
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
      for (int64_t row = first; row < end; row += tile_rows) {
        const float* const from = p.a.data + row * p.a.row + k * p.a.column;
        pack<tile_rows>(from, p.a.row, p.a.column, least(tile_rows, end - row), depth, a + (row - first) * depth);
      }
      for (int64_t i = 0; i < panels; i++) {
        const float* const b = p.packed + (k / p.part * panels + i) * p.part * panel;
        const int64_t columns = least(panel, p.columns - i * panel);
        for (int64_t row = first; row < end; row += tile_rows) {
          const auto compute = columns > lanes ? tile<2> : tile<1>;
          compute(a + (row - first) * depth, b, depth, p.out + row * p.out_row + i * panel, p.out_row,
                  least(tile_rows, end - row), columns, p.add || k > 0);
        }
      }
    }
  }
}

}  // namespace hf_blosan::avx512
