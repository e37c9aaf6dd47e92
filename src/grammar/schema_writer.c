/* Writes parts of the grammar of a JSON schema. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/schema_gbnf.h"

tsr_status tsr__schema_unsupported(const tsr__schema_writer *w, size_t at, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    (void)tsr__json_fail(&w->json, at, "%s is not supported", what);
    return TSR_ERR_UNSUPPORTED;
}

tsr__json tsr__schema_at(const tsr__schema_writer *w, size_t at)
{
    tsr__json json = w->json;
    json.at = at;
    return json;
}

tsr__schema_items tsr__schema_items_of(const tsr__schema_writer *w, size_t at, char bracket)
{
    tsr__schema_items items = {.json = tsr__schema_at(w, at), .bracket = bracket};
    items.status = tsr__json_enter(&items.json, bracket);
    return items;
}

bool tsr__schema_next(tsr__schema_items *items)
{
    bool more = false;
    if (items->status == TSR_OK && items->begun) {
        items->number++;
        items->status = tsr__json_skip(&items->json);
    }
    items->begun = true;
    if (items->status == TSR_OK)
        items->status = items->bracket == '{' ? tsr__json_member(&items->json, items->key, &more)
                                              : tsr__json_element(&items->json, &more);
    items->at = items->json.at;
    return items->status == TSR_OK && more;
}

tsr_status tsr__schema_put(tsr__schema_writer *w, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (w->out->size > TSR_GRAMMAR_MAX_TEXT)
        return tsr__fail(TSR_ERR_INVALID, "schema: its grammar has more than %d bytes",
                         TSR_GRAMMAR_MAX_TEXT);
    return tsr__bytes_append(w->out, text, (size_t)size);
}

tsr_status tsr__schema_put_literal(tsr__schema_writer *w, const char *bytes, size_t size)
{
    TSR__TRY(tsr__schema_put(w, "\""));
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        TSR__TRY(c == '"' || c == '\\' ? tsr__schema_put(w, "\\%c", c)
                 : c < 0x20            ? tsr__schema_put(w, "\\x%02x", (unsigned)c)
                                       : tsr__bytes_append(w->out, bytes + i, 1));
    }
    return tsr__schema_put(w, "\"");
}

tsr_status tsr__schema_put_string(tsr__schema_writer *w, const char *text)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    TSR__TRY(tsr__schema_put(w, "\"\\\"\" "));
    while (*text != '\0') {
        size_t plain = 0;
        while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\')
            plain++;
        if (plain > 0) {
            TSR__TRY(tsr__schema_put_literal(w, text, plain));
            TSR__TRY(tsr__schema_put(w, " "));
        }
        text += plain;
        if (*text == '\0')
            break;
        char json[8];
        const char *place = strchr(escaped, *text);
        if (place)
            snprintf(json, sizeof json, "\\%c", letters[place - escaped]);
        else
            snprintf(json, sizeof json, "\\u%04x", (unsigned)(unsigned char)*text);
        TSR__TRY(tsr__schema_put_literal(w, json, strlen(json)));
        TSR__TRY(tsr__schema_put(w, " "));
        text++;
    }
    return tsr__schema_put(w, "\"\\\"\" ");
}

tsr_status tsr__schema_put_value(tsr__schema_writer *w, size_t at)
{
    tsr__json json = tsr__schema_at(w, at), end = json;
    TSR__TRY(tsr__json_skip(&end));
    while (tsr__json_peek(&json) != '\0' && json.at < end.at) {
        const char c = json.text[json.at];
        if (c == '"') {
            TSR__TRY(tsr__json_string(&json, w->json.size + 1, w->scratch));
            TSR__TRY(tsr__schema_put_string(w, w->scratch));
            continue;
        }
        size_t size = 1;
        if (strchr("{}[],:", c) == NULL)
            while (json.at + size < end.at &&
                   strchr("{}[],: \t\n\r", json.text[json.at + size]) == NULL)
                size++;
        TSR__TRY(tsr__schema_put_literal(w, json.text + json.at, size));
        TSR__TRY(tsr__schema_put(w, c == ',' || c == ':' ? " ws " : " "));
        json.at += size;
    }
    return TSR_OK;
}

static size_t place_of(const tsr__schema_writer *w, size_t at)
{
    size_t place = (size_t)tsr__hash(TSR__HASH_START, &at, sizeof at) % w->table_size;
    while (w->table[place] != 0 && w->rules[w->table[place] - 1].at != at)
        place = (place + 1) % w->table_size;
    return place;
}

tsr_status tsr__schema_find_rule(tsr__schema_writer *w, size_t at, size_t *out)
{
    if (2 * (w->rule_count + 1) > w->table_size) {
        const size_t size = w->table_size > 0 ? 2 * w->table_size : 64;
        int32_t *table = tsr__calloc(size, sizeof *table);
        if (!table)
            return TSR_ERR_NO_MEMORY;
        tsr__free(w->table);
        w->table = table;
        w->table_size = size;
        for (size_t i = 0; i < w->rule_count; i++)
            w->table[place_of(w, w->rules[i].at)] = (int32_t)i + 1;
    }
    const size_t place = place_of(w, at);
    if (w->table[place] == 0) {
        void *rules = w->rules;
        TSR__TRY(tsr__grow(&rules, &w->rule_capacity, w->rule_count + 1, sizeof *w->rules));
        w->rules = rules;
        w->rules[w->rule_count] = (tsr__schema_rule){at};
        w->table[place] = (int32_t)++w->rule_count;
    }
    *out = (size_t)w->table[place] - 1;
    return TSR_OK;
}

tsr_status tsr__schema_put_rule(tsr__schema_writer *w, size_t at)
{
    size_t rule;
    tsr__json json = tsr__schema_at(w, at);
    if (at == 0)
        return tsr__schema_put(w, "value ");
    if (tsr__json_peek(&json) != '{') {
        bool any = false;
        TSR__TRY(tsr__json_bool(&json, &any));
        if (!any)
            return tsr__schema_unsupported(w, at, "the schema false");
        return tsr__schema_put(w, "value ");
    }
    TSR__TRY(tsr__schema_find_rule(w, json.at, &rule));
    return tsr__schema_put(w, "s%zu ", rule);
}
