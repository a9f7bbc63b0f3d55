// Products in int8 with AMX, which multiplies 16 rows of 64 features by 16 columns in one instruction.
// Compiled with the flags of int8_vnni.cpp, -mamx-tile and -mamx-int8.

#include <immintrin.h>

#include "int8.h"

#define INSTRUCTION_SET amx
namespace hf_blosan {
namespace INSTRUCTION_SET {
namespace {

// Tiles 0 to 2 are the sums of 48 rows, 3 to 5 their features, 6 the weights: 16 rows of 64 bytes each.
struct alignas(64) Tiles {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16};
};

struct Unit {
  static constexpr int64_t panels = 1;

  Unit() {
    const Tiles tiles;
    _tile_loadconfig(&tiles);
  }
  ~Unit() { _tile_release(); }

  void multiply(const uint8_t* x, int64_t depth, const int8_t* weights, int64_t /* one panel */, int64_t rows,
                int32_t* sums) const {
    constexpr int64_t row = int8_columns * sizeof(int32_t);
    const int64_t width = depth * int8_depth;
    __asm__ volatile("" ::: "memory");  // the compiler does not know that tile loads read what was written
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    for (int64_t k = 0; k < depth; k += amx_depth) {
      const uint8_t* const features = x + k * int8_depth;
      const int8_t* const tile = weights + k * int8_group;
      _tile_loadd(6, tile, int8_group);
      for (int64_t i = 1; i <= amx_depth; i++) __builtin_prefetch(tile + (amx_depth + i - 1) * int8_group);
      _tile_loadd(3, features, width);
      _tile_dpbusd(0, 3, 6);
      if (rows > 16) {
        _tile_loadd(4, features + 16 * width, width);
        _tile_dpbusd(1, 4, 6);
      }
      if (rows > 32) {
        _tile_loadd(5, features + 32 * width, width);
        _tile_dpbusd(2, 5, 6);
      }
    }
    _tile_stored(0, sums, row);
    if (rows > 16) _tile_stored(1, sums + 16 * int8_columns, row);
    if (rows > 32) _tile_stored(2, sums + 32 * int8_columns, row);
  }
};

}  // namespace
}  // namespace INSTRUCTION_SET
}  // namespace hf_blosan

#include "int8.inc"
