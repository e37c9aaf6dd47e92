/* Opens the UCX library. */
#define TSR__UCX_LIBRARY_ITSELF
#include "comm/ucx/ucx_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

tsr__ucx_library tsr__ucx;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool opened; /* guarded by `lock` */

/* Tells UCX not to handle signals, because signals belong to the program. UCX reads these variables
 * while it is loaded. A value that the user has set is not changed. */
static void set_environment(void)
{
    (void)setenv("UCX_HANDLE_ERRORS", "none", 0);
    (void)setenv("UCX_DEBUG_SIGNO", "0", 0);
}

static tsr_status fail_loading(const char *what)
{
    const char *why = dlerror();
    return tsr__fail(TSR_ERR_UNSUPPORTED, "comm: UCX: %s: %s", what, why ? why : "unknown");
}

/* Opens the library. It is never closed, because UCX has hooks and threads of its own. */
static tsr_status open_library(void)
{
    set_environment();
    void *ucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!ucs)
        return fail_loading("libucs.so.0 cannot be opened");
    void *ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!ucp)
        return fail_loading("libucp.so.0 cannot be opened");
#define TAKE(handle, name)                                                                         \
    {                                                                                              \
        void *symbol = dlsym(handle, #name);                                                       \
        if (!symbol)                                                                               \
            return fail_loading("it has no function " #name);                                      \
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
