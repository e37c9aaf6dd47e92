/* JSON output with jansson. Running out of memory ends the tool, so nothing here can fail. */
#ifndef TSR_CLI_JSON_H
#define TSR_CLI_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tessera/device.h"

/* {"schema": schema, "schema_version": version, "tessera": library version}: how every document of
 * the tool starts. */
json_t *cli_json_document(const char *schema, int version);

/* Members of an object, in the order they are added. The object owns what is added. */
void cli_json_add(json_t *object, const char *name, json_t *value);
json_t *cli_json_add_object(json_t *object, const char *name);
json_t *cli_json_add_array(json_t *object, const char *name);
void cli_json_null(json_t *object, const char *name);
void cli_json_bool(json_t *object, const char *name, bool value);
/* What does not fit 63 bits becomes a decimal string. */
void cli_json_u64(json_t *object, const char *name, uint64_t value);
/* null for what is not finite. */
void cli_json_real(json_t *object, const char *name, double value);
/* Bytes that are not UTF-8, as a driver may give them, become question marks. */
void cli_json_text(json_t *object, const char *name, const char *text);

/* Control characters become question marks, in all strings of a document that was read; names of
 * members stay. */
void cli_json_mend(json_t *value);

/* Elements of an array. */
void cli_json_append(json_t *array, json_t *value);
json_t *cli_json_append_object(json_t *array);

/* Everything known about a device, as in docs/tessera.1. */
json_t *cli_json_device(const tsr_device_info *info);

/* Prints the document and a newline to standard output, and frees it. */
void cli_json_print(json_t *document);
/* The same to a file; what goes wrong, its error indicator tells. */
void cli_json_write(json_t *document, FILE *out);

#endif
