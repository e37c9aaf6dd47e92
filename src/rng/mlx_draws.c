/* The bits, floats and integers that MLX computes from a threefry key. */
#include <inttypes.h>
#include <math.h>

#include "base/checked.h"
#include "base/error.h"
#include "rng/mlx_words.h"
#include "rng/rng.h"

typedef struct byte_span {
    uint8_t *bytes;
    uint64_t size;
} byte_span;

/* Stores words as bytes. The output may end in the middle of the last word. */
static void put_bytes(void *user, uint64_t position, const uint32_t *words, size_t count)
{
    const byte_span *out = user;
    uint64_t left = out->size - 4 * position;
    uint64_t whole = tsr__min_u64(count, left / 4);
    uint8_t *bytes = out->bytes + 4 * position;
    for (uint64_t i = 0; i < whole; i++)
        for (int j = 0; j < 4; j++)
            bytes[4 * i + (uint64_t)j] = (uint8_t)(words[i] >> (8 * j));
    if (whole < count)
        for (uint64_t j = 0; j < left % 4; j++)
            bytes[4 * whole + j] = (uint8_t)(words[whole] >> (8 * j));
}

tsr_status tsr_threefry_bits(tsr_threefry_key key, int width_bytes, uint64_t count, void *out)
{
    TSR__REQUIRE(out != NULL || count == 0, "threefry: out is NULL");
    TSR__REQUIRE(width_bytes == 1 || width_bytes == 2 || width_bytes == 4,
                 "threefry: a width of %d bytes is none of 1, 2 and 4", width_bytes);
    uint64_t per_word = 4 / (uint64_t)width_bytes;
    uint64_t needed = count / per_word + (count % per_word != 0);
    TSR__TRY(tsr__mlx_words_check(needed));
    tsr__mlx_words words = tsr__mlx_words_of(key, needed);
    tsr__mlx_words_each(&words, put_bytes, &(byte_span){out, count * (uint64_t)width_bytes});
    return TSR_OK;
}

float tsr__threefry_uniform_at(tsr_threefry_key key, uint64_t count, uint64_t i)
{
    tsr__mlx_words words = tsr__mlx_words_of(key, count);
    return tsr__mlx_unit(tsr__mlx_word(&words, i));
}

static void put_floats(void *user, uint64_t position, const uint32_t *words, size_t count)
{
    float *out = (float *)user + position;
    for (size_t i = 0; i < count; i++)
        out[i] = tsr__mlx_unit(words[i]);
}

tsr_status tsr_threefry_uniform(tsr_threefry_key key, uint64_t count, float *out)
{
    TSR__REQUIRE(out != NULL || count == 0, "threefry: out is NULL");
    TSR__TRY(tsr__mlx_words_check(count));
    tsr__mlx_words words = tsr__mlx_words_of(key, count);
    tsr__mlx_words_each(&words, put_floats, out);
    return TSR_OK;
}

/* Scales a fraction to an integer from `low` to `high` − 1. MLX rounds every step to float, so the
 * result may be rounded up to `high`, and MLX then limits it. */
static int32_t unit_integer(float unit, int32_t low, int32_t high)
{
    float from = (float)low, width = (float)high - (float)low, scaled = width * unit;
    double value = floor((double)(from + scaled));
    return value < low ? low : value > high - 1 ? high - 1 : (int32_t)value;
}

int32_t tsr__threefry_randint_at(tsr_threefry_key key, int32_t low, int32_t high, uint64_t count,
                                 uint64_t i)
{
    return unit_integer(tsr__threefry_uniform_at(key, count, i), low, high);
}

typedef struct integers {
    int32_t low, high;
    int32_t *out;
} integers;

static void put_integers(void *user, uint64_t position, const uint32_t *words, size_t count)
{
    const integers *to = user;
    for (size_t i = 0; i < count; i++)
        to->out[position + i] = unit_integer(tsr__mlx_unit(words[i]), to->low, to->high);
}

tsr_status tsr_threefry_randint(tsr_threefry_key key, int32_t low, int32_t high, uint64_t count,
                                int32_t *out)
{
    TSR__REQUIRE(out != NULL || count == 0, "threefry: out is NULL");
    TSR__REQUIRE(low < high, "threefry: low %" PRId32 " is not below high %" PRId32, low, high);
    TSR__TRY(tsr__mlx_words_check(count));
    tsr__mlx_words words = tsr__mlx_words_of(key, count);
    tsr__mlx_words_each(&words, put_integers, &(integers){low, high, out});
    return TSR_OK;
}
