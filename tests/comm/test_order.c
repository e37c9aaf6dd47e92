/* Results must have the same bits, however they are computed. */
#include <stdlib.h>
#include <string.h>

#include "comm/values.h"

#define COUNT 90001

/* Reduces all elements at once, and then in pieces of odd sizes. All ranks, all runs and all paths
 * must give the same bits. */
static void reduce_in_pieces(tsr_comm *comm, void *user)
{
    static const uint64_t pieces[] = {COUNT, 40000, 4099, 1};
    const int rank = tsr_comm_rank(comm);
    const tsr_dtype dtype = *(const tsr_dtype *)user;
    const uint64_t element = tsr__element_size(dtype);
    uint8_t *data = rank_memory(COUNT * element), *first = rank_memory(COUNT * element);
    uint8_t *block = rank_memory(COUNT * element), *shown = ranks_shared();
    for (int way = 0; way < 4; way++) {
        const uint64_t end = way < 3 ? COUNT : 300;
        fill_values(data, 1, rank, 0, COUNT, dtype);
        for (uint64_t at = 0; at < end; at += pieces[way])
            need_ok(tsr_comm_all_reduce(comm, data + at * element, data + at * element,
                                        end - at < pieces[way] ? end - at : pieces[way], dtype,
                                        TSR_OP_SUM, NULL));
        if (way == 0)
            memcpy(first, data, COUNT * element);
        need(memcmp(first, data, end * element) == 0);
    }
    fill_values(data, 1, rank, 0, COUNT, dtype);
    const uint64_t each = COUNT / (uint64_t)tsr_comm_size(comm);
    need_ok(tsr_comm_reduce_scatter(comm, data, block, each, dtype, TSR_OP_SUM, NULL));
    need(memcmp(first + each * (uint64_t)rank * element, block, each * element) == 0);
    need_ok(
        tsr_comm_reduce(comm, data, rank == 1 ? block : NULL, COUNT, dtype, TSR_OP_SUM, 1, NULL));
    need(rank != 1 || memcmp(first, block, COUNT * element) == 0);
    if (rank == 0)
        memcpy(shown, first, COUNT * element);
    need_ok(tsr_comm_barrier(comm, NULL));
    need(memcmp(shown, first, COUNT * element) == 0);
}

START_TEST(by_any_path_and_in_any_pieces)
{
    static const int sizes[] = {2, 6};
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_BF16};
    tsr_dtype dtype = dtypes[_i % 2];
    uint8_t *first = malloc(COUNT * 4);
    for (int path = 0; path < PATHS; path++) {
        ranks_run(&(ranks_job){.size = sizes[_i / 2],
                               .path = (ranks_path)path,
                               .run = reduce_in_pieces,
                               .user = &dtype});
        if (path == 0)
            memcpy(first, ranks_shared(), COUNT * tsr__element_size(dtype));
        ck_assert_int_eq(memcmp(first, ranks_shared(), COUNT * tsr__element_size(dtype)), 0);
    }
    free(first);
}
END_TEST

/* Reproducible ---------------------------------------------------------------------------------
 *
 * 16 contributions, dealt to 1 … 16 ranks: rank r of n has contribution r of the first n; the rest
 * are zeros, or ones. */

#define EXACT_COUNT 10011

static const tsr_dtype exact_dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};

/* Returns contribution number `who`. Only three contributions are not neutral (0 for sums, 1 for
 * products), so that any job of at least 3 ranks has all of them and all jobs must give the same
 * result. Which contributions these are depends on the element. */
static uint64_t contribution(int who, int size, uint64_t index, tsr_dtype dtype, tsr_op op)
{
    const int real = (who + (int)(index % (uint64_t)size)) % size;
    if (real < 3)
        return value_at(7, real, index, dtype);
    return bits_of_float(op == TSR_OP_PROD ? 1 : 0, dtype);
}

/* Writes the results to `shown`, and returns their end. */
static uint8_t *reduce_exactly_of(tsr_comm *comm, tsr_dtype dtype, uint8_t *shown)
{
    static const tsr_op ops[] = {TSR_OP_SUM, TSR_OP_PROD};
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    const uint64_t element = tsr__element_size(dtype), bytes = EXACT_COUNT * element;
    uint8_t *data = rank_memory(bytes), *block = rank_memory(bytes);
    for (int o = 0; o < 2; o++, shown += bytes) {
        for (uint64_t i = 0; i < EXACT_COUNT; i++)
            store(data, i, dtype, contribution(rank, size, i, dtype, ops[o]));
        need_ok(tsr_comm_reduce(comm, data, rank == size - 1 ? shown : NULL, EXACT_COUNT, dtype,
                                ops[o], size - 1, NULL));
        const uint64_t each = EXACT_COUNT / (uint64_t)size;
        need_ok(tsr_comm_reduce_scatter(comm, data, block, each, dtype, ops[o], NULL));
        need_ok(tsr_comm_barrier(comm, NULL));
        need(memcmp(shown + each * (uint64_t)rank * element, block, each * element) == 0);
        /* The two sizes use different algorithms. */
        need_ok(tsr_comm_all_reduce(comm, data, data, 1000, dtype, ops[o], NULL));
        need_ok(tsr_comm_all_reduce(comm, data + 1000 * element, data + 1000 * element,
                                    EXACT_COUNT - 1000, dtype, ops[o], NULL));
        need(memcmp(shown, data, bytes) == 0);
    }
    return shown;
}

