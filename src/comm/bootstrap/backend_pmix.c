/* The backend for PMIx, the interface of mpirun, prterun and srun --mpi=pmix. To exchange data, a
 * rank puts its contribution into PMIx's store under the key of this exchange, takes part in a
 * fence that distributes the data, and reads the contributions of the other ranks. */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* pmix.h uses strncasecmp without including its header. */
#include <strings.h>
#include <unistd.h>

#include <dlfcn.h>
#include <pmix.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"
#include "comm/bootstrap/completion.h"

/* libpmix -------------------------------------------------------------------------------------
 *
 * The library is opened at run time, so that libtessera also works where it is not installed. */

#define PMIX_FUNCTIONS(X)                                                                          \
    X(Init)                                                                                        \
    X(Finalize)                                                                                    \
    X(Put)                                                                                         \
    X(Commit)                                                                                      \
    X(Fence_nb)                                                                                    \
    X(Get)                                                                                         \
    X(Error_string)

typedef struct pmix_functions {
#define X(name) __typeof__(PMIx_##name) *(name);
    PMIX_FUNCTIONS(X)
#undef X
} pmix_functions;

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
/* library_lock guards the following variables. */
static pmix_functions library;
static bool opened, joined;
static pmix_proc_t myself;
static pid_t process;

static tsr_status fail_to_open_library(const char *what)
{
    const char *why = dlerror();
    return tsr__fail(
        TSR_ERR_UNSUPPORTED,
        "bootstrap: this process was started through PMIx, but %s: %s; TESSERA_BOOT=env "
        "uses RANK, WORLD_SIZE and MASTER_ADDR instead",
        what, why != NULL ? why : "unknown");
}

