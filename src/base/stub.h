/* Stubs of public functions for builds without Vulkan. They return TSR_ERR_UNSUPPORTED, so that
 * programs link and start with any build. Only stub.c files include this. */
#ifndef TSR_BASE_STUB_H
#define TSR_BASE_STUB_H

#include "base/error.h"

/* Stubs do not use their parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TSR__ABSENT(name, ...)                                                                     \
    tsr_status name(__VA_ARGS__)                                                                   \
    {                                                                                              \
        return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: this build of tessera has no Vulkan",           \
                         &#name[sizeof "tsr_" - 1]);                                               \
    }

/* A destroy function: it only sets *object to NULL, because no object can exist. */
#define TSR__FORGET(name, type)                                                                    \
    void name(type **object) /* NOLINT(bugprone-macro-parentheses) */                              \
    {                                                                                              \
        if (object)                                                                                \
            *object = NULL;                                                                        \
    }

#endif
