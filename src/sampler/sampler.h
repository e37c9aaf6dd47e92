/* What the files of the samplers share: the form of a built-in sampler, which embeds `tsr_sampler`
 * as its first member, and what makes a saved state. */
#ifndef TSR_SAMPLER_SAMPLER_H
#define TSR_SAMPLER_SAMPLER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/error.h"
#include "tessera/sampler.h"

/* The most items that anything here counts: sums and rounding up still fit. */
#define TSR__MAX_ITEMS TSR_MAX_FEISTEL

/* In saved states: values never change meaning. */
typedef enum tsr__sampler_kind {
    TSR__SAMPLER_CUSTOM = 0,
    TSR__SAMPLER_SEQUENTIAL = 1,
    TSR__SAMPLER_RANDOM = 2,
    TSR__SAMPLER_SUBSET = 3,
    TSR__SAMPLER_WEIGHTED = 4,
    TSR__SAMPLER_BATCH = 5,
    TSR__SAMPLER_DISTRIBUTED = 6,
    TSR__SAMPLER_LENGTH_SORTED = 7,
    TSR__SAMPLER_STRATIFIED = 8,
    TSR__SAMPLER_CURRICULUM = 9,
    TSR__SAMPLER_KINDS
} tsr__sampler_kind;

/* Where a state is written to, and read from. */
typedef struct tsr__state_writer {
    uint8_t *data;
    size_t capacity, size;
    bool full;      /* something did not fit */
    bool elsewhere; /* the position is not the sampler's own */
} tsr__state_writer;

typedef struct tsr__state_reader {
    const uint8_t *data;
    size_t size, at;
    bool nested;  /* below a distributed sampler, the number of ranks has to stay */
    bool rounded; /* below one of batches, positions are whole batches, also at the end */
} tsr__state_reader;

/* Seven bits a byte, the lowest first; the top bit tells that more follow. */
void tsr__state_put(tsr__state_writer *writer, uint64_t value);
void tsr__state_put_bytes(tsr__state_writer *writer, const void *data, size_t size_bytes);
tsr_status tsr__state_get(tsr__state_reader *reader, uint64_t *value);
/* Points into the state. */
tsr_status tsr__state_get_bytes(tsr__state_reader *reader, size_t size_bytes, const uint8_t **data);

/* Fails with "sampler resume: offset …: " before the reason. */
#define TSR__STATE_FAIL(reader, format, ...)                                                       \
    tsr__fail(TSR_ERR_INVALID, "sampler resume: offset %zu: " format, (reader)->at, __VA_ARGS__)

/* Where a state's parameters start, and the size of its last part. */
#define TSR__STATE_PARAMS 14
#define TSR__STATE_CHECKSUM_BYTES 4

/* Checks that the state is of this kind of sampler with these parameters, and its checksum; the
 * reader then stands at the epoch. */
tsr_status tsr__state_open(const tsr_sampler *sampler, const uint8_t *bytes, size_t size_bytes,
                           tsr__state_reader *reader);
/* A reader of a valid state that stands at the epoch. */
tsr__state_reader tsr__state_body(const uint8_t *bytes, size_t size_bytes);
/* A number that was written with its sign. */
tsr_status tsr__state_get_signed(tsr__state_reader *reader, int64_t *value);

struct tsr__passes;

/* What a kind of sampler can do. The position of the sampler is the item that comes next; whoever
 * calls moves it. `mask` is NULL or all 1 before a fill. */
typedef struct tsr__sampler_class {
    tsr__sampler_kind kind;
    const char *name;

    /* The next indices, fewer than `capacity` only at the end; of a sampler of batches one batch, 0
     * indices at the end, with room for the largest. */
    tsr_status (*fill)(tsr_sampler *sampler, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count);
    /* To the start of an epoch. The sampler's fields are still those of the old one, and have to
     * stay so. On failure nothing has changed. */
    tsr_status (*set_epoch)(tsr_sampler *sampler, int64_t epoch);
    uint64_t (*length)(const tsr_sampler *sampler);
    /* The most items of any epoch, also one resumed with another number of ranks. NULL: nobody
     * knows. */
    uint64_t (*most)(const tsr_sampler *sampler);
    /* Makes `position` the next item, or the end where that comes first; *reached tells which. It
     * also has to work after any failure. NULL: nothing has to be done, and the length is known. */
    tsr_status (*seek)(tsr_sampler *sampler, uint64_t position, uint64_t *reached);
    /* What a state holds besides epoch and position; NULL: nothing. On failure nothing has changed;
     * *resumed is where the sampler continues, the position unless the items are dealt anew. */
    tsr_status (*save)(const tsr_sampler *sampler, tsr__state_writer *writer);
    tsr_status (*load)(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                       uint64_t *resumed);
    /* The generator, where an epoch is one pass of it; NULL: none. For tests. */
    const struct tsr__passes *(*passes)(const tsr_sampler *sampler);
    /* Frees what the sampler holds, not the sampler; NULL: nothing. Also called for a sampler that
     * was made in part. */
    void (*finish)(tsr_sampler *sampler);
} tsr__sampler_class;

