/* Gives a sampler that the caller has implemented the interface of the built-in samplers. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "sampler/sampler.h"

#define MAX_NAME 31
/* A seek reads and discards the indices before the new position, at most this many at a time. */
#define MAX_DISCARD 512

typedef struct custom {
    tsr_sampler base;
    tsr_sampler_ops ops;
    void *self;
    char name[MAX_NAME + 1];
    uint64_t item; /* number of the item that the caller's sampler gives next */
    /* whether `item` and the epoch are right, because no call has failed since they were set */
    bool known;
    uint64_t seen;    /* the epoch has at least this many items, because they have been read */
    int64_t *scratch; /* memory for batches that are discarded */
} custom;

/* Fails with a text that contains the function's name and status. The caller's function itself
 * cannot record an error text. */
static tsr_status failed(custom *self, const char *function, tsr_status status)
{
    self->known = false;
    return tsr__fail(status < 0 ? status : TSR_ERR_INVALID, "sampler %s: %s failed with %s",
                     self->base.name, function, tsr_status_name(status));
}

static uint64_t custom_length(const tsr_sampler *sampler)
{
    const custom *self = (const custom *)sampler;
    return self->ops.length != NULL ? self->ops.length(self->self) : TSR_LENGTH_UNKNOWN;
}

/* Reads the next items from the caller's sampler, at its current position. */
static tsr_status read_on(custom *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                          uint64_t *count)
{
    uint64_t got = 0;
    tsr_status status = self->ops.fill(self->self, capacity, indices, mask, &got);
    if (status != TSR_OK)
        return failed(self, "fill", status);
    if (got > capacity) {
        self->known = false;
        return tsr__fail(TSR_ERR_INVALID,
                         "sampler %s: fill gave %" PRIu64
                         " indices, but there was room for %" PRIu64,
                         self->base.name, got, capacity);
    }
    self->item += self->base.batch_max != 0 ? got > 0 : got;
    self->seen = tsr__max_u64(self->seen, self->item);
    *count = got;
    return TSR_OK;
}

static tsr_status custom_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                              uint8_t *mask, uint64_t *count)
{
    return read_on((custom *)sampler, capacity, indices, mask, count);
}

static tsr_status start_epoch(custom *self, int64_t epoch)
{
    tsr_status status = self->ops.set_epoch(self->self, epoch);
    if (status != TSR_OK)
        return failed(self, "set_epoch", status);
    self->item = 0;
    self->known = true;
    return TSR_OK;
}

static tsr_status custom_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    custom *self = (custom *)sampler;
    TSR__TRY(start_epoch(self, epoch));
    self->seen = 0;
    return TSR_OK;
}

/* Reads and discards items until the caller's sampler is at `position` or at its end. */
static tsr_status discard_until(custom *self, uint64_t position)
{
    int64_t piece[MAX_DISCARD];
    while (self->item < position) {
        uint64_t most = self->base.batch_max, got = 0;
        if (most != 0)
            TSR__TRY(read_on(self, most, self->scratch, NULL, &got));
        else
            TSR__TRY(
                read_on(self, tsr__min_u64(MAX_DISCARD, position - self->item), piece, NULL, &got));
        if (got == 0)
            break;
    }
    return TSR_OK;
}

static tsr_status custom_seek(tsr_sampler *sampler, uint64_t position, uint64_t *reached)
{
    custom *self = (custom *)sampler;
    if (!self->known)
        TSR__TRY(start_epoch(self, sampler->epoch));
    uint64_t most = custom_length(sampler);
    bool has_end = most != TSR_LENGTH_UNKNOWN;
    position = has_end ? tsr__min_u64(position, most) : position;
    if (self->item != position && self->ops.seek != NULL && (has_end || position <= self->seen)) {
        tsr_status status = self->ops.seek(self->self, position);
        if (status != TSR_OK)
            return failed(self, "seek", status);
        self->item = position;
    }
    if (self->item > position)
        TSR__TRY(start_epoch(self, sampler->epoch));
    TSR__TRY(discard_until(self, position));
    *reached = self->item;
    return TSR_OK;
}

/* Saves the position of the caller's sampler, the size of its own state in
 * bytes, and this state. */
static tsr_status custom_save(const tsr_sampler *sampler, tsr__state_writer *writer)
{
    const custom *self = (const custom *)sampler;
    uint8_t bytes[TSR_SAMPLER_OWN_BYTES];
    size_t size_bytes = 0;
    if (self->ops.save == NULL)
        return TSR_OK;
    TSR__REQUIRE(!writer->elsewhere && self->known,
                 "sampler %s: it saves a state of its own, which is possible only at its position",
                 sampler->name);
    tsr_status status = self->ops.save(self->self, sizeof bytes, bytes, &size_bytes);
    if (status != TSR_OK)
        return tsr__fail(status < 0 ? status : TSR_ERR_INVALID, "sampler %s: save failed with %s",
                         sampler->name, tsr_status_name(status));
    TSR__REQUIRE(size_bytes <= sizeof bytes,
                 "sampler %s: save gave %zu bytes, but there was room for %zu", sampler->name,
                 size_bytes, sizeof bytes);
    tsr__state_put(writer, self->item);
    tsr__state_put(writer, size_bytes);
    tsr__state_put_bytes(writer, bytes, size_bytes);
    return TSR_OK;
}

