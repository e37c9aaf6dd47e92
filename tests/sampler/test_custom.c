/* Tests samplers that the caller implements, alone and inside other samplers. */
#include <inttypes.h>
#include <string.h>

#include "sampler/info.h"
#include "sampler/read.h"
#include "tessera/sampler.h"

/* A custom sampler that gives the indices 1000 · epoch + offset + 0 … n − 1, and fails on
 * request. */
typedef struct counter {
    uint64_t n, at;
    int64_t epoch;
    uint64_t seeks, starts;
    const char *failing; /* the name of the function that fails, or of another failure */
    uint64_t fail_from;  /* fill fails from this item on */
    int64_t offset;      /* added to each index; saved in the state */
    int destroyed;
} counter;

static bool fails(const counter *self, const char *function)
{
    return self->failing != NULL && strcmp(self->failing, function) == 0;
}

static tsr_status counter_fill(void *self_, uint64_t capacity, int64_t *indices, uint8_t *mask,
                               uint64_t *count)
{
    counter *self = self_;
    uint64_t i = 0;
    for (; i < capacity && self->at < self->n; i++, self->at++) {
        if (fails(self, "fill") && self->at >= self->fail_from)
            return TSR_ERR_IO;
        indices[i] = 1000 * self->epoch + (int64_t)self->at + self->offset;
        if (mask != NULL && self->at % 10 == 9)
            mask[i] = 0;
    }
    *count = i;
    return TSR_OK;
}

/* Gives n batches of 1, 2, 3, 1, 2, 3, … indices. */
static tsr_status counter_batch(void *self_, uint64_t capacity, int64_t *indices, uint8_t *mask,
                                uint64_t *count)
{
    counter *self = self_;
    (void)mask;
    if (self->at == self->n) {
        *count = 0;
        return TSR_OK;
    }
    uint64_t size = self->at % 3 + 1;
    ck_assert(size <= capacity);
    for (uint64_t i = 0; i < size; i++)
        indices[i] = 10 * (int64_t)self->at + (int64_t)i;
    self->at++;
    *count = size;
    return TSR_OK;
}

static tsr_status counter_set_epoch(void *self_, int64_t epoch)
{
    counter *self = self_;
    self->starts++;
    if (fails(self, "set_epoch"))
        return TSR_ERR_NOT_FOUND;
    self->epoch = epoch;
    self->at = 0;
    return TSR_OK;
}

static uint64_t counter_length(void *self)
{
    return ((counter *)self)->n;
}

static tsr_status counter_seek(void *self_, uint64_t position)
{
    counter *self = self_;
    if (fails(self, "seek"))
        return (tsr_status)7;
    ck_assert(position <= self->n);
    self->at = position;
    self->seeks++;
    return TSR_OK;
}

static uint64_t counter_fingerprint(void *self)
{
    return ((counter *)self)->n;
}

static tsr_status counter_save(void *self_, size_t capacity_bytes, void *data, size_t *size_bytes)
{
    counter *self = self_;
    if (fails(self, "save"))
        return TSR_ERR_NO_MEMORY;
    ck_assert(capacity_bytes == TSR_SAMPLER_OWN_BYTES);
    memcpy(data, &self->offset, 8);
    memcpy((uint8_t *)data + 8, &self->at, 8);
    *size_bytes = fails(self, "large save") ? 17 : 16;
    return TSR_OK;
}

static tsr_status counter_load(void *self_, const void *data, size_t size_bytes)
{
    counter *self = self_;
    int64_t offset;
    ck_assert(size_bytes == 16);
    memcpy(&offset, data, 8);
    if (fails(self, "load") || (fails(self, "load 100") && offset == 100))
        return TSR_ERR_UNSUPPORTED;
    self->offset = offset;
    memcpy(&self->at, (const uint8_t *)data + 8, 8);
    return TSR_OK;
}

static void counter_destroy(void *self)
{
    ((counter *)self)->destroyed++;
}

/* A sampler that sets only the required functions must work. */
static const tsr_sampler_ops least = {
    .struct_size = sizeof(tsr_sampler_ops), .fill = counter_fill, .set_epoch = counter_set_epoch};

