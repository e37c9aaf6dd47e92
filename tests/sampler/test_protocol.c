/* Tests behaviour that all samplers share: every way of reading gives the same items from every
 * position, and a state restores the position. Also tests errors. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "sampler/info.h"
#include "sampler/kinds.h"
#include "sampler/order/names.h"
#include "support/random.h"
#include "support/refused.h"
#include "tessera/seed.h"

static tsr_sampler *create(int kind)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(kind_create(kind, &sampler));
    return sampler;
}

/* An epoch that was read item by item. All other ways of reading are compared with these items. */
typedef struct epoch {
    uint64_t items, indices;
    uint64_t start[200]; /* where each item starts in index[], and the end of the last */
    int64_t index[500];
    uint8_t mask[500];
} epoch;

static void read_epoch(tsr_sampler *sampler, epoch *out)
{
    uint64_t count;
    *out = (epoch){0};
    for (;;) {
        ck_assert(tsr_sampler_position(sampler) == out->items);
        ck_assert_ok(tsr_sampler_next(sampler, 16, out->index + out->indices,
                                      out->mask + out->indices, &count));
        if (count == 0)
            break;
        out->indices += count;
        out->start[++out->items] = out->indices;
    }
    ck_assert(tsr_sampler_length(sampler) == out->items);
}

/* Reads from item `from`, where the sampler is, to the end with fills of `size` indices, and
 * compares the indices and masks with `expected`. */
static void check_rest(int kind, tsr_sampler *sampler, const epoch *expected, uint64_t from,
                       uint64_t size)
{
    int64_t indices[64];
    uint8_t mask[64];
    uint64_t at = expected->start[from], count;
    ck_assert(tsr_sampler_position(sampler) == from);
    do {
        ck_assert_ok(tsr_sampler_fill(sampler, size, indices, mask, &count));
        if (at + count > expected->indices ||
            memcmp(indices, expected->index + at, count * sizeof *indices) != 0 ||
            memcmp(mask, expected->mask + at, count) != 0)
            ck_abort_msg("kind %d: other indices at %" PRIu64 " than expected", kind, at);
        at += count;
    } while (count > 0);
    ck_assert(at == expected->indices && tsr_sampler_position(sampler) == expected->items);
}

START_TEST(every_way_of_reading_gives_the_same)
{
    tsr_sampler *sampler = create(_i);
    epoch expected;
    for (int64_t number = 0; number < 4; number++) {
        ck_assert_ok(tsr_sampler_set_epoch(sampler, number));
        read_epoch(sampler, &expected);
        for (uint64_t size = 8; size <= 64; size += 7) {
            ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
            check_rest(_i, sampler, &expected, 0, size);
        }
        ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
        bool got = true;
        int64_t index = -1;
        if (info_of(sampler).batch_max != 0)
            continue;
        for (uint64_t i = 0; i < expected.indices; i++) {
            ck_assert_ok(next_index(sampler, &index, &got));
            ck_assert(got && index == expected.index[i]);
        }
        ck_assert_ok(next_index(sampler, &index, &got));
        ck_assert(!got);
    }
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(seeking_reaches_every_position)
{
    tsr_sampler *sampler = create(_i);
    epoch expected;
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 2));
    read_epoch(sampler, &expected);
    for (uint64_t from = 0; from <= expected.items; from++) {
        ck_assert_ok(tsr_sampler_seek(sampler, from));
        check_rest(_i, sampler, &expected, from, 29);
    }
    for (uint64_t from = expected.items + 1; from-- > 0;) {
        int64_t first[16];
        uint64_t count;
        ck_assert_ok(tsr_sampler_seek(sampler, from));
        ck_assert_ok(tsr_sampler_next(sampler, 16, first, NULL, &count));
        ck_assert(from < expected.items ? count == expected.start[from + 1] - expected.start[from]
                                        : count == 0);
        ck_assert(count == 0 || first[0] == expected.index[expected.start[from]]);
    }
    char text[128];
    snprintf(text, sizeof text,
             "sampler seek: position %" PRIu64 " is beyond the end: there are %" PRIu64 " items",
             expected.items + 1, expected.items);
    ck_assert_error(tsr_sampler_seek(sampler, expected.items + 1), TSR_ERR_INVALID, text);
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(a_state_restores_the_position)
{
    tsr_sampler *saved = create(_i), *resumed = create(_i);
    epoch expected;
    ck_assert_ok(tsr_sampler_set_epoch(saved, 3));
    read_epoch(saved, &expected);
    for (uint64_t from = 0; from <= expected.items; from++) {
        uint8_t state[TSR_SAMPLER_STATE_BYTES], ahead[TSR_SAMPLER_STATE_BYTES];
        size_t size, ahead_size;
        /* A sampler at another position must write the same state for this position. */
        ck_assert_ok(tsr_sampler_seek(saved, expected.items - from));
        ck_assert_ok(tsr_sampler_save(saved, from, sizeof ahead, ahead, &ahead_size));
        ck_assert_ok(tsr_sampler_seek(saved, from));
        ck_assert_ok(save_here(saved, sizeof state, state, &size));
        ck_assert_uint_eq(size, ahead_size);
        ck_assert_mem_eq(state, ahead, size);
        ck_assert_ok(tsr_sampler_resume(resumed, state, size));
        ck_assert_int_eq(tsr_sampler_epoch(resumed), 3);
        check_rest(_i, resumed, &expected, from, 23);
    }
    tsr_sampler_destroy(&saved);
    tsr_sampler_destroy(&resumed);
}
END_TEST

