/* Stubs replace public functions in builds without Vulkan. They return TSR_ERR_UNSUPPORTED, so that
 * a program can be linked and started with any build of the library. Only the files named stub.c
 * include this header. */
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

/* Defines the stub of a destroy function. The stub only sets *object to NULL, because the stubs
 * create no objects that it would have to free. */
#define TSR__FORGET(name, type)                                                                    \
    void name(type **object) /* NOLINT(bugprone-macro-parentheses) */                              \
    {                                                                                              \
        if (object)                                                                                \
            *object = NULL;                                                                        \
    }

#endif
