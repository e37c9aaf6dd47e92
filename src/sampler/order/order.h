/* Orders (permutations) of 0 … n − 1, made with any of the random generators. */
#ifndef TSR_SAMPLER_ORDER_ORDER_H
#define TSR_SAMPLER_ORDER_ORDER_H

#include "sampler/order/names.h"
#include "tessera/sampler.h"

/* The seed and stream of a Philox generator, which are derived from (seed, epoch, pass). With the
 * same seed, different pairs (epoch, pass) give different generators. */
typedef struct tsr__order_keys {
    uint64_t seed, stream;
} tsr__order_keys;
void tsr__order_key(uint64_t seed, uint64_t epoch, uint64_t pass, tsr__order_keys *out);

/* A permutation that is stored in memory, with 4 bytes per element if this is enough. A table that
 * is all zero is empty. */
typedef struct tsr__table {
    uint64_t n, capacity;
    uint32_t *narrow; /* used if n ≤ 2^32 */
    int64_t *wide;
} tsr__table;

/* Computes PyTorch's randperm(n). On failure the table is empty, and the generator has not been
 * used. */
tsr_status tsr__table_torch(tsr__table *table, tsr_torch_version version, uint64_t n,
                            tsr_mt19937 *rng);
/* Computes Fisher and Yates' shuffle of 0 … n − 1 with System.Random. n must be at most INT32_MAX.
 * On failure the table is empty, and the generator has not been used. */
tsr_status tsr__table_dotnet(tsr__table *table, uint64_t n, tsr_dotnet *rng);
/* Computes mx.argsort(mx.random.uniform((n,), key=key)). n must be at most TSR__MAX_THREEFRY_WORDS.
 * On failure the contents of the table are undefined. */
tsr_status tsr__table_mlx(tsr__table *table, uint64_t n, tsr_threefry_key key);
/* Returns the number of 32-bit words that randperm(n) draws. */
uint64_t tsr__torch_randperm_words(tsr_torch_version version, uint64_t n);

/* Allocates memory for n elements, whose values are undefined. The table's present memory is reused
 * if it is large enough. */
tsr_status tsr__table_reserve(tsr__table *table, uint64_t n);
void tsr__table_finish(tsr__table *table);

/* An order of any kind, prepared so that elements can be read from it. */
typedef struct tsr__order {
    tsr_order kind;
    tsr_feistel feistel;
    tsr__table table;
} tsr__order;

/* Writes the `count` elements at the positions first, first + step, first + 2 · step, … */
void tsr__order_fill(const tsr__order *order, uint64_t first, uint64_t step, uint64_t count,
                     int64_t *out);

/* Returns the element at `position` of a permutation, which must be below n. */
uint64_t tsr__feistel_at(const tsr_feistel *order, uint64_t position);

/* Checks that the order is one of the known ones. Errors: TSR_ERR_INVALID, with a text that starts
 * with `what` and a colon. */
tsr_status tsr__order_check(const char *what, tsr_order order);
/* Check that the order can shuffle n items, and that it accepts the seed. The errors are those of
 * tsr__order_check. */
tsr_status tsr__order_check_shuffle(const char *what, tsr_order order, uint64_t n);
tsr_status tsr__order_check_seed(const char *what, tsr_order order, int64_t seed);

#endif
