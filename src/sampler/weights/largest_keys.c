/* Keeps the largest of many keys in a heap, with the smallest of them on top. Also computes the
 * keys for the order feistel. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "rng/logarithm.h"
#include "sampler/weights/weighted_draws.h"

tsr_status tsr__best_init(uint64_t capacity, tsr__best *out)
{
    tsr__best best = {.capacity = capacity};
    best.keys = tsr__calloc((size_t)capacity, sizeof *best.keys);
    if (best.keys != NULL)
        best.indices = tsr__calloc((size_t)capacity, sizeof *best.indices);
    if (best.indices == NULL) {
        tsr__best_finish(&best);
        return TSR_ERR_NO_MEMORY;
    }
    *out = best;
    return TSR_OK;
}

void tsr__best_finish(tsr__best *best)
{
    tsr__free(best->keys);
    tsr__free(best->indices);
    *best = (tsr__best){0};
}

static bool is_worse(double key, uint32_t index, double other_key, uint32_t other_index)
{
    return key < other_key || (!(key > other_key) && index > other_index);
}

/* Puts an entry into the heap of the first `count` entries. `hole` is a free place. The worse of
 * the two entries below the free place moves up into it until neither is worse than the new entry,
 * which then takes the free place. */
static void sink(tsr__best *best, uint64_t count, uint64_t hole, double key, uint32_t index)
{
    for (uint64_t child; (child = 2 * hole + 1) < count; hole = child) {
        if (child + 1 < count && is_worse(best->keys[child + 1], best->indices[child + 1],
                                          best->keys[child], best->indices[child]))
            child++;
        if (!is_worse(best->keys[child], best->indices[child], key, index))
            break;
        best->keys[hole] = best->keys[child];
        best->indices[hole] = best->indices[child];
    }
    best->keys[hole] = key;
    best->indices[hole] = index;
}

void tsr__best_offer(tsr__best *best, double key, uint32_t index)
{
    if (best->count == best->capacity) {
        if (is_worse(best->keys[0], best->indices[0], key, index))
            sink(best, best->count, 0, key, index);
        return;
    }
    uint64_t hole = best->count++;
    while (hole > 0) {
        uint64_t parent = (hole - 1) / 2;
        if (!is_worse(key, index, best->keys[parent], best->indices[parent]))
            break;
        best->keys[hole] = best->keys[parent];
        best->indices[hole] = best->indices[parent];
        hole = parent;
    }
    best->keys[hole] = key;
    best->indices[hole] = index;
}

void tsr__best_sort(tsr__best *best)
{
    for (uint64_t left = best->count; left > 1; left--) {
        double key = best->keys[left - 1];
        uint32_t index = best->indices[left - 1];
        best->keys[left - 1] = best->keys[0];
        best->indices[left - 1] = best->indices[0];
        sink(best, left - 1, 0, key, index);
    }
}

/* Drawing indices sequentially has the same probabilities as taking the indices with the
 * largest values of log(u) / weight, where u is random (Efraimidis and Spirakis, "Weighted random
 * sampling with a reservoir", 2006). These values v are negative, and would overflow a double for
 * very small weights. Therefore the keys are −√(−v), which have the same order. */
void tsr__weights_draw_native(const tsr__weights *weights, const tsr__order_keys *keys,
                              tsr__best *best)
{
    const uint32_t key[2] = {(uint32_t)keys->seed, (uint32_t)(keys->seed >> 32)};
    uint32_t words[4] = {0};
    for (uint64_t i = 0; i < weights->count; i++) {
        double weight = tsr__weight(weights, i);
        if (i % 2 == 0) {
            uint64_t block = i / 2;
            uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)keys->stream,
                                   (uint32_t)(keys->stream >> 32)};
            tsr__philox4x32(counter, key, words);
        }
        uint64_t bits = (uint64_t)words[i % 2 * 2] << 32 | words[i % 2 * 2 + 1];
        double u = ((double)(bits >> 12) + 0.5) * (1.0 / 4503599627370496.0);
        if (weight > 0)
            tsr__best_offer(best, -sqrt(-tsr__logarithm(u)) / sqrt(weight), (uint32_t)i);
    }
}
