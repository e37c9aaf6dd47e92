#include "comm/bootstrap/pmix_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* `lock` guards the following variables. */
static tsr__pmix_library library;
static bool opened, joined;
static pmix_proc_t myself;
static pid_t process;

static tsr_status fail_to_open(const char *what)
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
        return fail_to_open("libpmix.so.2 cannot be opened");
#define X(name)                                                                                    \
    {                                                                                              \
        void *symbol = dlsym(handle, "PMIx_" #name);                                               \
        if (symbol == NULL)                                                                        \
            return fail_to_open("libpmix.so.2 has no PMIx_" #name);                                \
        memcpy(&library.name, &symbol, sizeof symbol);                                             \
    }
    TSR__PMIX_FUNCTIONS(X)
#undef X
    opened = true;
    return TSR_OK;
}

/* Disconnects from the server at exit. Does nothing in a child created by fork(), because the
 * launcher would take the child's exit for the exit of its parent. */
static void leave(void)
{
    if (getpid() == process)
        (void)library.Finalize(NULL, 0);
}

static tsr_status join(void)
{
    pmix_status_t code = library.Init(&myself, NULL, 0);
    if (code != PMIX_SUCCESS)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "bootstrap: PMIx: its server cannot be reached: %s (%d)",
                         library.Error_string(code), (int)code);
    process = getpid();
    if (atexit(leave) != 0) {
        (void)library.Finalize(NULL, 0);
        return tsr__fail(TSR_ERR_NO_MEMORY, "bootstrap: PMIx: atexit() failed");
    }
    joined = true;
    return TSR_OK;
}

tsr_status tsr__pmix_join(const tsr__pmix_library **out, pmix_proc_t *me)
{
    pthread_mutex_lock(&lock);
    tsr_status status = opened ? TSR_OK : open_library();
    if (status == TSR_OK && !joined)
        status = join();
    if (status == TSR_OK) {
        *out = &library;
        *me = myself;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