static tsr_sampler_ops all(void)
{
    tsr_sampler_ops ops = least;
    ops.name = "counter";
    ops.length = counter_length;
    ops.seek = counter_seek;
    ops.fingerprint = counter_fingerprint;
    ops.destroy = counter_destroy;
    return ops;
}

static tsr_sampler_ops with_state(void)
{
    tsr_sampler_ops ops = least;
    ops.length = counter_length;
    ops.save = counter_save;
    ops.load = counter_load;
    return ops;
}

static tsr_sampler *create(const tsr_sampler_ops *ops, counter *self)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create(ops, self, &sampler));
    return sampler;
}

static void check_next(tsr_sampler *sampler, int64_t expected)
{
    int64_t index = -1;
    bool got = false;
    ck_assert_ok(next_index(sampler, &index, &got));
    ck_assert(got);
    ck_assert_int_eq(index, expected);
}

static void check_end(tsr_sampler *sampler)
{
    int64_t index = -1;
    bool got = true;
    ck_assert_ok(next_index(sampler, &index, &got));
    ck_assert(!got && index == -1);
}

START_TEST(only_the_required_functions)
{
    counter self = {.n = 1000};
    tsr_sampler *sampler = create(&least, &self);
    ck_assert_str_eq(info_of(sampler).name, "custom");
    ck_assert_uint_eq(tsr_sampler_length(sampler), TSR_LENGTH_UNKNOWN);
    check_next(sampler, 0);
    check_next(sampler, 1);
    /* Seeking forward continues reading; seeking back restarts the epoch. */
    ck_assert_ok(tsr_sampler_seek(sampler, 700));
    ck_assert_uint_eq(self.starts, 1);
    check_next(sampler, 700);
    ck_assert_ok(tsr_sampler_seek(sampler, 5));
    ck_assert_uint_eq(self.starts, 2);
    check_next(sampler, 5);
    ck_assert_error(tsr_sampler_seek(sampler, 1001), TSR_ERR_INVALID,
                    "sampler seek: position 1001 is beyond the end: there are 1000 items");
    ck_assert_uint_eq(tsr_sampler_position(sampler), 6);
    check_next(sampler, 6);
    ck_assert_ok(tsr_sampler_seek(sampler, 1000));
    check_end(sampler);
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 3));
    check_next(sampler, 3000);
    uint64_t count;
    int64_t batch[16];
    ck_assert_ok(tsr_sampler_get_batch(sampler, 99, 10, 16, batch, NULL, &count));
    ck_assert(count == 10 && batch[0] == 3990);
    ck_assert_error(tsr_sampler_get_batch(sampler, 100, 10, 16, batch, NULL, &count),
                    TSR_ERR_INVALID,
                    "sampler get batch: batch 100 of 10 is beyond the end: there are 1000 items");
    check_next(sampler, 3001);
    ck_assert_error(tsr_sampler_batch_count(sampler, 4, false, &count), TSR_ERR_INVALID,
                    "sampler batches: the length of the custom sampler is unknown");
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(all_functions)
{
    counter self = {.n = 1000};
    tsr_sampler_ops ops = all();
    tsr_sampler *sampler = create(&ops, &self);
    memset(&ops, 0, sizeof ops); /* the struct was copied */
    ck_assert_str_eq(info_of(sampler).name, "counter");
    ck_assert_uint_eq(tsr_sampler_length(sampler), 1000);
    ck_assert_ok(tsr_sampler_seek(sampler, 999));
    ck_assert_uint_eq(self.seeks, 1);
    check_next(sampler, 999);
    check_end(sampler);
    ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
    int64_t indices[12];
    uint8_t mask[12];
    uint64_t count;
    ck_assert_ok(tsr_sampler_fill(sampler, 12, indices, mask, &count));
    for (int i = 0; i < 12; i++)
        ck_assert(indices[i] == i && mask[i] == (i % 10 != 9));
    tsr_sampler_destroy(&sampler);
    ck_assert_int_eq(self.destroyed, 1);
}
END_TEST

