// Matrix product of f16 by tiles (matmul_tiled.glsl) that keep pairs of f16 in shared memory: two
// neighbours along k in a word. Half as many bytes go through shared memory as with f32, and no
// instruction converts elements.
//
// The including file defines ADD_PRODUCTS(a, b, sum), which adds the two products of a pair to the sum.
#define WORD uint
#define WORD_K 2
#define WORD_OF(value) floatBitsToUint(value)
#define FLOAT_OF(word) uintBitsToFloat(word)
#include "gpu/matmul_tiled.glsl"
