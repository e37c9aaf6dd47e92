/* The permutations that MLX computes from a threefry key: stable argsorts of the key's words. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rng/mlx_words.h"
#include "rng/rng.h"

/* Sorts the items by their upper 32 bits, with a stable radix sort that uses 11 bits at a time.
 * `other` has room for n items. Returns the one of the two arrays that holds the result. */
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

/* Returns the bits of the float that MLX computes from a word. Non-negative floats have the same
 * order as their bits. */
static uint32_t uniform_key(uint32_t word)
{
    float fraction = tsr__mlx_unit(word);
    uint32_t key;
    memcpy(&key, &fraction, sizeof key);
    return key;
}

typedef struct keyed_items {
    uint32_t (*key_of)(uint32_t word);
    uint64_t *items;
} keyed_items;

static void put_keys(void *user, uint64_t position, const uint32_t *words, size_t count)
{
    const keyed_items *to = user;
    for (uint64_t i = 0; i < count; i++)
        to->items[position + i] = (uint64_t)to->key_of(words[i]) << 32 | (position + i);
}

/* Sorts the indices 0 … n − 1 by keys that are computed from the words of `key`. During the sort,
 * each item has its key in the upper half and its index in the lower half. The sort is stable, so
 * the indices of equal keys stay in ascending order. Writes the indices to `wide`, or to `narrow`
 * if `wide` is NULL. */
static tsr_status argsort(tsr_threefry_key key, uint64_t n, uint32_t (*key_of)(uint32_t word),
                          int64_t *wide, uint32_t *narrow)
{
    TSR__TRY(tsr__mlx_words_check(n));
    if (n > SIZE_MAX / (2 * sizeof(uint64_t)))
        return tsr__fail(TSR_ERR_NO_MEMORY, "threefry: no memory to sort %" PRIu64 " items", n);
    uint64_t *items = tsr__calloc((size_t)n * 2, sizeof *items);
    if (items == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr__mlx_words words = tsr__mlx_words_of(key, n);
    tsr__mlx_words_each(&words, put_keys, &(keyed_items){key_of, items});
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
