/* Converts one 32-bit word to one float: the distributions of ops.h, with the same bits as the
 * shaders. It uses only integer operations and IEEE additions and multiplications, each rounded
 * once. */
#ifndef TSR_BASE_VARIATE_H
#define TSR_BASE_VARIATE_H

#include <stdint.h>

/* Returns the inverse of the standard normal distribution at (word + 1/2) · 2^-32, within 6e-7
 * (absolute and relative). It rises with `word` from -6.34 to 6.34. It gives the same bits as
 * shaders/include/normal.glsl. */
float tsr__normal_from_word(uint32_t word);

/* Returns low + (word >> 8) · 2^-24 · (high − low). If rounding gives `high`, it returns the
 * largest float below it. */
float tsr__uniform_from_word(uint32_t word, float low, float high);

#endif
