#include "comm/boot/pmix_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tsr__pmix_library library;
static char problem[512];

static void complain(const char *what)
{
    const char *why = dlerror();
    snprintf(problem, sizeof problem, "%s: %s", what, why != NULL ? why : "unknown");
}

static void open_once(void)
{
    void *handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        complain("libpmix.so.2 cannot be opened");
        return;
    }
#define X(name)                                                                                    \
    {                                                                                              \
        void *symbol = dlsym(handle, "PMIx_" #name);                                               \
        if (symbol == NULL) {                                                                      \
            complain("libpmix.so.2 has no PMIx_" #name);                                           \
            return;                                                                                \
        }                                                                                          \
        memcpy(&library.name, &symbol, sizeof symbol);                                             \
    }
    TSR__PMIX_FUNCTIONS(X)
#undef X
}

tsr_status tsr__pmix_library_open(const tsr__pmix_library **out)
{
    pthread_once(&once, open_once);
    if (problem[0] != '\0')
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "boot: this process was started through PMIx, but %s; TESSERA_BOOT=env uses "
            "RANK, WORLD_SIZE and MASTER_ADDR instead",
            problem);
    *out = &library;
    return TSR_OK;
}
