/* JSON output with cJSON. Allocation failures end the tool (memory.h), so nothing here can fail. */
#ifndef TSR_CLI_JSON_H
#define TSR_CLI_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "tessera/device.h"

/* {"schema": schema, "schema_version": version, "tessera": library version}: how every document of
 * the tool starts. */
cJSON *cli_json_document(const char *schema, int version);

/* Text from a driver, made valid UTF-8. */
void cli_json_text(cJSON *object, const char *name, const char *text);

/* All 64 bits: cJSON's own numbers are doubles. */
void cli_json_u64(cJSON *object, const char *name, uint64_t value);

/* null for what is not finite. */
void cli_json_real(cJSON *object, const char *name, double value);

/* Everything known about a device, as in docs/tessera.1. */
cJSON *cli_json_device(const tsr_device_info *info);

/* Prints the document and a newline to standard output, and frees it. */
void cli_json_print(cJSON *document);

#endif
