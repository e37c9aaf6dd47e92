/* Tests behaviour that all samplers share, with the samplers that depend on properties of the items
 * (test_protocol.c in the folder above has the others). */
#include <stdio.h>

#include "base/fault.h"
#include "items.h"
#include "sampler/info.h"

enum { COUNT = 90, KINDS = 6 };

static int64_t lengths[COUNT], labels[COUNT];
static double difficulties[COUNT];
static items all, some;

static void prepare(void)
{
    for (int64_t i = 0; i < COUNT; i++) {
        lengths[i] = i * 37 % 53;
        labels[i] = i * i % 7 - 3;
        difficulties[i] = (double)(i * 11 % 64) / 63;
    }
}

/* Makes a sampler. There are two of each kind, with different parameters. */
static tsr_status make(int kind, tsr_sampler **out)
{
    switch (kind) {
    case 0:
        return tsr_sampler_create_length_sorted(
            tsr_sampler_length_sorted_params(.lengths = lengths, .count = COUNT, .batch_size = 7),
            out);
    case 1:
        return tsr_sampler_create_length_sorted(
            tsr_sampler_length_sorted_params(.lengths = lengths, .count = COUNT, .batch_size = 7,
                                             .order = TSR_ORDER_NONE),
            out);
    case 2:
        return tsr_sampler_create_stratified(
            tsr_sampler_stratified_params(.labels = labels, .count = COUNT, .batch_size = 8), out);
    case 3:
        return tsr_sampler_create_stratified(
            tsr_sampler_stratified_params(.labels = labels, .count = COUNT, .batch_size = 8,
                                          .seed = 1),
            out);
    case 4: /* epoch 2 is drawn with replacement, epoch 5 without */
        return tsr_sampler_create_curriculum(
            tsr_sampler_curriculum_params(.difficulties = difficulties, .count = COUNT,
                                          .num_samples = 60, .max_epochs = 6),
            out);
    default:
        return tsr_sampler_create_curriculum(
            tsr_sampler_curriculum_params(.difficulties = difficulties, .count = COUNT,
                                          .max_epochs = 6),
            out);
    }
}

static tsr_sampler *made(int kind)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(make(kind, &sampler));
    return sampler;
}

START_TEST(seeking_and_filling_give_the_same)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t epoch = 2; epoch < 6; epoch += 3) {
            tsr_sampler *sampler = made(kind);
            items_epoch(sampler, epoch, &all);
            for (uint64_t at = all.count + 1; at-- > 0;) {
                ck_assert_ok(tsr_sampler_seek(sampler, at));
                ck_assert_uint_eq(tsr_sampler_position(sampler), at);
                items_read(sampler, &some);
                ck_assert(items_equal_from(&all, at, &some));
            }
            uint64_t total = 0, count;
            ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
            do {
                ck_assert_ok(tsr_sampler_fill(sampler, 25, some.indices + total, NULL, &count));
                total += count;
            } while (count > 0);
            ck_assert_uint_eq(total, all.start[all.count]);
            ck_assert_mem_eq(some.indices, all.indices, total * sizeof *some.indices);
            tsr_sampler_destroy(&sampler);
        }
}
END_TEST

