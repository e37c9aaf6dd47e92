/* Tests epochs that one number of ranks begins and other numbers of ranks continue: every item must
 * be given exactly once. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/info.h"
#include "sampler/order/names.h"
#include "sampler/read.h"
#include "support/random.h"
#include "tessera/sampler.h"

static const tsr_tail tails[] = {TSR_TAIL_PAD, TSR_TAIL_PAD_MASK, TSR_TAIL_UNEVEN, TSR_TAIL_DROP};

typedef struct shared_epoch {
    tsr_sampler_distributed_params params;
    int64_t batch_size; /* 0: single indices */
    int64_t max_ranks;
    uint8_t given[400]; /* how often each index has been given, except as padding */
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t state_size; /* 0: the epoch has not begun */
} shared_epoch;

static tsr_sampler *member(const shared_epoch *job, int64_t rank)
{
    tsr_sampler_distributed_params params = job->params;
    tsr_sampler *sampler = NULL, *base = NULL;
    params.rank = rank;
    ck_assert_ok(tsr_sampler_create_distributed(&params, &base));
    if (job->batch_size == 0)
        return base;
    ck_assert_ok(tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = base, .batch_size = job->batch_size), &sampler));
    tsr_sampler_destroy(&base);
    return sampler;
}

/* Makes `ranks` ranks start from the state of the job and take `steps` steps, or fewer at the end.
 * The state of rank 0 then becomes the state of the job. */
static void run(shared_epoch *job, int64_t ranks, uint64_t steps)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size = 0;
    uint64_t taken = UINT64_MAX;
    job->params.ranks = ranks;
    job->max_ranks = ranks > job->max_ranks ? ranks : job->max_ranks;
    for (int64_t rank = 0; rank < ranks; rank++) {
        int64_t indices[64];
        uint8_t mask[64];
        uint64_t count, step = 0;
        tsr_sampler *sampler = member(job, rank);
        ck_assert_ok(tsr_sampler_set_epoch(sampler, 2));
        if (job->state_size > 0)
            ck_assert_ok(tsr_sampler_resume(sampler, job->state, job->state_size));
        ck_assert_equal(tsr_sampler_epoch(sampler), 2);
        for (; step < steps; step++) {
            ck_assert_ok(tsr_sampler_next(sampler, 64, indices, mask, &count));
            if (count == 0)
                break;
            for (uint64_t i = 0; i < count; i++)
                job->given[indices[i]] = (uint8_t)(job->given[indices[i]] + mask[i]);
        }
        /* All ranks must take the same number of steps, except with uneven tails. */
        ck_assert(job->params.tail == TSR_TAIL_UNEVEN || taken == UINT64_MAX || taken == step);
        taken = step;
        if (rank == 0)
            ck_assert_ok(save_here(sampler, sizeof state, state, &size));
        tsr_sampler_destroy(&sampler);
    }
    memcpy(job->state, state, size);
    job->state_size = size;
}

static void check_given(const shared_epoch *job, const char *what)
{
    uint64_t missing = 0;
    for (uint64_t i = 0; i < job->params.n; i++) {
        if (job->given[i] > 1 && job->params.tail != TSR_TAIL_PAD)
            ck_abort_msg("%s: n %" PRIu64 ", %s, %s: %" PRIu64 " is given %d times", what,
                         job->params.n, tsr__tail_name(job->params.tail),
                         tsr__split_name(job->params.split), i, job->given[i]);
        missing += job->given[i] == 0;
    }
    /* If the tail is dropped, the ranks that reach the end may leave out up to ranks − 1 items. */
    uint64_t most = job->params.tail == TSR_TAIL_DROP ? (uint64_t)job->max_ranks - 1 : 0;
    if (missing > most)
        ck_abort_msg("%s: n %" PRIu64 ", %s, %s: %" PRIu64 " are missing", what, job->params.n,
                     tsr__tail_name(job->params.tail), tsr__split_name(job->params.split), missing);
}

static void check_change(uint64_t n, tsr_tail tail, tsr_split split, int64_t batch_size,
                         const int64_t *ranks, const uint64_t *steps, int changes)
{
    shared_epoch job = {
        .params = *tsr_sampler_distributed_params(.n = n, .tail = tail, .split = split, .seed = 11),
        .batch_size = batch_size};
    for (int i = 0; i <= changes; i++)
        run(&job, ranks[i], i == changes ? 1000 : steps[i]);
    check_given(&job, "changed ranks");
}