START_TEST(positions_are_saved)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    counter self = {.n = 50}, other = {.n = 50}, shorter = {.n = 49};
    tsr_sampler_ops ops = all();
    tsr_sampler *sampler = create(&ops, &self), *resumed = create(&ops, &other),
                *refusing = create(&ops, &shorter), *nameless = create(&least, &other);
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 2));
    ck_assert_ok(tsr_sampler_seek(sampler, 33));
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_ok(tsr_sampler_resume(resumed, state, size));
    check_next(resumed, 2033);
    ck_assert_error(tsr_sampler_resume(refusing, state, size), TSR_ERR_INVALID,
                    "sampler resume: offset 22: the state's custom sampler differs from this one "
                    "in its fingerprint");
    ck_assert_int_eq(tsr_sampler_resume(nameless, state, size), TSR_ERR_INVALID);
    tsr_sampler_destroy(&sampler);
    tsr_sampler_destroy(&resumed);
    tsr_sampler_destroy(&refusing);
    tsr_sampler_destroy(&nameless);
}
END_TEST

START_TEST(own_states)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    counter self = {.n = 50, .offset = 100}, other = {.n = 50};
    tsr_sampler_ops ops = with_state();
    tsr_sampler *sampler = create(&ops, &self), *resumed = create(&ops, &other);
    ck_assert_ok(tsr_sampler_seek(sampler, 20));
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_error(tsr_sampler_save(sampler, 19, sizeof state, state, &size), TSR_ERR_INVALID,
                    "sampler custom: it saves a state of its own, which is possible only at its "
                    "position");
    uint64_t starts = other.starts;
    ck_assert_ok(tsr_sampler_resume(resumed, state, size));
    check_next(resumed, 120);
    ck_assert_uint_eq(other.starts, starts + 1);
    /* If the sampler refuses a state, it keeps its old position and state. */
    other.offset = 200;
    other.failing = "load 100";
    ck_assert_error(tsr_sampler_resume(resumed, state, size), TSR_ERR_UNSUPPORTED,
                    "sampler custom: load failed with TSR_ERR_UNSUPPORTED");
    other.failing = NULL;
    check_next(resumed, 221);
    self.failing = "save";
    ck_assert_error(save_here(sampler, sizeof state, state, &size), TSR_ERR_NO_MEMORY,
                    "sampler custom: save failed with TSR_ERR_NO_MEMORY");
    self.failing = "large save";
    ck_assert_error(save_here(sampler, sizeof state, state, &size), TSR_ERR_INVALID,
                    "sampler custom: save gave 17 bytes, but there was room for 16");
    tsr_sampler_destroy(&sampler);
    tsr_sampler_destroy(&resumed);
}
END_TEST

/* Wraps the sampler in batches of 5, or in a distributed sampler of one rank, or not at all. */
static tsr_sampler *wrapped(tsr_sampler *base, int how)
{
    tsr_sampler *sampler = base;
    if (how == 1)
        ck_assert_ok(tsr_sampler_create_batch(
            tsr_sampler_batch_params(.base = base, .batch_size = 5), &sampler));
    if (how == 2)
        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.base = base, .ranks = 1), &sampler));
    if (how != 0)
        tsr_sampler_destroy(&base);
    return sampler;
}

/* A sampler must be able to resume after a failure of any of its functions. It refuses a valid
 * state only as long as the function fails. */
