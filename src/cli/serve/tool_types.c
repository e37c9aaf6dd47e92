/* Describes tools as gpt-oss's template does: as the types of a namespace of TypeScript. The line
 * breaks and spaces inside types are those that the template writes. */
#include <stdlib.h>
#include <string.h>

#include "cli/serve/tools.h"

/* Longer types of a list's elements are written as any. */
#define MOST_ELEMENT_TYPE 50
#define NEXT_LINE "\n                "

static const char *string_of(const json_t *schema, const char *key)
{
    const char *string = json_string_value(json_object_get(schema, key));
    return string != NULL && *string != '\0' ? string : NULL;
}

/* A string as it is, and any other value as JSON. */
static void add_plain(cli_text *text, const json_t *value)
{
    if (json_is_string(value))
        cli_text_print(text, json_string_value(value));
    else
        cli_text_add_spaced(text, value, 0);
}

static void add_joined(cli_text *text, const json_t *list, const char *between)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        cli_text_print(text, i > 0 ? between : "");
        add_plain(text, json_array_get(list, i));
    }
}

/* Returns an object whose members have the names in `required`, for json_decref. */
static json_t *required_names(const json_t *schema)
{
    const json_t *list = json_object_get(schema, "required");
    json_t *names = json_object();
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_string(json_array_get(list, i)))
            json_object_set_new(names, json_string_value(json_array_get(list, i)), json_true());
    return names;
}

static void add_type(cli_text *text, const json_t *schema);

static void add_list(cli_text *text, const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items");
    cli_text inner = {0};
    cli_text_add(&inner, "", 0);
    if (json_object_size(items) > 0) {
        const char *type = string_of(items, "type");
        if (type != NULL && strcmp(type, "string") == 0)
            cli_text_print(&inner, type); /* without the values of an enum */
        else
            add_type(&inner, items);
    }
    const bool known = inner.size > 0 && inner.size <= MOST_ELEMENT_TYPE;
    cli_text_print(text, known ? inner.data : "any");
    cli_text_print(text, "[]");
    cli_text_print(text, json_is_true(json_object_get(schema, "nullable")) ? " | null" : "");
    cli_text_free(&inner);
}

static void add_variants(cli_text *text, const json_t *variants)
{
    for (size_t i = 0; i < json_array_size(variants); i++) {
        const json_t *one = json_array_get(variants, i), *value = json_object_get(one, "default");
        cli_text_print(text, i > 0 ? " | \n" : "");
        add_type(text, one);
        if (string_of(one, "description") != NULL) {
            cli_text_print(text, "// ");
            cli_text_print(text, string_of(one, "description"));
        }
        if (value != NULL) {
            cli_text_print(text, "                    // default: ");
            cli_text_add_spaced(text, value, 0);
        }
    }
}

static void add_object(cli_text *text, const json_t *schema)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    const char *name;
    bool first = true;
    if (json_object_size(properties) == 0) {
        cli_text_print(text, "object");
        return;
    }
    cli_text_print(text, "{\n");
    json_t *required = required_names(schema);
    json_object_foreach(properties, name, value)
    {
        cli_text_print(text, first ? "" : ", ");
        cli_text_print(text, name);
        cli_text_print(text,
                       json_object_get(required, name) != NULL ? ": " NEXT_LINE : "?: " NEXT_LINE);
        add_type(text, value);
        first = false;
    }
    json_decref(required);
    cli_text_print(text, "}");
}

static void add_string_type(cli_text *text, const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum");
    if (json_array_size(values) > 0) {
        cli_text_print(text, "\"");
        add_joined(text, values, "\" | \"");
        cli_text_print(text, "\"");
        return;
    }
    cli_text_print(text, "string");
    cli_text_print(text, json_is_true(json_object_get(schema, "nullable")) ? " | null" : "");
}

static void add_type(cli_text *text, const json_t *schema)
{
    const json_t *types = json_object_get(schema, "type"),
                 *variants = json_object_get(schema, "oneOf");
    const char *type = json_string_value(types);
    if (type != NULL && strcmp(type, "array") == 0)
        add_list(text, schema);
    else if (json_array_size(types) > 0)
        add_joined(text, types, " | ");
    else if (json_array_size(variants) > 0)
        add_variants(text, variants);
    else if (type != NULL && strcmp(type, "string") == 0)
        add_string_type(text, schema);
    else if (type != NULL && (strcmp(type, "number") == 0 || strcmp(type, "integer") == 0))
        cli_text_print(text, "number");
    else if (type != NULL && strcmp(type, "boolean") == 0)
        cli_text_print(text, "boolean");
    else if (type != NULL && strcmp(type, "object") == 0)
        add_object(text, schema);
    else
        cli_text_print(text, "any");
}

static void add_parameter(cli_text *text, bool required, const char *name, const json_t *schema)
{
    const json_t *value = json_object_get(schema, "default");
    if (string_of(schema, "description") != NULL) {
        cli_text_print(text, "// ");
        cli_text_print(text, string_of(schema, "description"));
        cli_text_print(text, "\n");
    }
    cli_text_print(text, name);
    cli_text_print(text, required ? ": " : "?: ");
    add_type(text, schema);
    if (value != NULL && json_array_size(json_object_get(schema, "enum")) > 0) {
        cli_text_print(text, ", // default: ");
        add_plain(text, value);
    } else if (value != NULL && json_array_size(json_object_get(schema, "oneOf")) > 0) {
        cli_text_print(text, "// default: ");
        add_plain(text, value);
    } else if (value != NULL) {
        cli_text_print(text, ", // default: ");
        cli_text_add_spaced(text, value, 0);
    }
    cli_text_print(text, ",\n");
}

void serve_describe_types(cli_text *text, const json_t *tools)
{
    cli_text_print(text, "## functions\n\nnamespace functions {\n\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *parameters = json_object_get(function, "parameters");
        json_t *properties = json_object_get(parameters, "properties"), *schema;
        const char *name;
        if (string_of(function, "description") != NULL) {
            cli_text_print(text, "// ");
            cli_text_print(text, string_of(function, "description"));
            cli_text_print(text, "\n");
        }
        cli_text_print(text, "type ");
        cli_text_print(text, json_string_value(json_object_get(function, "name")));
        cli_text_print(text, json_object_size(properties) > 0 ? " = (_: {\n" : " = () => any;\n\n");
        json_t *required = required_names(parameters);
        json_object_foreach(properties, name, schema)
            add_parameter(text, json_object_get(required, name) != NULL, name, schema);
        json_decref(required);
        cli_text_print(text, json_object_size(properties) > 0 ? "}) => any;\n\n" : "");
    }
    cli_text_print(text, "} // namespace functions");
}
