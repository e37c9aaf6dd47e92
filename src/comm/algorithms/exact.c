/* Reductions whose result depends on the contributions only, not on the order in which they are
 * combined. The rank that combines an element receives the contributions of all ranks to it. A rank
 * sends as many bytes as in recursive halving (reduce.c), but in more messages. */
#include "comm/algorithms/algorithms.h"

/* Receives the contributions of the other ranks into consecutive parts of TEMP, in the order rank +
 * 1, rank + 2, …. */
static void collect(tsr__schedule *schedule, int size, int rank, uint64_t count, uint64_t temp)
{
    for (int i = 1; i < size; i++)
        tsr__schedule_recv(schedule, (rank + i) % size,
                           tsr__span_of(TSR__AT_TEMP, temp + (uint64_t)(i - 1) * count, count));
}

static void combine(tsr__schedule *schedule, int size, uint64_t start, uint64_t count,
                    uint64_t temp, uint64_t to)
{
    tsr__schedule_exact(schedule, tsr__span_of(TSR__AT_SEND, start, count),
                        tsr__span_of(TSR__AT_TEMP, temp, count), size - 1,
                        tsr__span_of(TSR__AT_RECV, to, count));
}

static uint64_t share_count(uint64_t total, int size, int rank)
{
    return tsr__even_start(total, size, rank + 1) - tsr__even_start(total, size, rank);
}

static tsr__span share_at(tsr__array array, uint64_t total, int size, int rank)
{
    return tsr__span_of(array, tsr__even_start(total, size, rank), share_count(total, size, rank));
}

/* Handles a communicator of one rank; returns false if there are more. Combines even a single
 * contribution, because that replaces every NaN by the one bit pattern that NaNs have in results of
 * several ranks. */
static bool alone(tsr__schedule *schedule, int size, uint64_t count)
{
    if (size == 1)
        combine(schedule, size, 0, count, 0, 0);
    return size == 1;
}

static void exchange_shares(tsr__schedule *schedule, int size, int rank, uint64_t count,
                            uint64_t temp)
{
    collect(schedule, size, rank, share_count(count, size, rank), temp);
    for (int i = 1; i < size; i++) {
        const int to = (rank + size - i) % size;
        tsr__schedule_send(schedule, to, share_at(TSR__AT_SEND, count, size, to));
    }
}

void tsr__algorithm_exact_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                     bool large)
{
    if (alone(schedule, size, count))
        return;
    const uint64_t slot = large ? share_count(count, size, rank) : count;
    const uint64_t temp = tsr__schedule_temp(schedule, slot, size - 1);
    if (!large) {
        collect(schedule, size, rank, count, temp);
        for (int i = 1; i < size; i++)
            tsr__schedule_send(schedule, (rank + size - i) % size,
                               tsr__span_of(TSR__AT_SEND, 0, count));
        combine(schedule, size, 0, count, temp, 0);
        return;
    }
    const uint64_t start = tsr__even_start(count, size, rank);
    exchange_shares(schedule, size, rank, count, temp);
    combine(schedule, size, start, slot, temp, start);
    tsr__schedule_next_round(schedule);
    for (int i = 1; i < size; i++) {
        const int from = (rank + i) % size, to = (rank + size - i) % size;
        tsr__schedule_recv(schedule, from, share_at(TSR__AT_RECV, count, size, from));
        tsr__schedule_send(schedule, to, share_at(TSR__AT_RECV, count, size, rank));
    }
}

void tsr__algorithm_exact_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                 int root, bool large)
{
    if (alone(schedule, size, count))
        return;
    if (!large) {
        if (rank != root) {
            tsr__schedule_send(schedule, root, tsr__span_of(TSR__AT_SEND, 0, count));
            return;
        }
        const uint64_t temp = tsr__schedule_temp(schedule, count, size - 1);
        collect(schedule, size, rank, count, temp);
        combine(schedule, size, 0, count, temp, 0);
        return;
    }
    const uint64_t slot = share_count(count, size, rank);
    const uint64_t temp = tsr__schedule_temp(schedule, slot, size - 1);
    const uint64_t start = tsr__even_start(count, size, rank);
    exchange_shares(schedule, size, rank, count, temp);
    if (rank == root) {
        combine(schedule, size, start, slot, temp, start);
        tsr__schedule_next_round(schedule);
        for (int i = 1; i < size; i++) {
            const int from = (rank + i) % size;
            tsr__schedule_recv(schedule, from, share_at(TSR__AT_RECV, count, size, from));
        }
        return;
    }
    const uint64_t result = tsr__schedule_temp(schedule, slot, 1);
    tsr__schedule_exact(schedule, tsr__span_of(TSR__AT_SEND, start, slot),
                        tsr__span_of(TSR__AT_TEMP, temp, slot), size - 1,
                        tsr__span_of(TSR__AT_TEMP, result, slot));
    tsr__schedule_next_round(schedule);
    tsr__schedule_send(schedule, root, tsr__span_of(TSR__AT_TEMP, result, slot));
}

void tsr__algorithm_exact_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                         const tsr__blocks *blocks)
{
    const uint64_t count = tsr__block_count(blocks, rank);
    if (alone(schedule, size, count))
        return;
    const uint64_t temp = tsr__schedule_temp(schedule, count, size - 1);
    collect(schedule, size, rank, count, temp);
    for (int i = 1; i < size; i++) {
        const int to = (rank + size - i) % size;
        tsr__schedule_send(
            schedule, to,
            tsr__span_of(TSR__AT_SEND, tsr__block_start(blocks, to), tsr__block_count(blocks, to)));
    }
    combine(schedule, size, tsr__block_start(blocks, rank), count, temp, 0);
}