START_TEST(own_states_after_failures)
{
    static const char *const functions[] = {"fill", "set_epoch", "load"};
    tsr_sampler_ops ops = with_state();
    for (int i = 0; i < 9; i++) {
        const int function = i % 3;
        uint8_t state[TSR_SAMPLER_STATE_BYTES];
        size_t size;
        int64_t indices[5];
        uint64_t count;
        counter self = {.n = 50, .offset = 100};
        tsr_sampler *sampler = wrapped(create(&ops, &self), i / 3);
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        ck_assert_ok(save_here(sampler, sizeof state, state, &size));
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        if (function == 2) /* the failure of load must not change the position 0 */
            ck_assert_ok(tsr_sampler_set_epoch(sampler, tsr_sampler_epoch(sampler)));
        const uint64_t position = tsr_sampler_position(sampler);
        self.failing = functions[function];
        if (function == 0)
            ck_assert_int_ne(tsr_sampler_fill(sampler, 5, indices, NULL, &count), TSR_OK);
        if (function == 1)
            ck_assert_int_ne(tsr_sampler_set_epoch(sampler, 1), TSR_OK);
        ck_assert_int_ne(tsr_sampler_resume(sampler, state, size), TSR_OK);
        ck_assert_uint_eq(tsr_sampler_position(sampler), position);
        self.failing = NULL;
        ck_assert_int_eq(tsr_sampler_resume(NULL, state, size), TSR_ERR_INVALID);
        ck_assert_ok(tsr_sampler_resume(sampler, state, size));
        ck_assert_str_eq(tsr_last_error(), "sampler resume: sampler is NULL");
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        ck_assert(count == 5 && indices[0] == 105);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

/* A custom sampler with a state of its own is inside a distributed sampler, which is inside a batch
 * sampler. The state is saved with two ranks and loaded with three. */
START_TEST(own_states_of_wrapped_samplers)
{
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    tsr_sampler_ops ops = with_state();
    counter selves[2] = {{.n = 50, .offset = 100}, {.n = 50}};
    tsr_sampler *batches[2];
    for (int i = 0; i < 2; i++) {
        tsr_sampler *base = create(&ops, &selves[i]), *shared = NULL;
        batches[i] = NULL;
        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.base = base, .ranks = 2 + i), &shared));
        tsr_sampler_destroy(&base);
        ck_assert_ok(tsr_sampler_create_batch(
            tsr_sampler_batch_params(.base = shared, .batch_size = 4), &batches[i]));
        tsr_sampler_destroy(&shared);
    }
    int64_t batch[4];
    uint64_t count;
    ck_assert_ok(tsr_sampler_seek(batches[0], 2));
    ck_assert_ok(tsr_sampler_next(batches[0], 4, batch, NULL, &count));
    ck_assert_ok(save_here(batches[0], sizeof state, state, &size));
    ck_assert_ok(tsr_sampler_resume(batches[1], state, size));
    /* The two ranks have given three batches of 4 each, 24 items. */
    ck_assert_ok(tsr_sampler_next(batches[1], 4, batch, NULL, &count));
    ck_assert(count == 4 && batch[0] == 124 && batch[1] == 127);
    tsr_sampler_destroy(&batches[0]);
    tsr_sampler_destroy(&batches[1]);
}
END_TEST

static tsr_status counter_set_epoch_anew(void *self, int64_t epoch)
{
    ((counter *)self)->offset = 0;
    return counter_set_epoch(self, epoch);
}

/* Reading after a resume must not restart the epoch, which would lose the resumed state. */
START_TEST(reading_continues_from_own_states)
{
    tsr_sampler_ops ops = with_state();
    ops.set_epoch = counter_set_epoch_anew;
    for (int how = 0; how < 3; how++) {
        uint8_t state[TSR_SAMPLER_STATE_BYTES];
        size_t size;
        int64_t indices[5];
        uint64_t count;
        counter self = {.n = 50}, other = {.n = 50};
        tsr_sampler *sampler = wrapped(create(&ops, &self), how),
                    *resumed = wrapped(create(&ops, &other), how);
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        self.offset = 100;
        ck_assert_ok(save_here(sampler, sizeof state, state, &size));
        ck_assert_ok(tsr_sampler_resume(resumed, state, size));
        ck_assert_ok(tsr_sampler_fill(resumed, 5, indices, NULL, &count));
        ck_assert(count == 5 && indices[0] == 105);
        tsr_sampler_destroy(&sampler);
        tsr_sampler_destroy(&resumed);
    }
}
END_TEST

/* After a failure of fill, set_epoch or seek, the next call must continue after the last item that
 * was given. */
