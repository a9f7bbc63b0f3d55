// Products in int8 row by row, with sums of 32 bits in registers.
#pragma once

#include "int8.h"

namespace hf_blosan {

// The products of int8.inc with `Lanes`: the sums of a row for the columns of a panel. Lanes are of an unnamed
// namespace, so each instruction set has its own of these.
template <class Lanes>
struct Rows {
  void multiply(const uint8_t* x, int64_t depth, const int8_t* weights, int64_t rows, int32_t* sums) const {
    int64_t row = 0;
    for (; row + Lanes::rows <= rows; row += Lanes::rows) multiply<Lanes::rows>(x, depth, weights, row, sums);
    for (; Lanes::rows > 4 && row + 4 <= rows; row += 4) multiply<4>(x, depth, weights, row, sums);
    for (; row < rows; row++) multiply<1>(x, depth, weights, row, sums);
  }

 private:
  template <int64_t count>
  static void multiply(const uint8_t* x, int64_t depth, const int8_t* weights, int64_t first, int32_t* sums) {
    Lanes lanes[count];
    for (int64_t k = 0; k < depth; k += 2, weights += 2 * int8_group) {
#pragma GCC unroll 16
      for (int64_t row = 0; row < count; row++) {
        lanes[row].add_products(x + ((first + row) * depth + k) * int8_depth, weights);
      }
    }
    for (int64_t row = 0; row < count; row++) lanes[row].store(sums + (first + row) * int8_columns);
  }
};

}  // namespace hf_blosan