/* If the order is random, successive epochs differ. Each epoch can be repeated. */
START_TEST(epochs_can_be_repeated)
{
    tsr_sampler *sampler = create(_i);
    epoch first, again;
    read_epoch(sampler, &first);
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 5));
    read_epoch(sampler, &again);
    bool has_order = _i != 0 && _i != 8;
    ck_assert((memcmp(&first, &again, sizeof first) != 0) == has_order);
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 0));
    read_epoch(sampler, &again);
    ck_assert_mem_eq(&first, &again, sizeof first);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Loading a state must detect any changed byte, and the sampler must continue as if nothing had
 * happened. */
START_TEST(damaged_states_are_refused)
{
    tsr_sampler *sampler = create(_i);
    epoch expected;
    uint8_t state[TSR_SAMPLER_STATE_BYTES + 8] = {0};
    size_t size;
    read_epoch(sampler, &expected);
    ck_assert_ok(tsr_sampler_seek(sampler, 3));
    ck_assert_ok(save_here(sampler, TSR_SAMPLER_STATE_BYTES, state, &size));
    ck_assert_ok(tsr_sampler_seek(sampler, 2));
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            state[i] = (uint8_t)(state[i] ^ 1u << bit);
            ck_assert(tsr_sampler_resume(sampler, state, size) == TSR_ERR_INVALID);
            state[i] = (uint8_t)(state[i] ^ 1u << bit);
        }
    for (size_t length = 0; length < sizeof state; length++)
        ck_assert(length == size || tsr_sampler_resume(sampler, state, length) == TSR_ERR_INVALID);
    check_rest(_i, sampler, &expected, 2, 16);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Returns the offset of the epoch: after the header, the size of the parameters, and the
 * parameters. */
static size_t contents_at(const uint8_t *state)
{
    return 15 + (size_t)state[14];
}

/* Writes a matching checksum after a state's body. Returns the size of the state. */
static size_t seal(uint8_t *state, size_t body)
{
    uint64_t hash = tsr__hash(TSR__HASH_START, state, body);
    for (int i = 0; i < 4; i++)
        state[body + (size_t)i] = (uint8_t)((hash ^ hash >> 32) >> (8 * i));
    return body + 4;
}

