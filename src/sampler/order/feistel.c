/* A permutation of 0 … n − 1 that depends on a key and needs no memory for the elements. The
 * elements are the cells of a grid of slightly more than n cells: element row · columns + column.
 * Even rounds add a hash of the column to the row, odd rounds add a hash of the row to the column.
 * The sums are taken modulo the number of rows or columns, so each round can be undone. If the
 * result is not below n, it is permuted again. This is rare, because the grid has only about √n
 * more cells than n. (A grid whose size is a power of two could have n more.) */
#include <inttypes.h>

#include "base/error.h"
#include "base/philox.h"
#include "rng/rng.h"
#include "sampler/order/order.h"

#define KEYS 6
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* For n up to this number, the permutation itself is stored in one of the 64-bit keys, with four
 * bits for each element. On such small grids, the rounds would hardly mix the elements. */
#define MAX_PACKED 16

typedef struct cell {
    uint32_t row, column;
} cell;

/* Returns the number of rounds. A round mixes less on a small grid, so small grids need more
 * rounds. With these numbers of rounds, the permutations pass statistical tests of where pairs of
 * elements go. */
static int rounds_for(uint64_t n)
{
    return n < (UINT64_C(1) << 12) ? 12 : n < (UINT64_C(1) << 20) ? 8 : KEYS;
}

/* Returns the key of a round. There can be more rounds than stored keys, so the keys of later
 * rounds are derived from them. */
static inline uint64_t round_key(const tsr_feistel *order, int round)
{
    return order->keys[round % KEYS] + (uint64_t)(round / KEYS) * GOLDEN;
}

/* Returns a hash below `size`. The first two multiplications mix the bits, and the third one scales
 * the result. */
static inline uint32_t hashed(uint32_t half, uint64_t key, uint32_t size)
{
    uint64_t mixed = half * UINT64_C(0xd1342543de82ef95) + key;
    mixed ^= mixed >> 32;
    mixed *= UINT64_C(0xaf251af3b0f025b5);
    return (uint32_t)((mixed >> 32) * size >> 32);
}

/* Returns (a + b) mod size. a and b must be below `size`, which must be at most 2^31. */
static inline uint32_t sum_modulo(uint32_t a, uint32_t b, uint32_t size)
{
    uint32_t sum = a + b, less = sum - size;
    return sum < size ? sum : less;
}

static inline uint32_t difference_modulo(uint32_t a, uint32_t b, uint32_t size)
{
    return a >= b ? a - b : a + (size - b);
}

static inline cell cell_of(const tsr_feistel *order, uint64_t element)
{
    return (cell){(uint32_t)(element / order->columns), (uint32_t)(element % order->columns)};
}

static inline uint64_t element_of(const tsr_feistel *order, cell coordinates)
{
    return (uint64_t)coordinates.row * order->columns + coordinates.column;
}

static uint64_t moved(const tsr_feistel *order, uint64_t element)
{
    uint32_t rows = order->rows, columns = order->columns;
    cell coordinates = cell_of(order, element);
    for (int round = 0, rounds = rounds_for(order->n); round < rounds; round += 2) {
        coordinates.row = sum_modulo(
            coordinates.row, hashed(coordinates.column, round_key(order, round), rows), rows);
        coordinates.column =
            sum_modulo(coordinates.column,
                       hashed(coordinates.row, round_key(order, round + 1), columns), columns);
    }
    return element_of(order, coordinates);
}

static uint64_t moved_back(const tsr_feistel *order, uint64_t element)
{
    uint32_t rows = order->rows, columns = order->columns;
    cell coordinates = cell_of(order, element);
    for (int round = rounds_for(order->n) - 2; round >= 0; round -= 2) {
        coordinates.column = difference_modulo(
            coordinates.column, hashed(coordinates.row, round_key(order, round + 1), columns),
            columns);
        coordinates.row = difference_modulo(
            coordinates.row, hashed(coordinates.column, round_key(order, round), rows), rows);
    }
    return element_of(order, coordinates);
}

