#include "cli/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/memory.h"

cJSON *cli_json_document(const char *schema, int version)
{
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", schema);
    cJSON_AddNumberToObject(document, "schema_version", version);
    cJSON_AddStringToObject(document, "tessera", tsr_version());
    return document;
}

/* Bytes of the UTF-8 sequence at `text`, or 0 when it is not one (truncated, overlong or a
 * surrogate). */
static size_t sequence(const unsigned char *text)
{
    static const struct {
        unsigned char first_low, first_high, second_low, second_high;
        size_t length;
    } kinds[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    if (text[0] < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (text[0] < kinds[i].first_low || text[0] > kinds[i].first_high)
            continue;
        if (text[1] < kinds[i].second_low || text[1] > kinds[i].second_high)
            return 0;
        for (size_t j = 2; j < kinds[i].length; j++)
            if ((text[j] & 0xc0) != 0x80)
                return 0;
        return kinds[i].length;
    }
    return 0;
}

void cli_json_text(cJSON *object, const char *name, const char *text)
{
    size_t length = strlen(text);
    char *clean = cli_alloc(length + 1, 1);
    for (size_t i = 0; i < length;) {
        size_t bytes = sequence((const unsigned char *)text + i);
        if (bytes == 0) {
            clean[i++] = '?';
            continue;
        }
        memcpy(clean + i, text + i, bytes);
        i += bytes;
    }
    cJSON_AddStringToObject(object, name, clean);
    free(clean);
}

void cli_json_u64(cJSON *object, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    cJSON_AddRawToObject(object, name, text);
}

void cli_json_real(cJSON *object, const char *name, double value)
{
    if (isfinite(value))
        cJSON_AddNumberToObject(object, name, value);
    else
        cJSON_AddNullToObject(object, name);
}

void cli_json_print(cJSON *document)
{
    char *text = cJSON_Print(document);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(document);
}