START_TEST(failures_change_nothing)
{
    int64_t indices[20];
    uint64_t count = 77;
    bool got;
    counter self = {.n = 50, .failing = "fill", .fail_from = 15};
    tsr_sampler_ops ops = all();
    tsr_sampler *sampler = create(&ops, &self);
    ck_assert_ok(tsr_sampler_fill(sampler, 10, indices, NULL, &count));
    ck_assert_error(tsr_sampler_fill(sampler, 10, indices, NULL, &count), TSR_ERR_IO,
                    "sampler counter: fill failed with TSR_ERR_IO");
    ck_assert(count == 10 && tsr_sampler_position(sampler) == 10);
    check_next(sampler, 10);
    ck_assert_error(tsr_sampler_get_batch(sampler, 2, 10, 20, indices, NULL, &count), TSR_ERR_IO,
                    "sampler counter: fill failed with TSR_ERR_IO");
    self.failing = NULL;
    check_next(sampler, 11);
    self.failing = "set_epoch";
    ck_assert_error(tsr_sampler_set_epoch(sampler, 4), TSR_ERR_NOT_FOUND,
                    "sampler counter: set_epoch failed with TSR_ERR_NOT_FOUND");
    ck_assert_int_eq(tsr_sampler_epoch(sampler), 0);
    self.failing = NULL;
    check_next(sampler, 12);
    self.failing = "seek";
    ck_assert_error(tsr_sampler_seek(sampler, 40), TSR_ERR_INVALID,
                    "sampler counter: seek failed with TSR_ERR_?");
    ck_assert_error(next_index(sampler, indices, &got), TSR_ERR_INVALID,
                    "sampler counter: seek failed with TSR_ERR_?");
    self.failing = NULL;
    check_next(sampler, 13);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* A custom sampler is inside a distributed sampler, which is inside a batch sampler. After a
 * failure of the custom sampler, the next call must continue after the last batch that was
 * given. */
START_TEST(failures_of_wrapped_samplers_change_nothing)
{
    int64_t batch[3];
    uint64_t count;
    counter self = {.n = 50};
    tsr_sampler_ops ops = all();
    tsr_sampler *base = create(&ops, &self), *shared = NULL, *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.base = base, .ranks = 2, .rank = 1), &shared));
    tsr_sampler_destroy(&base);
    ck_assert_ok(tsr_sampler_create_batch(tsr_sampler_batch_params(.base = shared, .batch_size = 3),
                                          &sampler));
    tsr_sampler_destroy(&shared);
    for (int failure = 0; failure < 3; failure++) {
        const char *functions[] = {"fill", "seek", "set_epoch"};
        self.failing = functions[failure];
        self.fail_from = (uint64_t)failure * 6 + 3;
        if (failure == 2) {
            ck_assert_error(tsr_sampler_set_epoch(sampler, 1), TSR_ERR_NOT_FOUND,
                            "sampler counter: set_epoch failed with TSR_ERR_NOT_FOUND");
        } else {
            ck_assert_int_ne(tsr_sampler_next(sampler, 3, batch, NULL, &count), TSR_OK);
        }
        self.failing = NULL;
        ck_assert_uint_eq(tsr_sampler_position(sampler), (uint64_t)failure);
        ck_assert_ok(tsr_sampler_next(sampler, 3, batch, NULL, &count));
        ck_assert_int_eq(batch[0], 6 * failure + 1);
        ck_assert_int_eq(batch[2], 6 * failure + 5);
    }
    tsr_sampler_destroy(&sampler);
    ck_assert_int_eq(self.destroyed, 1);
}
END_TEST

static tsr_status stay_in_epoch_3(void *self_, int64_t epoch)
{
    counter *self = self_;
    return self->epoch == 3 ? TSR_ERR_IO : counter_set_epoch(self, epoch);
}

/* A state is refused, and going back to the previous position fails at first, too. Once it is
 * possible, reads continue from there. */
