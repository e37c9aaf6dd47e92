/* Makes GBNF of a JSON schema: a rule for each schema in it. Rules wait in a list until they are
 * written, so that schemas may be nested and refer to each other in circles. The text may come from
 * an adversary. */
#include "grammar/schema_gbnf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_SCHEMA_BYTES 262144
#define MOST_REFERENCES 4096
/* Integers without bounds have at most this many digits, so that other programs can read them. */
#define LARGEST_INTEGER INT64_C(9999999999999999)

/* The rules that all schemas use. A string has no control characters and no halves of surrogate
 * pairs. */
static const char common[] =
    "ws ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n"
    "plain ::= [^\"\\\\\\x00-\\x1f\\x7f]\n"
    "rest ::= plain* \"\\\"\"\n"
    "hex ::= [0-9a-fA-F]\n"
    "escape ::= [\"\\\\/bfnrt] | \"u\" ([0-9a-cA-CefEF] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] "
    "hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2})\n"
    "char ::= plain | \"\\\\\" escape\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "member ::= string \":\" ws value\n"
    "object ::= \"{\" ws (member (\",\" ws member)* ws)? \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n"
    "value ::= object | array | string | number | boolean | \"null\"\n"
    "date ::= [0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" "
    "[01])\n"
    "time ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,9})? "
    "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])\n"
    "uuid ::= hex{8} (\"-\" hex{4}){3} \"-\" hex{12}\n";

typedef enum keyword {
    TYPE,
    ENUM,
    CONST,
    PROPERTIES,
    REQUIRED,
    ADDITIONAL_PROPERTIES,
    ITEMS,
    PREFIX_ITEMS,
    MIN_ITEMS,
    MAX_ITEMS,
    MIN_LENGTH,
    MAX_LENGTH,
    PATTERN,
    FORMAT,
    MINIMUM,
    MAXIMUM,
    EXCLUSIVE_MINIMUM,
    EXCLUSIVE_MAXIMUM,
    ANY_OF,
    ONE_OF,
    ALL_OF,
    REF,
    KEYWORDS, /* those below change nothing */
    FIRST_IGNORED = KEYWORDS
} keyword;

static const char *const keyword_names[] = {"type",
                                            "enum",
                                            "const",
                                            "properties",
                                            "required",
                                            "additionalProperties",
                                            "items",
                                            "prefixItems",
                                            "minItems",
                                            "maxItems",
                                            "minLength",
                                            "maxLength",
                                            "pattern",
                                            "format",
                                            "minimum",
                                            "maximum",
                                            "exclusiveMinimum",
                                            "exclusiveMaximum",
                                            "anyOf",
                                            "oneOf",
                                            "allOf",
                                            "$ref",
                                            "$defs",
                                            "definitions",
                                            "title",
                                            "description",
                                            "default",
                                            "examples",
                                            "$schema",
                                            "$id",
                                            "$comment",
                                            "deprecated",
                                            "readOnly",
                                            "writeOnly",
                                            NULL};

/* The offsets of a schema's keywords; 0: it has not got this one. */
typedef struct schema {
    size_t at;
    size_t keywords[KEYWORDS];
} schema;

typedef enum type { OBJECT, ARRAY, STRING, NUMBER, INTEGER, BOOLEAN, NULL_TYPE, TYPES } type;
static const char *const type_names[] = {"object",  "array",   "string", "number",
                                         "integer", "boolean", "null",   NULL};

/* Keywords ----------------------------------------------------------------------------------- */

static tsr_status read_schema(const tsr__schema_writer *w, size_t at, schema *out)
{
    uint64_t seen = 0;
    tsr__schema_items members = tsr__schema_items_of(w, at, '{');
    *out = (schema){.at = at};
    while (tsr__schema_next(&members)) {
        const tsr__json *json = &members.json;
        const int number = tsr__json_find(keyword_names, members.key);
        if (number < 0)
            return tsr__schema_unsupported(w, json->key_at, "the keyword '%.80s'", members.key);
        if (seen >> number & 1)
            return tsr__json_fail(json, json->key_at, "the keyword '%.80s' is there twice",
                                  members.key);
        seen |= UINT64_C(1) << number;
        if (number < FIRST_IGNORED)
            out->keywords[number] = members.at;
    }
    return members.status;
}

