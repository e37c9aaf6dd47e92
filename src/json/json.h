/* Reads JSON from memory, one value after the other. The text may be hostile. The reader builds no
 * document and allocates nothing. Integers are exact. Every error names the offset of the problem,
 * even if the JSON is well formed and only a value is not acceptable. The syntax is RFC 8259,
 * except that strings with a zero character are refused, because C strings cannot hold them.
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
    size_t key_at;    /* where the last member's name starts */
    uint64_t base;    /* offset of `text` in its file */
    const char *what; /* the start of error texts, such as "safetensors" */
    tsr__subject subject;
} tsr__json;

/* Bytes for a member's name, with its terminating zero. A longer name is an error. */
#define TSR__JSON_TEXT (TSR__MAX_NAME + 1)

/* Records "what: offset N: subject: …" and returns TSR_ERR_INVALID. `at` is an offset into the
 * text; N counts from the start of the file. */
tsr_status tsr__json_fail(const tsr__json *json, size_t at, const char *format, ...)
    TSR__PRINTF(3, 4);
/* Puts the same prefix before the recorded error and returns `status`. */
tsr_status tsr__json_fail_context(const tsr__json *json, size_t at, tsr_status status);

/* Skips space and returns the next character without taking it, or '\0' at the end. */
char tsr__json_peek(tsr__json *json);

/* Takes an opening bracket: '{' or '['. */
tsr_status tsr__json_enter(tsr__json *json, char bracket) TSR_NODISCARD;
/* Gives whether there is another member or element. Call it after `enter` and after each value. It
 * takes the comma and a member's name with its colon, or the closing bracket if there are no more.
 */
tsr_status tsr__json_member(tsr__json *json, char key[TSR__JSON_TEXT], bool *more) TSR_NODISCARD;
tsr_status tsr__json_element(tsr__json *json, bool *more) TSR_NODISCARD;

/* The functions below read a value. A string is decoded into `text`, of `size` bytes with its
 * terminating zero; a longer one is an error. `integer` reads 0 … 2^64 − 1, as a number or as a
 * string of digits. */
tsr_status tsr__json_string(tsr__json *json, size_t size, char *text) TSR_NODISCARD;
tsr_status tsr__json_integer(tsr__json *json, uint64_t *value) TSR_NODISCARD;
/* Reads an integer from -2^63 to 2^63 - 1, as a number only. */
tsr_status tsr__json_signed(tsr__json *json, int64_t *value) TSR_NODISCARD;
tsr_status tsr__json_real(tsr__json *json, double *value) TSR_NODISCARD;
tsr_status tsr__json_bool(tsr__json *json, bool *value) TSR_NODISCARD;
/* Skips one value of any kind. */
tsr_status tsr__json_skip(tsr__json *json) TSR_NODISCARD;

/* Checks that only space follows. */
tsr_status tsr__json_end(tsr__json *json) TSR_NODISCARD;

/* Returns the index of `key` in `names`, which ends in NULL, or -1. */
int tsr__json_find(const char *const *names, const char *key);
/* Gives the same index and adds it to the bits in *seen. It is an error if `key` is not in `names`,
 * or *seen already has its bit. */
tsr_status tsr__json_known(tsr__json *json, const char *const *names, const char *key,
                           unsigned *seen, int *number) TSR_NODISCARD;

#endif
