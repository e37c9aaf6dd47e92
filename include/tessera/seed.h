/* Seeds for everything in a job that draws random numbers: the process, its devices, its data
 * loading workers and single operations. All are derived from one base seed. Every seeding is
 * logged. A snapshot saves the generators, so that a job can continue with them.
 *
 *     tsr_seed_manager *seeds = NULL;
 *     tsr_seed_manager_create(tsr_seed_manager_params(.device_count = 4), &seeds);
 *     tsr_seed_global(seeds, 42);               // the process, and devices 0 … 3
 *     tsr_seed_all(seeds, TSR_SEED_WORKER, 100, 2); // workers 0 and 1
 *     tsr_seed_of(seeds, TSR_SEED_DEVICE, 3, &seed); // 45
 *
 * A seed is a signed 64-bit number. Generators receive negative seeds in two's complement. Only one
 * thread at a time may use a manager; functions that take none are thread-safe. */
#ifndef TESSERA_SEED_H
#define TESSERA_SEED_H

#include <stdint.h>

#include "tessera/base.h"
#include "tessera/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Deriving seeds ------------------------------------------------------------------------------- */

typedef enum tsr_seed_kind {
    TSR_SEED_PROCESS = 0,
    TSR_SEED_DEVICE = 1,
    TSR_SEED_WORKER = 2,
    TSR_SEED_OP = 3 /* one operation on one device */
} tsr_seed_kind;

/* Returns "process", "device", "worker" or "op", or "?" for any other value. The string is in
 * static storage. */
TSR_API const char *tsr_seed_kind_name(tsr_seed_kind kind);

/* How seeds are derived from a base seed. */
typedef enum tsr_seed_strategy {
    /* Formulas that are easy to remember and to reproduce elsewhere:
     *
     *     process    base
     *     device     base + device
     *     worker     base + worker
     *     op         base + device · 1000 + op
     *
     * Device 1 and worker 1 get the same seed, and two bases may give some of the same seeds. */
    TSR_SEED_STRATEGY_DOCUMENTED = 0,
    /* A hash of all members. With one base, no two points have the same seed. The members other
     * than the base are packed, from the highest bit down, as
     *
     *     kind: 2 bits  node: 14  device: 8  worker: 10  epoch: 20  op: 10
     *
     * into a 64-bit number p. The seed is threefry2x32-20 with the key (high word, low word of
     * base) and the counter (high word, low word of p); the first word of the result is the seed's
     * high word. This is a bijection for a fixed key, so different p give different seeds. Seeds of
     * different bases are as independent as random 64-bit numbers. */
    TSR_SEED_STRATEGY_HASHED = 1
} tsr_seed_strategy;

/* What a seed is for: the base seed, and the process, device, worker or operation that gets the
 * seed. Members that do not apply are 0. A value that never changes: hashed seeds use all bits of
 * its members. */
typedef struct tsr_seed_point {
    int64_t base;
    tsr_seed_kind kind;
    int node;      /* hashed: 0 … 16383 */
    int device;    /* hashed: 0 … 255 */
    int worker;    /* hashed: 0 … 1023 */
    int64_t epoch; /* hashed: 0 … 1048575 */
    int op;        /* documented: 0 … 999; hashed: 0 … 1023 */
} tsr_seed_point;

/* Derives the seed of a point. Errors of both strategies: TSR_ERR_INVALID for an unknown kind or
 * strategy. Documented: TSR_ERR_INVALID for a negative id, an op outside 0 … 999 (its seed would
 * belong to another device), and a member that is not 0 but that the formula does not use;
 * TSR_ERR_OVERFLOW if the sum does not fit 64 bits. Hashed: TSR_ERR_INVALID for a member outside
 * its limits. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_derive(tsr_seed_strategy strategy,
                                                 const tsr_seed_point *point, int64_t *seed);

/* 128 bits: the seed and stream for tsr_rng_init of kind philox. No two points have the same key,
 * whatever their bases. The key is Philox4x32-10 of the counter (low, high word of p, low, high
 * word of base), where p is the number of the hashed strategy, under the key 0x5445535345524131
 * ("TESSERA1"). For this key, Philox is a bijection of 128-bit numbers. The words of the result,
 * lowest first, are the seed and then the stream. Errors: those of the hashed strategy. */
typedef struct tsr_seed_key {
    uint64_t seed;
    uint64_t stream;
} tsr_seed_key;
TSR_API TSR_NODISCARD tsr_status tsr_seed_derive_key(const tsr_seed_point *point,
                                                     tsr_seed_key *key);

/* The manager ---------------------------------------------------------------------------------- */

typedef struct tsr_seed_manager_params {
    size_t struct_size;
    tsr_seed_strategy strategy;
    /* The caller's formula, used instead of the strategy's if not NULL. It receives `user`. If it
     * fails, the call that needs the seed returns its status. */
    tsr_status (*derive)(void *user, const tsr_seed_point *point, int64_t *seed);
    void *user;

    tsr_rng_kind rng; /* the generator of every stream. Hashed seeds need Philox or threefry: the
                         other generators use or accept only 32 bits of a seed */
    int device_count; /* devices of this process; 0: one. Hashed: at most 256 */
    int worker_count; /* workers that tsr_seed_global seeds; 0: none. Hashed: at most 1024 */
    int node;         /* number of this process; documented formulas require 0 */
} tsr_seed_manager_params;
#define tsr_seed_manager_params(...)                                                               \
    (&(tsr_seed_manager_params){.struct_size = sizeof(tsr_seed_manager_params), __VA_ARGS__})

