/* Reads digits.csv: lines of 64 pixels, 0 to 16, and a label, 0 to 9. */
#ifndef DIGITS_DATA_H
#define DIGITS_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGITS_PIXELS 64
#define DIGITS_LABELS 10

typedef struct digits_data {
    int64_t count;
    float *pixels; /* [count, 64], scaled to 0 … 1 */
    int32_t *labels;
} digits_data;

/* Returns false, with a message in `error`, if the file cannot be read or a line is invalid. The
 * message names the file and the line. On success the caller must free the data with
 * digits_free. */
bool digits_read(const char *path, digits_data *out, char *error, size_t error_size);
void digits_free(digits_data *data);

#endif