/* Opens libpmix. It is never closed, because PMIx has threads of its own. */
static tsr_status open_library(void)
{
    void *handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return fail_to_open_library("libpmix.so.2 cannot be opened");
#define X(name)                                                                                    \
    {                                                                                              \
        void *symbol = dlsym(handle, "PMIx_" #name);                                               \
        if (symbol == NULL)                                                                        \
            return fail_to_open_library("libpmix.so.2 has no PMIx_" #name);                        \
        memcpy(&library.name, &symbol, sizeof symbol);                                             \
    }
    PMIX_FUNCTIONS(X)
#undef X
    opened = true;
    return TSR_OK;
}

/* Disconnects from the server at exit. Does nothing in a child created by fork(), because the
 * launcher would take the child's exit for the exit of its parent. */
static void finalize_at_exit(void)
{
    if (getpid() == process)
        (void)library.Finalize(NULL, 0);
}

static tsr_status init_pmix(void)
{
    pmix_status_t code = library.Init(&myself, NULL, 0);
    if (code != PMIX_SUCCESS)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "bootstrap: PMIx: its server cannot be reached: %s (%d)",
                         library.Error_string(code), (int)code);
    process = getpid();
    if (atexit(finalize_at_exit) != 0) {
        (void)library.Finalize(NULL, 0);
        return tsr__fail(TSR_ERR_NO_MEMORY, "bootstrap: PMIx: atexit() failed");
    }
    joined = true;
    return TSR_OK;
}

/* Opens the library and connects to the launcher's server. *me is set to the name that this process
 * has there. Connects once per process and disconnects at exit, for two reasons: a second PMIx_Init
 * after PMIx_Finalize loses data (seen with PMIx 4.2.2 under OpenMPI 4.1.4), and a process that
 * ends without PMIx_Finalize aborts its job. */
static tsr_status join_pmix(const pmix_functions **out, pmix_proc_t *me)
{
    pthread_mutex_lock(&library_lock);
    tsr_status status = opened ? TSR_OK : open_library();
    if (status == TSR_OK && !joined)
        status = init_pmix();
    if (status == TSR_OK) {
        *out = &library;
        *me = myself;
    }
    pthread_mutex_unlock(&library_lock);
    return status;
}

/* Exchanges ---------------------------------------------------------------------------------------
 */

typedef struct pmix_state {
    const pmix_functions *pmix;
    pmix_proc_t me;
    int32_t size;
} pmix_state;

/* The number of exchanges that this process has made so far, with any bootstrap. It is part of the
 * key. All ranks make the same exchanges in the same order, so they use the same key. */
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t exchange_count;

static tsr_status fail_pmix(const pmix_state *state, tsr_status status, const char *what,
                            pmix_status_t code)
{
    return tsr__fail(status, "bootstrap: PMIx: %s: %s (%d)", what, state->pmix->Error_string(code),
                     (int)code);
}

/* Frees a value that libpmix has allocated. */
static void free_value(pmix_value_t *value)
{
    if (value->type == PMIX_BYTE_OBJECT)
        free(value->data.bo.bytes);
    free(value);
}

static tsr_status get_number(const pmix_state *state, bool of_job, const char *key, int64_t low,
                             int64_t high, int32_t *out)
{
    pmix_proc_t who = state->me;
    pmix_value_t *value = NULL;
    if (of_job)
        who.rank = PMIX_RANK_WILDCARD;
    pmix_status_t code = state->pmix->Get(&who, key, NULL, 0, &value);
    if (code != PMIX_SUCCESS || value == NULL)
        return fail_pmix(state, TSR_ERR_UNSUPPORTED, key, code);
    int64_t number = -1;
    if (value->type == PMIX_UINT32)
        number = value->data.uint32;
    else if (value->type == PMIX_UINT16)
        number = value->data.uint16;
    free_value(value);
    TSR__REQUIRE(number >= low && number <= high,
                 "bootstrap: PMIx: %s is %" PRId64 ", not from %" PRId64 " to %" PRId64, key,
                 number, low, high);
    *out = (int32_t)number;
    return TSR_OK;
}

typedef struct fence {
    tsr__completion completion;
    pmix_status_t code;
} fence;

static void fence_free(fence *waiting)
{
    tsr__completion_finish(&waiting->completion);
    tsr__free(waiting);
}

static void on_fence(pmix_status_t code, void *opaque)
{
    fence *waiting = opaque;
    waiting->code = code;
    if (tsr__completion_signal(&waiting->completion))
        fence_free(waiting);
}

static tsr_status fence_wait(const pmix_state *state, fence *waiting,
                             const tsr__bootstrap_limit *limit)
{
    if (!tsr__completion_wait(&waiting->completion, limit->deadline_ns))
        return tsr__fail(TSR_ERR_TIMEOUT,
                         "bootstrap: PMIx: after %.1f s not all of %" PRId32
                         " ranks have joined the exchange",
                         (double)limit->timeout_ns * 1e-9, state->size);
    const pmix_status_t code = waiting->code;
    fence_free(waiting);
    return code == PMIX_SUCCESS ? TSR_OK : fail_pmix(state, TSR_ERR_PEER_LOST, "fence", code);
}

static tsr_status fence_all(const pmix_state *state, const tsr__bootstrap_limit *limit)
{
    pmix_proc_t everyone = state->me;
    everyone.rank = PMIX_RANK_WILDCARD;
    pmix_info_t collect = {0};
    snprintf(collect.key, sizeof collect.key, "%s", PMIX_COLLECT_DATA);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    fence *waiting = tsr__calloc(1, sizeof *waiting);
    if (waiting == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr__completion_init(&waiting->completion);
    pmix_status_t code = state->pmix->Fence_nb(&everyone, 1, &collect, 1, on_fence, waiting);
    if (code == PMIX_SUCCESS)
        return fence_wait(state, waiting, limit);
    fence_free(waiting);
    return code == PMIX_OPERATION_SUCCEEDED ? TSR_OK
                                            : fail_pmix(state, TSR_ERR_PEER_LOST, "fence", code);
}

static tsr_status store_contribution(const pmix_state *state, const char *key, const void *mine,
                                     uint64_t size_bytes)
{
    /* PMIx does not accept an empty value, so an additional byte comes before the contribution.
     * PMIx copies the value. */
    uint8_t *bytes = tsr__calloc((size_t)size_bytes + 1, 1);
    if (bytes == NULL)
        return TSR_ERR_NO_MEMORY;
    if (size_bytes > 0)
        memcpy(bytes + 1, mine, (size_t)size_bytes);
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
    value.data.bo.bytes = (char *)bytes;
    value.data.bo.size = (size_t)size_bytes + 1;
    pmix_status_t code = state->pmix->Put(PMIX_GLOBAL, key, &value);
    tsr__free(bytes);
    if (code == PMIX_SUCCESS)
        code = state->pmix->Commit();
    return code == PMIX_SUCCESS ? TSR_OK
                                : fail_pmix(state, TSR_ERR_DRIVER, "storing a contribution", code);
}

static tsr_status get_contribution(const pmix_state *state, const char *key, int32_t rank,
                                   const tsr__bootstrap_limit *limit, pmix_value_t **out)
{
    uint64_t now = tsr__now_ns();
    uint64_t left_s = limit->deadline_ns > now ? (limit->deadline_ns - now) / TSR__SECOND : 0;
    pmix_proc_t who = state->me;
    who.rank = (pmix_rank_t)rank;
    pmix_info_t timeout = {0};
    snprintf(timeout.key, sizeof timeout.key, "%s", PMIX_TIMEOUT);
    timeout.value.type = PMIX_INT;
    timeout.value.data.integer = (int)(left_s < 86400 ? left_s + 1 : 86400);
    pmix_value_t *value = NULL;
    pmix_status_t code = state->pmix->Get(&who, key, &timeout, 1, &value);
    if (code == PMIX_SUCCESS && value != NULL && value->type == PMIX_BYTE_OBJECT &&
        value->data.bo.size >= 1) {
        *out = value;
        return TSR_OK;
    }
    if (code == PMIX_SUCCESS && value != NULL) {
        free_value(value);
        code = PMIX_ERR_BAD_PARAM;
    }
    char what[64];
    snprintf(what, sizeof what, "the contribution of rank %" PRId32, rank);
    return fail_pmix(state, TSR_ERR_PEER_LOST, what, code);
}

static tsr_status get_all(const pmix_state *state, const char *key,
                          const tsr__bootstrap_limit *limit, pmix_value_t **values, uint64_t *sizes,
                          tsr__bootstrap_gathered *out)
{
    for (int32_t rank = 0; rank < state->size; rank++) {
        TSR__TRY(get_contribution(state, key, rank, limit, &values[rank]));
        sizes[rank] = values[rank]->data.bo.size - 1;
    }
    TSR__TRY(tsr__bootstrap_gathered_init(state->size, sizes, out));
    for (int32_t rank = 0; rank < state->size; rank++)
        memcpy(out->bytes + out->starts[rank], values[rank]->data.bo.bytes + 1,
               (size_t)sizes[rank]);
    return TSR_OK;
}

static tsr_status exchange_through_pmix(void *opaque, const void *mine, uint64_t size_bytes,
                                        const tsr__bootstrap_limit *limit,
                                        tsr__bootstrap_gathered *out)
{
    const pmix_state *state = opaque;
    char key[64];
    pthread_mutex_lock(&count_lock);
    snprintf(key, sizeof key, "tessera.exchange.%" PRIu64, exchange_count++);
    pthread_mutex_unlock(&count_lock);
    TSR__TRY(store_contribution(state, key, mine, size_bytes));
    TSR__TRY(fence_all(state, limit));

    pmix_value_t **values = tsr__calloc((size_t)state->size, sizeof *values);
    uint64_t *sizes = tsr__calloc((size_t)state->size, sizeof *sizes);
    tsr_status status = values == NULL || sizes == NULL
                            ? TSR_ERR_NO_MEMORY
                            : get_all(state, key, limit, values, sizes, out);
    for (int32_t rank = 0; values != NULL && rank < state->size; rank++)
        if (values[rank] != NULL)
            free_value(values[rank]);
    tsr__free(sizes);
    tsr__free(values);
    return status;
}

static tsr_status find_place(pmix_state *state, tsr__bootstrap_place *place)
{
    TSR__TRY(get_number(state, true, PMIX_JOB_SIZE, 1, INT32_MAX, &state->size));
    TSR__TRY(tsr__bootstrap_check_size(state->size));
    TSR__REQUIRE(state->me.rank < (pmix_rank_t)state->size,
                 "bootstrap: PMIx: the rank is %" PRIu32 ", not from 0 to %" PRId32, state->me.rank,
                 state->size - 1);
    place->rank = (int32_t)state->me.rank;
    place->size = state->size;
    /* Get the local rank and size, which not every server provides. */
    place->local_rank = place->local_size = -1;
    if (get_number(state, true, PMIX_LOCAL_SIZE, 1, state->size, &place->local_size) != TSR_OK ||
        get_number(state, false, PMIX_LOCAL_RANK, 0, place->local_size - 1, &place->local_rank) !=
            TSR_OK)
        place->local_rank = place->local_size = -1;
    return TSR_OK;
}

tsr_status tsr__bootstrap_open_pmix(const tsr__bootstrap_params *params,
                                    tsr__bootstrap_place *place,
                                    const tsr__bootstrap_backend **backend, void **out)
{
    static const tsr__bootstrap_backend pmix = {"PMIx", exchange_through_pmix, tsr__free, NULL};
    (void)params;
    /* Fail early if no launcher has started this process: PMIx_Init would try to reach a server
     * that does not exist. */
    TSR__REQUIRE(
        tsr__env_text("PMIX_NAMESPACE") != NULL && tsr__env_text("PMIX_RANK") != NULL,
        "bootstrap: PMIX_NAMESPACE and PMIX_RANK are not set: this process was not started "
        "through PMIx");
    pmix_state *state = tsr__calloc(1, sizeof *state);
    if (state == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = join_pmix(&state->pmix, &state->me);
    if (status == TSR_OK)
        status = find_place(state, place);
    if (status != TSR_OK) {
        tsr__free(state);
        return status;
    }
    *backend = &pmix;
    *out = state;
    return TSR_OK;
}
