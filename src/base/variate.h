/* One 32-bit word to one float: the distributions of ops.h, with the very bits the shaders give.
 * Only IEEE additions, multiplications and integer operations, each rounded once. */
#ifndef TSR_BASE_VARIATE_H
#define TSR_BASE_VARIATE_H

#include <stdint.h>

/* The inverse of the standard normal distribution at (word + 1/2) · 2^-32, within 6e-7 (absolute
 * and relative): rises with `word` from -6.34 to 6.34. The twin of shaders/include/normal.glsl. */
float tsr__normal_from_word(uint32_t word);

/* low + (word >> 8) · 2^-24 · (high − low), and where rounding gives high the largest float below
 * it. */
float tsr__uniform_from_word(uint32_t word, float low, float high);

#endif
