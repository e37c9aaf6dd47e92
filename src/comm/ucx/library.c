#define TSR__UCX_LIBRARY_ITSELF
#include "comm/ucx/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

tsr__ucx_library tsr__ucx;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool opened; /* guarded by it */

/* Read while UCX is being loaded; the user's own choice comes first. Signals stay the program's. */
static void set_environment(void)
{
    (void)setenv("UCX_HANDLE_ERRORS", "none", 0);
    (void)setenv("UCX_DEBUG_SIGNO", "0", 0);
}

static tsr_status complain(const char *what)
{
    const char *why = dlerror();
    return tsr__fail(TSR_ERR_UNSUPPORTED, "comm: UCX: %s: %s", what, why ? why : "unknown");
}

/* Stays open: UCX has hooks and threads of its own. */
static tsr_status open_library(void)
{
    set_environment();
    void *ucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!ucs)
        return complain("libucs.so.0 cannot be opened");
    void *ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!ucp)
        return complain("libucp.so.0 cannot be opened");
#define TAKE(handle, name)                                                                         \
    {                                                                                              \
        void *symbol = dlsym(handle, #name);                                                       \
        if (!symbol)                                                                               \
            return complain("there is no " #name);                                                 \
        memcpy(&tsr__ucx.name, &symbol, sizeof symbol);                                            \
    }
#define TAKE_UCS(name) TAKE(ucs, name)
#define TAKE_UCP(name) TAKE(ucp, name)
    TSR__UCS_FUNCTIONS(TAKE_UCS)
    TSR__UCP_FUNCTIONS(TAKE_UCP)
    opened = true;
    return TSR_OK;
}

tsr_status tsr__ucx_library_open(void)
{
    pthread_mutex_lock(&lock);
    tsr_status status = opened ? TSR_OK : open_library();
    pthread_mutex_unlock(&lock);
    return status;
}