START_TEST(a_refused_state_with_a_delayed_rollback)
{
    tsr_sampler_ops ops = with_state();
    ops.set_epoch = stay_in_epoch_3;
    for (int how = 0; how < 3; how++) {
        uint8_t state[TSR_SAMPLER_STATE_BYTES];
        size_t size;
        int64_t indices[5];
        uint64_t count;
        counter saved = {.n = 50, .offset = 100}, self = {.n = 50};
        tsr_sampler *from = wrapped(create(&ops, &saved), how),
                    *sampler = wrapped(create(&ops, &self), how);
        ck_assert_ok(tsr_sampler_set_epoch(from, 3));
        ck_assert_ok(save_here(from, sizeof state, state, &size));
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        const uint64_t position = tsr_sampler_position(sampler);
        self.failing = "load 100";
        ck_assert_error(tsr_sampler_resume(sampler, state, size), TSR_ERR_UNSUPPORTED,
                        "sampler custom: load failed with TSR_ERR_UNSUPPORTED");
        ck_assert_int_eq(tsr_sampler_epoch(sampler), 0);
        ck_assert_uint_eq(tsr_sampler_position(sampler), position);
        ck_assert_int_eq(tsr_sampler_fill(sampler, 5, indices, NULL, &count), TSR_ERR_IO);
        self.epoch = 0;
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        ck_assert(count == 5 && indices[0] == 5);
        tsr_sampler_destroy(&from);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

static uint64_t unknown_in_epoch_3(void *self_)
{
    const counter *self = self_;
    return self->epoch == 3 ? TSR_LENGTH_UNKNOWN : self->n;
}

/* A new epoch is refused, and going back to the old epoch fails at first, too. The error is that of
 * the refusal. Once going back is possible, reads give the old epoch. */
START_TEST(a_refused_epoch_with_a_delayed_rollback)
{
    counter self = {.n = 50};
    tsr_sampler_ops ops = all();
    ops.set_epoch = stay_in_epoch_3;
    ops.length = unknown_in_epoch_3;
    tsr_sampler *base = create(&ops, &self), *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.base = base, .ranks = 2, .split = TSR_SPLIT_CONTIGUOUS),
        &sampler));
    tsr_sampler_destroy(&base);
    check_next(sampler, 0);
    ck_assert_error(tsr_sampler_set_epoch(sampler, 3), TSR_ERR_INVALID,
                    "distributed: a contiguous split needs the length of the counter sampler, "
                    "which is unknown");
    self.epoch = 0;
    check_next(sampler, 1);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Divides a custom sampler of n items, which does not know n in advance, among ranks. Checks the
 * items that each rank gets. */
static void check_unknown(uint64_t n, int64_t ranks, tsr_tail tail)
{
    for (int64_t rank = 0; rank < ranks; rank++) {
        counter self = {.n = n};
        uint64_t count, expected_count;
        uint8_t *mask, *expected_mask;
        tsr_sampler *base = create(&least, &self), *sampler = NULL;
        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.base = base, .ranks = ranks, .rank = rank,
                                           .tail = tail),
            &sampler));
        tsr_sampler_destroy(&base);
        ck_assert_uint_eq(tsr_sampler_length(sampler), TSR_LENGTH_UNKNOWN);
        int64_t *indices = read_masked(sampler, &count, &mask);
        ck_assert_uint_eq(tsr_sampler_length(sampler), count);
        /* Once the end is known, reads from every position, and in another epoch. */
        for (uint64_t from = 0; from < count; from++) {
            ck_assert_ok(tsr_sampler_seek(sampler, from));
            check_next(sampler, indices[from]);
        }
        ck_assert_ok(tsr_sampler_set_epoch(sampler, 1));
        ck_assert_uint_eq(tsr_sampler_length(sampler), TSR_LENGTH_UNKNOWN);
        if (count > 2) {
            ck_assert_ok(tsr_sampler_seek(sampler, 2));
            check_next(sampler, 1000 + indices[2]);
        }
        ck_assert_int_eq(tsr_sampler_seek(sampler, count + 1), TSR_ERR_INVALID);
        ck_assert_ok(tsr_sampler_seek(sampler, count));
        tsr_sampler_destroy(&sampler);

        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.n = n, .ranks = ranks, .rank = rank, .tail = tail,
                                           .order = TSR_ORDER_NONE),
            &sampler));
        int64_t *expected = read_masked(sampler, &expected_count, &expected_mask);
        ck_assert_uint_eq(count, expected_count);
        for (uint64_t i = 0; i < count; i++)
            ck_assert(indices[i] == expected[i] &&
                      mask[i] == (expected[i] % 10 == 9 ? 0 : expected_mask[i]));
        tsr_sampler_destroy(&sampler);
        free(indices);
        free(expected);
        free(mask);
        free(expected_mask);
    }
}

