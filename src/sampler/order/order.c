/* Names and checks orders, and reads elements from an order. */
#include "sampler/order/order.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "rng/rng.h"

static const char *const order_names[] = {"feistel", "torch", "dotnet", "none", "mlx"};
static const char *const tail_names[] = {"pad", "pad-mask", "uneven", "drop"};
static const char *const split_names[] = {"interleaved", "contiguous"};

#define COUNT(names) (sizeof(names) / sizeof *(names))

static const char *name_of(const char *const *names, size_t count, int value)
{
    return value >= 0 && (size_t)value < count ? names[value] : "?";
}

/* Gives the index of `name` in `names`. Fails if the array does not contain the name. */
static tsr_status find_name(const char *what, const char *const *names, size_t count,
                            const char *name, size_t *out)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) {
            *out = i;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_NOT_FOUND, "sampler: there is no %s '%s'", what, name);
}

const char *tsr__order_name(tsr_order order)
{
    return name_of(order_names, COUNT(order_names), (int)order);
}

const char *tsr__tail_name(tsr_tail tail)
{
    return name_of(tail_names, COUNT(tail_names), (int)tail);
}

const char *tsr__split_name(tsr_split split)
{
    return name_of(split_names, COUNT(split_names), (int)split);
}

tsr_status tsr__order_parse(const char *name, tsr_order *out)
{
    TSR__REQUIRE(name != NULL && out != NULL, "sampler: %s is NULL", name != NULL ? "out" : "name");
    size_t found = 0;
    TSR__TRY(find_name("order", order_names, COUNT(order_names), name, &found));
    *out = (tsr_order)found;
    return TSR_OK;
}

tsr_status tsr__tail_parse(const char *name, tsr_tail *out)
{
    TSR__REQUIRE(name != NULL && out != NULL, "sampler: %s is NULL", name != NULL ? "out" : "name");
    size_t found = 0;
    TSR__TRY(find_name("tail", tail_names, COUNT(tail_names), name, &found));
    *out = (tsr_tail)found;
    return TSR_OK;
}

tsr_status tsr__split_parse(const char *name, tsr_split *out)
{
    TSR__REQUIRE(name != NULL && out != NULL, "sampler: %s is NULL", name != NULL ? "out" : "name");
    size_t found = 0;
    TSR__TRY(find_name("split", split_names, COUNT(split_names), name, &found));
    *out = (tsr_split)found;
    return TSR_OK;
}

tsr_status tsr__order_check(const char *what, tsr_order order)
{
    TSR__REQUIRE((int)order >= 0 && (size_t)order < COUNT(order_names), "%s: %d is no order", what,
                 (int)order);
    return TSR_OK;
}

tsr_status tsr__order_check_shuffle(const char *what, tsr_order order, uint64_t n)
{
    TSR__REQUIRE(order != TSR_ORDER_DOTNET || n <= INT32_MAX,
                 "%s: %" PRIu64 " items are more than System.Random can shuffle, %" PRId32, what, n,
                 INT32_MAX);
    TSR__REQUIRE(order != TSR_ORDER_MLX || n <= TSR__MAX_THREEFRY_WORDS,
                 "%s: %" PRIu64 " items are more than MLX can shuffle, %" PRIu64, what, n,
                 TSR__MAX_THREEFRY_WORDS);
    return TSR_OK;
}

tsr_status tsr__order_check_seed(const char *what, tsr_order order, int64_t seed)
{
    TSR__REQUIRE(order != TSR_ORDER_DOTNET || (seed >= INT32_MIN && seed <= INT32_MAX),
                 "%s: the seed %" PRId64 " is not one of System.Random's, an int32", what, seed);
    TSR__REQUIRE(order != TSR_ORDER_MLX || seed >= 0,
                 "%s: seed %" PRId64 " is negative: MLX needs seeds from 0 on", what, seed);
    return TSR_OK;
}

tsr_status tsr__table_reserve(tsr__table *table, uint64_t n)
{
    bool narrow = n <= UINT64_C(1) << 32;
    void *memory = narrow ? (void *)table->narrow : (void *)table->wide;
    if (memory == NULL || table->capacity < n) {
        /* Free the old table first, because there may not be enough memory for both tables. */
        tsr__table_finish(table);
        size_t size = narrow ? sizeof *table->narrow : sizeof *table->wide;
        if (n > SIZE_MAX || (memory = tsr__calloc((size_t)n, size)) == NULL)
            return n > SIZE_MAX ? tsr__fail(TSR_ERR_NO_MEMORY, "out of host memory")
                                : TSR_ERR_NO_MEMORY;
        if (narrow)
            table->narrow = memory;
        else
            table->wide = memory;
        table->capacity = n;
    }
    table->n = n;
    return TSR_OK;
}

void tsr__table_finish(tsr__table *table)
{
    tsr__free(table->narrow);
    tsr__free(table->wide);
    *table = (tsr__table){0};
}

static void read_table(const tsr__table *table, uint64_t first, uint64_t step, uint64_t count,
                       int64_t *out)
{
    if (table->narrow != NULL)
        for (uint64_t i = 0; i < count; i++)
            out[i] = table->narrow[first + i * step];
    else
        for (uint64_t i = 0; i < count; i++)
            out[i] = table->wide[first + i * step];
}

void tsr__order_fill(const tsr__order *order, uint64_t first, uint64_t step, uint64_t count,
                     int64_t *out)
{
    switch (order->kind) {
    case TSR_ORDER_FEISTEL:
        tsr_feistel_fill(&order->feistel, first, step, count, out);
        break;
    case TSR_ORDER_TORCH:
    case TSR_ORDER_DOTNET:
    case TSR_ORDER_MLX:
        read_table(&order->table, first, step, count, out);
        break;
    case TSR_ORDER_NONE:
        for (uint64_t i = 0; i < count; i++)
            out[i] = (int64_t)(first + i * step);
        break;
    }
}
