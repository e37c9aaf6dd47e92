/* Declarations that the files of the samplers share: the interface of a sampler kind, whose struct
 * has a `tsr_sampler` as its first member, and reading and writing of saved states. */
#ifndef TSR_SAMPLER_SAMPLER_H
#define TSR_SAMPLER_SAMPLER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/error.h"
#include "tessera/sampler.h"

/* The largest number of items. Sums of two such numbers, and rounding up, still fit 64 bits. */
#define TSR__MAX_ITEMS TSR_MAX_FEISTEL

/* Saved states contain these values, so they must never change their meaning. */
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

/* Writing and reading of a state. */
typedef struct tsr__state_writer {
    uint8_t *data;
    size_t capacity, size;
    bool full;      /* a value did not fit */
    bool elsewhere; /* the state is for another position than the sampler's current one */
} tsr__state_writer;

typedef struct tsr__state_reader {
    const uint8_t *data;
    size_t size, at;
    bool nested;  /* inside a distributed sampler: the number of ranks must not change */
    bool rounded; /* inside a batch sampler: the position may be rounded up beyond the end */
} tsr__state_reader;

/* Numbers have seven bits per byte, lowest first; the top bit is set if more bytes follow. */
void tsr__state_put(tsr__state_writer *writer, uint64_t value);
void tsr__state_put_bytes(tsr__state_writer *writer, const void *data, size_t size_bytes);
tsr_status tsr__state_get(tsr__state_reader *reader, uint64_t *value);
/* *data points into the state. */
tsr_status tsr__state_get_bytes(tsr__state_reader *reader, size_t size_bytes, const uint8_t **data);

/* Fails with "sampler resume: offset …: " before the reason. */
#define TSR__STATE_FAIL(reader, format, ...)                                                       \
    tsr__fail(TSR_ERR_INVALID, "sampler resume: offset %zu: " format, (reader)->at, __VA_ARGS__)

/* The offset of a state's parameters, and the size of the checksum at its end. */
#define TSR__STATE_PARAMS 14
#define TSR__STATE_CHECKSUM_BYTES 4

/* Checks the state's checksum, and that it belongs to this kind of sampler with these parameters.
 * The reader is then at the epoch. */
tsr_status tsr__state_open(const tsr_sampler *sampler, const uint8_t *bytes, size_t size_bytes,
                           tsr__state_reader *reader);
/* Returns a reader of a valid state that is at the epoch. */
tsr__state_reader tsr__state_body(const uint8_t *bytes, size_t size_bytes);
/* Reads a signed number, which is stored in zigzag form. */
tsr_status tsr__state_get_signed(tsr__state_reader *reader, int64_t *value);

struct tsr__passes;

/* The functions of a kind of sampler. The sampler's position is the number of the next item; the
 * callers of these functions update it. `mask` is NULL or all 1 before a fill. */
typedef struct tsr__sampler_class {
    tsr__sampler_kind kind;
    const char *name;

    /* Writes the next indices: fewer than `capacity` only at the end. A sampler of batches writes
     * one batch, or 0 indices at the end; `capacity` is then at least batch_max. */
    tsr_status (*fill)(tsr_sampler *sampler, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count);
    /* Moves to the start of an epoch. It must not change the fields of tsr_sampler, which still
     * describe the old epoch. On failure nothing has changed. */
    tsr_status (*set_epoch)(tsr_sampler *sampler, int64_t epoch);
    uint64_t (*length)(const tsr_sampler *sampler);
    /* Returns the largest number of items of any epoch, also if resumed with another number of
     * ranks. NULL: unknown. */
    uint64_t (*most)(const tsr_sampler *sampler);
    /* Makes `position` the next item, or the end if that comes first. *reached is the new position.
     * It must also work after any failure. NULL: nothing needs to be done, and the length is known.
     */
    tsr_status (*seek)(tsr_sampler *sampler, uint64_t position, uint64_t *reached);
    /* Write and read what a state holds in addition to epoch and position; NULL: nothing. On
     * failure nothing has changed. *resumed is where the sampler continues: at `position`, unless
     * the items are partitioned among another number of ranks. */
    tsr_status (*save)(const tsr_sampler *sampler, tsr__state_writer *writer);
    tsr_status (*load)(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                       uint64_t *resumed);
    /* For tests: returns the generator if epochs are successive passes of one; NULL: there is none.
     */
    const struct tsr__passes *(*passes)(const tsr_sampler *sampler);
    /* Frees what the sampler holds, but not the sampler; NULL: nothing. Also called for a sampler
     * whose creation failed halfway. */
    void (*finish)(tsr_sampler *sampler);
} tsr__sampler_class;

