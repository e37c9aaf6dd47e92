#include "cli/lib/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/lib/text.h"
#include "tessera/base.h"

/* The number of significant digits of a real number: more than measurements are precise to. */
#define REAL_DIGITS 12

static void require(bool done)
{
    if (!done)
        exit(cli_failed("out of memory for the JSON document"));
}

static json_t *made(json_t *value)
{
    require(value != NULL);
    return value;
}

void cli_json_add(json_t *object, const char *name, json_t *value)
{
    require(json_object_set_new(object, name, made(value)) == 0);
}

json_t *cli_json_add_object(json_t *object, const char *name)
{
    json_t *child = json_object();
    cli_json_add(object, name, child);
    return child;
}

json_t *cli_json_add_array(json_t *object, const char *name)
{
    json_t *child = json_array();
    cli_json_add(object, name, child);
    return child;
}

void cli_json_null(json_t *object, const char *name)
{
    cli_json_add(object, name, json_null());
}

void cli_json_bool(json_t *object, const char *name, bool value)
{
    cli_json_add(object, name, json_boolean(value));
}

void cli_json_u64(json_t *object, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    cli_json_add(object, name,
                 value > INT64_MAX ? json_string(text) : json_integer((json_int_t)value));
}

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void cli_json_real(json_t *object, const char *name, double value)
{
    cli_json_add(object, name, real_or_null(value));
}

void cli_json_text(json_t *object, const char *name, const char *text)
{
    json_t *value = json_string(text);
    if (value == NULL) { /* the text is not UTF-8 */
        size_t length = strlen(text);
        char *clean = cli_alloc(length + 1, 1);
        for (size_t i = 0; i < length; i++)
            clean[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
        value = json_string(clean);
        free(clean);
    }
    cli_json_add(object, name, value);
}

void cli_json_mend(json_t *value)
{
    const char *name;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member) cli_json_mend(member);
    json_object_foreach(value, name, member) cli_json_mend(member);
    if (!json_is_string(value))
        return;
    size_t size = json_string_length(value) + 1;
    char *text = memcpy(cli_alloc(size, 1), json_string_value(value), size);
    require(json_string_set(value, cli_text_mend(text)) == 0);
    free(text);
}

void cli_json_append(json_t *array, json_t *value)
{
    require(json_array_append_new(array, made(value)) == 0);
}

void cli_json_append_real(json_t *array, double value)
{
    cli_json_append(array, real_or_null(value));
}

json_t *cli_json_append_object(json_t *array)
{
    json_t *child = json_object();
    cli_json_append(array, child);
    return child;
}

json_t *cli_json_document(const char *schema, int version)
{
    json_t *document = made(json_object());
    cli_json_text(document, "schema", schema);
    cli_json_u64(document, "schema_version", (uint64_t)version);
    cli_json_text(document, "tessera", tsr_version());
    return document;
}

void cli_json_write(json_t *document, FILE *out)
{
    char *text = json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS));
    require(text != NULL);
    fputs(text, out);
    fputc('\n', out);
    free(text);
    json_decref(document);
}

void cli_text_add_json(cli_text *out, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    require(text != NULL);
    cli_text_print(out, text);
    free(text);
    json_decref(value);
}

void cli_json_write_line(const json_t *value, FILE *out)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS));
    require(text != NULL);
    fputs(text, out);
    free(text);
}

void cli_json_print(json_t *document)
{
    cli_json_write(document, stdout);
}