/* States with a valid checksum and random contents must do no harm. */
START_TEST(states_with_any_contents)
{
    tsr_sampler *sampler = create(_i);
    epoch expected;
    uint8_t saved[TSR_SAMPLER_STATE_BYTES], state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    uint64_t random = (uint64_t)_i, count;
    int taken = 0, refused = 0;
    int64_t indices[32];
    read_epoch(sampler, &expected);
    for (int round = 0; round < 2000; round++) {
        ck_assert_ok(tsr_sampler_set_epoch(sampler, 0));
        ck_assert_ok(tsr_sampler_seek(sampler, 2));
        ck_assert_ok(save_here(sampler, sizeof saved, saved, &size));
        memcpy(state, saved, size);
        /* The epoch, which is one byte, is not changed, because some orders reach a distant epoch
         * only by drawing the numbers of all epochs before it. */
        const size_t position = contents_at(state) + 1;
        size_t body = size - 4;
        if (round % 3 == 0)
            body = position + random_next(&random) % 45;
        for (size_t i = size - 4; i < body; i++)
            state[i] = (uint8_t)random_next(&random);
        for (int change = 0; change < 1 + round % 4; change++)
            state[position + random_next(&random) % (body > position ? body - position : 1)] =
                (uint8_t)(random_next(&random) >> (random_next(&random) % 8));
        if (tsr_sampler_resume(sampler, state, seal(state, body)) == TSR_OK) {
            taken++;
            for (int i = 0; i < 30; i++)
                ck_assert_ok(tsr_sampler_fill(sampler, 32, indices, NULL, &count));
        } else {
            refused++;
            check_rest(_i, sampler, &expected, 2, 16);
        }
    }
    ck_assert_msg(taken > 0 && refused > 100, "%d were taken, %d refused", taken, refused);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Checks that resuming with these contents, which start at the epoch, fails. `offset` counts from
 * the epoch; it is -1 for an error that names no offset. */
static void check_contents(tsr_sampler *sampler, const char *contents, size_t size, int offset,
                           const char *reason)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    char text[256];
    size_t saved;
    ck_assert_ok(save_here(sampler, sizeof state, state, &saved));
    const size_t at = contents_at(state);
    memcpy(state + at, contents, size);
    if (offset < 0)
        snprintf(text, sizeof text, "%s", reason);
    else
        snprintf(text, sizeof text, "sampler resume: offset %zu: %s", at + (size_t)offset, reason);
    ck_assert_error(tsr_sampler_resume(sampler, state, seal(state, at + size)), TSR_ERR_INVALID,
                    text);
}
#define CONTENTS(bytes, offset, reason)                                                            \
    check_contents(sampler, bytes, sizeof(bytes) - 1, offset, reason)

/* A sampler accepts only states of its own kind with its own parameters. */
START_TEST(states_of_others_are_refused)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_sampler *sampler = create(_i);
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    for (int other = 0; other < KINDS; other++) {
        tsr_sampler *taker = create(other);
        ck_assert_int_eq(tsr_sampler_resume(taker, state, size),
                         other == _i ? TSR_OK : TSR_ERR_INVALID);
        tsr_sampler_destroy(&taker);
    }
    tsr_sampler_destroy(&sampler);
}
END_TEST

#define CASES(test) tcase_add_loop_test(tests, test, 0, KINDS)

/* A sampler keeps the sampler that it wraps alive, whichever handle is destroyed first. */
START_TEST(wrapped_samplers_live_as_long_as_they_are_used)
{
    for (int base_first = 0; base_first < 2; base_first++) {
        tsr_sampler *base = NULL, *batches = NULL, *share = NULL;
        int64_t indices[2] = {0}, index = -1;
        uint64_t count = 0;
        bool got = false;
        ck_assert_ok(tsr_sampler_create_sequential(6, &base));
        ck_assert_ok(tsr_sampler_create_batch(
            tsr_sampler_batch_params(.base = base, .batch_size = 2), &batches));
        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.base = batches, .ranks = 3, .rank = 1), &share));
        if (base_first != 0)
            tsr_sampler_destroy(&base);
        tsr_sampler_destroy(&batches);
        ck_assert_ok(tsr_sampler_next(share, 2, indices, NULL, &count));
        ck_assert(count == 2 && indices[0] == 2 && indices[1] == 3);
        tsr_sampler_destroy(&share);
        if (base_first == 0) {
            ck_assert_ok(next_index(base, &index, &got));
            ck_assert(got && index == 4);
        }
        tsr_sampler_destroy(&base);
    }
}
END_TEST

static tsr_sampler *in_batches(uint64_t n, int64_t batch_size, bool drop_last)
{
    tsr_sampler *base = NULL, *batches = NULL;
    ck_assert_ok(tsr_sampler_create_sequential(n, &base));
    ck_assert_ok(tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = base, .batch_size = batch_size, .drop_last = drop_last),
        &batches));
    tsr_sampler_destroy(&base);
    return batches;
}

/* If a state does not fit, the error names the parameter that differs with both values, also for a
 * wrapped sampler. */