START_TEST(shares_of_an_unknown_length)
{
    for (uint64_t n = 0; n < 30; n++)
        for (int64_t ranks = 1; ranks < 7; ranks++)
            for (int tail = 0; tail < 4; tail++)
                check_unknown(n, ranks, (tsr_tail)tail);
}
END_TEST

/* A sampler without an end can be read without limit. */
START_TEST(no_end)
{
    counter self = {.n = UINT64_MAX - 1};
    tsr_sampler *base = create(&least, &self), *shared = NULL, *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.base = base, .ranks = 3, .rank = 2), &shared));
    tsr_sampler_destroy(&base);
    ck_assert_ok(tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = shared, .batch_size = 10), &sampler));
    tsr_sampler_destroy(&shared);
    ck_assert_uint_eq(tsr_sampler_length(sampler), TSR_LENGTH_UNKNOWN);
    int64_t batch[10];
    uint64_t count;
    for (int64_t i = 0; i < 100; i++) {
        ck_assert_ok(tsr_sampler_next(sampler, 10, batch, NULL, &count));
        ck_assert(count == 10 && batch[0] == 30 * i + 2);
    }
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    ck_assert_ok(save_here(sampler, sizeof state, state, &size));
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 0));
    ck_assert_ok(tsr_sampler_resume(sampler, state, size));
    ck_assert_ok(tsr_sampler_next(sampler, 10, batch, NULL, &count));
    ck_assert_int_eq(batch[0], 3002);
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(samplers_of_batches)
{
    counter self = {.n = 11};
    tsr_sampler_ops ops = least;
    ops.fill = counter_batch;
    ops.batch_max = 3;
    for (int known = 0; known < 2; known++)
        for (int64_t rank = 0; rank < 4; rank++) {
            ops.length = known != 0 ? counter_length : NULL;
            tsr_sampler *base = create(&ops, &self), *sampler = NULL;
            ck_assert_uint_eq(info_of(base).batch_max, 3);
            ck_assert_ok(tsr_sampler_create_distributed(
                tsr_sampler_distributed_params(.base = base, .ranks = 4, .rank = rank,
                                               .tail = TSR_TAIL_DROP),
                &sampler));
            tsr_sampler_destroy(&base);
            int64_t batch[3];
            uint64_t count;
            for (int64_t i = 0; i < 2; i++) {
                int64_t item = 4 * i + rank;
                ck_assert_ok(tsr_sampler_next(sampler, 3, batch, NULL, &count));
                ck_assert(count == (uint64_t)item % 3 + 1 && batch[0] == 10 * item);
            }
            ck_assert_ok(tsr_sampler_next(sampler, 3, batch, NULL, &count));
            ck_assert_uint_eq(count, 0);
            tsr_sampler_destroy(&sampler);
        }
}
END_TEST

static tsr_status fill_too_many(void *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                                uint64_t *count)
{
    (void)self, (void)indices, (void)mask;
    *count = capacity + 1;
    return TSR_OK;
}