/* Reads a number of items or characters; `missing` if there is none. */
static tsr_status read_count(const tsr__schema_writer *w, const schema *s, keyword which,
                             int64_t missing, int64_t *out)
{
    const size_t at = s->keywords[which];
    tsr__json json = tsr__schema_at(w, at);
    *out = missing;
    if (at == 0)
        return TSR_OK;
    TSR__TRY(tsr__json_signed(&json, out));
    if (*out < 0 || *out > TSR_GRAMMAR_MAX_REPEAT)
        return tsr__json_fail(&json, at, "%s is %" PRId64 "; 0 to %d is possible",
                              keyword_names[which], *out, TSR_GRAMMAR_MAX_REPEAT);
    return TSR_OK;
}

static tsr_status read_counts(const tsr__schema_writer *w, const schema *s, keyword least,
                              keyword most, int64_t *low, int64_t *high)
{
    TSR__TRY(read_count(w, s, least, 0, low));
    TSR__TRY(read_count(w, s, most, -1, high));
    if (*high >= 0 && *high < *low)
        return tsr__json_fail(&w->json, s->keywords[most], "%s is %" PRId64 ", but %s is %" PRId64,
                              keyword_names[most], *high, keyword_names[least], *low);
    return TSR_OK;
}

/* Types -------------------------------------------------------------------------------------- */

static tsr_status put_format(tsr__schema_writer *w, size_t at)
{
    static const char *const formats[] = {"date", "time", "date-time", "uuid", NULL};
    static const char *const rules[] = {"date", "time", "date \"T\" time", "uuid"};
    tsr__json json = tsr__schema_at(w, at);
    TSR__TRY(tsr__json_string(&json, w->json.size + 1, w->scratch));
    const int number = tsr__json_find(formats, w->scratch);
    if (number < 0)
        return tsr__schema_unsupported(w, at, "the format '%.80s'", w->scratch);
    return tsr__schema_put(w, "\"\\\"\" %s \"\\\"\" ", rules[number]);
}

static tsr_status put_string_type(tsr__schema_writer *w, const schema *s)
{
    int64_t low, high;
    const size_t pattern = s->keywords[PATTERN], format = s->keywords[FORMAT];
    const bool counted = s->keywords[MIN_LENGTH] != 0 || s->keywords[MAX_LENGTH] != 0;
    if ((pattern != 0) + (format != 0) + counted > 1)
        return tsr__schema_unsupported(w, s->at, "%s beside %s", pattern ? "pattern" : "format",
                                       pattern && format ? "format" : "minLength or maxLength");
    if (format != 0)
        return put_format(w, format);
    if (pattern != 0) {
        tsr__json json = tsr__schema_at(w, pattern);
        TSR__TRY(tsr__json_string(&json, w->json.size + 1, w->scratch));
        return tsr__schema_put_pattern(w, pattern, w->scratch);
    }
    TSR__TRY(read_counts(w, s, MIN_LENGTH, MAX_LENGTH, &low, &high));
    if (!counted)
        return tsr__schema_put(w, "string ");
    TSR__TRY(tsr__schema_put(w, "\"\\\"\" char{%" PRId64 ",", low));
    if (high >= 0)
        TSR__TRY(tsr__schema_put(w, "%" PRId64, high));
    return tsr__schema_put(w, "} \"\\\"\" ");
}

static tsr_status read_bound(const tsr__schema_writer *w, const schema *s, keyword inclusive,
                             keyword exclusive, int64_t step, int64_t *out)
{
    for (int i = 0; i < 2; i++) {
        const size_t at = s->keywords[i == 0 ? inclusive : exclusive];
        int64_t value;
        if (at == 0)
            continue;
        tsr__json json = tsr__schema_at(w, at);
        TSR__TRY(tsr__json_signed(&json, &value));
        if (i == 1 && value == (step > 0 ? INT64_MAX : INT64_MIN))
            return tsr__json_fail(&json, at, "no 64-bit integer is beyond %" PRId64, value);
        value += i * step;
        if (i == 0 || s->keywords[inclusive] == 0 || (step > 0 ? value > *out : value < *out))
            *out = value;
    }
    return TSR_OK;
}

