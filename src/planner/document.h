/* JSON documents that describe or measure a cluster. A document is checked when it is opened; then
 * its values are found by name, in any order, and need no error handling. The library's JSON reader
 * (json/json.h) builds no tree, so each search reads the object again: these objects are small. */
#ifndef TSR_PLANNER_DOCUMENT_H
#define TSR_PLANNER_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tsr__document {
    const char *name; /* error texts start with it: the path, or what the caller calls the text */
    uint8_t *owned;   /* the text of a file; NULL: the text is the caller's */
    const char *text;
    size_t size;
} tsr__document;

/* Opens a file, or text in memory, which must stay valid, as must `name`. The document must be one
 * JSON value in UTF-8, of at most 10⁸ bytes, with at most 32 brackets inside each other. Errors:
 * TSR_ERR_INVALID, TSR_ERR_NOT_FOUND, TSR_ERR_IO, TSR_ERR_NO_MEMORY. */
tsr_status tsr__document_open(const char *path, tsr__document *out) TSR_NODISCARD;
tsr_status tsr__document_of_text(const char *name, const char *text,
                                 tsr__document *out) TSR_NODISCARD;
void tsr__document_close(tsr__document *document);

/* Records the error "NAME: …" and returns TSR_ERR_INVALID. */
tsr_status tsr__document_fail(const tsr__document *document, const char *format, ...)
    TSR__PRINTF(2, 3);

/* A value of a document. If `document` is NULL, it is absent: it has no type, no members and no
 * elements. */
typedef struct tsr__value {
    const tsr__document *document;
    size_t start; /* the offset of its first character */
} tsr__value;

tsr__value tsr__document_root(const tsr__document *document);

bool tsr__value_is_object(tsr__value value);
bool tsr__value_is_array(tsr__value value);

/* Returns a member of an object. The value is absent if the object has no such member, or if
 * `object` is not an object. */
tsr__value tsr__value_member(tsr__value object, const char *name);

/* Fails unless the value is an object whose members are all in `names`, which ends in NULL and has
 * at most 32 names, and occur once. `where` names the object for the error text. */
tsr_status tsr__value_check_members(const tsr__document *document, tsr__value value,
                                    const char *where, const char *const *names) TSR_NODISCARD;

/* The elements of an array; none for any other value. Use:
 *
 *     tsr__elements list = tsr__value_elements(value);
 *     while (tsr__next_element(&list, &element)) … */
typedef struct tsr__elements {
    tsr__value next;
    bool started;
} tsr__elements;
tsr__elements tsr__value_elements(tsr__value array);
bool tsr__next_element(tsr__elements *elements, tsr__value *out);
size_t tsr__value_count(tsr__value array);

/* Gives a number. Returns false if the value is not a number, or if it exceeds a double. */
bool tsr__value_real(tsr__value value, double *out);
/* Gives an integer. Returns false if the value is not a number without fraction and exponent, or if
 * it exceeds an int64_t. */
bool tsr__value_integer(tsr__value value, int64_t *out);
/* Decodes a string into text[size]. Returns false if the value is not a string, or does not fit
 * with its terminating zero. */
bool tsr__value_text(tsr__value value, size_t size, char *text);
/* Returns whether the value is this string. */
bool tsr__value_is(tsr__value value, const char *text);

/* A number that an object of a document has. */
typedef struct tsr__number_limits {
    const char *name;
    double low, high; /* `low` itself is allowed only if it is 0 and the member is `optional` */
    bool optional;
} tsr__number_limits;

/* Reads a number of an object. `where` names the object for the error text. If an optional member
 * is absent, does not change *out. */
tsr_status tsr__value_number(const tsr__document *document, tsr__value object, const char *where,
                             tsr__number_limits limits, double *out) TSR_NODISCARD;

#endif