static tsr_status custom_load(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                              uint64_t *resumed)
{
    custom *self = (custom *)sampler;
    uint64_t item, size_bytes;
    const uint8_t *bytes;
    *resumed = position;
    if (self->ops.load == NULL)
        return TSR_OK;
    TSR__TRY(tsr__state_get(reader, &item));
    TSR__TRY(tsr__state_get(reader, &size_bytes));
    if (size_bytes > TSR_SAMPLER_OWN_BYTES)
        return TSR__STATE_FAIL(reader, "%" PRIu64 " bytes are more than a sampler may save",
                               size_bytes);
    TSR__TRY(tsr__state_get_bytes(reader, (size_t)size_bytes, &bytes));
    /* the saved `item` may differ from the position at which the sampler resumes */
    sampler->must_seek = true;
    tsr_status status = self->ops.load(self->self, bytes, (size_t)size_bytes);
    if (status != TSR_OK)
        return failed(self, "load", status);
    self->item = item;
    self->seen = tsr__max_u64(self->seen, item);
    return TSR_OK;
}

static void custom_finish(tsr_sampler *sampler)
{
    custom *self = (custom *)sampler;
    if (self->ops.destroy != NULL)
        self->ops.destroy(self->self);
    tsr__free(self->scratch);
}

static const tsr__sampler_class custom_class = {
    .kind = TSR__SAMPLER_CUSTOM,
    .name = "custom",
    .fill = custom_fill,
    .set_epoch = custom_set_epoch,
    .length = custom_length,
    .seek = custom_seek,
    .save = custom_save,
    .load = custom_load,
    .finish = custom_finish,
};

tsr_status tsr_sampler_create(const tsr_sampler_ops *ops, void *self_, tsr_sampler **out)
{
    TSR__REQUIRE(ops != NULL && out != NULL, "sampler: %s is NULL", ops != NULL ? "out" : "ops");
    TSR__TAKE(tsr_sampler_ops, ops);
    const char *name = ops->name != NULL ? ops->name : custom_class.name;
    TSR__REQUIRE(strlen(name) <= MAX_NAME, "sampler: the name '%.40s' has more than %d bytes", name,
                 MAX_NAME);
    TSR__REQUIRE(ops->fill != NULL, "sampler %s: fill is NULL", name);
    TSR__REQUIRE(ops->set_epoch != NULL, "sampler %s: set_epoch is NULL", name);
    TSR__REQUIRE((ops->save == NULL) == (ops->load == NULL),
                 "sampler %s: only one of save and load is set", name);
    custom *self = (custom *)tsr__sampler_new(&custom_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->ops = *ops;
    self->self = self_;
    memcpy(self->name, name, strlen(name) + 1);
    self->base.name = self->name;
    self->base.batch_max = ops->batch_max;
    tsr_status status = TSR_OK;
    if (ops->batch_max > SIZE_MAX / sizeof *self->scratch)
        status = tsr__fail(TSR_ERR_NO_MEMORY, "sampler %s: no memory for a batch of %" PRIu64, name,
                           ops->batch_max);
    else if (ops->batch_max != 0 &&
             (self->scratch = tsr__calloc((size_t)ops->batch_max, sizeof *self->scratch)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = start_epoch(self, 0);
    if (status != TSR_OK) {
        tsr_sampler *made = &self->base;
        self->ops.destroy = NULL; /* the caller keeps the ownership of `self_` */
        tsr_sampler_destroy(&made);
        return status;
    }
    uint64_t hash = 0;
    for (size_t i = 0; name[i] != '\0'; i++)
        hash = tsr__fingerprint(hash, (uint8_t)name[i]);
    tsr__sampler_add_param(&self->base, "batch_max", TSR__PARAM_COUNT, ops->batch_max);
    tsr__sampler_add_param(&self->base, "name", TSR__PARAM_HASH, hash);
    tsr__sampler_add_param(&self->base, "save", TSR__PARAM_FLAG, ops->save != NULL);
    hash = ops->fingerprint != NULL ? ops->fingerprint(self_) : 0;
    tsr__sampler_add_param(&self->base, "fingerprint", TSR__PARAM_HASH, tsr__fingerprint(0, hash));
    *out = &self->base;
    return TSR_OK;
}
