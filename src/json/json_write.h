/* Writes JSON into the caller's memory. A caller writes a document twice: first without memory, to
 * compute its length, and then into memory of this length. */
#ifndef TSR_JSON_JSON_WRITE_H
#define TSR_JSON_JSON_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tsr__json_writer {
    char *text; /* if NULL, only the length is computed */
    size_t length;
} tsr__json_writer;

/* Writes text that is formatted as by printf, at most 191 bytes per call. Nothing is escaped. */
void tsr__json_print(tsr__json_writer *writer, const char *format, ...) TSR__PRINTF(2, 3);

/* Writes a JSON string. Escapes quotes, backslashes and the control characters of ASCII. */
void tsr__json_print_string(tsr__json_writer *writer, const char *text);

/* Writes an integer. An integer above 2^63 - 1 is written as a string, because many JSON readers
 * have only signed integers. */
void tsr__json_print_u64(tsr__json_writer *writer, uint64_t value);

/* Writes a number with the smallest number of digits, from 15 to 17, with which reading gives the
 * same double. Writes null if the number is not finite. The result does not depend on the locale.
 */
void tsr__json_print_real(tsr__json_writer *writer, double value);

/* Prints a document, by a function that gives the same text each time: once to compute its length,
 * and once into memory behind `before` bytes, which are zeros. Sets *out to the memory, which the
 * caller must free; a zero byte follows the text. */
typedef void tsr__json_print_fn(const void *user, tsr__json_writer *writer);
tsr_status tsr__json_print_document(tsr__json_print_fn *print, const void *user, size_t before,
                                    char **out, size_t *length) TSR_NODISCARD;

#endif
