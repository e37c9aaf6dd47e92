/* Tests distributed samplers for which resuming fails and then going back to the previous state
 * fails, too. Once going back is possible, they must be in their previous state, even if that was
 * the rest of an epoch that other ranks began. */
#include <string.h>

#include "sampler/info.h"
#include "sampler/read.h"

/* A sampler that gives n items 1000 · epoch + 0, 1, 2, …, and eight more in epoch 3. */
typedef struct items {
    uint64_t n, at;
    int64_t epoch;
    bool refuse; /* load fails; in epoch 3, set_epoch fails, too */
} items;

static uint64_t items_length(void *self_)
{
    const items *self = self_;
    return self->n + (self->epoch == 3 ? 8 : 0);
}

static tsr_status items_fill(void *self_, uint64_t capacity, int64_t *indices, uint8_t *mask,
                             uint64_t *count)
{
    items *self = self_;
    (void)mask;
    for (*count = 0; *count < capacity && self->at < items_length(self); self->at++)
        indices[(*count)++] = 1000 * self->epoch + (int64_t)self->at;
    return TSR_OK;
}

static tsr_status items_set_epoch(void *self_, int64_t epoch)
{
    items *self = self_;
    if (self->refuse && self->epoch == 3)
        return TSR_ERR_IO;
    self->epoch = epoch;
    self->at = 0;
    return TSR_OK;
}

static tsr_status items_save(void *self, size_t capacity_bytes, void *data, size_t *size_bytes)
{
    (void)capacity_bytes;
    memcpy(data, &((items *)self)->at, 8);
    *size_bytes = 8;
    return TSR_OK;
}

static tsr_status items_load(void *self_, const void *data, size_t size_bytes)
{
    items *self = self_;
    ck_assert(size_bytes == 8);
    if (self->refuse)
        return TSR_ERR_IO;
    memcpy(&self->at, data, 8);
    return TSR_OK;
}

/* Returns the share of rank 0 of `ranks` ranks; with in_batches, as batches of one index. */
static tsr_sampler *share_of(items *self, int64_t ranks, bool in_batches)
{
    const tsr_sampler_ops ops = {.struct_size = sizeof ops,
                                 .fill = items_fill,
                                 .set_epoch = items_set_epoch,
                                 .length = items_length,
                                 .save = items_save,
                                 .load = items_load};
    tsr_sampler *base = NULL, *share = NULL, *batches = NULL;
    ck_assert_ok(tsr_sampler_create(&ops, self, &base));
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.base = base, .ranks = ranks), &share));
    tsr_sampler_destroy(&base);
    if (!in_batches)
        return share;
    ck_assert_ok(tsr_sampler_create_batch(tsr_sampler_batch_params(.base = share, .batch_size = 1),
                                          &batches));
    tsr_sampler_destroy(&share);
    return batches;
}

static void check_next(tsr_sampler *sampler, int64_t expected)
{
    int64_t index = -1;
    uint64_t count = 0;
    ck_assert_ok(tsr_sampler_next(sampler, 1, &index, NULL, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(index, expected);
}

START_TEST(the_rest_of_an_epoch_is_restored)
{
    const bool in_batches = _i == 1;
    uint8_t other[TSR_SAMPLER_STATE_BYTES], before[sizeof other], after[sizeof other];
    size_t other_size, before_size, after_size;
    int64_t index;
    uint64_t count;
    items of_four = {.n = 50}, own = {.n = 50};
    tsr_sampler *four = share_of(&of_four, 4, in_batches), *two = share_of(&own, 2, in_batches);
    /* Each of four ranks gives three items. Then two ranks continue, and each of them gives one. */
    for (int i = 0; i < 3; i++)
        check_next(four, 4 * i);
    ck_assert_ok(save_here(four, sizeof before, before, &before_size));
    ck_assert_ok(tsr_sampler_resume(two, before, before_size));
    check_next(two, 12);
    ck_assert_ok(save_here(two, sizeof before, before, &before_size));
    ck_assert_ok(tsr_sampler_set_epoch(four, 3));
    ck_assert_ok(save_here(four, sizeof other, other, &other_size));

    own.refuse = true;
    for (int again = 0; again < 2; again++) {
        ck_assert_error(tsr_sampler_resume(two, other, other_size), TSR_ERR_IO,
                        again == 0 ? "sampler custom: load failed with TSR_ERR_IO"
                                   : "sampler custom: set_epoch failed with TSR_ERR_IO");
        ck_assert_int_eq(tsr_sampler_epoch(two), 0);
        ck_assert_uint_eq(tsr_sampler_position(two), 1);
        ck_assert_uint_eq(tsr_sampler_length(two), 19);
        ck_assert_ok(save_here(two, sizeof after, after, &after_size));
        ck_assert_uint_eq(after_size, before_size);
        ck_assert_mem_eq(after, before, before_size);
        ck_assert_error(tsr_sampler_save(two, 2, sizeof after, after, &after_size), TSR_ERR_INVALID,
                        "sampler save: position 2 cannot be saved after a failed resume, only the "
                        "current position");
        ck_assert_int_eq(tsr_sampler_next(two, 1, &index, NULL, &count), TSR_ERR_IO);
        ck_assert_int_eq(tsr_sampler_seek(two, 20), TSR_ERR_INVALID);
    }

    own.refuse = false;
    check_next(two, 14);
    ck_assert_uint_eq(tsr_sampler_length(two), 19);
    ck_assert_ok(tsr_sampler_seek(two, 18));
    check_next(two, 48);
    tsr_sampler_destroy(&four);
    tsr_sampler_destroy(&two);
}
END_TEST

TESTS(way_back)
{
    tcase_add_loop_test(tests, the_rest_of_an_epoch_is_restored, 0, 2);
}
