// Products in int8 row by row, with 32-bit sums in registers.
#pragma once

#include <type_traits>

#include "int8.h"

namespace hf_blosan {

// The `Unit` of int8.inc, made of `Lanes`: sums of a row for the columns of a panel. Lanes are in an unnamed
// namespace, so each instruction set has its own Rows.
template <class Lanes>
struct Rows {
  static constexpr int64_t panels = Lanes::panels;

  void multiply(const uint8_t* x, int64_t depth, const int8_t* weights, int64_t count, int64_t rows,
                int32_t* sums) const {
    if (count == panels) return multiply<panels>(x, depth, weights, rows, sums);
    for (int64_t i = 0; i < count; i++) {
      multiply<1>(x, depth, weights + i * depth * int8_group, rows, sums + i * int8_sums);
    }
  }

 private:
  template <int64_t wide>
  static void multiply(const uint8_t* x, int64_t depth, const int8_t* weights, int64_t rows, int32_t* sums) {
    int64_t row = 0;
    const auto take = [&](auto high) {
      for (; row + high <= rows; row += high) {
        block<high, wide>(x + row * depth * int8_depth, depth, weights, sums + row * int8_columns);
      }
    };
    take(std::integral_constant<int64_t, Lanes::rows>());
    take(std::integral_constant<int64_t, (Lanes::rows + 1) / 2>());
    take(std::integral_constant<int64_t, 1>());
  }

  // `high` rows and `wide` panels, whose sums fit into the registers.
  template <int64_t high, int64_t wide>
  static void block(const uint8_t* x, int64_t depth, const int8_t* weights, int32_t* sums) {
    const int64_t row_step = depth * int8_depth, panel_step = depth * int8_group;
    Lanes lanes[high][wide];
    for (int64_t k = 0; k < depth; k += 2, x += 2 * int8_depth, weights += 2 * int8_group) {
#pragma GCC unroll 8
      for (int64_t row = 0; row < high; row++) {
#pragma GCC unroll 2
        for (int64_t i = 0; i < wide; i++) lanes[row][i].add_products(x + row * row_step, weights + i * panel_step);
      }
    }
#pragma GCC unroll 8
    for (int64_t row = 0; row < high; row++) {
#pragma GCC unroll 2
      for (int64_t i = 0; i < wide; i++) lanes[row][i].store(sums + i * int8_sums + row * int8_columns);
    }
  }
};

}  // namespace hf_blosan
