/* Recording the first error in words, and passing it on. */
#ifndef TSR_BASE_ERROR_H
#define TSR_BASE_ERROR_H

#include "tessera/base.h"

#if defined(__GNUC__)
#define TSR__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TSR__PRINTF(fmt, args)
#endif

/* Bytes of a recorded text, with its end: long enough for a sentence with several shapes in it;
 * longer texts end in "…". */
#define TSR__ERROR_TEXT 1024

/* Records the calling thread's error text and returns `status`, so that it can stand in a return.
 */
tsr_status tsr__fail(tsr_status status, const char *format, ...) TSR__PRINTF(2, 3);

/* Puts "context: " before the recorded text, for a caller that knows what the failure was part of.
 */
tsr_status tsr__fail_context(tsr_status status, const char *format, ...) TSR__PRINTF(2, 3);

/* The calling thread's error text, set aside while other calls may record theirs. */
typedef struct tsr__error {
    char text[TSR__ERROR_TEXT];
} tsr__error;

/* Leaves no text recorded. */
tsr__error tsr__error_take(void);
void tsr__error_put_back(const tsr__error *error);

void tsr__log(tsr_log_level level, const char *format, ...) TSR__PRINTF(2, 3);

/* TSR__REQUIRE(n > 0, "fill: n is %d", n): a caller's mistake becomes TSR_ERR_INVALID. */
#define TSR__REQUIRE(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return tsr__fail(TSR_ERR_INVALID, __VA_ARGS__);                                        \
    } while (0)

/* Passes a failure on; whoever detected it has recorded it. */
#define TSR__TRY(call)                                                                             \
    do {                                                                                           \
        tsr_status tsr__status_ = (call);                                                          \
        if (tsr__status_ != TSR_OK)                                                                \
            return tsr__status_;                                                                   \
    } while (0)

#endif
