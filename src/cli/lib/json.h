/* JSON documents with jansson. Running out of memory ends the tool, so no function here fails. */
#ifndef TSR_CLI_LIB_JSON_H
#define TSR_CLI_LIB_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Creates a document with the members that every document of the tool starts with: {"schema":
 * schema, "schema_version": version, "tessera": library version}. */
json_t *cli_json_document(const char *schema, int version);

/* Add a member to an object; members keep the order in which they are added. The object owns the
 * value. */
void cli_json_add(json_t *object, const char *name, json_t *value);
json_t *cli_json_add_object(json_t *object, const char *name);
json_t *cli_json_add_array(json_t *object, const char *name);
void cli_json_null(json_t *object, const char *name);
void cli_json_bool(json_t *object, const char *name, bool value);
/* Values above 2^63 - 1 become a decimal string. */
void cli_json_u64(json_t *object, const char *name, uint64_t value);
/* Infinity and NaN become null. */
void cli_json_real(json_t *object, const char *name, double value);
/* If the text is not UTF-8, as a driver may return it, its non-ASCII bytes become question marks.
 */
void cli_json_text(json_t *object, const char *name, const char *text);

/* Replaces control characters by question marks in all strings of a document that was read. Names
 * of members stay as they are. */
void cli_json_mend(json_t *value);

/* Add an element to an array, which owns it. */
void cli_json_append(json_t *array, json_t *value);
json_t *cli_json_append_object(json_t *array);

/* Prints the document and a newline to standard output, and frees it. */
void cli_json_print(json_t *document);
/* Writes the document and a newline to a file, and frees it. Check for errors with ferror(). */
void cli_json_write(json_t *document, FILE *out);

#endif