START_TEST(states_resume_at_any_position)
{
    for (int kind = 0; kind < KINDS; kind++) {
        tsr_sampler *sampler = made(kind);
        items_epoch(sampler, 3, &all);
        for (uint64_t at = 0; at <= all.count; at++) {
            uint8_t state[TSR_SAMPLER_STATE_BYTES];
            size_t size;
            ck_assert_ok(tsr_sampler_seek(sampler, at));
            ck_assert_ok(save_here(sampler, sizeof state, state, &size));
            tsr_sampler *other = made(kind);
            ck_assert_ok(tsr_sampler_resume(other, state, size));
            ck_assert_int_eq(tsr_sampler_epoch(other), 3);
            items_read(other, &some);
            ck_assert(items_equal_from(&all, at, &some));
            tsr_sampler_destroy(&other);
        }
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

START_TEST(states_of_other_parameters_are_refused)
{
    static const char *const names[] = {"length-sorted", "stratified", "curriculum"};
    static const char *const differences[KINDS] = {
        "sampler resume: offset 17: the state's length-sorted sampler has order = feistel, this "
        "one has "
        "order = none",
        "sampler resume: offset 17: the state's length-sorted sampler has order = none, this one "
        "has "
        "order = feistel",
        "sampler resume: offset 18: the state's stratified sampler has seed = 0, this one has "
        "seed = 1",
        "sampler resume: offset 18: the state's stratified sampler has seed = 1, this one has "
        "seed = 0",
        "sampler resume: offset 16: the state's curriculum sampler has num_samples = 60, this one "
        "has "
        "num_samples = 90",
        "sampler resume: offset 16: the state's curriculum sampler has num_samples = 90, this one "
        "has "
        "num_samples = 60"};
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    char text[128];
    for (int kind = 0; kind < KINDS; kind++) {
        tsr_sampler *from = made(kind), *same = made(kind ^ 1), *other = made((kind + 2) % KINDS);
        ck_assert_ok(save_here(from, sizeof state, state, &size));
        ck_assert_error(tsr_sampler_resume(same, state, size), TSR_ERR_INVALID, differences[kind]);
        snprintf(text, sizeof text,
                 "sampler resume: offset 5: the state is that of a %s sampler, this one is %s",
                 names[kind / 2], names[(kind / 2 + 1) % 3]);
        ck_assert_error(tsr_sampler_resume(other, state, size), TSR_ERR_INVALID, text);
        tsr_sampler_destroy(&from);
        tsr_sampler_destroy(&same);
        tsr_sampler_destroy(&other);
    }
    /* Changes the label of a single item. A sampler with other labels must refuse the state. */
    tsr_sampler *from = made(2), *to;
    ck_assert_ok(save_here(from, sizeof state, state, &size));
    labels[COUNT - 1]++;
    to = made(2);
    ck_assert_int_eq(tsr_sampler_resume(to, state, size), TSR_ERR_INVALID);
    tsr_sampler_destroy(&from);
    tsr_sampler_destroy(&to);
}
END_TEST

/* All ranks together must give every item of the wrapped sampler once, and batches must stay
 * complete. */
START_TEST(partitioned_among_ranks)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t ranks = 1; ranks <= 5; ranks += 2) {
            tsr_sampler *whole = made(kind);
            items_epoch(whole, 4, &all);
            tsr_sampler_destroy(&whole);
            uint64_t total = 0;
            for (int64_t rank = 0; rank < ranks; rank++) {
                tsr_sampler *base = made(kind), *share = NULL;
                ck_assert_ok(tsr_sampler_create_distributed(
                    tsr_sampler_distributed_params(.base = base, .ranks = ranks, .rank = rank,
                                                   .tail = TSR_TAIL_UNEVEN),
                    &share));
                tsr_sampler_destroy(&base);
                items_epoch(share, 4, &some);
                for (uint64_t i = 0; i < some.count; i++) {
                    uint64_t from = i * (uint64_t)ranks + (uint64_t)rank;
                    ck_assert_uint_eq(items_size(&some, i), items_size(&all, from));
                    ck_assert_mem_eq(some.indices + some.start[i], all.indices + all.start[from],
                                     items_size(&some, i) * sizeof *some.indices);
                }
                total += some.count;
                tsr_sampler_destroy(&share);
            }
            ck_assert_uint_eq(total, all.count);
        }
}
END_TEST

START_TEST(curriculum_in_batches)
{
    tsr_sampler *single = made(4), *base = made(4), *batches = NULL;
    ck_assert_ok(tsr_sampler_create_batch(tsr_sampler_batch_params(.base = base, .batch_size = 9),
                                          &batches));
    tsr_sampler_destroy(&base);
    items_epoch(single, 1, &all);
    items_epoch(batches, 1, &some);
    ck_assert_uint_eq(some.count, 7);
    ck_assert_uint_eq(some.start[7], 60);
    ck_assert_mem_eq(some.indices, all.indices, 60 * sizeof *all.indices);
    tsr_sampler_destroy(&single);
    tsr_sampler_destroy(&batches);
}
END_TEST

START_TEST(samplers_of_batches_give_no_single_index)
{
    tsr_sampler *sampler = made(0), *out = NULL;
    int64_t index;
    bool got;
    ck_assert_error(next_index(sampler, &index, &got), TSR_ERR_INVALID,
                    "sampler next: a batch may have 7 indices, there is room for 1");
    ck_assert_int_eq(
        tsr_sampler_create_batch(tsr_sampler_batch_params(.base = sampler, .batch_size = 2), &out),
        TSR_ERR_INVALID);
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(every_allocation_fails_in_turn)
{
    for (int kind = 0; kind < KINDS; kind++) {
        uint64_t nth = 0;
        for (bool failed = true; failed; nth++) {
            tsr_sampler *sampler = NULL;
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            tsr_status status = make(kind, &sampler);
            if (status == TSR_OK) /* after its creation, a sampler allocates nothing */
                items_epoch(sampler, 2, &all);
            failed = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            ck_assert_int_eq(status, failed ? TSR_ERR_NO_MEMORY : TSR_OK);
            ck_assert(failed == (sampler == NULL));
            tsr_sampler_destroy(&sampler);
        }
        ck_assert_uint_gt(nth, 3);
    }
}
END_TEST

TESTS(protocol)
{
    tcase_add_checked_fixture(tests, prepare, NULL);
    tcase_add_test(tests, seeking_and_filling_give_the_same);
    tcase_add_test(tests, states_resume_at_any_position);
    tcase_add_test(tests, states_of_other_parameters_are_refused);
    tcase_add_test(tests, partitioned_among_ranks);
    tcase_add_test(tests, curriculum_in_batches);
    tcase_add_test(tests, samplers_of_batches_give_no_single_index);
    tcase_add_test(tests, every_allocation_fails_in_turn);
}
