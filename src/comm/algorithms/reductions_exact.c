/* All-reduce, reduce and reduce-scatter whose result depends on the contributions only, not on the
 * order in which they are combined. The rank that combines an element receives the contributions of
 * all ranks to that element. A rank sends as many bytes as in recursive halving (reductions.c), but
 * in more messages. */
#include "comm/algorithms/algorithms.h"

/* Receives the contributions of the other ranks into TEMP, one behind the other, in the order rank
 * + 1, rank + 2, …. */
static void receive_contributions(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                  uint64_t temp)
{
    for (int i = 1; i < size; i++)
        tsr__schedule_recv(schedule, (rank + i) % size,
                           tsr__span_of(TSR__AT_TEMP, temp + (uint64_t)(i - 1) * count, count));
}

static void combine_exactly(tsr__schedule *schedule, int size, uint64_t start, uint64_t count,
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

/* In a communicator of one rank, combines its contribution and returns true. Combining even a
 * single contribution replaces every NaN by the one bit pattern that NaNs have in results of
 * several ranks. */
static bool combine_if_alone(tsr__schedule *schedule, int size, uint64_t count)
{
    if (size == 1)
        combine_exactly(schedule, size, 0, count, 0, 0);
    return size == 1;
}

/* Divides the elements into even shares, one for each rank. Sends to every other rank the
 * contribution to that rank's share, and receives the contributions to this rank's share. */
static void exchange_share_contributions(tsr__schedule *schedule, int size, int rank,
                                         uint64_t count, uint64_t temp)
{
    receive_contributions(schedule, size, rank, share_count(count, size, rank), temp);
    for (int i = 1; i < size; i++) {
        const int to = (rank + size - i) % size;
        tsr__schedule_send(schedule, to, share_at(TSR__AT_SEND, count, size, to));
    }
}

void tsr__exact_all_reduce_one_round(tsr__schedule *schedule, int size, int rank, uint64_t count)
{
    if (combine_if_alone(schedule, size, count))
        return;
    const uint64_t temp = tsr__schedule_temp(schedule, count, size - 1);
    receive_contributions(schedule, size, rank, count, temp);
    for (int i = 1; i < size; i++)
        tsr__schedule_send(schedule, (rank + size - i) % size,
                           tsr__span_of(TSR__AT_SEND, 0, count));
    combine_exactly(schedule, size, 0, count, temp, 0);
}

void tsr__exact_all_reduce_two_rounds(tsr__schedule *schedule, int size, int rank, uint64_t count)
{
    if (combine_if_alone(schedule, size, count))
        return;
    const uint64_t own_count = share_count(count, size, rank);
    const uint64_t temp = tsr__schedule_temp(schedule, own_count, size - 1);
    const uint64_t start = tsr__even_start(count, size, rank);
    exchange_share_contributions(schedule, size, rank, count, temp);
    combine_exactly(schedule, size, start, own_count, temp, start);
    tsr__schedule_next_round(schedule);
    for (int i = 1; i < size; i++) {
        const int from = (rank + i) % size, to = (rank + size - i) % size;
        tsr__schedule_recv(schedule, from, share_at(TSR__AT_RECV, count, size, from));
        tsr__schedule_send(schedule, to, share_at(TSR__AT_RECV, count, size, rank));
    }
}

void tsr__exact_reduce_one_round(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                 int root)
{
    if (combine_if_alone(schedule, size, count))
        return;
    if (rank != root) {
        tsr__schedule_send(schedule, root, tsr__span_of(TSR__AT_SEND, 0, count));
        return;
    }
    const uint64_t temp = tsr__schedule_temp(schedule, count, size - 1);
    receive_contributions(schedule, size, rank, count, temp);
    combine_exactly(schedule, size, 0, count, temp, 0);
}

void tsr__exact_reduce_two_rounds(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                  int root)
{
    if (combine_if_alone(schedule, size, count))
        return;
    const uint64_t own_count = share_count(count, size, rank);
    const uint64_t temp = tsr__schedule_temp(schedule, own_count, size - 1);
    const uint64_t start = tsr__even_start(count, size, rank);
    exchange_share_contributions(schedule, size, rank, count, temp);
    if (rank == root) {
        combine_exactly(schedule, size, start, own_count, temp, start);
        tsr__schedule_next_round(schedule);
        for (int i = 1; i < size; i++) {
            const int from = (rank + i) % size;
            tsr__schedule_recv(schedule, from, share_at(TSR__AT_RECV, count, size, from));
        }
        return;
    }
    const uint64_t result = tsr__schedule_temp(schedule, own_count, 1);
    tsr__schedule_exact(schedule, tsr__span_of(TSR__AT_SEND, start, own_count),
                        tsr__span_of(TSR__AT_TEMP, temp, own_count), size - 1,
                        tsr__span_of(TSR__AT_TEMP, result, own_count));
    tsr__schedule_next_round(schedule);
    tsr__schedule_send(schedule, root, tsr__span_of(TSR__AT_TEMP, result, own_count));
}

void tsr__exact_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                               const tsr__blocks *blocks)
{
    const uint64_t count = tsr__block_count(blocks, rank);
    if (combine_if_alone(schedule, size, count))
        return;
    const uint64_t temp = tsr__schedule_temp(schedule, count, size - 1);
    receive_contributions(schedule, size, rank, count, temp);
    for (int i = 1; i < size; i++) {
        const int to = (rank + size - i) % size;
        tsr__schedule_send(
            schedule, to,
            tsr__span_of(TSR__AT_SEND, tsr__block_start(blocks, to), tsr__block_count(blocks, to)));
    }
    combine_exactly(schedule, size, tsr__block_start(blocks, rank), count, temp, 0);
}
