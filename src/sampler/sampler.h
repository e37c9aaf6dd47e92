/* Declarations that the files of the samplers share. They contain the interface that each kind of
 * sampler implements, and functions that write and read saved states. The struct of each kind has a
 * `tsr_sampler` as its first member. */
#ifndef TSR_SAMPLER_SAMPLER_H
#define TSR_SAMPLER_SAMPLER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/error.h"
#include "tessera/sampler.h"

/* The largest number of items. Two such numbers can be added, and the sum can be rounded up to a
 * multiple of another such number, without an overflow of 64 bits. */
#define TSR__MAX_ITEMS TSR_MAX_FEISTEL

/* Saved states contain these values, so their meaning must never change. */
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

/* The memory into which a state is written. */
typedef struct tsr__state_writer {
    uint8_t *data;
    size_t capacity, size;
    bool full;      /* set if a value did not fit the capacity */
    bool elsewhere; /* the state is saved for a position that is not the sampler's current one */
} tsr__state_writer;

typedef struct tsr__state_reader {
    const uint8_t *data;
    size_t size, at;
    /* the state is read for a sampler that a distributed sampler wraps, so its number of ranks must
     * not change */
    bool nested;
    /* The state is that of the base of a batch sampler. The base's position is computed as the
     * number of batches times the batch size, so it may be beyond the end of the epoch. */
    bool rounded;
} tsr__state_reader;

/* tsr__state_put and tsr__state_get write and read a number, which is stored with seven bits in
 * each byte, lowest bits first. The top bit of a byte is set if another byte follows. */
void tsr__state_put(tsr__state_writer *writer, uint64_t value);
void tsr__state_put_bytes(tsr__state_writer *writer, const void *data, size_t size_bytes);
tsr_status tsr__state_get(tsr__state_reader *reader, uint64_t *value);
/* Reads `size_bytes` bytes without copying them: sets *data to where they are in the state. */
tsr_status tsr__state_get_bytes(tsr__state_reader *reader, size_t size_bytes, const uint8_t **data);

/* Fails with TSR_ERR_INVALID and a text that starts with "sampler resume: offset …: ". */
#define TSR__STATE_FAIL(reader, format, ...)                                                       \
    tsr__fail(TSR_ERR_INVALID, "sampler resume: offset %zu: " format, (reader)->at, __VA_ARGS__)

/* The offset of the parameters in a state, and the size in bytes of the checksum at its end. */
#define TSR__STATE_PARAMS 14
#define TSR__STATE_CHECKSUM_BYTES 4

/* Checks the checksum of a state, and that the state belongs to this kind of sampler with the same
 * parameters. The returned reader is at the state's epoch. */
tsr_status tsr__state_open(const tsr_sampler *sampler, const uint8_t *bytes, size_t size_bytes,
                           tsr__state_reader *reader);
/* Returns a reader of a state that is known to be valid. The reader is at the state's epoch. */
tsr__state_reader tsr__state_body(const uint8_t *bytes, size_t size_bytes);
/* Reads a signed number, which is stored in zigzag form. */
tsr_status tsr__state_get_signed(tsr__state_reader *reader, int64_t *value);

struct tsr__epoch_generator;

/* The functions that a kind of sampler implements. A sampler's position is the number of the next
 * item; the callers of these functions update it. When `fill` is called, `mask` is NULL or all 1.
 */
typedef struct tsr__sampler_class {
    tsr__sampler_kind kind;
    const char *name;

    /* Writes the next indices and sets *count to their number, which is less than `capacity` only
     * at the end. A sampler of batches writes one batch, or nothing at the end; `capacity` is then
     * at least batch_max. */
    tsr_status (*fill)(tsr_sampler *sampler, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count);
    /* Moves to the start of an epoch. It must not change the members of tsr_sampler, which still
     * describe the old epoch. On failure nothing changes. */
    tsr_status (*set_epoch)(tsr_sampler *sampler, int64_t epoch);
    uint64_t (*length)(const tsr_sampler *sampler);
    /* Returns the largest number of items that an epoch can have. The number must also be right if
     * the sampler is resumed with another number of ranks. NULL if this number is unknown. */
    uint64_t (*most)(const tsr_sampler *sampler);
    /* Makes `position` the next item, or moves to the end if that comes first. Sets *reached to the
     * new position. It must also work after any failure. NULL if moving needs no work and the
     * length is known. */
    tsr_status (*seek)(tsr_sampler *sampler, uint64_t position, uint64_t *reached);
    /* Write and read the data that a state of this kind of sampler contains in addition to epoch
     * and position. Both are NULL if it contains nothing else. On failure nothing changes. `load`
     * sets *resumed to the position at which the sampler continues. This is `position`, unless the
     * items are now partitioned among another number of ranks. */
    tsr_status (*save)(const tsr_sampler *sampler, tsr__state_writer *writer);
    tsr_status (*load)(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                       uint64_t *resumed);
    /* For tests. If the epochs draw from one generator in sequence, returns this generator. NULL if
     * there is no such generator. */
    const struct tsr__epoch_generator *(*epoch_generator)(const tsr_sampler *sampler);
    /* Fills in the fields of the info that differ for this kind of sampler. NULL if none do. */
    void (*info)(const tsr_sampler *sampler, tsr_sampler_info *info);
    /* Frees what the sampler owns, but not the sampler itself. It is also called for a sampler
     * whose creation has failed before its end. NULL if there is nothing to free. */
    void (*finish)(tsr_sampler *sampler);
} tsr__sampler_class;