void tsr__order_key(uint64_t seed, uint64_t epoch, uint64_t pass, tsr__order_keys *out)
{
    /* One Philox block hashes seed, epoch and pass. Its four words are the resulting seed and
     * stream. */
    uint32_t counter[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), (uint32_t)pass,
                           (uint32_t)(pass >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, words[4];
    tsr__philox4x32(counter, key, words);
    out->seed = (uint64_t)words[1] << 32 | words[0];
    out->stream = (uint64_t)words[3] << 32 | words[2];
}

/* Returns a permutation of n ≤ 16 elements as a word with four bits for each element, computed with
 * Fisher and Yates' shuffle. Each swap's choice is uniform up to differences of probability of less
 * than 2^-28. */
static uint64_t packed(uint64_t n, tsr_philox *rng)
{
    uint64_t order = UINT64_C(0xfedcba9876543210);
    for (uint64_t i = n; i-- > 1;) {
        uint64_t chosen = (uint64_t)tsr__philox_next_u32(rng) * (i + 1) >> 32;
        uint64_t differ = ((order >> (4 * i)) ^ (order >> (4 * chosen))) & 15;
        order ^= differ << (4 * i) | differ << (4 * chosen);
        /* If i == chosen, differ is 0, so nothing changes. */
    }
    return order;
}

/* Returns the smallest integer whose square is at least n. */
static uint32_t root_up(uint64_t n)
{
    uint64_t low = 1, high = UINT64_C(1) << 31;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (middle * middle >= n)
            high = middle;
        else
            low = middle + 1;
    }
    return (uint32_t)low;
}

tsr_status tsr_feistel_init(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t pass,
                            tsr_feistel *out)
{
    TSR__REQUIRE(out != NULL, "feistel: out is NULL");
    TSR__REQUIRE(n <= TSR_MAX_FEISTEL, "feistel: %" PRIu64 " elements are more than 2^62", n);
    tsr__order_keys keys;
    tsr_philox rng;
    tsr__order_key(seed, epoch, pass, &keys);
    tsr__philox_init(keys.seed, keys.stream, &rng);
    *out = (tsr_feistel){.n = n, .rows = root_up(n)};
    out->columns = n == 0 ? 1 : (uint32_t)((n + out->rows - 1) / out->rows);
    if (n <= MAX_PACKED)
        out->keys[0] = packed(n, &rng);
    else
        for (int i = 0; i < KEYS; i++)
            out->keys[i] = tsr__philox_next_u64(&rng);
    return TSR_OK;
}

uint64_t tsr__feistel_at(const tsr_feistel *order, uint64_t position)
{
    if (order->n <= MAX_PACKED)
        return order->keys[0] >> (4 * position) & 15;
    do
        position = moved(order, position);
    while (position >= order->n);
    return position;
}

uint64_t tsr_feistel_find(const tsr_feistel *order, uint64_t element)
{
    if (order->n <= MAX_PACKED) {
        uint64_t position = 0;
        while (position + 1 < order->n && (order->keys[0] >> (4 * position) & 15) != element)
            position++;
        return position;
    }
    do
        element = moved_back(order, element);
    while (element >= order->n);
    return element;
}

/* The number of cells that go through each round together. The compiler can then use vector
 * instructions, or the processor can do several of the multiplications at the same time. */
#define TOGETHER 64

static void move_together(const tsr_feistel *order, int rounds, uint32_t *row, uint32_t *column)
{
    uint32_t rows = order->rows, columns = order->columns;
    for (int round = 0; round < rounds; round += 2) {
        uint64_t even = round_key(order, round), odd = round_key(order, round + 1);
        for (int i = 0; i < TOGETHER; i++)
            row[i] = sum_modulo(row[i], hashed(column[i], even, rows), rows);
        for (int i = 0; i < TOGETHER; i++)
            column[i] = sum_modulo(column[i], hashed(row[i], odd, columns), columns);
    }
}

void tsr_feistel_fill(const tsr_feistel *order, uint64_t first, uint64_t step, uint64_t count,
                      int64_t *out)
{
    uint64_t done = 0;
    if (order->n > MAX_PACKED && count >= TOGETHER) {
        /* a local copy, so that the compiler knows that `out` does not overlap it */
        const tsr_feistel copy = *order;
        uint32_t row[TOGETHER], column[TOGETHER], columns = copy.columns;
        cell coordinates = cell_of(&copy, first), by = cell_of(&copy, step);
        for (; count - done >= TOGETHER; done += TOGETHER) {
            for (int i = 0; i < TOGETHER; i++) {
                row[i] = coordinates.row;
                column[i] = coordinates.column;
                uint32_t sum = coordinates.column + by.column, carry = sum >= columns;
                coordinates.column = sum - (carry != 0 ? columns : 0);
                coordinates.row += by.row + carry;
            }
            move_together(&copy, rounds_for(copy.n), row, column);
            for (int i = 0; i < TOGETHER; i++) {
                uint64_t element = element_of(&copy, (cell){row[i], column[i]});
                while (element >= copy.n)
                    element = moved(&copy, element);
                out[done + (uint64_t)i] = (int64_t)element;
            }
        }
    }
    for (; done < count; done++)
        out[done] = (int64_t)tsr__feistel_at(order, first + done * step);
}