static tsr_status put_integer_type(tsr__schema_writer *w, const schema *s)
{
    const bool has_low = s->keywords[MINIMUM] != 0 || s->keywords[EXCLUSIVE_MINIMUM] != 0;
    const bool has_high = s->keywords[MAXIMUM] != 0 || s->keywords[EXCLUSIVE_MAXIMUM] != 0;
    int64_t low = -LARGEST_INTEGER, high = LARGEST_INTEGER;
    if (!has_low && !has_high)
        return tsr__schema_put(w, "integer ");
    TSR__TRY(read_bound(w, s, MINIMUM, EXCLUSIVE_MINIMUM, 1, &low));
    TSR__TRY(read_bound(w, s, MAXIMUM, EXCLUSIVE_MAXIMUM, -1, &high));
    if (!has_high && low > high)
        high = INT64_MAX;
    if (!has_low && low > high)
        low = INT64_MIN;
    if (low > high)
        return tsr__json_fail(&w->json, s->at, "there is no integer from %" PRId64 " to %" PRId64,
                              low, high);
    return tsr__schema_put_integers(w, low, high);
}

static tsr_status put_number_type(tsr__schema_writer *w, const schema *s)
{
    for (int i = MINIMUM; i <= EXCLUSIVE_MAXIMUM; i++)
        if (s->keywords[i] != 0)
            return tsr__schema_unsupported(w, s->keywords[i], "%s of the type number",
                                           keyword_names[i]);
    return tsr__schema_put(w, "number ");
}

/* A list whose first items have schemas of their own, all of which are there. */
static tsr_status put_tuple(tsr__schema_writer *w, const schema *s)
{
    const size_t items = s->keywords[ITEMS], prefix = s->keywords[PREFIX_ITEMS];
    if (s->keywords[MIN_ITEMS] != 0 || s->keywords[MAX_ITEMS] != 0)
        return tsr__schema_unsupported(w, s->at, "prefixItems beside minItems or maxItems");
    tsr__schema_items list = tsr__schema_items_of(w, prefix, '[');
    TSR__TRY(tsr__schema_put(w, "\"[\" ws "));
    while (tsr__schema_next(&list)) {
        if (list.number > 0)
            TSR__TRY(tsr__schema_put(w, "\",\" ws "));
        TSR__TRY(tsr__schema_put_rule(w, list.at));
    }
    TSR__TRY(list.status);
    if (list.number == 0)
        return tsr__json_fail(&list.json, prefix, "prefixItems is empty");
    tsr__json rest = tsr__schema_at(w, items);
    if (items != 0 && tsr__json_peek(&rest) != 'f') {
        TSR__TRY(tsr__schema_put(w, "(\",\" ws "));
        TSR__TRY(tsr__schema_put_rule(w, items));
        TSR__TRY(tsr__schema_put(w, ")* "));
    }
    return tsr__schema_put(w, "ws \"]\" ");
}

static tsr_status put_array_type(tsr__schema_writer *w, const schema *s)
{
    int64_t low, high;
    if (s->keywords[PREFIX_ITEMS] != 0)
        return put_tuple(w, s);
    TSR__TRY(read_counts(w, s, MIN_ITEMS, MAX_ITEMS, &low, &high));
    if (high == 0)
        return tsr__schema_put(w, "\"[\" ws \"]\" ");
    TSR__TRY(tsr__schema_put(w, "\"[\" ws ("));
    TSR__TRY(tsr__schema_put_rule(w, s->keywords[ITEMS]));
    TSR__TRY(tsr__schema_put(w, "(\",\" ws "));
    TSR__TRY(tsr__schema_put_rule(w, s->keywords[ITEMS]));
    TSR__TRY(tsr__schema_put(w, "){%" PRId64 ",", low > 0 ? low - 1 : 0));
    if (high > 0)
        TSR__TRY(tsr__schema_put(w, "%" PRId64, high - 1));
    return tsr__schema_put(w, "} ws)%s \"]\" ", low == 0 ? "?" : "");
}