typedef struct tsr_seed_manager tsr_seed_manager;

/* Creates a manager in which nothing is seeded. `params` may be NULL. Errors: TSR_ERR_INVALID for
 * an invalid count, node, strategy or generator, and for values that are invalid together;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_manager_create(const tsr_seed_manager_params *params,
                                                         tsr_seed_manager **out);
/* Destroys a manager and sets *manager to NULL. NULL is allowed. */
TSR_API void tsr_seed_manager_destroy(tsr_seed_manager **manager);

/* Sets the epoch for which later calls derive seeds. It is 0 at first. The documented formulas
 * require 0; the hashed strategy and the caller's formula use it. Errors: TSR_ERR_INVALID for an
 * epoch outside 0 … 1048575. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_set_epoch(tsr_seed_manager *manager, int64_t epoch);

/* Seeds the process, its devices and its workers in one call. Every call that seeds something
 * replaces its earlier seed and restarts its stream; on failure it changes nothing. Errors: those
 * of the strategy, TSR_ERR_INVALID for a seed that the generator does not accept,
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_global(tsr_seed_manager *manager, int64_t base);

/* Seeds devices or workers 0 … count − 1 from a base seed. A count of 0 means the device_count or
 * worker_count of the params. Errors: TSR_ERR_INVALID for another kind and for a count outside 1 …
 * TSR_MAX_SEED, and as for tsr_seed_global. */
#define TSR_MAX_SEED 65536
TSR_API TSR_NODISCARD tsr_status tsr_seed_all(tsr_seed_manager *manager, tsr_seed_kind kind,
                                              int64_t base, int count);
/* Seeds the process (id 0), a device or a worker with exactly this seed. Errors: TSR_ERR_INVALID
 * for the kind op, an id outside 0 … TSR_MAX_SEED − 1, and for a seed that the generator does not
 * accept; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_set(tsr_seed_manager *manager, tsr_seed_kind kind, int id,
                                              int64_t seed);

/* Gives the seed of the process (id 0), a device or a worker. Errors: TSR_ERR_NOT_FOUND if it has
 * not been seeded: "seed: device 3 has not been seeded"; TSR_ERR_INVALID for the kind op. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_of(const tsr_seed_manager *manager, tsr_seed_kind kind,
                                             int id, int64_t *seed);
/* Derives the seed of one operation on one device by the manager's strategy, with its node and
 * epoch. Nothing is seeded. Errors: those of the strategy. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_of_op(const tsr_seed_manager *manager, int64_t base,
                                                int device, int op, int64_t *seed);

/* Gives the generator of the process (id 0), a device or a worker, from which the caller draws. The
 * manager owns it; it is valid until a snapshot is loaded or the manager is destroyed. Errors:
 * TSR_ERR_NOT_FOUND if it has not been seeded, TSR_ERR_INVALID for kind op, which has no stream. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_stream(tsr_seed_manager *manager, tsr_seed_kind kind,
                                                 int id, tsr_rng **stream);

/* An entry of the log. The log holds every seeding since the manager was created or its log was
 * cleared, oldest first. Each is also sent to the function of tsr_log_set, at level debug. */
typedef struct tsr_seed_event {
    size_t struct_size;
    tsr_seed_kind kind;
    int id;
    int64_t seed;
} tsr_seed_event;
TSR_API uint64_t tsr_seed_event_count(const tsr_seed_manager *manager);
/* Gives entry `index` of the log. Errors: TSR_ERR_NOT_FOUND if there is none. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_get_event(const tsr_seed_manager *manager, uint64_t index,
                                                    tsr_seed_event *event);
TSR_API void tsr_seed_clear_events(tsr_seed_manager *manager);

/* Snapshots ------------------------------------------------------------------------------------ */

typedef enum tsr_seed_format {
    TSR_SEED_FORMAT_BYTES = 0,
    TSR_SEED_FORMAT_JSON = 1 /* text that ends in a newline, without a zero byte */
} tsr_seed_format;

/* Saves every stream, with its seed and the state of its generator, and the epoch. Equal states
 * give equal bytes, on every machine. Writes to the caller's `data`, of `capacity_bytes`.
 * *size_bytes is the number of bytes written or, if `data` is NULL, needed. Errors: TSR_ERR_INVALID
 * for an unknown format, if `capacity_bytes` is too small, or a generator is damaged. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_save(const tsr_seed_manager *manager,
                                               tsr_seed_format format, size_t capacity_bytes,
                                               void *data, size_t *size_bytes);

/* Restores exactly the streams of a snapshot: other streams are no longer seeded. The log and the
 * params do not change. `data` may be any bytes. On failure nothing has changed. Errors:
 * TSR_ERR_INVALID for an unknown format, and naming the offset and the reason; TSR_ERR_NO_MEMORY.
 */
TSR_API TSR_NODISCARD tsr_status tsr_seed_load(tsr_seed_manager *manager, tsr_seed_format format,
                                               const void *data, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
