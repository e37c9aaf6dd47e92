/* Compares every operation, dtype, op, number of ranks, count and transport bit by bit with
 * references. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/values.h"
#include "tsr_config.h"

/* A build without UCX uses only the first size. */
static const int sizes[] = {1, 2, 3, 5, 8};
#define SIZES (TSR__HAVE_UCX ? (int)(sizeof sizes / sizeof sizes[0]) : 1)
#define MARGIN 64 /* bytes on both sides of a buffer that nothing may write to */

/* Buffers ------------------------------------------------------------------------------------ */

/* A buffer whose data are not aligned. */
typedef struct buffer {
    uint8_t *memory, *data;
    uint64_t bytes;
} buffer;

static buffer buffer_of(uint64_t count, tsr_dtype dtype, int shift)
{
    buffer made = {.bytes = count * tsr__element_size(dtype)};
    made.memory = malloc(made.bytes + 2 * MARGIN + 8);
    need(made.memory);
    memset(made.memory, 0xa5, made.bytes + 2 * MARGIN + 8);
    made.data = made.memory + MARGIN + shift;
    return made;
}

static void buffer_end(buffer *ended)
{
    for (int i = 0; i < MARGIN - 8; i++) {
        need(ended->data[-1 - i] == 0xa5);
        need(ended->data[ended->bytes + (uint64_t)i] == 0xa5);
    }
    free(ended->memory);
}

/* One operation with all its variables ------------------------------------------------------- */

typedef struct trial {
    tsr_comm *comm;
    int rank, size, round;
    uint64_t count;
    tsr_dtype dtype;
    tsr_op op;
    bool in_place;
    int root;
} trial;

static void try_all_reduce(const trial *t)
{
    buffer send = buffer_of(t->count, t->dtype, 1), recv = buffer_of(t->count, t->dtype, 3);
    fill_values(send.data, t->round, t->rank, 0, t->count, t->dtype);
    uint8_t *out = t->in_place ? send.data : recv.data;
    need_ok(tsr_comm_all_reduce(t->comm, send.data, out, t->count, t->dtype, t->op, NULL));
    need_reduced(out, t->round, t->size, 0, t->count, t->dtype, t->op);
    if (!t->in_place)
        need_values(send.data, t->round, t->rank, 0, t->count, t->dtype);
    buffer_end(&send);
    buffer_end(&recv);
}

static void try_reduce(const trial *t)
{
    buffer send = buffer_of(t->count, t->dtype, 1), recv = buffer_of(t->count, t->dtype, 0);
    const bool is_root = t->rank == t->root;
    fill_values(send.data, t->round, t->rank, 0, t->count, t->dtype);
    uint8_t *out = !is_root ? NULL : t->in_place ? send.data : recv.data;
    need_ok(tsr_comm_reduce(t->comm, send.data, out, t->count, t->dtype, t->op, t->root, NULL));
    if (is_root)
        need_reduced(out, t->round, t->size, 0, t->count, t->dtype, t->op);
    if (!t->in_place || !is_root)
        need_values(send.data, t->round, t->rank, 0, t->count, t->dtype);
    buffer_end(&send);
    buffer_end(&recv);
}

/* Returns the number of elements in a rank's block. Ranks have different numbers, some of them
 * 0. */
static uint64_t block_of(const trial *t, int rank)
{
    return rank % 3 == 1 ? 0 : t->count + (uint64_t)(rank * 5 % 7);
}

static uint64_t uneven(const trial *t, uint64_t *counts, uint64_t *starts)
{
    starts[0] = 0;
    for (int i = 0; i < t->size; i++) {
        counts[i] = block_of(t, i);
        starts[i + 1] = starts[i] + counts[i];
    }
    return starts[t->size];
}

