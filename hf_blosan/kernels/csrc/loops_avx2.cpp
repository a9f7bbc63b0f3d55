// Compiled with -mavx2 -mfma.
#define INSTRUCTION_SET avx2
#define VECTOR_BYTES 32
#include "loops.inc"
