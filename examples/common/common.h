/* Helpers of the example programs: error handling, a clock, option values, and a check that
 * standard output was written. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <stdbool.h>

#include "tessera/tessera.h"

/* Returns the status of a call that failed. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status status_ = (call);                                                               \
        if (status_ != TSR_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

/* Returns the seconds since a fixed time. */
double seconds_now(void);

/* Prints to standard error what is wrong with an option. Always returns false. */
bool wrong_option(const char *program, const char *what, const char *value);

/* On a wrong value, these print an error, leave `out` unchanged and return false. */
bool parse_int(const char *program, const char *name, const char *text, int least, int most,
               int *out);
bool parse_number(const char *program, const char *name, const char *text, double least,
                  double *out);
bool parse_seed(const char *program, const char *text, int64_t *out);
bool parse_dtype(const char *program, const char *text, tsr_dtype *out);
/* DATAxTENSOR, as "2x1". */
bool parse_grid(const char *program, const char *text, int *data, int *tensor);
/* "none" or the name of a sharding strategy. */
bool parse_strategy(const char *program, const char *text, const char **out);

/* Returns the exit status: `code`, or 1 with a message on standard error if `code` is 0 but
 * standard output could not be written completely. */
int checked_output(const char *program, int code);

#endif
