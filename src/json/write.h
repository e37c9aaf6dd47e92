/* Writes JSON into memory of the caller. A document is written twice: first without memory, to find
 * its length, then into memory of that length. */
#ifndef TSR_JSON_WRITE_H
#define TSR_JSON_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tsr__json_writer {
    char *text; /* NULL: only the length is counted */
    size_t length;
} tsr__json_writer;

/* The text as printf formats it, at most 191 bytes at a time. Nothing is escaped. */
void tsr__json_print(tsr__json_writer *writer, const char *format, ...) TSR__PRINTF(2, 3);

/* A string. `text` has no control characters, so only quotes and backslashes are escaped. */
void tsr__json_print_string(tsr__json_writer *writer, const char *text);

/* An integer; above 2^63 - 1 it is written as a string, for readers whose integers are signed. */
void tsr__json_print_u64(tsr__json_writer *writer, uint64_t value);

/* A number with as few digits as give the same double again; null if it is not finite. Does not
 * depend on the locale. */
void tsr__json_print_real(tsr__json_writer *writer, double value);

#endif
