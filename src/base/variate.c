#include "base/variate.h"

#include <math.h>

#include "shaders/include/normal_table.h"

#define ROW(...) {__VA_ARGS__},
static const float table[32][8] = {TSR_NORMAL_TABLE(ROW)};
#undef ROW

/* Returns the number of the highest bit of `value` that is 1. `value` must not be 0. */
static int highest_bit(uint32_t value)
{
    int bit = 0;
    while (value >>= 1)
        bit++;
    return bit;
}

/* Every sum and product is stored in a float variable, because compilers may keep intermediate
 * results of longer expressions in a wider type, which would change the bits. */
float tsr__normal_from_word(uint32_t word)
{
    /* words below and above 2^31 give negative and positive values; `below` counts the words of the
     * same sign whose values are further from 0 */
    uint32_t below = word >> 31 ? ~word : word;
    uint32_t t = 2 * below + 1;
    int octave = highest_bit(t);
    /* The distance from t to the next power of two. If that is 2^32, it is 0 as a uint32, and the
     * subtraction wraps around to the right value. */
    uint32_t distance = (UINT32_C(2) << octave) - t;
    int excess = highest_bit(distance) - 23; /* the number of bits that a float cannot hold */
    if (excess > 0) {
        distance += (UINT32_C(1) << excess) >> 1;
        distance &= ~((UINT32_C(1) << excess) - 1);
    }
    float g = ldexpf((float)distance, -octave);

    float z = table[octave][7];
    for (int i = 6; i >= 0; i--) {
        float product = z * g;
        z = product + table[octave][i];
    }
    return word >> 31 ? z : -z;
}

float tsr__uniform_from_word(uint32_t word, float low, float high)
{
    float span = high - low;
    float unit = (float)(word >> 8) * 0x1p-24f;
    float product = unit * span;
    float value = product + low;
    return value < high ? value : nextafterf(high, low);
}
