// What the operator in int8.cpp gives its loops (int8.inc), the same for every instruction set.
#pragma once

#include <cstdint>

namespace hf_blosan {

// Packed weights are in panels of int8_columns columns of W', in groups of int8_depth consecutive features:
// (out / 16, in / 4, 16, 4), zero-padded to an even number of groups of features, or with AMX to a multiple of
// amx_depth.
constexpr int64_t int8_columns = 16, int8_depth = 4, amx_depth = 16;
constexpr int64_t int8_group = int8_columns * int8_depth;
// Rows that are rounded together.
constexpr int64_t int8_rows = 48;
// Their sums for the columns of a panel.
constexpr int64_t int8_sums = int8_rows * int8_columns;

struct Int8Map {
  int64_t out;
  const int8_t* packed;
  const int32_t* shifts;  // what the shift adds to the sum of a column
  const float* scale;
  const float* bias;  // or null
  float* y;
};

// y = x W' + bias for several maps of one x. A row of x is rounded to integers from -63 to 63, which are shifted by 64
// into uint8. With weights from -63 to 63 a sum of four products fits in int16, in which AVX2 adds them.
struct Int8Linear {
  int64_t rows, in, step;  // step: between rows of x
  int64_t depth;           // of a panel, in groups of int8_depth features
  const float* x;
  const Int8Map* maps;
  int64_t count;
};

// Processes groups start ... stop - 1 of int8_rows rows; `scratch` holds a group's integers.
using Int8Loop = void (*)(const Int8Linear&, int64_t start, int64_t stop, void* scratch);

}  // namespace hf_blosan