static void reduce_exactly(tsr_comm *comm, void *user)
{
    uint8_t *shown = ranks_shared();
    (void)user;
    for (int i = 0; i < 4; i++)
        shown = reduce_exactly_of(comm, exact_dtypes[i], shown);
}

START_TEST(for_any_number_of_ranks)
{
    const uint64_t bytes = EXACT_COUNT * (4 + 8 + 2 + 2) * 2;
    uint8_t *first = malloc(bytes);
    static const int sizes[] = {3, 4, 5, 7, 8, 11, 16};
    for (int i = 0; i < 7; i++) {
        const int size = sizes[i];
        const ranks_path path = size % 3 == 2 ? PATH_MESSAGES : PATH_SHM;
        ranks_run(
            &(ranks_job){.size = size, .path = path, .reproducible = true, .run = reduce_exactly});
        if (size == 3)
            memcpy(first, ranks_shared(), bytes);
        ck_assert_msg(memcmp(first, ranks_shared(), bytes) == 0, "%d ranks differ from 3", size);
    }
    free(first);
}
END_TEST

/* Few ranks: sums with only one contribution that is not neutral, and an average. */
static void reduce_few(tsr_comm *comm, void *user)
{
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    float data[4] = {0.1f, 1e30f, -0.0f, 3}, expected[4] = {0.1f, 1e30f, -0.0f, 3};
    (void)user;
    if (rank > 0) {
        data[0] = data[1] = data[3] = 0;
        expected[3] = 3;
    }
    need_ok(tsr_comm_all_reduce(comm, data, data, 4, TSR_F32, TSR_OP_SUM, NULL));
    need(memcmp(data, expected, sizeof data) == 0);
    float avg = (float)rank;
    need_ok(tsr_comm_all_reduce(comm, &avg, &avg, 1, TSR_F32, TSR_OP_AVG, NULL));
    need(avg == (float)(size - 1) / 2);
}

/* NaNs with various bits, one of them signalling. */
static const uint64_t strange[4][3] = {{0xffc00123, 0x7f800001, 0x3f800000},
                                       {0xfff8000000000123, 0x7ff0000000000001, 0x3ff0000000000000},
                                       {0xfe01, 0x7c01, 0x3c00},
                                       {0xffc3, 0x7f81, 0x3f80}};
#define STRANGE_COUNT 3

/* Rank 0 contributes the numbers, the others neutral elements. Writes the bits of all results to
 * `shown`. */
static void reduce_strange(tsr_comm *comm, void *user)
{
    static const tsr_op ops[] = {TSR_OP_SUM, TSR_OP_PROD};
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    uint64_t(*shown)[STRANGE_COUNT] = ranks_shared();
    (void)user;
    for (int d = 0; d < 8; d++, shown += 3) {
        const tsr_dtype dtype = exact_dtypes[d / 2];
        const tsr_op op = ops[d % 2];
        const uint64_t neutral = op == TSR_OP_SUM ? 0 : strange[d / 2][2];
        uint64_t data[MAX_RANKS * STRANGE_COUNT] = {0}, out[3][STRANGE_COUNT] = {{0}};
        for (int block = 0; block < size; block++)
            for (int i = 0; i < STRANGE_COUNT; i++)
                store(data, (uint64_t)block * STRANGE_COUNT + (uint64_t)i, dtype,
                      rank == 0 ? strange[d / 2][i] : neutral);
        need_ok(tsr_comm_all_reduce(comm, data, out[0], STRANGE_COUNT, dtype, op, NULL));
        need_ok(tsr_comm_reduce(comm, data, rank == 0 ? out[1] : NULL, STRANGE_COUNT, dtype, op, 0,
                                NULL));
        need_ok(tsr_comm_reduce_scatter(comm, data, out[2], STRANGE_COUNT, dtype, op, NULL));
        if (rank == 0)
            memcpy(shown, out, sizeof out);
    }
}

START_TEST(nans_for_any_number_of_ranks)
{
    const uint64_t bytes = sizeof(uint64_t[8][3][STRANGE_COUNT]);
    uint8_t *first = malloc(bytes);
    ck_assert_ptr_nonnull(first);
    for (int size = 1; size <= 4; size++) {
        ranks_run(&(ranks_job){.size = size, .reproducible = true, .run = reduce_strange});
        if (size == 1)
            memcpy(first, ranks_shared(), bytes);
        ck_assert_msg(memcmp(first, ranks_shared(), bytes) == 0, "%d ranks differ from 1", size);
    }
    free(first);
}
END_TEST

START_TEST(few_ranks)
{
    ranks_run(&(ranks_job){.size = _i + 1, .reproducible = true, .run = reduce_few});
}
END_TEST

TESTS(order)
{
    tcase_add_loop_test(tests, by_any_path_and_in_any_pieces, 0, 4);
    tcase_add_test(tests, for_any_number_of_ranks);
    tcase_add_test(tests, nans_for_any_number_of_ranks);
    tcase_add_loop_test(tests, few_ranks, 0, 3);
}
