/* Objects of a schema. Their properties come in the order of the schema, so that two rules for each
 * property are enough: one where no property has been written yet, and one with a comma. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_gbnf.h"

/* A property; `value` is the offset of its schema, or 0 for any value. */
typedef struct property {
    char *name;
    size_t value;
    bool required;
} property;

typedef struct properties {
    property *list;
    size_t count, capacity;
    bool more;         /* others are possible */
    size_t more_value; /* the offset of their schema; 0: any value */
} properties;

static void finish(properties *p)
{
    for (size_t i = 0; i < p->count; i++)
        tsr__free(p->list[i].name);
    tsr__free(p->list);
}

static tsr_status add_property(properties *p, const char *name, size_t value, bool required)
{
    void *list = p->list;
    TSR__TRY(tsr__grow(&list, &p->capacity, p->count + 1, sizeof *p->list));
    p->list = list;
    p->list[p->count] = (property){tsr__strdup(name), value, required};
    if (!p->list[p->count].name)
        return TSR_ERR_NO_MEMORY;
    p->count++;
    return TSR_OK;
}

static int compare_names(const void *a, const void *b)
{
    const property *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static tsr_status sort_names(const properties *p, const property ***out)
{
    const property **sorted = tsr__calloc(p->count, sizeof *sorted);
    if (!sorted)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < p->count; i++)
        sorted[i] = &p->list[i];
    if (p->count > 1)
        qsort(sorted, p->count, sizeof *sorted, compare_names);
    *out = sorted;
    return TSR_OK;
}

static tsr_status read_properties(const tsr__schema_writer *w, size_t at, properties *out)
{
    if (at == 0)
        return TSR_OK;
    tsr__schema_items members = tsr__schema_items_of(w, at, '{');
    while (tsr__schema_next(&members))
        TSR__TRY(add_property(out, members.key, members.at, false));
    return members.status;
}

/* Marks the names in `required`. Those without a schema become properties, too. */
static tsr_status read_required(const tsr__schema_writer *w, const tsr__schema_object *o,
                                const property **sorted, size_t count, properties *out)
{
    if (o->required == 0)
        return TSR_OK;
    tsr__schema_items list = tsr__schema_items_of(w, o->required, '[');
    while (tsr__schema_next(&list)) {
        tsr__json json = tsr__schema_at(w, list.at);
        TSR__TRY(tsr__json_string(&json, w->json.size + 1, w->scratch));
        const property wanted = {.name = w->scratch}, *key = &wanted;
        const property **found =
            count > 0 ? bsearch(&key, sorted, count, sizeof *sorted, compare_names) : NULL;
        if (found)
            out->list[*found - out->list].required = true;
        else if (o->additional != 0 && !out->more)
            return tsr__json_fail(&json, list.at,
                                  "the required property '%.80s' has no schema, and "
                                  "additionalProperties is false",
                                  w->scratch);
        else
            return tsr__schema_unsupported(
                w, list.at, "the required property '%.80s' has no schema, which", w->scratch);
    }
    return list.status;
}

static tsr_status read(const tsr__schema_writer *w, const tsr__schema_object *o, properties *out)
{
    const property **sorted = NULL;
    /* Without `additionalProperties`, a schema that names its properties means these only. */
    out->more = o->additional == 0 && o->properties == 0;
    if (o->additional != 0) {
        tsr__json json = tsr__schema_at(w, o->additional);
        out->more = true;
        if (tsr__json_peek(&json) != '{') {
            TSR__TRY(tsr__json_bool(&json, &out->more));
        } else {
            out->more_value = o->additional;
        }
    }
    TSR__TRY(read_properties(w, o->properties, out));
    TSR__TRY(sort_names(out, &sorted));
    tsr_status status = TSR_OK;
    for (size_t i = 1; status == TSR_OK && i < out->count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = tsr__json_fail(&w->json, o->properties, "the property '%.80s' is there twice",
                                    sorted[i]->name);
    if (status == TSR_OK)
        status = read_required(w, o, sorted, out->count, out);
    tsr__free(sorted);
    return status;
}

/* Other names -------------------------------------------------------------------------------- */

/* Returns the next character of a name of valid UTF-8, and moves *at behind it. */
static uint32_t next_character(const char *name, size_t *at)
{
    const unsigned char first = (unsigned char)name[*at];
    const int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t value = more == 0 ? first : first & (0x3fU >> more);
    for (int i = 1; i <= more && name[*at + (size_t)i] != '\0'; i++)
        value = value << 6 | ((unsigned char)name[*at + (size_t)i] & 0x3f);
    *at += (size_t)more + 1;
    return value;
}

/* The names that begin with the same characters: those from `first` to before `end` in the sorted
 * list, of which `at` bytes have been read. */
typedef struct prefix {
    size_t first, end, at;
} prefix;

/* Writes rule `rule` of the names that follow a prefix and are none of the properties, with the
 * quotation mark after them: without it, the rule could end at most nodes of the trie of tokens,
 * which each mask would visit. Adds the longer prefixes to list[*count]. */
static tsr_status put_prefix(tsr__schema_writer *w, const property **sorted, size_t number,
                             prefix **list, size_t *capacity, size_t *count, size_t rule)
{
    const prefix p = (*list)[rule];
    size_t first = p.first;
    TSR__TRY(tsr__schema_put(w, "k%zu-%zu ::= ", number, rule));
    if (sorted[first]->name[p.at] == '\0')
        first++; /* a property itself is no other name */
    TSR__TRY(tsr__schema_put(w, "[^\"\\\\\\x00-\\x1f\\x7f"));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = first; i < p.end;) {
            size_t at = p.at, end = i;
            const uint32_t c = next_character(sorted[i]->name, &at);
            for (size_t same = p.at; end < p.end; end++, same = p.at)
                if (next_character(sorted[end]->name, &same) != c)
                    break;
            if (pass == 0) {
                TSR__TRY(tsr__schema_put(w, "\\U%08X", (unsigned)c));
            } else if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
                void *grown = *list;
                TSR__TRY(tsr__grow(&grown, capacity, *count + 1, sizeof **list));
                *list = grown;
                (*list)[*count] = (prefix){i, end, at};
                TSR__TRY(tsr__schema_put(w, " | [\\U%08X] k%zu-%zu", (unsigned)c, number, *count));
                ++*count;
            }
            i = end;
        }
        if (pass == 0)
            TSR__TRY(tsr__schema_put(w, "] rest"));
    }
    return tsr__schema_put(w, first == p.first ? " | \"\\\"\"\n" : "\n");
}

