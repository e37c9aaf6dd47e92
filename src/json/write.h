/* Writes JSON into the caller's memory. A caller writes a document twice: first without memory, to
 * find its length, then into memory of that length. */
#ifndef TSR_JSON_WRITE_H
#define TSR_JSON_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tsr__json_writer {
    char *text; /* NULL: only the length is counted */
    size_t length;
} tsr__json_writer;

/* Writes text formatted as by printf, at most 191 bytes per call. Nothing is escaped. */
void tsr__json_print(tsr__json_writer *writer, const char *format, ...) TSR__PRINTF(2, 3);

/* Writes a string. `text` must not have control characters: only quotes and backslashes are
 * escaped. */
void tsr__json_print_string(tsr__json_writer *writer, const char *text);

/* Writes an integer. One above 2^63 - 1 is written as a string, because many readers have only
 * signed integers. */
void tsr__json_print_u64(tsr__json_writer *writer, uint64_t value);

/* Writes a number with 15 to 17 digits: as few as give the same double again. Writes null if it is
 * not finite. The result does not depend on the locale. */
void tsr__json_print_real(tsr__json_writer *writer, double value);

#endif
