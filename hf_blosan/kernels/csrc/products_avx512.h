// A product of float32 matrices in loops for AVX-512; products.cpp says when. No templates of the standard library:
// the linker could let code for older processors call their versions for AVX-512.
#pragma once

#include <cstdint>

namespace hf_blosan::avx512 {

struct Matrix {
  const float* data;
  int64_t row, column;  // distances between elements
};

// out = a b, or out += a b.
struct Product {
  Matrix a, b;
  float* out;
  int64_t out_row;
  int64_t rows, depth, columns;
  bool add;
  int64_t part;   // of the depth, which is computed at a time
  float* packed;  // b, in panels of `panel` columns, part after part
};

constexpr int64_t tile_rows = 12, panel = 32;  // a tile of the result: 24 of 32 registers
constexpr int64_t most_depth = 384;            // of which a panel takes 48 KiB, near while tiles of rows need it
constexpr int64_t most_tiles = 4;              // whose rows of a are packed together
constexpr int64_t scratch_bytes = most_tiles * tile_rows * most_depth * sizeof(float);

inline int64_t up(int64_t count, int64_t size) { return (count + size - 1) / size; }

void pack_panels(const Product&, int64_t start, int64_t stop, void*);
// Over tiles of rows.
void multiply_tiles(const Product&, int64_t start, int64_t stop, void* scratch);

}  // namespace hf_blosan::avx512