static void try_reduce_scatter(const trial *t, bool is_uneven)
{
    uint64_t counts[MAX_RANKS], starts[MAX_RANKS + 1], size = (uint64_t)t->size;
    const uint64_t total = is_uneven ? uneven(t, counts, starts) : t->count * size;
    const uint64_t mine = is_uneven ? counts[t->rank] : t->count;
    const uint64_t start = is_uneven ? starts[t->rank] : t->count * (uint64_t)t->rank;
    buffer send = buffer_of(total, t->dtype, 1), recv = buffer_of(mine, t->dtype, 2);
    const uint64_t offset = start * tsr__element_size(t->dtype);
    fill_values(send.data, t->round, t->rank, 0, total, t->dtype);
    uint8_t *out = t->in_place ? send.data + offset : recv.data;
    if (is_uneven)
        need_ok(tsr_comm_reduce_scatter_v(t->comm, send.data, out, counts, t->dtype, t->op, NULL));
    else
        need_ok(tsr_comm_reduce_scatter(t->comm, send.data, out, t->count, t->dtype, t->op, NULL));
    need_reduced(out, t->round, t->size, start, mine, t->dtype, t->op);
    need_values(send.data, t->round, t->rank, 0, start, t->dtype);
    need_values(send.data + (start + mine) * tsr__element_size(t->dtype), t->round, t->rank,
                start + mine, total - start - mine, t->dtype);
    buffer_end(&send);
    buffer_end(&recv);
}

static void try_all_gather(const trial *t, bool is_uneven)
{
    uint64_t counts[MAX_RANKS], starts[MAX_RANKS + 1], size = (uint64_t)t->size;
    const uint64_t total = is_uneven ? uneven(t, counts, starts) : t->count * size;
    const uint64_t mine = is_uneven ? counts[t->rank] : t->count,
                   element = tsr__element_size(t->dtype);
    buffer send = buffer_of(mine, t->dtype, 1), recv = buffer_of(total, t->dtype, 2);
    uint8_t *from = send.data;
    if (t->in_place)
        from = recv.data + (is_uneven ? starts[t->rank] : t->count * (uint64_t)t->rank) * element;
    fill_values(from, t->round, t->rank, 0, mine, t->dtype);
    if (is_uneven)
        need_ok(tsr_comm_all_gather_v(t->comm, from, recv.data, counts, t->dtype, NULL));
    else
        need_ok(tsr_comm_all_gather(t->comm, from, recv.data, t->count, t->dtype, NULL));
    for (int i = 0; i < t->size; i++)
        need_values(recv.data + (is_uneven ? starts[i] : t->count * (uint64_t)i) * element,
                    t->round, i, 0, is_uneven ? counts[i] : t->count, t->dtype);
    buffer_end(&send);
    buffer_end(&recv);
}

static void try_broadcast(const trial *t)
{
    buffer data = buffer_of(t->count, t->dtype, 1);
    if (t->rank == t->root)
        fill_values(data.data, t->round, t->root, 0, t->count, t->dtype);
    need_ok(tsr_comm_broadcast(t->comm, data.data, t->count, t->dtype, t->root, NULL));
    need_values(data.data, t->round, t->root, 0, t->count, t->dtype);
    buffer_end(&data);
}

static void try_gather(const trial *t, bool is_uneven)
{
    uint64_t counts[MAX_RANKS], starts[MAX_RANKS + 1], size = (uint64_t)t->size;
    const uint64_t total = is_uneven ? uneven(t, counts, starts) : t->count * size;
    const uint64_t mine = is_uneven ? counts[t->rank] : t->count,
                   element = tsr__element_size(t->dtype);
    const bool is_root = t->rank == t->root;
    buffer send = buffer_of(mine, t->dtype, 1), recv = buffer_of(is_root ? total : 0, t->dtype, 2);
    uint8_t *from = send.data;
    if (t->in_place && is_root)
        from = recv.data + (is_uneven ? starts[t->rank] : t->count * (uint64_t)t->rank) * element;
    fill_values(from, t->round, t->rank, 0, mine, t->dtype);
    uint8_t *out = is_root ? recv.data : NULL;
    if (is_uneven)
        need_ok(tsr_comm_gather_v(t->comm, from, out, counts, t->dtype, t->root, NULL));
    else
        need_ok(tsr_comm_gather(t->comm, from, out, t->count, t->dtype, t->root, NULL));
    for (int i = 0; i < t->size && is_root; i++)
        need_values(recv.data + (is_uneven ? starts[i] : t->count * (uint64_t)i) * element,
                    t->round, i, 0, is_uneven ? counts[i] : t->count, t->dtype);
    buffer_end(&send);
    buffer_end(&recv);
}