START_TEST(one_change)
{
    for (uint64_t n = 0; n <= 45; n += 1 + n / 12)
        for (int64_t from = 1; from <= 6; from++)
            for (int64_t to = 1; to <= 7; to += 2)
                for (uint64_t steps = 0; steps <= (n + 5) / (uint64_t)from + 1; steps += 1 + n / 9)
                    for (int t = 0; t < 4; t++)
                        for (int s = 0; s < 2; s++)
                            check_change(n, tails[t], (tsr_split)s, 0, (int64_t[]){from, to},
                                         &steps, 1);
}
END_TEST

START_TEST(many_changes)
{
    uint64_t random = 7;
    for (int round = 0; round < 300; round++) {
        int64_t ranks[6];
        uint64_t steps[5], n = random_next(&random) % 400;
        for (int i = 0; i < 6; i++)
            ranks[i] = 1 + (int64_t)(random_next(&random) % 9);
        for (int i = 0; i < 5; i++)
            steps[i] = random_next(&random) % (n / 12 + 2);
        check_change(n, tails[round % 4], (tsr_split)(round / 4 % 2), 0, ranks, steps, 5);
    }
}
END_TEST

START_TEST(changes_inside_batches)
{
    uint64_t random = 8;
    for (int round = 0; round < 300; round++) {
        int64_t ranks[3] = {1 + (int64_t)(random_next(&random) % 6),
                            1 + (int64_t)(random_next(&random) % 6),
                            1 + (int64_t)(random_next(&random) % 6)};
        uint64_t n = random_next(&random) % 400, steps[2];
        int64_t size = 1 + (int64_t)(random_next(&random) % 20);
        for (int i = 0; i < 2; i++)
            steps[i] = random_next(&random) % (n / 60 + 2);
        check_change(n, tails[round % 4], (tsr_split)(round / 4 % 2), size, ranks, steps, 2);
    }
}
END_TEST

/* All ranks that resume must agree on the remaining items, in all orders. */
START_TEST(remaining_items)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_sampler_info info = TSR_INIT(tsr_sampler_info);
    int64_t index;
    bool got;
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 100, .ranks = 4, .rank = 2, .order = TSR_ORDER_NONE),
        &sampler));
    ck_assert_ok(tsr_sampler_seek(sampler, 10));
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    tsr_sampler_destroy(&sampler);
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 100, .ranks = 7, .rank = 6, .order = TSR_ORDER_NONE),
        &sampler));
    ck_assert_ok(tsr_sampler_resume(sampler, state, size));
    ck_assert_ok(tsr_sampler_get_info(sampler, &info));
    ck_assert(info.n == 60 && info.total == 63 && tsr_sampler_length(sampler) == 9);
    ck_assert_uint_eq(tsr_sampler_position(sampler), 0);
    ck_assert_ok(next_index(sampler, &index, &got));
    ck_assert_int_eq(index, 46);
    /* The place of the last of nine ranks is beyond the end, so it gets an item from the start of
     * the order as padding. */
    ck_assert_ok(tsr_sampler_seek(sampler, 8));
    ck_assert_ok(next_index(sampler, &index, &got));
    ck_assert_int_eq(index, 2);
    /* If the sampler is saved and resumed with the same number of ranks, it keeps its partition
     * of the items. */
    ck_assert_ok(tsr_sampler_seek(sampler, 3));
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 0));
    ck_assert_uint_eq(tsr_sampler_length(sampler), 15);
    ck_assert_ok(tsr_sampler_resume(sampler, state, size));
    ck_assert_uint_eq(tsr_sampler_length(sampler), 9);
    ck_assert_uint_eq(tsr_sampler_position(sampler), 3);
    /* A reset restores the complete epoch. */
    ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
    ck_assert_uint_eq(tsr_sampler_length(sampler), 15);
    tsr_sampler_destroy(&sampler);
}
END_TEST

static size_t state_of(const tsr_sampler_distributed_params *params, uint64_t position,
                       uint8_t *state)
{
    size_t size;
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(params, &sampler));
    ck_assert_ok(tsr_sampler_seek(sampler, position));
    ck_assert_ok(save_here(sampler, TSR_SAMPLER_STATE_BYTES, state, &size));
    tsr_sampler_destroy(&sampler);
    return size;
}