static tsr_status put_type(tsr__schema_writer *w, const schema *s, type which, size_t number)
{
    switch (which) {
    case OBJECT:
        return tsr__schema_put_object(w,
                                      &(tsr__schema_object){s->at, s->keywords[PROPERTIES],
                                                            s->keywords[REQUIRED],
                                                            s->keywords[ADDITIONAL_PROPERTIES]},
                                      number);
    case ARRAY:
        return put_array_type(w, s);
    case STRING:
        return put_string_type(w, s);
    case NUMBER:
        return put_number_type(w, s);
    case INTEGER:
        return put_integer_type(w, s);
    case BOOLEAN:
        return tsr__schema_put(w, "boolean ");
    default:
        return tsr__schema_put(w, "\"null\" ");
    }
}

/* Returns the types that a schema without `type` has by its other keywords; 0: any. */
static unsigned implied_types(const schema *s)
{
    unsigned types = 0;
    for (int i = PROPERTIES; i <= EXCLUSIVE_MAXIMUM; i++)
        if (s->keywords[i] != 0)
            types |= 1U << (i <= ADDITIONAL_PROPERTIES ? OBJECT
                            : i <= MAX_ITEMS           ? ARRAY
                            : i <= FORMAT              ? STRING
                                                       : NUMBER);
    return types;
}

/* Adds the type that a string at an offset names. */
static tsr_status read_type(const tsr__schema_writer *w, size_t at, unsigned *types)
{
    tsr__json json = tsr__schema_at(w, at);
    TSR__TRY(tsr__json_string(&json, w->json.size + 1, w->scratch));
    const int number = tsr__json_find(type_names, w->scratch);
    if (number < 0)
        return tsr__json_fail(&json, at, "there is no type '%.80s'", w->scratch);
    *types |= 1U << number;
    return TSR_OK;
}

/* Reads `type`, a name or a list of names, as a set of bits. */
static tsr_status read_types(const tsr__schema_writer *w, const schema *s, unsigned *out)
{
    const size_t at = s->keywords[TYPE];
    tsr__json json = tsr__schema_at(w, at);
    *out = at == 0 ? implied_types(s) : 0;
    if (at == 0)
        return TSR_OK;
    if (tsr__json_peek(&json) != '[')
        return read_type(w, json.at, out);
    tsr__schema_items list = tsr__schema_items_of(w, at, '[');
    while (tsr__schema_next(&list))
        TSR__TRY(read_type(w, list.at, out));
    TSR__TRY(list.status);
    return *out != 0 ? TSR_OK : tsr__json_fail(&json, at, "the list of types is empty");
}

/* Values ------------------------------------------------------------------------------------- */

/* Returns whether the value that is next has one of the types. */
static bool has_type(tsr__json json, unsigned types)
{
    const char c = tsr__json_peek(&json);
    int64_t integer;
    const type is = c == '{'               ? OBJECT
                    : c == '['             ? ARRAY
                    : c == '"'             ? STRING
                    : c == 'n'             ? NULL_TYPE
                    : c == 't' || c == 'f' ? BOOLEAN
                                           : NUMBER;
    if (types == 0 || types >> is & 1)
        return true;
    const tsr__error error = tsr__error_take();
    const bool whole =
        is == NUMBER && types >> INTEGER & 1 && tsr__json_signed(&json, &integer) == TSR_OK;
    tsr__error_put_back(&error);
    return whole;
}

