// What the operator of int8.cpp hands to its loops (int8.inc), the same for every instruction set.
#pragma once

#include <cstdint>

namespace hf_blosan {

// Packed weights lie in panels of that many columns of W', of each of which so many features follow one another:
// (out / 16, in / 4, 16, 4), filled up with zeros, so that there is an even number of such groups of features; with AMX
// a multiple of amx_depth.
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

// y = x W' + bias for some maps of the same x. A row of x is rounded to integers from -63 to 63, which are shifted by 64
// into uint8. With weights from -63 to 63 a sum of four products stays within int16, in which AVX2 adds them.
struct Int8Linear {
  int64_t rows, in, step;  // step: between rows of x
  int64_t depth;           // of a panel, in groups of int8_depth features
  const float* x;
  const Int8Map* maps;
  int64_t count;
};

// Works on groups of int8_rows rows, start ... stop - 1; `scratch` holds the integers of one.
using Int8Loop = void (*)(const Int8Linear&, int64_t start, int64_t stop, void* scratch);

}  // namespace hf_blosan
