/* Reads JSON that may be hostile, one value after the other, from memory. No document is built and
 * nothing is allocated. Integers are exact, and every error names the offset where something is
 * wrong, also when the JSON is well formed and only a value is not acceptable. RFC 8259, except
 * that strings with a zero character are refused, because C strings cannot hold them.
 *
 *     TSR__TRY(tsr__json_enter(json, '{'));
 *     while (tsr__json_member(json, key, &more) == TSR_OK && more) … read one value
 */
#ifndef TSR_JSON_JSON_H
#define TSR_JSON_JSON_H

#include <stdbool.h>

#include "base/error.h"
#include "json/text.h"

typedef struct tsr__json {
    const char *text;
    size_t size;
    size_t at;
    size_t key_at;    /* where the last member's name started */
    uint64_t base;    /* offset of `text` in its file */
    const char *what; /* what the errors start with: "safetensors" */
    tsr__subject subject;
} tsr__json;

/* Any member's name fits; longer ones are an error. */
#define TSR__JSON_TEXT (TSR__MAX_NAME + 1)

/* "what: offset N: subject: …" with status TSR_ERR_INVALID; `at` is an offset into the text. */
tsr_status tsr__json_fail(const tsr__json *json, size_t at, const char *format, ...)
    TSR__PRINTF(3, 4);
/* Puts the same before an error that has been recorded. */
tsr_status tsr__json_fail_context(const tsr__json *json, size_t at, tsr_status status);

/* The first character of the next value, after space; '\0' at the end. */
char tsr__json_peek(tsr__json *json);

/* Takes a bracket. */
tsr_status tsr__json_enter(tsr__json *json, char bracket) TSR_NODISCARD;
/* After `enter` and after each value: whether there is another member or element. Takes the closing
 * bracket when there is none, and a member's name with its colon. */
tsr_status tsr__json_member(tsr__json *json, char key[TSR__JSON_TEXT], bool *more) TSR_NODISCARD;
tsr_status tsr__json_element(tsr__json *json, bool *more) TSR_NODISCARD;

/* Values. A string is decoded into `text`, and longer ones are an error. `integer` takes 0 … 2^64 −
 * 1, also as a string of digits. */
tsr_status tsr__json_string(tsr__json *json, size_t size, char *text) TSR_NODISCARD;
tsr_status tsr__json_integer(tsr__json *json, uint64_t *value) TSR_NODISCARD;
/* An integer from -2^63 to 2^63 - 1, as a number only. */
tsr_status tsr__json_signed(tsr__json *json, int64_t *value) TSR_NODISCARD;
tsr_status tsr__json_real(tsr__json *json, double *value) TSR_NODISCARD;
tsr_status tsr__json_bool(tsr__json *json, bool *value) TSR_NODISCARD;
/* Any value. */
tsr_status tsr__json_skip(tsr__json *json) TSR_NODISCARD;

/* Nothing but space follows. */
tsr_status tsr__json_end(tsr__json *json) TSR_NODISCARD;

/* Which of `names`, ended by NULL, a member is: its number, or -1. */
int tsr__json_find(const char *const *names, const char *key);
/* The same; an error where it is none of them, or *seen has it already. */
tsr_status tsr__json_known(tsr__json *json, const char *const *names, const char *key,
                           unsigned *seen, int *number) TSR_NODISCARD;

#endif
