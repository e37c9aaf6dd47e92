/* Check, whose assertions cost next to nothing where they hold. Its own write their place to the
 * parent process each time, for it to name the last one after a crash; and reading all that takes
 * the square of how often they do. Here each place is written the first time only. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>

/* What the macros of <check.h> call.
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