/* The state before a tsr_sampler_resume that failed, if restoring this state failed too. The epoch
 * and position are restored at once, the rest by the next call that can. */
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

/* Returns a sampler of this class in `size_bytes` of zeroed memory, with its name and one
 * reference. Returns NULL, with the error recorded, if memory is out. */
tsr_sampler *tsr__sampler_new(const tsr__sampler_class *class_, size_t size_bytes) TSR_NODISCARD;

/* Adds a reference, which tsr_sampler_destroy releases. */
tsr_sampler *tsr__sampler_retain(tsr_sampler *sampler);

/* These add to the parameters and the fingerprint. Each kind of sampler must always add the same
 * parameters in the same order, and the wrapped sampler last. */
void tsr__sampler_add_param(tsr_sampler *sampler, const char *name, tsr__sampler_param_form form,
                            uint64_t value);
/* Adds PyTorch's options, all as zero unless `is_torch`. */
void tsr__sampler_add_torch(tsr_sampler *sampler, bool is_torch, const tsr_torch_options *torch);
/* Sets the wrapped sampler and adds a reference to it. */
void tsr__sampler_set_inner(tsr_sampler *sampler, tsr_sampler *inner);

/* Returns the name of a kind, or "?" for any other number. */
const char *tsr__sampler_kind_name(unsigned kind);

/* Writes the parameters of the sampler and of those it wraps. */
void tsr__state_put_params(tsr__state_writer *writer, const tsr_sampler *sampler);
/* Fails with the first parameter of the state that differs from the sampler's. The bytes up to
 * `end` must be a state of the sampler's kind. */
tsr_status tsr__state_refuse_params(const tsr_sampler *sampler, const uint8_t *bytes, size_t end);

/* Moves to `position` like tsr_sampler_seek, or to the end if that comes first. */
tsr_status tsr__sampler_seek_up_to(tsr_sampler *sampler, uint64_t position, uint64_t *reached);

/* Returns the largest number of items of any epoch, or UINT64_MAX if it is unknown. */
uint64_t tsr__sampler_max_length(const tsr_sampler *sampler);

/* Returns the largest number of indices in a batch: not more than there are items, so that a caller
 * can allocate it, and at least 1, because 0 means a sampler of single indices. */
static inline uint64_t tsr__batch_max(int64_t batch_size, uint64_t items)
{
    return tsr__min_u64((uint64_t)batch_size, tsr__max_u64(items, 1));
}

/* Moves the sampler back to its position if a call has failed. */
tsr_status tsr__sampler_recover(tsr_sampler *sampler);

/* Adds a value to a fingerprint. It must not hash data that an adversary chooses. */
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

/* Converts signed numbers to unsigned ones, which are small if the number is close to 0. */
static inline uint64_t tsr__zigzag(int64_t value)
{
    return value < 0 ? ~((uint64_t)value << 1) : (uint64_t)value << 1;
}

static inline int64_t tsr__unzigzag(uint64_t value)
{
    return tsr__as_i64((value & 1) != 0 ? ~(value >> 1) : value >> 1);
}

/* Checks that n is 1 … 2^62 and num_samples is 0 … 2^62. *samples is num_samples, or n if that is
 * 0. */
tsr_status tsr__sampler_check_samples(const char *what, uint64_t n, int64_t num_samples,
                                      uint64_t *samples);

#endif
