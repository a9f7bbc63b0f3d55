// Every processor of the architecture: SSE2 on x86-64, NEON on Arm.
#define INSTRUCTION_SET baseline
#define VECTOR_BYTES 16
#include "loops.inc"
