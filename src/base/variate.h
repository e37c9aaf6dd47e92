/* Converts one random 32-bit word to one float that follows one of the distributions of ops.h. The
 * results have the same bits as those of the shaders, because the functions use only integer
 * operations and IEEE additions and multiplications, each of which is rounded once. */
#ifndef TSR_BASE_VARIATE_H
#define TSR_BASE_VARIATE_H

#include <stdint.h>

/* Returns the inverse of the cumulative standard normal distribution at (word + 1/2) · 2^-32. The
 * absolute and the relative error are at most 6e-7. The result rises with `word`, from -6.34 to
 * 6.34, and has the same bits as that of shaders/include/normal.glsl. */
float tsr__normal_from_word(uint32_t word);

/* Returns low + (word >> 8) · 2^-24 · (high − low). If rounding would give `high`, the function
 * returns the largest float below `high`. */
float tsr__uniform_from_word(uint32_t word, float low, float high);

#endif
