/* The interface of the backends, and functions that bootstrap.c and the backends share. There is a
 * backend for each kind of bootstrap (bootstrap.h). Only this folder uses this file. */
#ifndef TSR_COMM_BOOTSTRAP_BACKEND_H
#define TSR_COMM_BOOTSTRAP_BACKEND_H

#include "comm/bootstrap/bootstrap.h"

/* How an open bootstrap exchanges contributions. */
typedef struct tsr__bootstrap_backend {
    const char *name; /* how the log names the backend, after the word "through" */
    tsr_status (*exchange)(void *state, const void *mine, uint64_t size_bytes,
                           const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out);
    void (*close)(void *state);
    /* Writes the value of tsr__bootstrap_info.own_address. NULL if the backend uses no network. */
    bool (*own_address)(void *state, struct sockaddr_storage *out);
} tsr__bootstrap_backend;

/* The backend whose state is a tsr__rendezvous. */
extern const tsr__bootstrap_backend tsr__bootstrap_rendezvous;

/* A process's place in its job. local_rank and local_size count the processes of its host; they are
 * −1 if the backend does not know them. */
typedef struct tsr__bootstrap_place {
    int32_t rank, size, local_rank, local_size;
} tsr__bootstrap_place;

/* Opens a backend. Does not wait for the other ranks if the backend can open without them.
 * params->timeout_ns must not be 0. */
typedef tsr_status tsr__bootstrap_open_fn(const tsr__bootstrap_params *params,
                                          tsr__bootstrap_place *place,
                                          const tsr__bootstrap_backend **backend, void **state);
tsr__bootstrap_open_fn tsr__bootstrap_open_pmix, tsr__bootstrap_open_env,
    tsr__bootstrap_open_callback, tsr__bootstrap_open_single, tsr__bootstrap_open_join;

/* Returns TSR_ERR_UNSUPPORTED if `size` is above TSR__BOOTSTRAP_MAX_RANKS. */
tsr_status tsr__bootstrap_check_size(int64_t size) TSR_NODISCARD;

/* Allocates memory for the contributions of `count` ranks with these sizes, filled with zeros. If a
 * size is above TSR__BOOTSTRAP_MAX_BYTES, fails with an error that names the rank. */
tsr_status tsr__bootstrap_gathered_init(int32_t count, const uint64_t *sizes,
                                        tsr__bootstrap_gathered *out) TSR_NODISCARD;

/* In choose_kind.c: chooses the kind that AUTO stands for from the environment. *why is a text for
 * the log, in static storage. Fails if TESSERA_BOOT is invalid. Also fails if a launcher has
 * started several processes that cannot find one another, because otherwise each of them would run
 * as a job of one process. */
tsr_status tsr__bootstrap_choose(tsr__bootstrap_kind *kind, const char **why) TSR_NODISCARD;

#endif
