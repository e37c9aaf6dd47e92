/* Error texts: who detects an error first records its text, and callers pass the status on. */
#ifndef TSR_BASE_ERROR_H
#define TSR_BASE_ERROR_H

#include "tessera/base.h"

#if defined(__GNUC__)
#define TSR__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TSR__PRINTF(fmt, args)
#endif

/* Bytes of a recorded text, with its terminating zero. A sentence with several shapes fits; longer
 * texts are cut and end in "…". */
#define TSR__ERROR_TEXT 1024

/* Records the calling thread's error text and returns `status`, for use in a return statement. */
tsr_status tsr__fail(tsr_status status, const char *format, ...) TSR__PRINTF(2, 3);

/* Puts "context: " before the recorded text. A caller uses it to say what the failed step belongs
 * to. */
tsr_status tsr__fail_context(tsr_status status, const char *format, ...) TSR__PRINTF(2, 3);

/* A saved error text. A caller takes the thread's text before calls that may record another, and
 * puts it back after them. */
typedef struct tsr__error {
    char text[TSR__ERROR_TEXT];
} tsr__error;

/* Returns the thread's text and clears it. */
tsr__error tsr__error_take(void);
void tsr__error_put_back(const tsr__error *error);

void tsr__log(tsr_log_level level, const char *format, ...) TSR__PRINTF(2, 3);

/* Returns TSR_ERR_INVALID with this text unless the condition holds:
 * TSR__REQUIRE(n > 0, "fill: n is %d", n). */
#define TSR__REQUIRE(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return tsr__fail(TSR_ERR_INVALID, __VA_ARGS__);                                        \
    } while (0)

/* Returns the status of a call that failed. The function that detected the failure has recorded its
 * text. */
#define TSR__TRY(call)                                                                             \
    do {                                                                                           \
        tsr_status tsr__status_ = (call);                                                          \
        if (tsr__status_ != TSR_OK)                                                                \
            return tsr__status_;                                                                   \
    } while (0)

#endif
