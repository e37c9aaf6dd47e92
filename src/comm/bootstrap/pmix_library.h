/* libpmix, which is opened at run time so that libtessera also works where libpmix is not
 * installed. */
#ifndef TSR_COMM_BOOTSTRAP_PMIX_LIBRARY_H
#define TSR_COMM_BOOTSTRAP_PMIX_LIBRARY_H

/* pmix.h uses strncasecmp without including its header. */
#include <strings.h>

#include <pmix.h>

#include "tessera/base.h"

#define TSR__PMIX_FUNCTIONS(X)                                                                     \
    X(Init)                                                                                        \
    X(Finalize)                                                                                    \
    X(Put)                                                                                         \
    X(Commit)                                                                                      \
    X(Fence_nb)                                                                                    \
    X(Get)                                                                                         \
    X(Error_string)

typedef struct tsr__pmix_library {
#define X(name) __typeof__(PMIx_##name) *(name);
    TSR__PMIX_FUNCTIONS(X)
#undef X
} tsr__pmix_library;

/* Opens the library and connects to the launcher's server. *me is set to the name that this process
 * has there. Connects once per process and disconnects at exit, for two reasons: a second PMIx_Init
 * after PMIx_Finalize loses data (seen with PMIx 4.2.2 under OpenMPI 4.1.4), and a process that
 * ends without PMIx_Finalize aborts its job. */
tsr_status tsr__pmix_join(const tsr__pmix_library **out, pmix_proc_t *me) TSR_NODISCARD;

#endif
