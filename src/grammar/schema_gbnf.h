/* What the files that make GBNF of a JSON schema share. */
#ifndef TSR_GRAMMAR_SCHEMA_GBNF_H
#define TSR_GRAMMAR_SCHEMA_GBNF_H

#include "grammar/grammar.h"
#include "json/json.h"

/* A schema that has a rule, s0, s1, …; its offset in the text. */
typedef struct tsr__schema_rule {
    size_t at;
} tsr__schema_rule;

typedef struct tsr__schema_writer {
    tsr__json json; /* the whole text */
    tsr__bytes *out;
    tsr__schema_rule *rules;
    size_t rule_count, rule_capacity;
    int32_t *table; /* hash table of rules by offset: number + 1, or 0 */
    size_t table_size;
    size_t references; /* how many $ref have been looked up */
    char *scratch;     /* [json.size + 1]: for decoded strings */
} tsr__schema_writer;

/* Records that something in the schema is not supported. */
tsr_status tsr__schema_unsupported(const tsr__schema_writer *writer, size_t at, const char *format,
                                   ...) TSR__PRINTF(3, 4);
/* Returns a reader of the value at an offset. */
tsr__json tsr__schema_at(const tsr__schema_writer *writer, size_t at);

/* The values of a list, or the members of an object:
 *
 *     tsr__schema_items items = tsr__schema_items_of(w, at, '[');
 *     while (tsr__schema_next(&items)) … the value at items.at …
 *     TSR__TRY(items.status); */
typedef struct tsr__schema_items {
    tsr__json json;
    char bracket;
    tsr_status status;
    size_t at;     /* the offset of the value */
    size_t number; /* of values before it; at the end, of all */
    bool begun;
    char key[TSR__JSON_TEXT]; /* the member's name */
} tsr__schema_items;
tsr__schema_items tsr__schema_items_of(const tsr__schema_writer *writer, size_t at, char bracket);
/* Goes to the next value. Returns false at the end, and after an error, which is in items->status.
 */
bool tsr__schema_next(tsr__schema_items *items);

/* Gives the number of the rule of the schema at an offset, which is added if it is new. */
tsr_status tsr__schema_find_rule(tsr__schema_writer *writer, size_t at, size_t *out) TSR_NODISCARD;

/* Appends to the grammar (schema_writer.c). */
tsr_status tsr__schema_put(tsr__schema_writer *writer, const char *format, ...) TSR__PRINTF(2, 3);
/* Appends bytes as a literal, in quotes. */
tsr_status tsr__schema_put_literal(tsr__schema_writer *writer, const char *bytes,
                                   size_t size) TSR_NODISCARD;
/* Appends a literal of the JSON string that stands for a text. */
tsr_status tsr__schema_put_string(tsr__schema_writer *writer, const char *text) TSR_NODISCARD;
/* Appends a literal of the JSON value at an offset. */
tsr_status tsr__schema_put_value(tsr__schema_writer *writer, size_t at) TSR_NODISCARD;
/* Appends the name of the rule of the schema at an offset; 0: any value. */
tsr_status tsr__schema_put_rule(tsr__schema_writer *writer, size_t at) TSR_NODISCARD;

/* Appends an expression of the integers from `low` to `high` (schema_integer.c). */
tsr_status tsr__schema_put_integers(tsr__schema_writer *writer, int64_t low,
                                    int64_t high) TSR_NODISCARD;

/* The keywords of objects: offsets of their values, or 0. */
typedef struct tsr__schema_object {
    size_t at; /* the offset of the schema */
    size_t properties, required, additional;
} tsr__schema_object;
/* Append an expression of such an object, which has the rules of the properties of schema `number`,
 * and these rules (schema_object.c). */
tsr_status tsr__schema_put_object(tsr__schema_writer *writer, const tsr__schema_object *object,
                                  size_t number) TSR_NODISCARD;
tsr_status tsr__schema_put_properties(tsr__schema_writer *writer, const tsr__schema_object *object,
                                      size_t number) TSR_NODISCARD;

/* Appends an expression of the strings that match a regular expression (schema_pattern.c). `at` is
 * its offset. */
tsr_status tsr__schema_put_pattern(tsr__schema_writer *writer, size_t at,
                                   const char *pattern) TSR_NODISCARD;

#endif