START_TEST(the_parameter_that_differs_is_named)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_sampler *from = in_batches(50, 32, false);
    struct {
        tsr_sampler *sampler;
        const char *text;
    } others[] = {
        {in_batches(50, 16, false), "sampler resume: offset 15: the state's batch sampler has "
                                    "batch_size = 32, this one has batch_size = 16"},
        {in_batches(50, 32, true), "sampler resume: offset 16: the state's batch sampler has "
                                   "drop_last = false, this one has drop_last = true"},
        {in_batches(51, 32, false), "sampler resume: offset 18: the state's sequential sampler has "
                                    "n = 50, this one has n = 51"},
    };
    ck_assert_ok(save_here(from, sizeof state, state, &size));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ck_assert_error(tsr_sampler_resume(others[i].sampler, state, size), TSR_ERR_INVALID,
                        others[i].text);
        tsr_sampler_destroy(&others[i].sampler);
    }
    tsr_sampler_destroy(&from);
}
END_TEST

TESTS(protocol)
{
    tcase_add_test(tests, the_parameter_that_differs_is_named);
    tcase_add_test(tests, wrapped_samplers_live_as_long_as_they_are_used);
    CASES(every_way_of_reading_gives_the_same);
    CASES(seeking_reaches_every_position);
    CASES(a_state_restores_the_position);
    CASES(epochs_can_be_repeated);
    CASES(damaged_states_are_refused);
    CASES(states_with_any_contents);
    CASES(states_of_others_are_refused);
}

/* The contents are the epoch and the position. Distributed samplers add the number of ranks, the
 * rank, and the offset or the earlier partitions. */
