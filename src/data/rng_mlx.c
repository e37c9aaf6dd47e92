/* What MLX computes from a threefry key: bits, floats, integers and permutations. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/rng.h"

typedef struct words_plan {
    tsr_threefry_key key;
    uint64_t words, half, odd;
} words_plan;

static words_plan plan_words(tsr_threefry_key key, uint64_t words)
{
    return (words_plan){key, words, words / 2, words % 2};
}

/* Word i: counters pair it with the word half of the way further on; of an odd number the middle
 * one is alone. */
static uint32_t word_at(const words_plan *plan, uint64_t i)
{
    uint64_t distance = plan->half + plan->odd;
    uint64_t first = i < distance ? i : i - distance;
    uint64_t second = first < plan->half ? first + distance : 0;
    uint32_t out[2];
    tsr_threefry_hash(plan->key, (uint32_t[]){(uint32_t)first, (uint32_t)second}, out);
    return out[i < distance ? 0 : 1];
}

static tsr_status check_words(uint64_t words)
{
    TSR__REQUIRE(words <= TSR__THREEFRY_WORDS_MOST,
                 "threefry: %" PRIu64 " words are more than 32-bit counters reach, %" PRIu64, words,
                 TSR__THREEFRY_WORDS_MOST);
    return TSR_OK;
}

tsr_status tsr_threefry_bits(tsr_threefry_key key, int width_bytes, uint64_t count, void *out)
{
    TSR__REQUIRE(out != NULL || count == 0, "threefry: out is NULL");
    TSR__REQUIRE(width_bytes == 1 || width_bytes == 2 || width_bytes == 4,
                 "threefry: a width of %d bytes is none of 1, 2 and 4", width_bytes);
    uint64_t per_word = 4 / (uint64_t)width_bytes;
    uint64_t words = count / per_word + (count % per_word != 0);
    TSR__TRY(check_words(words));
    words_plan plan = plan_words(key, words);
    uint8_t *bytes = out;
    uint64_t size_bytes = count * (uint64_t)width_bytes;
    for (uint64_t i = 0; i < words; i++) {
        uint32_t word = word_at(&plan, i);
        for (uint64_t j = 0; j < 4 && 4 * i + j < size_bytes; j++)
            bytes[4 * i + j] = (uint8_t)(word >> (8 * j));
    }
    return TSR_OK;
}

static float unit_float(uint32_t word)
{
    float fraction = (float)word * 0x1p-32F;
    return fraction < 1 ? fraction : 1 - 0x1p-24F;
}

float tsr__threefry_uniform_at(tsr_threefry_key key, uint64_t count, uint64_t i)
{
    words_plan plan = plan_words(key, count);
    return unit_float(word_at(&plan, i));
}

tsr_status tsr_threefry_uniform(tsr_threefry_key key, uint64_t count, float *out)
{
    TSR__REQUIRE(out != NULL || count == 0, "threefry: out is NULL");
    TSR__TRY(check_words(count));
    words_plan plan = plan_words(key, count);
    for (uint64_t i = 0; i < count; i++)
        out[i] = unit_float(word_at(&plan, i));
    return TSR_OK;
}

/* Every step is a float in MLX, so that high − 1 itself may be rounded up. */
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

tsr_status tsr_threefry_randint(tsr_threefry_key key, int32_t low, int32_t high, uint64_t count,
                                int32_t *out)
{
    TSR__REQUIRE(out != NULL || count == 0, "threefry: out is NULL");
    TSR__REQUIRE(low < high, "threefry: low %" PRId32 " is not below high %" PRId32, low, high);
    TSR__TRY(check_words(count));
    words_plan plan = plan_words(key, count);
    for (uint64_t i = 0; i < count; i++)
        out[i] = unit_integer(unit_float(word_at(&plan, i)), low, high);
    return TSR_OK;
}

/* Sorts by the upper 32 bits, stably, 11 bits at a time. `other` has as much room. Returns where
 * the result is. */
static uint64_t *sort_by_key(uint64_t *items, uint64_t *other, uint64_t n)
{
    enum { BITS = 11, BUCKETS = 1 << BITS };
    for (int shift = 32; shift < 64; shift += BITS) {
        uint64_t starts[BUCKETS + 1] = {0};
        for (uint64_t i = 0; i < n; i++)
            starts[(items[i] >> shift) % BUCKETS + 1]++;
        for (int bucket = 0; bucket < BUCKETS; bucket++)
            starts[bucket + 1] += starts[bucket];
        for (uint64_t i = 0; i < n; i++)
            other[starts[(items[i] >> shift) % BUCKETS]++] = items[i];
        uint64_t *sorted = other;
        other = items;
        items = sorted;
    }
    return items;
}

static uint32_t bits_key(uint32_t word)
{
    return word;
}

/* Floats that are not negative are in the order of their bits. */
static uint32_t uniform_key(uint32_t word)
{
    float fraction = unit_float(word);
    uint32_t key;
    memcpy(&key, &fraction, sizeof key);
    return key;
}

/* Each item is a key above its index, so that a stable sort settles ties by index. The
 * indices go to `wide`, or where that is NULL to `narrow`. */
static tsr_status argsort(tsr_threefry_key key, uint64_t n, uint32_t (*key_of)(uint32_t word),
                          int64_t *wide, uint32_t *narrow)
{
    TSR__TRY(check_words(n));
    if (n > SIZE_MAX / (2 * sizeof(uint64_t)))
        return tsr__fail(TSR_ERR_NO_MEMORY, "threefry: no memory to sort %" PRIu64 " items", n);
    uint64_t *items = tsr__calloc((size_t)n * 2, sizeof *items);
    if (items == NULL)
        return TSR_ERR_NO_MEMORY;
    words_plan plan = plan_words(key, n);
    for (uint64_t i = 0; i < n; i++)
        items[i] = (uint64_t)key_of(word_at(&plan, i)) << 32 | i;
    const uint64_t *sorted = sort_by_key(items, items + n, n);
    if (wide)
        for (uint64_t i = 0; i < n; i++)
            wide[i] = (int64_t)(sorted[i] & UINT32_MAX);
    else
        for (uint64_t i = 0; i < n; i++)
            narrow[i] = (uint32_t)sorted[i];
    tsr__free(items);
    return TSR_OK;
}

tsr_status tsr_threefry_permutation(tsr_threefry_key key, uint64_t n, int64_t *out)
{
    TSR__REQUIRE(out != NULL || n == 0, "threefry: out is NULL");
    return argsort(key, n, bits_key, out, NULL);
}

tsr_status tsr_threefry_argsort_uniform(tsr_threefry_key key, uint64_t n, int64_t *out)
{
    TSR__REQUIRE(out != NULL || n == 0, "threefry: out is NULL");
    return argsort(key, n, uniform_key, out, NULL);
}

tsr_status tsr__threefry_argsort_narrow(tsr_threefry_key key, uint64_t n, uint32_t *out)
{
    return argsort(key, n, uniform_key, NULL, out);
}