static tsr_status put_enum(tsr__schema_writer *w, const schema *s, unsigned types)
{
    const size_t at = s->keywords[ENUM];
    bool any = false;
    tsr__schema_items list = tsr__schema_items_of(w, at, '[');
    while (tsr__schema_next(&list)) {
        if (!has_type(tsr__schema_at(w, list.at), types))
            continue;
        if (any)
            TSR__TRY(tsr__schema_put(w, "| "));
        TSR__TRY(tsr__schema_put_value(w, list.at));
        any = true;
    }
    TSR__TRY(list.status);
    return any ? TSR_OK : tsr__json_fail(&list.json, at, "enum has no value of the schema's type");
}

/* anyOf, oneOf and allOf, of which only the last may not have several schemas. */
static tsr_status put_alternatives(tsr__schema_writer *w, const schema *s, keyword which)
{
    const size_t at = s->keywords[which];
    tsr__schema_items list = tsr__schema_items_of(w, at, '[');
    while (tsr__schema_next(&list)) {
        if (list.number > 0 && which == ALL_OF)
            return tsr__schema_unsupported(w, at, "allOf with several schemas");
        if (list.number > 0)
            TSR__TRY(tsr__schema_put(w, "| "));
        TSR__TRY(tsr__schema_put_rule(w, list.at));
    }
    TSR__TRY(list.status);
    return list.number > 0 ? TSR_OK
                           : tsr__json_fail(&list.json, at, "%s is empty", keyword_names[which]);
}

/* References --------------------------------------------------------------------------------- */

/* Moves from an object or list to the member or element with a name. */
static tsr_status enter_member(const tsr__schema_writer *w, const char *name, size_t *at,
                               bool *found)
{
    tsr__json json = tsr__schema_at(w, *at);
    const char bracket = tsr__json_peek(&json);
    char number[24];
    *found = false;
    if (bracket != '[' && bracket != '{')
        return TSR_OK;
    tsr__schema_items items = tsr__schema_items_of(w, *at, bracket);
    while (tsr__schema_next(&items)) {
        snprintf(number, sizeof number, "%zu", items.number);
        if (strcmp(bracket == '[' ? number : items.key, name) == 0) {
            *at = items.at;
            *found = true;
            return TSR_OK;
        }
    }
    return items.status;
}

/* Decodes a part of a JSON pointer: ~1 is a slash and ~0 a tilde. */
static void decode_part(char *part)
{
    char *to = part;
    for (const char *from = part; *from != '\0'; from++) {
        const bool escaped = *from == '~' && (from[1] == '0' || from[1] == '1');
        *to++ = escaped ? (from[1] == '0' ? '~' : '/') : *from;
        from += escaped;
    }
    *to = '\0';
}

/* Writes the name of the rule of the schema that a $ref names. */
static tsr_status put_reference(tsr__schema_writer *w, size_t ref)
{
    tsr__json json = tsr__schema_at(w, ref);
    size_t at = 0;
    bool found = true;
    if (++w->references > MOST_REFERENCES)
        return tsr__json_fail(&json, ref, "more than %d references", MOST_REFERENCES);
    TSR__TRY(tsr__json_string(&json, w->json.size + 1, w->scratch));
    if (w->scratch[0] != '#' || (w->scratch[1] != '\0' && w->scratch[1] != '/'))
        return tsr__schema_unsupported(
            w, ref, "the reference '%.80s', which does not begin with #/", w->scratch);
    char shown[96];
    snprintf(shown, sizeof shown, "%.80s", w->scratch);
    for (char *part = w->scratch + 1; found && *part == '/';) {
        char *end = part + 1 + strcspn(part + 1, "/");
        const char after = *end;
        *end = '\0';
        decode_part(part + 1);
        TSR__TRY(enter_member(w, part + 1, &at, &found));
        *end = after;
        part = end;
    }
    if (!found)
        return tsr__json_fail(&json, ref, "there is no '%s'", shown);
    /* The whole schema, which is the first rule, may be at offset 0. */
    return at == 0 ? tsr__schema_put(w, "s0 ") : tsr__schema_put_rule(w, at);
}

/* Schemas ------------------------------------------------------------------------------------ */

