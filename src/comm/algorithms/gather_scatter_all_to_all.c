/* Gather, scatter and all-to-all: every block goes in one message from its owner to its
 * receiver. */
#include "comm/algorithms/algorithms.h"

void tsr__direct_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                        uint64_t count, int root)
{
    const tsr__span own = tsr__span_of(TSR__AT_SEND, 0, count);
    if (rank != root) {
        tsr__schedule_send(schedule, root, own);
        return;
    }
    for (int i = 1; i < size; i++) {
        const int from = (rank + i) % size;
        tsr__schedule_recv(schedule, from, tsr__block_at(TSR__AT_RECV, blocks, from));
    }
    tsr__schedule_copy(schedule, own, tsr__block_at(TSR__AT_RECV, blocks, rank));
}

void tsr__direct_scatter(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                         uint64_t count, int root)
{
    const tsr__span own = tsr__span_of(TSR__AT_RECV, 0, count);
    if (rank != root) {
        tsr__schedule_recv(schedule, root, own);
        return;
    }
    for (int i = 1; i < size; i++) {
        const int to = (rank + i) % size;
        tsr__schedule_send(schedule, to, tsr__block_at(TSR__AT_SEND, blocks, to));
    }
    tsr__schedule_copy(schedule, tsr__block_at(TSR__AT_SEND, blocks, rank), own);
}

void tsr__direct_all_to_all(tsr__schedule *schedule, int size, int rank, const tsr__blocks *send,
                            const tsr__blocks *recv, bool in_place)
{
    tsr__array input = TSR__AT_SEND;
    if (in_place) { /* copy the input, because receives overwrite it */
        const uint64_t total = tsr__block_start(send, size);
        tsr__schedule_copy(
            schedule, tsr__span_of(TSR__AT_SEND, 0, total),
            tsr__span_of(TSR__AT_TEMP, tsr__schedule_temp(schedule, total, 1), total));
        tsr__schedule_next_round(schedule);
        input = TSR__AT_TEMP;
    }
    /* Each rank starts with a different peer, so that no rank gets all messages at once. */
    for (int i = 1; i < size; i++) {
        const int from = (rank + size - i) % size, to = (rank + i) % size;
        tsr__schedule_recv(schedule, from, tsr__block_at(TSR__AT_RECV, recv, from));
        tsr__schedule_send(schedule, to, tsr__block_at(input, send, to));
    }
    tsr__schedule_copy(schedule, tsr__block_at(input, send, rank),
                       tsr__block_at(TSR__AT_RECV, recv, rank));
}
