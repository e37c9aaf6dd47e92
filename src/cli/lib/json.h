/* JSON documents, which are implemented with jansson. If memory is exhausted, the tool exits, so no
 * function here returns an error. */
#ifndef TSR_CLI_LIB_JSON_H
#define TSR_CLI_LIB_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/lib/growing.h"

/* Creates a document with the members that every document of the tool starts with: {"schema":
 * schema, "schema_version": version, "tessera": library version}. */
json_t *cli_json_document(const char *schema, int version);

/* The functions below add a member to an object. Members stay in the order in which they were
 * added. The object owns the value. */
void cli_json_add(json_t *object, const char *name, json_t *value);
json_t *cli_json_add_object(json_t *object, const char *name);
json_t *cli_json_add_array(json_t *object, const char *name);
void cli_json_null(json_t *object, const char *name);
void cli_json_bool(json_t *object, const char *name, bool value);
/* A value above 2^63 - 1 is written as a decimal string. */
void cli_json_u64(json_t *object, const char *name, uint64_t value);
/* Adds a real number. JSON has no infinity and no NaN, so they are written as null. */
void cli_json_real(json_t *object, const char *name, double value);
/* A driver may return text that is not UTF-8. In such a text, the bytes that are not ASCII are
 * replaced by question marks. */
void cli_json_text(json_t *object, const char *name, const char *text);

/* Replaces control characters by question marks, in all strings of a document that was read. Does
 * not change the names of members. */
void cli_json_mend(json_t *value);

/* Adds an element to an array, which owns the element. */
void cli_json_append(json_t *array, json_t *value);
void cli_json_append_real(json_t *array, double value); /* infinity and NaN are written as null */
json_t *cli_json_append_object(json_t *array);

/* Prints the document and a newline to standard output, and frees the document. */
void cli_json_print(json_t *document);
/* Writes the document and a newline to a file, and frees the document. The caller must check for
 * errors with ferror(). */
void cli_json_write(json_t *document, FILE *out);
/* Appends a value in one line, without spaces, and frees the value. */
void cli_text_add_json(cli_text *text, json_t *value);
/* Writes a value in one line, without a newline and without freeing it. */
void cli_json_write_line(const json_t *value, FILE *out);

#endif