/* A state that must still be restored. If tsr_sampler_resume fails, it restores the state before
 * the call. If restoring fails too, the epoch and position are set at once, and this struct keeps
 * the state for the next call that tries to restore it. */
typedef struct tsr__rollback {
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size_bytes; /* 0 if nothing has to be restored */
    uint64_t length;
} tsr__rollback;

/* How a parameter of a sampler is stored in saved states and shown in error texts. */
typedef enum tsr__sampler_param_form {
    TSR__PARAM_COUNT,
    TSR__PARAM_SIGNED, /* an int64 */
    TSR__PARAM_FLAG,
    TSR__PARAM_ORDER,
    TSR__PARAM_TAIL,
    TSR__PARAM_SPLIT,
    TSR__PARAM_HASH /* the hash of an array or of a name */
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
    uint64_t fingerprint; /* a hash of the kind, the parameters and the wrapped sampler */
    int64_t epoch;
    uint64_t position;
    bool must_seek; /* set when a call fails: the next call must first seek to `position` */
    tsr__rollback rollback;
};

/* Allocates a sampler of this class: size_bytes of memory that are set to 0, except for the class,
 * the name and one reference. Returns NULL and records the error if there is not enough memory. */
tsr_sampler *tsr__sampler_new(const tsr__sampler_class *class_, size_t size_bytes) TSR_NODISCARD;

/* Ends the creation of a sampler, which has had the result `status`: gives the sampler, or destroys
 * it if there was an error. Returns `status`. */
tsr_status tsr__sampler_created(tsr_status status, tsr_sampler *sampler,
                                tsr_sampler **out) TSR_NODISCARD;

/* Adds a reference, which tsr_sampler_destroy releases. */
tsr_sampler *tsr__sampler_retain(tsr_sampler *sampler);

/* Adds a parameter to the sampler's parameters and fingerprint. A kind of sampler must always add
 * the same parameters in the same order, and then the wrapped sampler. */
void tsr__sampler_add_param(tsr_sampler *sampler, const char *name, tsr__sampler_param_form form,
                            uint64_t value);
/* Adds PyTorch's options as parameters. Unless `is_torch` is true, all of their values are 0. */
void tsr__sampler_add_torch(tsr_sampler *sampler, bool is_torch, const tsr_torch_options *torch);
/* Sets the wrapped sampler, adds a reference to it, and adds it to the fingerprint. */
void tsr__sampler_set_inner(tsr_sampler *sampler, tsr_sampler *inner);

/* Returns the name of a kind of sampler, or "?" if there is no kind with this number. */
const char *tsr__sampler_kind_name(unsigned kind);

/* Writes the parameters of the sampler and of all samplers that it wraps. */
void tsr__state_put_params(tsr__state_writer *writer, const tsr_sampler *sampler);
/* Fails with a text about the first parameter that differs between a state and the sampler. The
 * state must be of the same kind of sampler, and its parameters must be within the first `end`
 * bytes. */
tsr_status tsr__state_refuse_params(const tsr_sampler *sampler, const uint8_t *bytes, size_t end);

/* Moves to `position` as tsr_sampler_seek does, but moves to the end if that comes first. */
tsr_status tsr__sampler_seek_up_to(tsr_sampler *sampler, uint64_t position, uint64_t *reached);

/* Returns the largest number of items that an epoch can have, or UINT64_MAX if this number is
 * unknown. */
uint64_t tsr__sampler_max_length(const tsr_sampler *sampler);

/* Returns the largest number of indices in a batch. It is not more than the number of items, so
 * that a caller can allocate memory for it. It is at least 1, because 0 means that a sampler gives
 * single indices. */
static inline uint64_t tsr__batch_max(int64_t batch_size, uint64_t items)
{
    return tsr__min_u64((uint64_t)batch_size, tsr__max_u64(items, 1));
}

/* If must_seek is set, because a call has failed, moves the sampler back to `position`. */
tsr_status tsr__sampler_recover(tsr_sampler *sampler);

/* Adds a value to a fingerprint, which is a hash. Do not use it for data
 * that an adversary chooses. */
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

/* Converts a signed number to an unsigned one that is small if the signed number is close to 0. */
static inline uint64_t tsr__zigzag(int64_t value)
{
    return value < 0 ? ~((uint64_t)value << 1) : (uint64_t)value << 1;
}

static inline int64_t tsr__unzigzag(uint64_t value)
{
    return tsr__as_i64((value & 1) != 0 ? ~(value >> 1) : value >> 1);
}

/* Checks that n is 1 … 2^62 and that num_samples is 0 … 2^62. Sets *samples to num_samples, or to n
 * if num_samples is 0. */
tsr_status tsr__sampler_check_samples(const char *what, uint64_t n, int64_t num_samples,
                                      uint64_t *samples);

#endif
