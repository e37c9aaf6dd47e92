/* The contribution of each rank, and the expected result of a reduction, bit by bit: computed in
 * the documented order, one element at a time. */
#ifndef TESTS_COMM_VALUES_H
#define TESTS_COMM_VALUES_H

#include "comm/ranks.h"
#include "comm/reduce/numbers.h"

#define VALUE_RANKS MAX_RANKS

/* Returns element `index` of the contribution of `rank` in round `round`. */
static inline uint64_t value_at(int round, int rank, uint64_t index, tsr_dtype dtype)
{
    uint64_t random = (uint64_t)round * 1000003 + (uint64_t)rank * 7919 + index * 104729 + 1;
    (void)random_next(&random);
    return random_element(&random, dtype);
}

static inline void fill_values(void *data, int round, int rank, uint64_t start, uint64_t count,
                               tsr_dtype dtype)
{
    for (uint64_t i = 0; i < count; i++)
        store(data, i, dtype, value_at(round, rank, start + i, dtype));
}

/* Combines one element of all N ranks. Let P be the largest power of two with P ≤ N, and r = N − P.
 * First, ranks 2i and 2i+1 are combined for i < r. Then the P partial results are combined at
 * distance 1, then 2, …, P/2. */
static inline uint64_t reduced(const uint64_t *of_rank, int size, tsr_dtype dtype, tsr_op op)
{
    uint64_t partial[VALUE_RANKS];
    int power = 1;
    while (2 * power <= size)
        power *= 2;
    const int rest = size - power;
    for (int i = 0; i < power; i++)
        partial[i] = i < rest ? reference_combine(of_rank[2 * i], of_rank[2 * i + 1], dtype, op)
                              : of_rank[i + rest];
    for (int distance = 1; distance < power; distance *= 2) {
        for (int i = 0; i < power; i += 2 * distance)
            partial[i] = reference_combine(partial[i], partial[i + distance], dtype, op);
    }
    return op == TSR_OP_AVG && size > 1 ? reference_divide(partial[0], (uint32_t)size, dtype)
                                        : partial[0];
}

static inline uint64_t expected_at(int round, int size, uint64_t index, tsr_dtype dtype, tsr_op op)
{
    uint64_t of_rank[VALUE_RANKS];
    for (int i = 0; i < size; i++)
        of_rank[i] = value_at(round, i, index, dtype);
    return reduced(of_rank, size, dtype, op);
}

/* Requires that elements 0 … count − 1 of `data` are the expected elements from `start` on. */
static inline void need_reduced(const void *data, int round, int size, uint64_t start,
                                uint64_t count, tsr_dtype dtype, tsr_op op)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t got = load(data, i, dtype);
        const uint64_t expected = expected_at(round, size, start + i, dtype, op);
        if (got != expected)
            rank_fail("%s of %s, %d ranks, element %llu of %llu: got %llx instead of %llx",
                      tsr__op_name(op), tsr__element_name(dtype), size, (unsigned long long)i,
                      (unsigned long long)count, (unsigned long long)got,
                      (unsigned long long)expected);
    }
}

static inline void need_values(const void *data, int round, int rank, uint64_t start,
                               uint64_t count, tsr_dtype dtype)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t got = load(data, i, dtype),
                       expected = value_at(round, rank, start + i, dtype);
        if (got != expected)
            rank_fail("%s of rank %d, element %llu of %llu: got %llx instead of %llx",
                      tsr__element_name(dtype), rank, (unsigned long long)i,
                      (unsigned long long)count, (unsigned long long)got,
                      (unsigned long long)expected);
    }
}

#endif