START_TEST(errors)
{
    counter self = {.n = 5};
    tsr_sampler *sampler = NULL, *base;
    tsr_sampler_ops ops = all();
    int64_t index;
    bool got;
    ck_assert_error(tsr_sampler_create(NULL, &self, &sampler), TSR_ERR_INVALID,
                    "sampler: ops is NULL");
    ops.struct_size = 8;
    ck_assert_error(tsr_sampler_create(&ops, &self, &sampler), TSR_ERR_INVALID,
                    "sampler custom: fill is NULL");
    ops = all();
    ops.name = "a name of more than one-and-thirty";
    ck_assert_error(tsr_sampler_create(&ops, &self, &sampler), TSR_ERR_INVALID,
                    "sampler: the name 'a name of more than one-and-thirty' has more than 31 "
                    "bytes");
    ops = all();
    ops.fill = NULL;
    ck_assert_error(tsr_sampler_create(&ops, &self, &sampler), TSR_ERR_INVALID,
                    "sampler counter: fill is NULL");
    ops = all();
    ops.set_epoch = NULL;
    ck_assert_error(tsr_sampler_create(&ops, &self, &sampler), TSR_ERR_INVALID,
                    "sampler counter: set_epoch is NULL");
    ops = all();
    ops.save = counter_save;
    ck_assert_error(tsr_sampler_create(&ops, &self, &sampler), TSR_ERR_INVALID,
                    "sampler counter: only one of save and load is set");
    ops = all();
    ops.batch_max = UINT64_MAX;
    ck_assert_error(tsr_sampler_create(&ops, &self, &sampler), TSR_ERR_NO_MEMORY,
                    "sampler counter: no memory for a batch of 18446744073709551615");
    ops = all();
    self.failing = "set_epoch";
    ck_assert_error(tsr_sampler_create(&ops, &self, &sampler), TSR_ERR_NOT_FOUND,
                    "sampler counter: set_epoch failed with TSR_ERR_NOT_FOUND");
    self.failing = NULL;
    ck_assert_ptr_null(sampler);
    ck_assert_int_eq(self.destroyed, 0);
    ops.fill = fill_too_many;
    sampler = create(&ops, &self);
    ck_assert_error(next_index(sampler, &index, &got), TSR_ERR_INVALID,
                    "sampler counter: fill gave 2 indices, but there was room for 1");
    tsr_sampler_destroy(&sampler);
    base = create(&least, &self);
    ck_assert_error(
        tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.base = base, .ranks = 2, .split = TSR_SPLIT_CONTIGUOUS),
            &sampler),
        TSR_ERR_INVALID,
        "distributed: a contiguous split needs the length of the custom sampler, which "
        "is unknown");
    tsr_sampler_destroy(&base);
    /* The sampler gives fewer items than the length that it reported. */
    ops = all();
    ops.seek = NULL;
    base = create(&ops, &self);
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.base = base, .ranks = 2), &sampler));
    tsr_sampler_destroy(&base);
    uint64_t honest = self.n;
    for (int i = 0; i < 2; i++)
        ck_assert_ok(next_index(sampler, &index, &got));
    self.n = 3;
    self.at = 3;
    ck_assert_error(next_index(sampler, &index, &got), TSR_ERR_INVALID,
                    "distributed: the counter sampler ended after 3 of 5 items");
    self.n = honest;
    tsr_sampler_destroy(&sampler);
    self.n = (UINT64_C(1) << 62) + 1;
    base = create(&ops, &self);
    ck_assert_error(tsr_sampler_create_distributed(
                        tsr_sampler_distributed_params(.base = base, .ranks = 2), &sampler),
                    TSR_ERR_OVERFLOW,
                    "distributed: the 4611686018427387905 items of the counter sampler are more "
                    "than 2^62");
    tsr_sampler_destroy(&base);
}
END_TEST

TESTS(custom)
{
    tcase_add_test(tests, only_the_required_functions);
    tcase_add_test(tests, all_functions);
    tcase_add_test(tests, positions_are_saved);
    tcase_add_test(tests, own_states);
    tcase_add_test(tests, own_states_after_failures);
    tcase_add_test(tests, own_states_of_wrapped_samplers);
    tcase_add_test(tests, reading_continues_from_own_states);
    tcase_add_test(tests, failures_change_nothing);
    tcase_add_test(tests, failures_of_wrapped_samplers_change_nothing);
    tcase_add_test(tests, a_refused_state_with_a_delayed_rollback);
    tcase_add_test(tests, a_refused_epoch_with_a_delayed_rollback);
    tcase_add_test(tests, shares_of_an_unknown_length);
    tcase_add_test(tests, no_end);
    tcase_add_test(tests, samplers_of_batches);
    tcase_add_test(tests, errors);
}
