/* What the example programs share: giving up early, a clock, values of options, and
 * what became of standard output. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <stdbool.h>

#include "tessera/tessera.h"

/* Leaves the function with the library's error. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status status_ = (call);                                                               \
        if (status_ != TSR_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

/* Since some fixed moment. */
double seconds_now(void);

/* Says on standard error what is wrong with an option; false, always. */
bool wrong_option(const char *program, const char *what, const char *value);

/* These say what is wrong themselves, and leave `out` as it was. */
bool parse_int(const char *program, const char *name, const char *text, int least, int most,
               int *out);
bool parse_dtype(const char *program, const char *text, tsr_dtype *out);

/* The status to exit with: `code`, or where that is 0 and not all of standard output could be
 * written, 1, and standard error says why. */
int checked_output(const char *program, int code);

#endif