/* Refuses keywords beside one that stands alone. */
static tsr_status check_alone(const tsr__schema_writer *w, const schema *s, keyword which)
{
    for (int i = 0; i < KEYWORDS; i++)
        if (i != (int)which && s->keywords[i] != 0)
            return tsr__schema_unsupported(w, s->keywords[i], "%s beside %s", keyword_names[i],
                                           keyword_names[which]);
    return TSR_OK;
}

static tsr_status put_types(tsr__schema_writer *w, const schema *s, size_t number, unsigned types)
{
    bool any = false;
    if (types >> NUMBER & 1)
        types &= ~(1U << INTEGER);
    for (int i = 0; i < TYPES; i++) {
        if (!(types >> i & 1))
            continue;
        if (any)
            TSR__TRY(tsr__schema_put(w, "| "));
        TSR__TRY(put_type(w, s, (type)i, number));
        any = true;
    }
    return TSR_OK;
}

/* Writes the rule of schema `number`, and those of its properties. */
static tsr_status put_schema(tsr__schema_writer *w, size_t number)
{
    static const keyword alone[] = {REF, ANY_OF, ONE_OF, ALL_OF};
    schema s;
    unsigned types = 0;
    TSR__TRY(read_schema(w, w->rules[number].at, &s));
    TSR__TRY(tsr__schema_put(w, "s%zu ::= ", number));
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        if (s.keywords[alone[i]] == 0)
            continue;
        TSR__TRY(check_alone(w, &s, alone[i]));
        TSR__TRY(alone[i] == REF ? put_reference(w, s.keywords[REF])
                                 : put_alternatives(w, &s, alone[i]));
        return tsr__schema_put(w, "\n");
    }
    TSR__TRY(read_types(w, &s, &types));
    if (s.keywords[CONST] != 0) {
        TSR__TRY(tsr__schema_put_value(w, s.keywords[CONST]));
        return tsr__schema_put(w, "\n");
    }
    if (s.keywords[ENUM] != 0) {
        TSR__TRY(put_enum(w, &s, types));
        return tsr__schema_put(w, "\n");
    }
    if (types == 0)
        return tsr__schema_put(w, "value\n");
    TSR__TRY(put_types(w, &s, number, types));
    TSR__TRY(tsr__schema_put(w, "\n"));
    return types >> OBJECT & 1
               ? tsr__schema_put_properties(
                     w,
                     &(tsr__schema_object){s.at, s.keywords[PROPERTIES], s.keywords[REQUIRED],
                                           s.keywords[ADDITIONAL_PROPERTIES]},
                     number)
               : TSR_OK;
}

static tsr_status put_all(tsr__schema_writer *w)
{
    tsr__json json = w->json;
    TSR__TRY(tsr__json_skip(&json));
    TSR__TRY(tsr__json_end(&json));
    TSR__TRY(tsr__bytes_append(w->out, common, sizeof common - 1));
    json = w->json;
    if (tsr__json_peek(&json) == 't')
        return tsr__schema_put(w, "root ::= value\n");
    TSR__TRY(tsr__json_enter(&json, '{'));
    size_t root;
    TSR__TRY(tsr__schema_find_rule(w, json.at - 1, &root));
    TSR__TRY(tsr__schema_put(w, "root ::= s%zu\n", root));
    for (size_t i = 0; i < w->rule_count; i++)
        TSR__TRY(put_schema(w, i));
    return TSR_OK;
}

tsr_status tsr__schema_to_gbnf(const char *text, size_t size, tsr__bytes *out)
{
    tsr__schema_writer w = {.json = {.text = text, .size = size, .what = "schema"}, .out = out};
    TSR__REQUIRE(size <= MOST_SCHEMA_BYTES, "schema: it has %zu bytes; at most %d are possible",
                 size, MOST_SCHEMA_BYTES);
    TSR__REQUIRE(tsr__text_problem(text, size) == NULL, "schema: it is not UTF-8");
    w.scratch = tsr__calloc(size + 1, 1);
    if (!w.scratch)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = put_all(&w);
    tsr__free(w.scratch);
    tsr__free(w.table);
    tsr__free(w.rules);
    return status;
}