/* Writes rules of the names of other properties: k0 of the whole name. Characters that JSON must
 * escape cannot be in them, so that no name can be spelled in two ways. */
static tsr_status put_names(tsr__schema_writer *w, const properties *p, size_t number)
{
    const property **sorted = NULL;
    prefix *list = NULL;
    size_t capacity = 0, count = 0;
    void *grown = NULL;
    TSR__TRY(sort_names(p, &sorted));
    tsr_status status = tsr__grow(&grown, &capacity, 1, sizeof *list);
    if (status == TSR_OK) {
        list = grown;
        list[count++] = (prefix){0, p->count, 0};
    }
    for (size_t i = 0; status == TSR_OK && i < count; i++)
        status = put_prefix(w, sorted, number, &list, &capacity, &count, i);
    tsr__free(list);
    tsr__free(sorted);
    return status;
}

/* Objects ------------------------------------------------------------------------------------ */

static tsr_status put_members(tsr__schema_writer *w, const properties *p, size_t number)
{
    for (size_t i = 0; i < p->count; i++)
        for (int comma = 0; comma < 2; comma++) {
            TSR__TRY(tsr__schema_put(w, "%s%zu-%zu ::= %s", comma ? "c" : "p", number, i,
                                     comma ? "\",\" ws " : ""));
            TSR__TRY(tsr__schema_put_string(w, p->list[i].name));
            TSR__TRY(tsr__schema_put(w, " \":\" ws "));
            TSR__TRY(tsr__schema_put_rule(w, p->list[i].value));
            TSR__TRY(tsr__schema_put(w, " c%zu-%zu", number, i + 1));
            TSR__TRY(p->list[i].required
                         ? tsr__schema_put(w, "\n")
                         : tsr__schema_put(w, " | %s%zu-%zu\n", comma ? "c" : "p", number, i + 1));
        }
    if (!p->more)
        return tsr__schema_put(w, "p%zu-%zu ::= \"\"\nc%zu-%zu ::= ws\n", number, p->count, number,
                               p->count);
    TSR__TRY(tsr__schema_put(w, "p%zu-%zu ::= | m%zu c%zu-%zu\n", number, p->count, number, number,
                             p->count));
    TSR__TRY(tsr__schema_put(w, "c%zu-%zu ::= ws | \",\" ws m%zu c%zu-%zu\n", number, p->count,
                             number, number, p->count));
    TSR__TRY(p->count > 0 ? tsr__schema_put(w, "m%zu ::= \"\\\"\" k%zu-0 \":\" ws ", number, number)
                          : tsr__schema_put(w, "m%zu ::= string \":\" ws ", number));
    TSR__TRY(tsr__schema_put_rule(w, p->more_value));
    TSR__TRY(tsr__schema_put(w, "\n"));
    return p->count > 0 ? put_names(w, p, number) : TSR_OK;
}

tsr_status tsr__schema_put_object(tsr__schema_writer *w, const tsr__schema_object *o, size_t number)
{
    return o->properties == 0 && o->required == 0 && o->additional == 0
               ? tsr__schema_put(w, "object ")
               : tsr__schema_put(w, "\"{\" ws p%zu-0 \"}\" ", number);
}

tsr_status tsr__schema_put_properties(tsr__schema_writer *w, const tsr__schema_object *o,
                                      size_t number)
{
    properties p = {0};
    if (o->properties == 0 && o->required == 0 && o->additional == 0)
        return TSR_OK;
    tsr_status status = read(w, o, &p);
    if (status == TSR_OK)
        status = put_members(w, &p, number);
    finish(&p);
    return status;
}
