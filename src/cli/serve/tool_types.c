/* Describes tools as gpt-oss's template does: as the types of a namespace of TypeScript. The line
 * breaks and spaces inside types are those that the template writes. */
#include <stdlib.h>
#include <string.h>

#include "cli/serve/tools.h"

/* Longer types of a list's elements are written as any. */
#define MOST_ELEMENT_TYPE 50
#define NEXT_LINE "\n                "

static void add(serve_text *text, const char *string)
{
    serve_text_add_string(text, string);
}

static const char *string_of(const json_t *schema, const char *key)
{
    const char *string = json_string_value(json_object_get(schema, key));
    return string != NULL && *string != '\0' ? string : NULL;
}

/* A string as it is, and any other value as JSON. */
static void add_plain(serve_text *text, const json_t *value)
{
    if (json_is_string(value))
        add(text, json_string_value(value));
    else
        cli_text_add_spaced(text, value, 0);
}

static void add_joined(serve_text *text, const json_t *list, const char *between)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        add(text, i > 0 ? between : "");
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

static void add_type(serve_text *text, const json_t *schema);

static void add_list(serve_text *text, const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items");
    serve_text inner = {0};
    serve_text_add(&inner, "", 0);
    if (json_object_size(items) > 0) {
        const char *type = string_of(items, "type");
        if (type != NULL && strcmp(type, "string") == 0)
            add(&inner, type); /* without the values of an enum */
        else
            add_type(&inner, items);
    }
    const bool known = inner.size > 0 && inner.size <= MOST_ELEMENT_TYPE;
    add(text, known ? inner.data : "any");
    add(text, "[]");
    add(text, json_is_true(json_object_get(schema, "nullable")) ? " | null" : "");
    serve_text_finish(&inner);
}

static void add_variants(serve_text *text, const json_t *variants)
{
    for (size_t i = 0; i < json_array_size(variants); i++) {
        const json_t *one = json_array_get(variants, i), *value = json_object_get(one, "default");
        add(text, i > 0 ? " | \n" : "");
        add_type(text, one);
        if (string_of(one, "description") != NULL) {
            add(text, "// ");
            add(text, string_of(one, "description"));
        }
        if (value != NULL) {
            add(text, "                    // default: ");
            cli_text_add_spaced(text, value, 0);
        }
    }
}

static void add_object(serve_text *text, const json_t *schema)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    const char *name;
    bool first = true;
    if (json_object_size(properties) == 0) {
        add(text, "object");
        return;
    }
    add(text, "{\n");
    json_t *required = required_names(schema);
    json_object_foreach(properties, name, value)
    {
        add(text, first ? "" : ", ");
        add(text, name);
        add(text, json_object_get(required, name) != NULL ? ": " NEXT_LINE : "?: " NEXT_LINE);
        add_type(text, value);
        first = false;
    }
    json_decref(required);
    add(text, "}");
}

static void add_string_type(serve_text *text, const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum");
    if (json_array_size(values) > 0) {
        add(text, "\"");
        add_joined(text, values, "\" | \"");
        add(text, "\"");
        return;
    }
    add(text, "string");
    add(text, json_is_true(json_object_get(schema, "nullable")) ? " | null" : "");
}

static void add_type(serve_text *text, const json_t *schema)
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
        add(text, "number");
    else if (type != NULL && strcmp(type, "boolean") == 0)
        add(text, "boolean");
    else if (type != NULL && strcmp(type, "object") == 0)
        add_object(text, schema);
    else
        add(text, "any");
}

static void add_parameter(serve_text *text, bool required, const char *name, const json_t *schema)
{
    const json_t *value = json_object_get(schema, "default");
    if (string_of(schema, "description") != NULL) {
        add(text, "// ");
        add(text, string_of(schema, "description"));
        add(text, "\n");
    }
    add(text, name);
    add(text, required ? ": " : "?: ");
    add_type(text, schema);
    if (value != NULL && json_array_size(json_object_get(schema, "enum")) > 0) {
        add(text, ", // default: ");
        add_plain(text, value);
    } else if (value != NULL && json_array_size(json_object_get(schema, "oneOf")) > 0) {
        add(text, "// default: ");
        add_plain(text, value);
    } else if (value != NULL) {
        add(text, ", // default: ");
        cli_text_add_spaced(text, value, 0);
    }
    add(text, ",\n");
}

void serve_describe_types(serve_text *text, const json_t *tools)
{
    add(text, "## functions\n\nnamespace functions {\n\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *parameters = json_object_get(function, "parameters");
        json_t *properties = json_object_get(parameters, "properties"), *schema;
        const char *name;
        if (string_of(function, "description") != NULL) {
            add(text, "// ");
            add(text, string_of(function, "description"));
            add(text, "\n");
        }
        add(text, "type ");
        add(text, json_string_value(json_object_get(function, "name")));
        add(text, json_object_size(properties) > 0 ? " = (_: {\n" : " = () => any;\n\n");
        json_t *required = required_names(parameters);
        json_object_foreach(properties, name, schema)
            add_parameter(text, json_object_get(required, name) != NULL, name, schema);
        json_decref(required);
        add(text, json_object_size(properties) > 0 ? "}) => any;\n\n" : "");
    }
    add(text, "} // namespace functions");
}