/* If a state does not determine the remaining items, resuming fails. */
START_TEST(ambiguous_states)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    tsr_sampler *sampler = NULL;
    size_t size = state_of(
        tsr_sampler_distributed_params(.n = 10, .ranks = 3, .rank = 1, .tail = TSR_TAIL_UNEVEN), 3,
        state);
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 10, .ranks = 2, .tail = TSR_TAIL_UNEVEN), &sampler));
    ck_assert_error(tsr_sampler_resume(sampler, state, size), TSR_ERR_INVALID,
                    "sampler resume: offset 30: whether other ranks have given an item more than "
                    "rank 1 is not known: use the state of rank 0");
    size = state_of(
        tsr_sampler_distributed_params(.n = 10, .ranks = 3, .rank = 0, .tail = TSR_TAIL_UNEVEN), 4,
        state);
    ck_assert_ok(tsr_sampler_resume(sampler, state, size));
    ck_assert_uint_eq(tsr_sampler_length(sampler), 0);
    tsr_sampler_destroy(&sampler);

    size = state_of(tsr_sampler_distributed_params(.n = 10, .ranks = 3, .order = TSR_ORDER_DOTNET,
                                                   .tail = TSR_TAIL_DROP),
                    1, state);
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 10, .ranks = 2, .order = TSR_ORDER_DOTNET,
                                       .tail = TSR_TAIL_DROP),
        &sampler));
    ck_assert_error(tsr_sampler_resume(sampler, state, size), TSR_ERR_INVALID,
                    "sampler resume: offset 30: in the order dotnet, the tail drop cannot go on "
                    "with 2 ranks instead of 3: the order depends on it");
    ck_assert_uint_eq(tsr_sampler_length(sampler), 5);
    tsr_sampler_destroy(&sampler);
}
END_TEST

static tsr_sampler *nested(int64_t nodes)
{
    tsr_sampler *base = NULL, *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 100, .ranks = nodes), &base));
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.base = base, .ranks = 2), &sampler));
    tsr_sampler_destroy(&base);
    return sampler;
}

START_TEST(only_the_outermost_changes)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_sampler *sampler = nested(3), *other = nested(4);
    ck_assert_ok(tsr_sampler_seek(sampler, 5));
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_error(tsr_sampler_resume(other, state, size), TSR_ERR_INVALID,
                    "sampler resume: offset 43: inside another distributed sampler, 3 ranks cannot "
                    "become 4");
    ck_assert_uint_eq(tsr_sampler_position(other), 0);
    tsr_sampler_destroy(&sampler);
    tsr_sampler_destroy(&other);
}
END_TEST

/* Wrapping a sampler starts its epoch again: a share of a resumed sampler has the items of the
 * complete epoch, not only those that were left. */
START_TEST(a_share_of_a_resumed_share)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    tsr_sampler *base = NULL, *sampler = NULL;
    size_t size = state_of(tsr_sampler_distributed_params(.n = 100, .ranks = 4), 10, state);
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 100, .ranks = 5), &base));
    ck_assert_ok(tsr_sampler_resume(base, state, size));
    ck_assert_uint_eq(tsr_sampler_length(base), 12);
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.base = base, .ranks = 2), &sampler));
    tsr_sampler_destroy(&base);
    ck_assert_uint_eq(tsr_sampler_length(sampler), 10);
    ck_assert_ok(tsr_sampler_seek(sampler, 7));
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_ok(tsr_sampler_resume(sampler, state, size));
    ck_assert_uint_eq(tsr_sampler_length(sampler), 10);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* A state can record eight changes of the number of ranks. The ninth change is refused and has no
 * effect. */
START_TEST(too_many_changes)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size = 0;
    int changes = 0;
    for (;; changes++) {
        tsr_sampler *sampler = NULL;
        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.n = 1000000, .ranks = 2 + changes % 2,
                                           .split = TSR_SPLIT_CONTIGUOUS),
            &sampler));
        tsr_status status = size == 0 ? TSR_OK : tsr_sampler_resume(sampler, state, size);
        if (status != TSR_OK) {
            ck_assert_int_eq(status, TSR_ERR_INVALID);
            ck_assert_ptr_nonnull(strstr(tsr_last_error(),
                                         ": the number of ranks has changed more than 8 times in "
                                         "one epoch"));
            ck_assert_uint_eq(tsr_sampler_position(sampler), 0);
            ck_assert_uint_eq(tsr_sampler_length(sampler), changes % 2 == 0 ? 500000 : 333334);
            tsr_sampler_destroy(&sampler);
            break;
        }
        ck_assert_ok(tsr_sampler_seek(sampler, 1 + (uint64_t)changes));
        ck_assert_ok(save_here(sampler, sizeof state, state, &size));
        tsr_sampler_destroy(&sampler);
    }
    ck_assert_int_eq(changes, 9);
}
END_TEST

TESTS(reshard)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, one_change);
    tcase_add_test(tests, many_changes);
    tcase_add_test(tests, changes_inside_batches);
    tcase_add_test(tests, remaining_items);
    tcase_add_test(tests, ambiguous_states);
    tcase_add_test(tests, only_the_outermost_changes);
    tcase_add_test(tests, a_share_of_a_resumed_share);
    tcase_add_test(tests, too_many_changes);
}