static void try_scatter(const trial *t, bool is_uneven)
{
    uint64_t counts[MAX_RANKS], starts[MAX_RANKS + 1], size = (uint64_t)t->size;
    const uint64_t total = is_uneven ? uneven(t, counts, starts) : t->count * size;
    const uint64_t mine = is_uneven ? counts[t->rank] : t->count,
                   element = tsr__element_size(t->dtype);
    const uint64_t start = is_uneven ? starts[t->rank] : t->count * (uint64_t)t->rank;
    const bool is_root = t->rank == t->root;
    buffer send = buffer_of(is_root ? total : 0, t->dtype, 1), recv = buffer_of(mine, t->dtype, 2);
    if (is_root)
        fill_values(send.data, t->round, t->root, 0, total, t->dtype);
    uint8_t *out = t->in_place && is_root ? send.data + start * element : recv.data;
    const uint8_t *from = is_root ? send.data : NULL;
    if (is_uneven)
        need_ok(tsr_comm_scatter_v(t->comm, from, out, counts, t->dtype, t->root, NULL));
    else
        need_ok(tsr_comm_scatter(t->comm, from, out, t->count, t->dtype, t->root, NULL));
    need_values(out, t->round, t->root, start, mine, t->dtype);
    buffer_end(&send);
    buffer_end(&recv);
}

/* Rank a's block for rank b contains a's elements from 1000 · b on. */
static void try_all_to_all(const trial *t, bool is_uneven)
{
    uint64_t out_counts[MAX_RANKS], in_counts[MAX_RANKS], out_total = 0, in_total = 0, at = 0;
    const uint64_t element = tsr__element_size(t->dtype);
    for (int i = 0; i < t->size; i++) {
        out_counts[i] = is_uneven ? (t->count + 1) * (uint64_t)((t->rank + 2 * i) % 4) : t->count;
        in_counts[i] = is_uneven ? (t->count + 1) * (uint64_t)((i + 2 * t->rank) % 4) : t->count;
        out_total += out_counts[i];
        in_total += in_counts[i];
    }
    buffer send = buffer_of(out_total, t->dtype, 1), recv = buffer_of(in_total, t->dtype, 2);
    for (int i = 0; i < t->size; at += out_counts[i++])
        fill_values(send.data + at * element, t->round, t->rank, 1000 * (uint64_t)i, out_counts[i],
                    t->dtype);
    uint8_t *out = t->in_place && !is_uneven ? send.data : recv.data;
    if (is_uneven)
        need_ok(
            tsr_comm_all_to_all_v(t->comm, send.data, out_counts, out, in_counts, t->dtype, NULL));
    else
        need_ok(tsr_comm_all_to_all(t->comm, send.data, out, t->count, t->dtype, NULL));
    at = 0;
    for (int i = 0; i < t->size; at += in_counts[i++])
        need_values(out + at * element, t->round, i, 1000 * (uint64_t)t->rank, in_counts[i],
                    t->dtype);
    buffer_end(&send);
    buffer_end(&recv);
}

/* Each rank sends a message to the next rank, and then one to every other rank at the same time. */
static void try_messages(const trial *t)
{
    buffer out = buffer_of(t->count, t->dtype, 1), in = buffer_of(t->count, t->dtype, 2);
    const int right = (t->rank + 1) % t->size, left = (t->rank + t->size - 1) % t->size;
    tsr_request *request = NULL;
    if (t->size > 1) {
        fill_values(out.data, t->round, t->rank, 0, t->count, t->dtype);
        need_ok(tsr_comm_send(t->comm, out.data, t->count, t->dtype, right, t->round % 65536,
                              &request));
        need_ok(tsr_comm_recv(t->comm, in.data, t->count, t->dtype, left, t->round % 65536, NULL));
        need_values(in.data, t->round, left, 0, t->count, t->dtype);
        need_ok(tsr_request_wait(&request));
        need(request == NULL);
    }
    buffer_end(&out);
    buffer_end(&in);
}

/* All operations ----------------------------------------------------------------------------- */

static void try_reductions(trial *t)
{
    for (int op = 0; op < OPS; op++) {
        t->op = all_ops[op];
        t->round++;
        try_all_reduce(t);
        try_reduce(t);
        try_reduce_scatter(t, false);
        try_reduce_scatter(t, true);
    }
}

