/* Operations whose result depends on the contributions only. Whoever combines an element gets all
 * contributions to it, as they are: as many bytes as a reduce-scatter by halves, in more
 * messages. */
#include "comm/algorithms/algorithms.h"

/* Slots for the contributions of the others behind each other in TEMP, in the order rank + 1, …. */
static void collect(tsr__plan *plan, int size, int rank, uint64_t count, uint64_t temp)
{
    for (int i = 1; i < size; i++)
        tsr__plan_recv(plan, (rank + i) % size,
                       tsr__span_of(TSR__AT_TEMP, temp + (uint64_t)(i - 1) * count, count));
}

static void combine(tsr__plan *plan, int size, uint64_t start, uint64_t count, uint64_t temp,
                    uint64_t to)
{
    tsr__plan_exact(plan, tsr__span_of(TSR__AT_SEND, start, count),
                    tsr__span_of(TSR__AT_TEMP, temp, count), size - 1,
                    tsr__span_of(TSR__AT_RECV, to, count));
}

/* Each rank's share of the elements: starts[size + 1] need no memory when they follow a rule. */
static uint64_t share_count(uint64_t total, int size, int rank)
{
    return tsr__even_start(total, size, rank + 1) - tsr__even_start(total, size, rank);
}

static tsr__span share_at(tsr__place place, uint64_t total, int size, int rank)
{
    return tsr__span_of(place, tsr__even_start(total, size, rank), share_count(total, size, rank));
}

/* Not copied: which NaN a NaN becomes does not depend on how many ranks there are either. */
static bool alone(tsr__plan *plan, int size, uint64_t count)
{
    if (size == 1)
        combine(plan, size, 0, count, 0, 0);
    return size == 1;
}

static void exchange_shares(tsr__plan *plan, int size, int rank, uint64_t count, uint64_t temp)
{
    collect(plan, size, rank, share_count(count, size, rank), temp);
    for (int i = 1; i < size; i++) {
        const int to = (rank + size - i) % size;
        tsr__plan_send(plan, to, share_at(TSR__AT_SEND, count, size, to));
    }
}

void tsr__plan_exact_all_reduce(tsr__plan *plan, int size, int rank, uint64_t count, bool large)
{
    if (alone(plan, size, count))
        return;
    const uint64_t slot = large ? share_count(count, size, rank) : count;
    const uint64_t temp = tsr__plan_temp(plan, slot, size - 1);
    if (!large) {
        collect(plan, size, rank, count, temp);
        for (int i = 1; i < size; i++)
            tsr__plan_send(plan, (rank + size - i) % size, tsr__span_of(TSR__AT_SEND, 0, count));
        combine(plan, size, 0, count, temp, 0);
        return;
    }
    const uint64_t start = tsr__even_start(count, size, rank);
    exchange_shares(plan, size, rank, count, temp);
    combine(plan, size, start, slot, temp, start);
    tsr__plan_next_round(plan);
    for (int i = 1; i < size; i++) {
        const int from = (rank + i) % size, to = (rank + size - i) % size;
        tsr__plan_recv(plan, from, share_at(TSR__AT_RECV, count, size, from));
        tsr__plan_send(plan, to, share_at(TSR__AT_RECV, count, size, rank));
    }
}

void tsr__plan_exact_reduce(tsr__plan *plan, int size, int rank, uint64_t count, int root,
                            bool large)
{
    if (alone(plan, size, count))
        return;
    if (!large) {
        if (rank != root) {
            tsr__plan_send(plan, root, tsr__span_of(TSR__AT_SEND, 0, count));
            return;
        }
        const uint64_t temp = tsr__plan_temp(plan, count, size - 1);
        collect(plan, size, rank, count, temp);
        combine(plan, size, 0, count, temp, 0);
        return;
    }
    const uint64_t slot = share_count(count, size, rank);
    const uint64_t temp = tsr__plan_temp(plan, slot, size - 1);
    const uint64_t start = tsr__even_start(count, size, rank);
    exchange_shares(plan, size, rank, count, temp);
    if (rank == root) {
        combine(plan, size, start, slot, temp, start);
        tsr__plan_next_round(plan);
        for (int i = 1; i < size; i++) {
            const int from = (rank + i) % size;
            tsr__plan_recv(plan, from, share_at(TSR__AT_RECV, count, size, from));
        }
        return;
    }
    const uint64_t result = tsr__plan_temp(plan, slot, 1);
    tsr__plan_exact(plan, tsr__span_of(TSR__AT_SEND, start, slot),
                    tsr__span_of(TSR__AT_TEMP, temp, slot), size - 1,
                    tsr__span_of(TSR__AT_TEMP, result, slot));
    tsr__plan_next_round(plan);
    tsr__plan_send(plan, root, tsr__span_of(TSR__AT_TEMP, result, slot));
}

void tsr__plan_exact_reduce_scatter(tsr__plan *plan, int size, int rank, const tsr__blocks *blocks)
{
    const uint64_t count = tsr__block_count(blocks, rank);
    if (alone(plan, size, count))
        return;
    const uint64_t temp = tsr__plan_temp(plan, count, size - 1);
    collect(plan, size, rank, count, temp);
    for (int i = 1; i < size; i++) {
        const int to = (rank + size - i) % size;
        tsr__plan_send(
            plan, to,
            tsr__span_of(TSR__AT_SEND, tsr__block_start(blocks, to), tsr__block_count(blocks, to)));
    }
    combine(plan, size, tsr__block_start(blocks, rank), count, temp, 0);
}