/* Where a sampler stood before tsr_sampler_resume failed, if restoring that failed too. The epoch
 * and position are restored at once, the rest by the next call that succeeds in it. */
typedef struct tsr__rollback {
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size_bytes; /* 0: nothing has to be restored */
    uint64_t length;
} tsr__rollback;

/* One parameter of a sampler, as saved states record it. */
typedef enum tsr__sampler_param_form {
    TSR__PARAM_COUNT,
    TSR__PARAM_SIGNED, /* an int64 */
    TSR__PARAM_FLAG,
    TSR__PARAM_ORDER,
    TSR__PARAM_TAIL,
    TSR__PARAM_SPLIT,
    TSR__PARAM_HASH /* of an array or a name */
} tsr__sampler_param_form;

typedef struct tsr__sampler_param {
    const char *name;
    tsr__sampler_param_form form;
    uint64_t value;
} tsr__sampler_param;

#define TSR__SAMPLER_MAX_PARAMS 12

struct tsr_sampler {
    const tsr__sampler_class *class_;
    atomic_uint references;
    const char *name;
    tsr_sampler *inner; /* the sampler that this one wraps, or NULL */
    uint64_t batch_max;
    tsr__sampler_param params[TSR__SAMPLER_MAX_PARAMS];
    int param_count;
    uint64_t fingerprint; /* of the kind, the parameters and the wrapped sampler */
    int64_t epoch;
    uint64_t position;
    bool must_seek; /* set when a call fails: seek to `position` before anything else */
    tsr__rollback rollback;
};

/* A sampler of this class in `size_bytes` of zeroed memory, with its name and one reference, or
 * NULL with the error recorded. */
tsr_sampler *tsr__sampler_new(const tsr__sampler_class *class_, size_t size_bytes) TSR_NODISCARD;

/* Adds a reference, which tsr_sampler_destroy gives back. */
tsr_sampler *tsr__sampler_retain(tsr_sampler *sampler);

/* Add to the parameters and the fingerprint; each kind of sampler adds the same parameters in the
 * same order, whatever their values, and the wrapped sampler last. */
void tsr__sampler_add_param(tsr_sampler *sampler, const char *name, tsr__sampler_param_form form,
                            uint64_t value);
/* All zero unless `is_torch`. */
void tsr__sampler_add_torch(tsr_sampler *sampler, bool is_torch, const tsr_torch_options *torch);
/* Takes a reference of its own. */
void tsr__sampler_set_inner(tsr_sampler *sampler, tsr_sampler *inner);

/* The name of a kind in states; "?" for a number that is none. */
const char *tsr__sampler_kind_name(unsigned kind);

/* The parameters of the sampler and of those it wraps. */
void tsr__state_put_params(tsr__state_writer *writer, const tsr_sampler *sampler);
/* Fails, naming the first parameter of the state that is not the sampler's. Its bytes up to `end`
 * are a state of the sampler's kind. */
tsr_status tsr__state_refuse_params(const tsr_sampler *sampler, const uint8_t *bytes, size_t end);

/* tsr_sampler_seek, but to the end where that comes first. */
tsr_status tsr__sampler_seek_most(tsr_sampler *sampler, uint64_t position, uint64_t *reached);

/* The most items of any epoch; UINT64_MAX where nobody knows. */
uint64_t tsr__sampler_most(const tsr_sampler *sampler);

/* No batch has more indices than there are items, so that room for the largest can always be had. 0
 * would tell that there are no batches. */
static inline uint64_t tsr__batch_max(int64_t batch_size, uint64_t items)
{
    return tsr__min_u64((uint64_t)batch_size, tsr__max_u64(items, 1));
}

/* After a call that failed, brings the sampler back to its position. */
tsr_status tsr__sampler_recover(tsr_sampler *sampler);

/* The next value of a fingerprint. Not for anything an adversary chooses. */
static inline uint64_t tsr__fingerprint(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0xd1342543de82ef95);
    return hash ^ (hash >> 32);
}

static inline uint64_t tsr__fingerprint_array(const int64_t *items, uint64_t count)
{
    uint64_t hash = 0;
    for (uint64_t i = 0; i < count; i++)
        hash = tsr__fingerprint(hash, (uint64_t)items[i]);
    return hash;
}

/* Signed numbers as unsigned ones that are small when the number is close to 0. */
static inline uint64_t tsr__zigzag(int64_t value)
{
    return value < 0 ? ~((uint64_t)value << 1) : (uint64_t)value << 1;
}

static inline int64_t tsr__unzigzag(uint64_t value)
{
    return tsr__as_i64((value & 1) != 0 ? ~(value >> 1) : value >> 1);
}

/* n is 1 … 2^62 and num_samples 0 … 2^62; *samples is num_samples, or n where that is 0. */
tsr_status tsr__sampler_check_samples(const char *what, uint64_t n, int64_t num_samples,
                                      uint64_t *samples);

#endif
