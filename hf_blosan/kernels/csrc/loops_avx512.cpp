// Compiled with -mavx512f and related flags.
#define INSTRUCTION_SET avx512
#define VECTOR_BYTES 64
#include "loops.inc"
