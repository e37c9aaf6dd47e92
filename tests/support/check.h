/* Check, with cheaper assertions. Check's own macros send their location to the parent process each
 * time, so that it can name the last one after a crash. Reading all these locations takes time
 * quadratic in their number. Here each location is sent only the first time. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Replaces the function that the macros of <check.h> call.
 * NOLINTNEXTLINE(bugprone-reserved-identifier): its name */
#define _mark_point(file, line)                                                                    \
    __extension__({                                                                                \
        static _Atomic bool is_marked;                                                             \
        if (!atomic_load_explicit(&is_marked, memory_order_relaxed)) {                             \
            atomic_store_explicit(&is_marked, true, memory_order_relaxed);                         \
            (_mark_point)(file, line);                                                             \
        }                                                                                          \
    })

#endif
