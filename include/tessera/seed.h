/* Seeds for everything in a job that draws random numbers: the process, its devices, its data
 * loading workers and single operations. One base seed gives all of them; every seeding is logged;
 * and a snapshot holds the generator of each of them, to continue from.
 *
 *     tsr_seed_manager *seeds = NULL;
 *     tsr_seed_manager_create(tsr_seed_params(.device_count = 4), &seeds);
 *     tsr_seed_global(seeds, 42);               // the process, and devices 0 … 3
 *     tsr_seed_workers(seeds, 100, 2);          // workers 0 and 1
 *     tsr_seed_of_device(seeds, 3, &seed);      // 45
 *
 * A seed is 64 bits, as a signed number; where it goes into a generator, negative ones go in two's
 * complement. A manager belongs to one thread at a time; functions without one are thread-safe. */
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

/* "process", "device", "worker", "op"; "?" for a value that is no kind. Static storage. */
TSR_API const char *tsr_seed_kind_name(tsr_seed_kind kind);

/* What a seed is for. What does not apply is 0. */
typedef struct tsr_seed_point {
    int64_t base;
    tsr_seed_kind kind;
    int node;      /* hashed: 0 … 16383 */
    int device;    /* hashed: 0 … 255 */
    int worker;    /* hashed: 0 … 1023 */
    int64_t epoch; /* hashed: 0 … 1048575 */
    int op;        /* documented: 0 … 999; hashed: 0 … 1023 */
} tsr_seed_point;

/* The formulas that are easy to remember and to reproduce elsewhere:
 *
 *     process    base
 *     device     base + device
 *     worker     base + worker
 *     op         base + device · 1000 + op
 *
 * Device 1 and worker 1 get the same seed, and another base may give seeds that this one gives too:
 * tsr_seed_hashed has neither. Errors: TSR_ERR_INVALID for a negative id, an op outside 0 … 999 (it
 * would be another device's), and a part that the formula has no place for and that is not 0;
 * TSR_ERR_OVERFLOW where the sum does not fit. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_documented(const tsr_seed_point *point, int64_t *seed);

/* base + device · 1000 + op: the same as tsr_seed_documented of kind op. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_deterministic(int64_t base, int device, int op,
                                                        int64_t *seed);

/* All parts count, and with one base no two points have the same seed. The parts are packed, from
 * the top, as
 *
 *     kind: 2 bits  node: 14  device: 8  worker: 10  epoch: 20  op: 10
 *
 * into a 64-bit number p, and the seed is threefry2x32-20 with key (high word, low word of base)
 * and counter (high, low word of p), the first word of the result on top. For a fixed key that is a
 * bijection, so different p give different seeds; seeds of different bases are as independent as
 * random 64-bit numbers. Errors: TSR_ERR_INVALID for a part outside its limits. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_hashed(const tsr_seed_point *point, int64_t *seed);

/* 128 bits, the seed and stream of a tsr_philox: no two points share a key, whatever their bases.
 * It is Philox4x32-10 of the counter (low, high word of p, low, high word of base) under the key
 * 0x5445535345524131 ("TESSERA1"), a bijection too: the words of the result, lowest first, are the
 * seed and then the stream. Errors as above. */
typedef struct tsr_seed_key {
    uint64_t seed;
    uint64_t stream;
} tsr_seed_key;
TSR_API TSR_NODISCARD tsr_status tsr_seed_hashed_key(const tsr_seed_point *point,
                                                     tsr_seed_key *key);

/* The manager ---------------------------------------------------------------------------------- */

typedef enum tsr_seed_strategy {
    TSR_SEED_STRATEGY_DOCUMENTED = 0,
    TSR_SEED_STRATEGY_HASHED = 1
} tsr_seed_strategy;

typedef struct tsr_seed_manager_params {
    tsr_seed_strategy strategy;
    /* A formula of the caller's instead of the strategy's; `user` is passed to it. A failure is
     * passed on. */
    tsr_status (*derive)(void *user, const tsr_seed_point *point, int64_t *seed);
    void *user;

    tsr_rng_kind rng; /* of every stream. Hashed seeds need Philox or threefry: the others keep 32
                         bits of a seed, or take no more */
    int device_count; /* devices of this process; 0: one. Hashed: at most 256 */
    int worker_count; /* workers that tsr_seed_global seeds; 0: none. Hashed: at most 1024 */
    int node;         /* of this process; documented formulas have no place for one */
} tsr_seed_manager_params;
#define tsr_seed_params(...) (&(tsr_seed_manager_params){__VA_ARGS__})

typedef struct tsr_seed_manager tsr_seed_manager;