START_TEST(impossible_contents)
{
    tsr_sampler *sampler = create(1);
    CONTENTS("\0\51", -1, "sampler resume: position 41 is beyond the end: there are 40 items");
    CONTENTS("\1\0", -1, "random: epoch -1 is negative");
    CONTENTS("\0\1\1", 2, "1 bytes too many");
    CONTENTS("\0\377\377", 3, "1 bytes are missing");
    CONTENTS("\0\377\377\377\377\377\377\377\377\377\2", 11,
             "the number before does not fit in 64 bits");
    tsr_sampler_destroy(&sampler);
    sampler = create(15);
    CONTENTS("\0\1", 2, "1 bytes are missing");
    CONTENTS("\0\1\0\0\0", 3, "0 ranks are outside 1 to 2147483647");
    CONTENTS("\0\1\377\377\377\377\10\0\0", 7, "2415919103 ranks are outside 1 to 2147483647");
    CONTENTS("\0\1\4\4\0", 4, "there is no rank 4 of 4");
    CONTENTS("\0\33\4\3\0", 5, "position 27 is beyond the end: rank 3 has 26 items");
    CONTENTS("\0\1\4\3\377\377\377\377\377\377\377\377\177", 13,
             "9223372036854775807 items cannot have been given");
    tsr_sampler_destroy(&sampler);
    sampler = create(17);
    CONTENTS("\0\1\4\1\1", 5, "the number of ranks cannot have changed for this sampler");
    tsr_sampler_destroy(&sampler);
    sampler = create(16);
    CONTENTS("\0\1\4\1\11", 5, "the number of ranks cannot have changed 9 times");
    CONTENTS("\0\1\4\1\1\0\0", 6, "0 ranks are outside 1 to 2147483647");
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(names_and_lengths)
{
    const char *names[KINDS] = {"sequential",  "random",      "random",      "random",   "random",
                                "random",      "random",      "random",      "random",   "subset",
                                "subset",      "weighted",    "weighted",    "weighted", "weighted",
                                "distributed", "distributed", "distributed", "batch",    "batch",
                                "batch",       "distributed", "distributed", "random",   "random",
                                "weighted",    "weighted",    "distributed", "batch"};
    const uint64_t lengths[KINDS] = {50, 40, 95, 55, 95, 55, 95, 55, 95, 7,  7,  70, 9,  70, 9,
                                     26, 26, 25, 14, 13, 6,  24, 5,  95, 55, 70, 9,  26, 3};
    for (int kind = 0; kind < KINDS; kind++) {
        tsr_sampler *sampler = create(kind);
        ck_assert_str_eq(info_of(sampler).name, names[kind]);
        ck_assert_uint_eq(tsr_sampler_length(sampler), lengths[kind]);
        ck_assert_uint_eq(tsr_sampler_position(sampler), 0);
        ck_assert_int_eq(tsr_sampler_epoch(sampler), 0);
        tsr_sampler_destroy(&sampler);
        ck_assert_ptr_null(sampler);
    }
    tsr_sampler_destroy(NULL);
}
END_TEST

START_TEST(capacities_that_are_too_small)
{
    int64_t indices[8];
    uint64_t count = 77;
    bool got;
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_sampler *sampler = create(18);
    ck_assert_error(next_index(sampler, indices, &got), TSR_ERR_INVALID,
                    "sampler next: a batch may have 7 indices, there is room for 1");
    ck_assert_error(tsr_sampler_next(sampler, 6, indices, NULL, &count), TSR_ERR_INVALID,
                    "sampler next: a batch may have 7 indices, there is room for 6");
    ck_assert_error(tsr_sampler_fill(sampler, 6, indices, NULL, &count), TSR_ERR_INVALID,
                    "sampler fill: a batch may have 7 indices, there is room for 6");
    ck_assert_error(tsr_sampler_get_batch(sampler, 0, 1, 8, indices, NULL, &count), TSR_ERR_INVALID,
                    "sampler get batch: a batch sampler gives batches: use tsr_sampler_seek and "
                    "tsr_sampler_next");
    ck_assert_uint_eq(count, 77);
    ck_assert_ok(tsr_sampler_fill(sampler, 0, NULL, NULL, &count));
    ck_assert_uint_eq(count, 0);
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_uint_eq(size, 35);
    ck_assert_error(save_here(sampler, 34, state, &size), TSR_ERR_INVALID,
                    "sampler save: the state takes 35 bytes, there is room for 34");
    ck_assert_error(tsr_sampler_save(sampler, 15, sizeof state, state, &size), TSR_ERR_INVALID,
                    "sampler save: position 15 is beyond the end: there are 14 items");
    tsr_sampler_destroy(&sampler);
    sampler = create(0);
    ck_assert_error(tsr_sampler_next(sampler, 0, indices, NULL, &count), TSR_ERR_INVALID,
                    "sampler next: a batch may have 1 indices, there is room for 0");
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(bytes_that_are_not_a_state)
{
    tsr_sampler *sampler = create(1), *other = create(2), *another = create(9);
    uint8_t state[TSR_SAMPLER_STATE_BYTES], changed[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_uint_eq(size, 31);
    ck_assert_error(tsr_sampler_resume(sampler, state, 3), TSR_ERR_INVALID,
                    "sampler resume: offset 0: a state has 21 to 256 bytes, not 3");
    ck_assert_error(tsr_sampler_resume(sampler, state, 257), TSR_ERR_INVALID,
                    "sampler resume: offset 0: a state has 21 to 256 bytes, not 257");
    memcpy(changed, state, sizeof state);
    changed[0] = 'X';
    ck_assert_error(tsr_sampler_resume(sampler, changed, size), TSR_ERR_INVALID,
                    "sampler resume: offset 0: it does not start with \"TSRS\"");
    memcpy(changed, state, sizeof state);
    changed[4] = 1;
    ck_assert_error(tsr_sampler_resume(sampler, changed, size), TSR_ERR_INVALID,
                    "sampler resume: offset 4: version 1 is not 2");
    ck_assert_error(tsr_sampler_resume(another, state, size), TSR_ERR_INVALID,
                    "sampler resume: offset 5: the state is that of a random sampler, this one is "
                    "subset");
    ck_assert_error(
        tsr_sampler_resume(other, state, size), TSR_ERR_INVALID,
        "sampler resume: offset 18: the state's random sampler has num_samples = 40, this one "
        "has num_samples = 95");
    tsr_seed_manager *manager = NULL; /* its snapshots have another format */
    uint8_t snapshot[TSR_SAMPLER_STATE_BYTES];
    size_t snapshot_size;
    ck_assert_ok(tsr_seed_manager_create(tsr_seed_manager_params(.rng = TSR_RNG_PHILOX), &manager));
    ck_assert_ok(tsr_seed_global(manager, 1));
    ck_assert_ok(
        tsr_seed_save(manager, TSR_SEED_FORMAT_BYTES, sizeof snapshot, snapshot, &snapshot_size));
    ck_assert_error(tsr_sampler_resume(sampler, snapshot, snapshot_size), TSR_ERR_INVALID,
                    "sampler resume: offset 0: it does not start with \"TSRS\"");
    ck_assert_error(tsr_seed_load(manager, TSR_SEED_FORMAT_BYTES, state, size), TSR_ERR_INVALID,
                    "seed: snapshot: offset 0: it does not start with \"TSRM\"");
    tsr_seed_manager_destroy(&manager);
    changed[4] = 2;
    changed[26]++;
    ck_assert_int_eq(tsr_sampler_resume(sampler, changed, size), TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "sampler resume: offset 27: checksum "));
    tsr_sampler_destroy(&sampler);
    tsr_sampler_destroy(&other);
    tsr_sampler_destroy(&another);
}
END_TEST

#define ERROR(what, text, ...)                                                                     \
    do {                                                                                           \
        tsr_sampler *sampler_ = NULL;                                                              \
        ck_assert_error(                                                                           \
            tsr_sampler_create_##what(tsr_sampler_##what##_params(__VA_ARGS__), &sampler_),        \
            TSR_ERR_INVALID, text);                                                                \
        ck_assert_ptr_null(sampler_);                                                              \
    } while (0)

START_TEST(invalid_params)
{
    tsr_sampler *sampler = NULL;
    const int64_t index = 3;
    ck_assert_error(tsr_sampler_create_sequential(UINT64_C(1) << 63, &sampler), TSR_ERR_INVALID,
                    "sequential: 9223372036854775808 items are more than an int64 can number");
    ck_assert_error(tsr_sampler_create_random(NULL, &sampler), TSR_ERR_INVALID,
                    "random: params is NULL");
    ck_assert_error(tsr_sampler_create_subset(NULL, &sampler), TSR_ERR_INVALID,
                    "subset: params is NULL");
    ck_assert_error(tsr_sampler_create_batch(NULL, &sampler), TSR_ERR_INVALID,
                    "batch: params is NULL");
    ERROR(random, "random: there is nothing to draw from", .n = 0);
    ERROR(random, "random: 4611686018427387905 items are more than 2^62", .n = TSR_MAX_FEISTEL + 1);
    ERROR(random, "random: num_samples -1 is negative", .n = 5, .num_samples = -1);
    ERROR(random, "random: num_samples 9223372036854775807 is more than 2^62", .n = 5,
          .num_samples = INT64_MAX);
    ERROR(random, "random: -1 is no order", .n = 5, .order = (tsr_order)-1);
    ERROR(random, "random: with replacement there is no order 'none'", .n = 5,
          .order = TSR_ORDER_NONE, .replacement = true);
    ERROR(random, "random: unknown PyTorch version 1", .n = 5, .order = TSR_ORDER_TORCH,
          .torch = tsr_torch_options(.version = (tsr_torch_version)1));
    ERROR(random, "random: the seed -2147483649 is not one of System.Random's, an int32", .n = 5,
          .order = TSR_ORDER_DOTNET, .seed = INT64_C(-2147483649));
    ERROR(random, "random: 2147483648 items are more than System.Random can shuffle, 2147483647",
          .n = UINT64_C(1) << 31, .order = TSR_ORDER_DOTNET);
    ERROR(subset, "subset: count is 2, but indices is NULL", .count = 2);
    ERROR(subset, "subset: 4611686018427387905 items are more than 2^62", .indices = &index,
          .count = TSR_MAX_FEISTEL + 1);
    ERROR(subset, "subset: 7 is no order", .indices = &index, .count = 1, .order = (tsr_order)7);
    tsr_sampler *batches = create(18), *single = create(0);
    ERROR(batch, "batch: base is NULL", .batch_size = 1);
    ERROR(batch, "batch: a batch sampler gives batches already", .base = batches, .batch_size = 1);
    ERROR(batch, "batch: batch size 0 is not positive", .base = single);
    ERROR(batch, "batch: batch size -4 is not positive", .base = single, .batch_size = -4);
    tsr_sampler_destroy(&batches);
    tsr_sampler_destroy(&single);
}
END_TEST

START_TEST(invalid_epochs)
{
    tsr_sampler *sampler = create(0);
    ck_assert_error(tsr_sampler_set_epoch(sampler, -1), TSR_ERR_INVALID,
                    "sequential: epoch -1 is negative");
    tsr_sampler_destroy(&sampler);
    sampler = create(1);
    ck_assert_error(tsr_sampler_set_epoch(sampler, -1), TSR_ERR_INVALID,
                    "random: epoch -1 is negative");
    ck_assert_ok(tsr_sampler_set_epoch(sampler, INT64_MAX));
    tsr_sampler_destroy(&sampler);
    sampler = create(4);
    ck_assert_error(tsr_sampler_set_epoch(sampler, INT64_MAX), TSR_ERR_OVERFLOW,
                    "random: more than 2^64 random numbers are drawn before epoch "
                    "9223372036854775807");
    ck_assert_int_eq(tsr_sampler_epoch(sampler), 0);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* A random sampler can have 10^12 items and seek to any of them in constant time. */
START_TEST(a_trillion_items)
{
    tsr_sampler *sampler = NULL;
    int64_t index, again;
    bool got;
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    ck_assert_ok(tsr_sampler_create_random(
        tsr_sampler_random_params(.n = UINT64_C(1000000000000), .seed = 1), &sampler));
    ck_assert_ok(tsr_sampler_seek(sampler, UINT64_C(100000000000)));
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_ok(next_index(sampler, &index, &got));
    ck_assert(got && index >= 0 && index < INT64_C(1000000000000));
    ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
    ck_assert_ok(tsr_sampler_resume(sampler, state, size));
    ck_assert_ok(next_index(sampler, &again, &got));
    ck_assert_int_eq(again, index);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* The outputs of refused calls, which must not write to them. */
static struct {
    int64_t indices[16], rank;
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    uint64_t count;
    size_t size;
    bool got;
    tsr_sampler *made;
    tsr_order order;
    tsr_tail tail;
    tsr_split split;
    tsr_feistel feistel;
    tsr_sampler_info info;
} out;

START_TEST(properties_of_null)
{
    ck_assert_uint_eq(tsr_sampler_length(NULL), 0);
    ck_assert_uint_eq(tsr_sampler_position(NULL), 0);
    ck_assert_int_eq(tsr_sampler_epoch(NULL), 0);
}
END_TEST

/* This test and creating_with_nulls call the functions that return a status, in the order of the
 * header, with NULL for one pointer after the other. */
START_TEST(reading_with_nulls)
{
    tsr_sampler *s = create(1);
    int64_t *const indices = out.indices;
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    ck_assert_ok(tsr_sampler_set_epoch(s, 2));
    ck_assert_ok(tsr_sampler_seek(s, 5));
    ck_assert_ok(save_here(s, sizeof state, state, &size));

    REFUSED(tsr_sampler_next(NULL, 9, indices, NULL, &out.count), "sampler next: sampler");
    REFUSED(tsr_sampler_next(s, 9, NULL, NULL, &out.count), "sampler next: indices");
    REFUSED(tsr_sampler_next(s, 9, indices, NULL, NULL), "sampler next: count");
    REFUSED(tsr_sampler_fill(NULL, 9, indices, NULL, &out.count), "sampler fill: sampler");
    REFUSED(tsr_sampler_fill(s, 9, NULL, NULL, &out.count), "sampler fill: indices");
    REFUSED(tsr_sampler_fill(s, 9, indices, NULL, NULL), "sampler fill: count");
    REFUSED(tsr_sampler_seek(NULL, 0), "sampler seek: sampler");
    REFUSED(tsr_sampler_set_epoch(NULL, 0), "sampler set epoch: sampler");
    REFUSED(tsr_sampler_get_batch(NULL, 0, 4, 4, indices, NULL, &out.count),
            "sampler get batch: sampler");
    REFUSED(tsr_sampler_get_batch(s, 0, 4, 4, NULL, NULL, &out.count),
            "sampler get batch: indices");
    REFUSED(tsr_sampler_get_batch(s, 0, 4, 4, indices, NULL, NULL), "sampler get batch: count");
    REFUSED(tsr_sampler_batch_count(NULL, 4, false, &out.count), "sampler batches: sampler");
    REFUSED(tsr_sampler_batch_count(s, 4, false, NULL), "sampler batches: count");
    REFUSED(tsr_sampler_save(NULL, 5, 64, out.state, &out.size), "sampler save: sampler");
    REFUSED(tsr_sampler_save(s, 5, 64, NULL, &out.size), "sampler save: data");
    REFUSED(tsr_sampler_save(s, 5, 64, out.state, NULL), "sampler save: size_bytes");
    REFUSED(tsr_sampler_resume(NULL, state, size), "sampler resume: sampler");
    REFUSED(tsr_sampler_resume(s, NULL, size), "sampler resume: data");
    ck_assert_uint_eq(tsr_sampler_position(s), 5);
    ck_assert_int_eq(tsr_sampler_epoch(s), 2);
    ck_assert_ok(tsr_sampler_fill(s, 0, NULL, NULL, &out.count));
    ck_assert_uint_eq(out.count, 0);
    tsr_sampler_destroy(&s);
}
END_TEST

START_TEST(creating_with_nulls)
{
    tsr_sampler *s = create(1), *shared = create(15);
    const double weights[] = {1};
    const int64_t items[] = {0};
    const tsr_sampler_ops ops = {.struct_size = sizeof ops};

    REFUSED(tsr__order_parse(NULL, &out.order), "sampler: name");
    REFUSED(tsr__order_parse("torch", NULL), "sampler: out");
    REFUSED(tsr_feistel_init(9, 1, 2, 3, NULL), "feistel: out");
    REFUSED(tsr_sampler_create_sequential(9, NULL), "sequential: out");
    REFUSED(tsr_sampler_create_random(NULL, &out.made), "random: params");
    REFUSED(tsr_sampler_create_random(tsr_sampler_random_params(.n = 9), NULL), "random: out");
    REFUSED(tsr_sampler_create_subset(NULL, &out.made), "subset: params");
    REFUSED(tsr_sampler_create_subset(tsr_sampler_subset_params(.count = 0), NULL), "subset: out");
    REFUSED(tsr_sampler_create_weighted(NULL, &out.made), "weighted: params");
    REFUSED(tsr_sampler_create_weighted(tsr_sampler_weighted_params(.weights = weights, .count = 1,
                                                                    .num_samples = 1,
                                                                    .replacement = true),
                                        NULL),
            "weighted: out");
    REFUSED(tsr_sampler_create_batch(NULL, &out.made), "batch: params");
    REFUSED(tsr_sampler_create_batch(tsr_sampler_batch_params(.base = s, .batch_size = 4), NULL),
            "batch: out");
    REFUSED(tsr__tail_parse(NULL, &out.tail), "sampler: name");
    REFUSED(tsr__tail_parse("pad", NULL), "sampler: out");
    REFUSED(tsr__split_parse(NULL, &out.split), "sampler: name");
    REFUSED(tsr__split_parse("contiguous", NULL), "sampler: out");
    REFUSED(tsr_sampler_create_distributed(NULL, &out.made), "distributed: params");
    REFUSED(
        tsr_sampler_create_distributed(tsr_sampler_distributed_params(.base = s, .ranks = 1), NULL),
        "distributed: out");
    REFUSED(tsr_sampler_get_info(NULL, &out.info), "sampler info: sampler");
    REFUSED(tsr_sampler_get_info(shared, NULL), "sampler info: info");
    REFUSED(tsr_rank_from_environment(NULL, &out.rank), "rank: rank");
    REFUSED(tsr_rank_from_environment(&out.rank, NULL), "rank: ranks");
    REFUSED(tsr_sampler_create(NULL, NULL, &out.made), "sampler: ops");
    REFUSED(tsr_sampler_create(&ops, NULL, NULL), "sampler: out");
    REFUSED(tsr_sampler_create_length_sorted(NULL, &out.made), "length-sorted: params");
    REFUSED(
        tsr_sampler_create_length_sorted(
            tsr_sampler_length_sorted_params(.lengths = items, .count = 1, .batch_size = 1), NULL),
        "length-sorted: out");
    REFUSED(tsr_sampler_create_stratified(NULL, &out.made), "stratified: params");
    REFUSED(tsr_sampler_create_stratified(
                tsr_sampler_stratified_params(.labels = items, .count = 1, .batch_size = 1), NULL),
            "stratified: out");
    REFUSED(tsr_sampler_create_curriculum(NULL, &out.made), "curriculum: params");
    REFUSED(tsr_sampler_create_curriculum(
                tsr_sampler_curriculum_params(.difficulties = weights, .count = 1, .max_epochs = 1),
                NULL),
            "curriculum: out");
    ck_assert_ptr_nonnull(s);
    tsr_sampler_destroy(&s);
    tsr_sampler_destroy(&shared);
}
END_TEST

TESTS(protocol_errors)
{
    tcase_add_test(tests, names_and_lengths);
    tcase_add_test(tests, capacities_that_are_too_small);
    tcase_add_test(tests, bytes_that_are_not_a_state);
    tcase_add_test(tests, impossible_contents);
    tcase_add_test(tests, invalid_params);
    tcase_add_test(tests, invalid_epochs);
    tcase_add_test(tests, properties_of_null);
    tcase_add_test(tests, reading_with_nulls);
    tcase_add_test(tests, creating_with_nulls);
    tcase_add_test(tests, a_trillion_items);
}
