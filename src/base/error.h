/* Error texts. The function that detects an error first records its text. Its callers only return
 * the status. */
#ifndef TSR_BASE_ERROR_H
#define TSR_BASE_ERROR_H

#include "tessera/base.h"

#if defined(__GNUC__)
#define TSR__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TSR__PRINTF(fmt, args)
#endif

/* The size of a recorded text in bytes, including its terminating zero. There is room for a
 * sentence with several shapes; a longer text is cut and ends in "…". */
#define TSR__ERROR_TEXT 1024

/* Formats a text, records it as the calling thread's last error and returns `status`, so that a
 * function can write `return tsr__fail(…)`. */
tsr_status tsr__fail(tsr_status status, const char *format, ...) TSR__PRINTF(2, 3);

/* Inserts the formatted context and ": " before the recorded error text, and returns `status`. A
 * caller uses this function to say to which larger operation a failed step belongs. */
tsr_status tsr__fail_context(tsr_status status, const char *format, ...) TSR__PRINTF(2, 3);

/* A saved error text. Code that must not change the thread's error text, but calls functions that
 * may record another one, takes the text before these calls and puts it back after them. */
typedef struct tsr__error {
    char text[TSR__ERROR_TEXT];
} tsr__error;

/* tsr__error_take returns the thread's error text and clears it; tsr__error_put_back records it
 * again. */
tsr__error tsr__error_take(void);
void tsr__error_put_back(const tsr__error *error);

void tsr__log(tsr_log_level level, const char *format, ...) TSR__PRINTF(2, 3);

/* Returns from the enclosing function with TSR_ERR_INVALID and this error text if the condition is
 * false. Example: TSR__REQUIRE(n > 0, "fill: n is %d", n). */
#define TSR__REQUIRE(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return tsr__fail(TSR_ERR_INVALID, __VA_ARGS__);                                        \
    } while (0)

/* Returns from the enclosing function with the call's status if the call fails. The function that
 * detected the failure has already recorded the error text. */
#define TSR__TRY(call)                                                                             \
    do {                                                                                           \
        tsr_status tsr__status_ = (call);                                                          \
        if (tsr__status_ != TSR_OK)                                                                \
            return tsr__status_;                                                                   \
    } while (0)

#endif
