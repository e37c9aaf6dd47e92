/* libpmix, opened when it is needed: one libtessera works with and without it. */
#ifndef TSR_COMM_BOOT_PMIX_LIBRARY_H
#define TSR_COMM_BOOT_PMIX_LIBRARY_H

/* pmix.h uses strncasecmp, and leaves this to others. */
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
#define X(name) __typeof__(PMIx_##name) *name;
    TSR__PMIX_FUNCTIONS(X)
#undef X
} tsr__pmix_library;

/* Stays open: PMIx's threads outlive their use. */
tsr_status tsr__pmix_library_open(const tsr__pmix_library **out) TSR_NODISCARD;

#endif
