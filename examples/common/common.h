/* Helpers of the example programs: error handling, a clock, option values, files, tensors, and a
 * check that standard output was written. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/tessera.h"

/* If the call fails, returns its status from the calling function. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status status_ = (call);                                                               \
        if (status_ != TSR_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

/* Returns the seconds since some fixed time in the past; for differences only. */
double seconds_now(void);

/* Prints to standard error what is wrong with an option. Always returns false. */
bool wrong_option(const char *program, const char *what, const char *value);

/* On a wrong value, the parse functions print an error, leave `out` unchanged and return false. */
bool parse_int(const char *program, const char *name, const char *text, int least, int most,
               int *out);
bool parse_number(const char *program, const char *name, const char *text, double least,
                  double *out);
bool parse_seed(const char *program, const char *text, int64_t *out);
bool parse_dtype(const char *program, const char *text, tsr_dtype *out);
/* Parses DATAxTENSOR, for example "2x1". */
bool parse_grid(const char *program, const char *text, int *data, int *tensor);
/* Checks that `text` is "none" or the name of a sharding strategy, and sets *out to it. */
bool parse_strategy(const char *program, const char *text, const char **out);

/* Reads a file of less than `max_size` bytes into memory of malloc. On failure returns false and
 * writes a sentence that names the file to `error`. */
bool read_file(const char *path, size_t max_size, char **bytes, size_t *size, char *error,
               size_t error_size);

/* Creates a tensor of the shape and dtype of `like`, with undefined elements. */
tsr_status create_like(tsr_device *device, const tsr_tensor *like, tsr_tensor **out);

/* Returns the exit status: `code`, or 1 with a message on standard error if `code` is 0 but
 * standard output could not be written completely. */
int checked_output(const char *program, int code);

/* Writes the path of the file `name` in the folder of the file `beside`, as a string of at most
 * `size` bytes, including the final zero. Returns false if the path does not fit. */
bool path_beside(const char *beside, const char *name, size_t size, char *path);

#endif
