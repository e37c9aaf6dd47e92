/* Reads JSON from memory, one value after the other. The text may come from an adversary. The
 * reader does not build a tree of the document and allocates no memory. Integers are exact. Every
 * error text has the offset of the problem, also if the JSON is well formed and only a value is not
 * acceptable. The syntax is that of RFC 8259, except that a string with a zero character is an
 * error, because C strings cannot contain it. A caller reads an object in this way:
 *
 *     TSR__TRY(tsr__json_enter(json, '{'));
 *     while (tsr__json_member(json, key, &more) == TSR_OK && more) … read one value */
#ifndef TSR_JSON_JSON_H
#define TSR_JSON_JSON_H

#include <stdbool.h>

#include "base/error.h"
#include "json/text_check.h"

typedef struct tsr__json {
    const char *text;
    size_t size;
    size_t at;        /* the offset of the next character */
    size_t key_at;    /* the offset at which the last member's name starts */
    uint64_t base;    /* the offset of `text` in its file */
    const char *what; /* error texts start with it, for example "safetensors" */
    tsr__subject subject;
} tsr__json;

/* The size in bytes of the buffer for a member's name, including the terminating zero. A longer
 * name is an error. */
#define TSR__JSON_TEXT (TSR__MAX_NAME + 1)

/* Records the error "what: offset N: subject: …" and returns TSR_ERR_INVALID. `offset` is the
 * problem's offset in the text; the function converts it to N, the offset in the file. */
tsr_status tsr__json_fail(const tsr__json *json, size_t offset, const char *format, ...)
    TSR__PRINTF(3, 4);
/* Inserts "what: offset N: subject: " before the recorded error text and returns `status`. */
tsr_status tsr__json_fail_context(const tsr__json *json, size_t offset, tsr_status status);

/* Skips spaces and returns the next character, which stays unread. Returns '\0' at the end of the
 * text. */
char tsr__json_peek(tsr__json *json);

/* Reads an opening bracket, which must be `bracket`: '{' or '['. */
tsr_status tsr__json_enter(tsr__json *json, char bracket) TSR_NODISCARD;
/* tsr__json_member gives whether the object has another member, tsr__json_element whether the array
 * has another element. Call them after tsr__json_enter and after each value. They read the comma,
 * and a member's name with its colon. If there are no more members or elements, they read the
 * closing bracket. */
tsr_status tsr__json_member(tsr__json *json, char key[TSR__JSON_TEXT], bool *more) TSR_NODISCARD;
tsr_status tsr__json_element(tsr__json *json, bool *more) TSR_NODISCARD;

/* The functions below read a value. tsr__json_string decodes a string into `text`, a buffer of
 * `size` bytes including the terminating zero; a longer string is an error. tsr__json_integer reads
 * an integer from 0 to 2^64 − 1, written as a number or as a string of digits. */
tsr_status tsr__json_string(tsr__json *json, size_t size, char *text) TSR_NODISCARD;
tsr_status tsr__json_integer(tsr__json *json, uint64_t *value) TSR_NODISCARD;
/* Reads an integer from -2^63 to 2^63 - 1, which must be written as a number. */
tsr_status tsr__json_signed(tsr__json *json, int64_t *value) TSR_NODISCARD;
tsr_status tsr__json_real(tsr__json *json, double *value) TSR_NODISCARD;
tsr_status tsr__json_bool(tsr__json *json, bool *value) TSR_NODISCARD;
/* Skips one value of any kind. */
tsr_status tsr__json_skip(tsr__json *json) TSR_NODISCARD;

/* Checks that only spaces follow up to the end of the text. */
tsr_status tsr__json_end(tsr__json *json) TSR_NODISCARD;

/* Returns the index of `key` in `names`, an array that ends in NULL. Returns -1 if `key` is not in
 * the array. */
int tsr__json_find(const char *const *names, const char *key);
/* Gives the index of `key` in `names` and sets the bit with this index in *seen. It is an error if
 * `names` does not contain `key`, or if the bit was already set. */
tsr_status tsr__json_known(tsr__json *json, const char *const *names, const char *key,
                           unsigned *seen, int *number) TSR_NODISCARD;
/* Checks that an object had all members: `seen` must have the bits that tsr__json_known sets for
 * all `names`. `start` is the offset of the object, for the error text. */
tsr_status tsr__json_required(tsr__json *json, size_t start, const char *const *names,
                              unsigned seen) TSR_NODISCARD;

#endif
