/* Public functions in a build without what they need: they are there and say so, so that programs
 * link and start in any build. For stub.c files alone. */
#ifndef TSR_BASE_STUB_H
#define TSR_BASE_STUB_H

#include "base/error.h"

/* A stub names its parameters for the reader's sake only. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TSR__ABSENT(name, ...)                                                                     \
    tsr_status name(__VA_ARGS__)                                                                   \
    {                                                                                              \
        return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: this build of tessera has no Vulkan",           \
                         &#name[sizeof "tsr_" - 1]);                                               \
    }

/* There is nothing to destroy: nobody can have made one. */
#define TSR__FORGET(name, type)                                                                    \
    void name(type **object) /* NOLINT(bugprone-macro-parentheses) */                              \
    {                                                                                              \
        if (object)                                                                                \
            *object = NULL;                                                                        \
    }

#endif