static void try_moves(trial *t)
{
    t->round++;
    try_all_gather(t, false);
    try_all_gather(t, true);
    try_broadcast(t);
    try_gather(t, false);
    try_gather(t, true);
    try_scatter(t, false);
    try_scatter(t, true);
    try_all_to_all(t, false);
    try_all_to_all(t, true);
    try_messages(t);
    need_ok(tsr_comm_barrier(t->comm, NULL));
}

static trial trial_of(tsr_comm *comm)
{
    return (trial){.comm = comm, .rank = tsr_comm_rank(comm), .size = tsr_comm_size(comm)};
}

static void everything(tsr_comm *comm, void *user)
{
    static const uint64_t counts[] = {0, 1, 13, 130};
    trial t = trial_of(comm);
    (void)user;
    for (int dtype = 0; dtype < DTYPES; dtype++) {
        for (int c = 0; c < 4; c++) {
            t.dtype = all_dtypes[dtype];
            t.count = counts[c];
            t.root = (dtype + c) % t.size;
            t.in_place = !t.in_place;
            try_reductions(&t);
            t.in_place = !t.in_place;
            try_moves(&t);
            t.in_place = !t.in_place;
        }
        t.in_place = !t.in_place;
    }
}

START_TEST(every_operation)
{
    ranks_run(&(ranks_job){
        .size = sizes[_i / PATHS], .path = (ranks_path)(_i % PATHS), .run = everything});
}
END_TEST

/* Sizes below and above every threshold between algorithms, and sizes that are sent in several
 * pieces. */
static void larger(tsr_comm *comm, void *user)
{
    static const uint64_t counts[] = {1000, 4095, 4097, 16385, 65536, 70001};
    trial t = trial_of(comm);
    (void)user;
    for (int c = 0; c < 6; c++) {
        t.count = counts[c];
        t.root = c % t.size;
        t.dtype = c % 2 ? TSR_F32 : TSR_BF16;
        t.op = c % 3 ? TSR_OP_SUM : TSR_OP_AVG;
        t.in_place = c % 2;
        t.round++;
        try_all_reduce(&t);
        try_reduce(&t);
        t.count /= (uint64_t)t.size;
        try_reduce_scatter(&t, c % 2 == 0);
        t.count = counts[c];
        t.dtype = TSR_U8;
        try_moves(&t);
    }
}

START_TEST(larger_counts)
{
    static const int some[] = {2, 5};
    ranks_run(&(ranks_job){.size = some[_i % 2], .path = (ranks_path)(_i / 2), .run = larger});
}
END_TEST

/* Sums of small integers are exact, so they need no reference. */
static void need_sums(tsr_comm *comm, uint64_t count)
{
    const int size = tsr_comm_size(comm), rank = tsr_comm_rank(comm);
    float *data = malloc(count * sizeof *data);
    need(data);
    for (uint64_t i = 0; i < count; i++)
        data[i] = (float)((i % 1024) * (uint64_t)(rank + 1));
    need_ok(tsr_comm_all_reduce(comm, data, data, count, TSR_F32, TSR_OP_SUM, NULL));
    for (uint64_t i = 0; i < count; i++)
        need(data[i] == (float)((i % 1024) * (uint64_t)(size * (size + 1) / 2)));
    free(data);
}

static void large(tsr_comm *comm, void *user)
{
    need_sums(comm, *(const uint64_t *)user);
    need_sums(comm, *(const uint64_t *)user + 1);
}

START_TEST(large_counts)
{
    uint64_t count = (UINT64_C(1) << 20) + 17;
    ranks_run(&(ranks_job){
        .size = 2 + _i % 2, .path = (ranks_path)(_i / 2), .run = large, .user = &count});
}
END_TEST

/* Buffers of more than 4 GiB. */
START_TEST(huge_counts)
{
    uint64_t count = (UINT64_C(1) << 30) + 17;
    SKIP_UNLESS_HUGE("20 GiB of memory");
    ranks_run(&(ranks_job){.size = 2, .path = (ranks_path)_i, .run = large, .user = &count});
}
END_TEST

TESTS(operations)
{
    tcase_add_loop_test(tests, every_operation, 0, PATHS * SIZES);
    if (TSR__HAVE_UCX) {
        tcase_add_loop_test(tests, larger_counts, 0, PATHS * 2);
        tcase_add_loop_test(tests, large_counts, 0, PATHS * 2);
        tcase_add_loop_test(tests, huge_counts, 0, PATH_TCP);
    }
}