/* A manager with nothing seeded. `params` may be NULL. Errors: TSR_ERR_INVALID for a count, node,
 * strategy or generator that cannot be, also together; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_manager_create(const tsr_seed_manager_params *params,
                                                         tsr_seed_manager **out);
TSR_API void tsr_seed_manager_destroy(tsr_seed_manager **manager);

/* The epoch for which later calls derive seeds; 0 at first. Only hashed and the caller's formulas
 * have a place for another. Errors: TSR_ERR_INVALID for an epoch outside 0 … 1048575. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_set_epoch(tsr_seed_manager *manager, int64_t epoch);

/* Everything in one call: the process, its devices and its workers. All calls that seed replace
 * what was seeded before, start its stream anew, and on failure change nothing. Errors: those of
 * the strategy, TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_global(tsr_seed_manager *manager, int64_t base);

/* Devices 0 … count − 1 from a base seed; 0: as many as the params say. Errors: TSR_ERR_INVALID for
 * a count outside 0 … TSR_MAX_SEED, and as above. */
#define TSR_MAX_SEED 65536
TSR_API TSR_NODISCARD tsr_status tsr_seed_all_devices(tsr_seed_manager *manager, int64_t base,
                                                      int count);
/* One device, with this very seed. Errors: TSR_ERR_INVALID for a device outside 0 …
 * TSR_MAX_SEED − 1, and for a seed that the generator does not take. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_device(tsr_seed_manager *manager, int device,
                                                 int64_t seed);
/* Workers 0 … count − 1 from a base seed. Errors: TSR_ERR_INVALID for a count outside 1 …
 * TSR_MAX_SEED, and as above. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_workers(tsr_seed_manager *manager, int64_t base,
                                                  int count);
/* One worker, with this very seed. Errors as tsr_seed_device. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_worker(tsr_seed_manager *manager, int worker,
                                                 int64_t seed);

/* What something was seeded with. Errors: TSR_ERR_NOT_FOUND where it was not: "seed: device 3 has
 * not been seeded". */
TSR_API TSR_NODISCARD tsr_status tsr_seed_of_process(const tsr_seed_manager *manager,
                                                     int64_t *seed);
TSR_API TSR_NODISCARD tsr_status tsr_seed_of_device(const tsr_seed_manager *manager, int device,
                                                    int64_t *seed);
TSR_API TSR_NODISCARD tsr_status tsr_seed_of_worker(const tsr_seed_manager *manager, int worker,
                                                    int64_t *seed);
/* What the manager's strategy gives for one operation on one device, at its node and epoch. Nothing
 * is seeded. Errors: those of the strategy. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_of_op(const tsr_seed_manager *manager, int64_t base,
                                                int device, int op, int64_t *seed);

/* The generator of the process (id 0), a device or a worker, which its user draws from. It stays
 * the manager's, and valid until the manager is restored or destroyed. Errors: TSR_ERR_NOT_FOUND
 * where it was not seeded, TSR_ERR_INVALID for kind op, which has no stream. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_stream(tsr_seed_manager *manager, tsr_seed_kind kind,
                                                 int id, tsr_rng **stream);

/* The log: every seeding since the manager was created or its log cleared, oldest first. Each is
 * also sent to tsr_log_set's function, at level debug. */
typedef struct tsr_seed_event {
    tsr_seed_kind kind;
    int id;
    int64_t seed;
} tsr_seed_event;
TSR_API uint64_t tsr_seed_log_count(const tsr_seed_manager *manager);
/* Errors: TSR_ERR_NOT_FOUND when there are not so many. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_log_get(const tsr_seed_manager *manager, uint64_t index,
                                                  tsr_seed_event *event);
TSR_API void tsr_seed_log_clear(tsr_seed_manager *manager);

/* Snapshots ------------------------------------------------------------------------------------ */

/* Every stream with its seed and the state of its generator, and the epoch; the same bytes for the
 * same state, on every machine. Written to the caller's memory; *size_bytes is what was written, or
 * with `data` NULL what would be. The JSON ends in a newline, without a zero byte. Errors:
 * TSR_ERR_INVALID when `capacity_bytes` is too small, or a generator has been damaged. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_save(const tsr_seed_manager *manager,
                                               size_t capacity_bytes, void *data,
                                               size_t *size_bytes);
TSR_API TSR_NODISCARD tsr_status tsr_seed_save_json(const tsr_seed_manager *manager,
                                                    size_t capacity_bytes, char *text,
                                                    size_t *size_bytes);

/* Brings back exactly the streams of a snapshot: others are no longer seeded. The log and the
 * params stay. Any bytes may be given. Errors: TSR_ERR_INVALID naming the offset, or in valid JSON
 * the member, and the reason; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_seed_restore(tsr_seed_manager *manager, const void *data,
                                                  size_t size_bytes);
TSR_API TSR_NODISCARD tsr_status tsr_seed_restore_json(tsr_seed_manager *manager, const char *text,
                                                       size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
