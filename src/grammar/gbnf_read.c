/* Reads GBNF. The text may come from an adversary. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"
#include "json/json.h"

#define LAST_CHARACTER UINT32_C(0x10ffff)
#define FIRST_SURROGATE UINT32_C(0xd800)
#define LAST_SURROGATE UINT32_C(0xdfff)
#define MOST_RULES 65536

/* Operators behind one expression. More would have no use, and the automaton is built with a
 * function that calls itself. */
#define MOST_REPEATS 4

typedef struct reader {
    const char *text;
    size_t size, at;
    int32_t line;
    int32_t column; /* of the character at `column_at`, an offset in this line */
    size_t column_at;
    int nesting;
    const tsr_tokenizer *tokenizer;
    /* Names of rules begin with this: each schema in the text has rules of its own. */
    char scope[32];
    bool schema; /* the text has been made of a schema */
    tsr__expressions *out;
} reader;

/* Errors ------------------------------------------------------------------------------------- */

static int32_t column_of(reader *r)
{
    for (; r->column_at < r->at && r->column_at < r->size; r->column_at++)
        r->column += ((unsigned char)r->text[r->column_at] & 0xc0) != 0x80; /* characters */
    return r->column;
}

#define FAIL(r, ...) fail_at((r)->line, column_of(r), __VA_ARGS__)

static tsr_status fail_at(int32_t line, int32_t column, const char *format, ...) TSR__PRINTF(3, 4);
static tsr_status fail_at(int32_t line, int32_t column, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tsr__fail(TSR_ERR_INVALID, "grammar: line %d, column %d: %s", (int)line, (int)column,
                     text);
}

/* Text --------------------------------------------------------------------------------------- */

/* Returns the next byte, or 0 at the end; the text has no zero byte. */
static char peek(const reader *r)
{
    return r->at < r->size ? r->text[r->at] : '\0';
}

static bool looking_at(const reader *r, const char *wanted)
{
    const size_t size = strlen(wanted);
    return r->size - r->at >= size && memcmp(r->text + r->at, wanted, size) == 0;
}

static void advance(reader *r)
{
    if (r->text[r->at++] == '\n') {
        r->line++;
        r->column = 1;
        r->column_at = r->at;
    }
}

/* Skips spaces and comments, and line breaks if `lines` is set. */
static void skip_space(reader *r, bool lines)
{
    for (;;) {
        const char c = peek(r);
        if (c == '#')
            while (r->at < r->size && peek(r) != '\n' && peek(r) != '\r')
                advance(r);
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            advance(r);
        else
            return;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Reads the rest of a character of UTF-8 that begins at r->at. */
static tsr_status read_utf8(reader *r, uint32_t *out)
{
    const unsigned char first = (unsigned char)r->text[r->at];
    const int more = first < 0x80   ? 0
                     : first < 0xc2 ? -1
                     : first < 0xe0 ? 1
                     : first < 0xf0 ? 2
                     : first < 0xf5 ? 3
                                    : -1;
    uint32_t value = more <= 0 ? first : first & (0x3fU >> more);
    bool valid = more >= 0 && r->size - r->at > (size_t)more;
    for (int i = 1; valid && i <= more; i++) {
        const unsigned char byte = (unsigned char)r->text[r->at + (size_t)i];
        valid = (byte & 0xc0) == 0x80;
        value = value << 6 | (byte & 0x3f);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (!valid || value < least[more] || value > LAST_CHARACTER ||
        (value >= FIRST_SURROGATE && value <= LAST_SURROGATE))
        return FAIL(r, "a byte 0x%02x that is not UTF-8", (unsigned)first);
    r->at += (size_t)more + 1;
    *out = value;
    return TSR_OK;
}

static tsr_status read_hex(reader *r, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        const char c = peek(r);
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return FAIL(r, "this escape needs %d hexadecimal digits", digits);
        *out = *out << 4 | (uint32_t)digit;
        r->at++;
    }
    if (*out > LAST_CHARACTER || (*out >= FIRST_SURROGATE && *out <= LAST_SURROGATE))
        return FAIL(r, "U+%X is not a character", (unsigned)*out);
    return TSR_OK;
}

/* Reads a character of a literal or a class. */
static tsr_status read_character(reader *r, uint32_t *out)
{
    if (r->at >= r->size)
        return FAIL(r, "the text ends inside a literal or class");
    if (peek(r) == '\n' || peek(r) == '\r')
        return FAIL(r, "the line ends inside a literal or class");
    if (peek(r) != '\\')
        return read_utf8(r, out);
    r->at++;
    const char c = peek(r);
    static const char plain[] = "\\\"[]-^", letters[] = "nrt", values[] = "\n\r\t";
    if (c == 'x' || c == 'u' || c == 'U') {
        r->at++;
        return read_hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    }
    if (c != '\0' && strchr(plain, c) != NULL)
        *out = (unsigned char)c;
    else if (c != '\0' && strchr(letters, c) != NULL)
        *out = (unsigned char)values[strchr(letters, c) - letters];
    else
        return FAIL(r, "there is no escape '\\%c'", c >= ' ' && c <= '~' ? c : '?');
    r->at++;
    return TSR_OK;
}

/* Expressions -------------------------------------------------------------------------------- */

static tsr_status add_expression(reader *r, tsr__expression expression, int32_t *out)
{
    tsr__expressions *e = r->out;
    void *list = e->list;
    if (e->count >= TSR_GRAMMAR_MAX_SIZE)
        return FAIL(r, "the grammar has more than %d parts", TSR_GRAMMAR_MAX_SIZE);
    TSR__TRY(tsr__grow(&list, &e->capacity, e->count + 1, sizeof *e->list));
    e->list = list;
    e->list[e->count] = expression;
    *out = (int32_t)e->count++;
    return TSR_OK;
}

/* An expression that starts at the next byte. */
static tsr__expression here(reader *r, tsr__expression_kind kind)
{
    return (tsr__expression){
        .kind = kind, .child = -1, .before = -1, .line = r->line, .column = column_of(r)};
}

static tsr_status add_range(reader *r, uint32_t low, uint32_t high)
{
    tsr__expressions *e = r->out;
    void *ranges = e->ranges;
    TSR__TRY(tsr__grow(&ranges, &e->range_capacity, e->range_count + 1, sizeof *e->ranges));
    e->ranges = ranges;
    e->ranges[e->range_count++] = (tsr__character_range){low, high};
    return TSR_OK;
}

static size_t write_utf8(uint32_t c, unsigned char bytes[4])
{
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
    for (int i = more; i > 0; i--, c >>= 6)
        bytes[i] = (unsigned char)(0x80 | (c & 0x3f));
    bytes[0] = (unsigned char)(heads[more] | c);
    return (size_t)more + 1;
}

static tsr_status read_literal(reader *r, int32_t *out)
{
    tsr__expression e = here(r, TSR__EXPRESSION_LITERAL);
    const size_t first = r->out->bytes.size;
    r->at++;
    while (peek(r) != '"') {
        uint32_t c;
        unsigned char bytes[4];
        TSR__TRY(read_character(r, &c));
        TSR__TRY(tsr__bytes_append(&r->out->bytes, bytes, write_utf8(c, bytes)));
    }
    r->at++;
    e.first = (int32_t)first;
    e.count = (int32_t)(r->out->bytes.size - first);
    return add_expression(r, e, out);
}

static int compare_ranges(const void *a, const void *b)
{
    const tsr__character_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorts and unites the ranges from number `first` on. */
static void unite_ranges(tsr__expressions *e, size_t first)
{
    const size_t count = e->range_count - first;
    size_t kept = 0;
    if (count == 0)
        return;
    tsr__character_range *all = e->ranges + first;
    qsort(all, count, sizeof *all, compare_ranges);
    for (size_t i = 1; i < count; i++) {
        if (all[i].low > all[kept].high + 1)
            all[++kept] = all[i];
        else if (all[i].high > all[kept].high)
            all[kept].high = all[i].high;
    }
    e->range_count = first + kept + 1;
}

/* Replaces the united ranges from number `first` on by all other characters. */
static tsr_status invert_ranges(reader *r, size_t first)
{
    const size_t end = r->out->range_count;
    uint32_t low = 0;
    for (size_t i = first; i < end; i++) {
        const tsr__character_range one = r->out->ranges[i];
        if (one.low > low)
            TSR__TRY(add_range(r, low, one.low - 1));
        low = one.high + 1;
    }
    if (low <= LAST_CHARACTER)
        TSR__TRY(add_range(r, low, LAST_CHARACTER));
    const size_t count = r->out->range_count - end;
    memmove(r->out->ranges + first, r->out->ranges + end, count * sizeof *r->out->ranges);
    r->out->range_count = first + count;
    return TSR_OK;
}

static tsr_status read_class(reader *r, int32_t *out)
{
    tsr__expression e = here(r, TSR__EXPRESSION_CLASS);
    const size_t first = r->out->range_count;
    const bool any = peek(r) == '.';
    r->at++;
    const bool inverted = !any && peek(r) == '^';
    r->at += inverted;
    while (!any && peek(r) != ']') {
        uint32_t low, high;
        TSR__TRY(read_character(r, &low));
        high = low;
        if (peek(r) == '-' && r->size - r->at > 1 && r->text[r->at + 1] != ']') {
            r->at++;
            TSR__TRY(read_character(r, &high));
            if (high < low)
                return FAIL(r, "the range ends before its start: U+%04X to U+%04X", (unsigned)low,
                            (unsigned)high);
        }
        TSR__TRY(add_range(r, low, high));
    }
    r->at += !any;
    unite_ranges(r->out, first);
    if (any || inverted)
        TSR__TRY(invert_ranges(r, first));
    if (r->out->range_count == first)
        return fail_at(e.line, e.column, "the class has no character");
    e.first = (int32_t)first;
    e.count = (int32_t)(r->out->range_count - first);
    return add_expression(r, e, out);
}

/* Rules -------------------------------------------------------------------------------------- */

static const char *name_of(const tsr__expressions *e, size_t rule)
{
    return (const char *)e->bytes.data + e->rules[rule].name;
}

static void enter_rule(tsr__expressions *e, size_t rule)
{
    const char *name = name_of(e, rule);
    size_t at = (size_t)tsr__hash(TSR__HASH_START, name, strlen(name)) % e->table_size;
    while (e->table[at] != 0)
        at = (at + 1) % e->table_size;
    e->table[at] = (int32_t)rule + 1;
}

/* Doubles the hash table of rules if it is half full. */
static tsr_status grow_table(tsr__expressions *e)
{
    if (2 * (e->rule_count + 1) < e->table_size)
        return TSR_OK;
    const size_t size = e->table_size > 0 ? 2 * e->table_size : 64;
    int32_t *table = tsr__calloc(size, sizeof *table);
    if (!table)
        return TSR_ERR_NO_MEMORY;
    tsr__free(e->table);
    e->table = table;
    e->table_size = size;
    for (size_t i = 0; i < e->rule_count; i++)
        enter_rule(e, i);
    return TSR_OK;
}

/* Gives the number of the rule with this name, which is added if it is new. */
static tsr_status find_rule(reader *r, const char *name, size_t size, int32_t *out)
{
    tsr__expressions *e = r->out;
    const size_t scope = strlen(r->scope);
    void *rules = e->rules;
    TSR__TRY(grow_table(e));
    size_t at =
        (size_t)tsr__hash(tsr__hash(TSR__HASH_START, r->scope, scope), name, size) % e->table_size;
    for (; e->table[at] != 0; at = (at + 1) % e->table_size) {
        const char *known = name_of(e, (size_t)e->table[at] - 1);
        if (strlen(known) == scope + size && memcmp(known, r->scope, scope) == 0 &&
            memcmp(known + scope, name, size) == 0) {
            *out = e->table[at] - 1;
            return TSR_OK;
        }
    }
    if (e->rule_count == MOST_RULES)
        return FAIL(r, "more than %d rules", MOST_RULES);
    TSR__TRY(tsr__grow(&rules, &e->rule_capacity, e->rule_count + 1, sizeof *e->rules));
    e->rules = rules;
    e->rules[e->rule_count] = (tsr__rule){
        .name = e->bytes.size, .expression = -1, .line = r->line, .column = column_of(r)};
    TSR__TRY(tsr__bytes_append(&e->bytes, r->scope, scope));
    TSR__TRY(tsr__bytes_append(&e->bytes, name, size));
    TSR__TRY(tsr__bytes_append(&e->bytes, "", 1));
    e->table[at] = (int32_t)++e->rule_count;
    *out = (int32_t)e->rule_count - 1;
    if (r->schema && e->json_string == 0 && size == 6 && memcmp(name, "string", 6) == 0)
        e->json_string = *out;
    return TSR_OK;
}

static tsr_status read_name(reader *r, int32_t *rule)
{
    size_t size = 0;
    while (r->at + size < r->size && is_name(r->text[r->at + size]))
        size++;
    TSR__TRY(find_rule(r, r->text + r->at, size, rule));
    r->at += size;
    return TSR_OK;
}

/* Tokens ------------------------------------------------------------------------------------- */

/* Reads the id in [123], or finds the token that is spelled <like this>. */
static tsr_status read_id(reader *r, int32_t *out)
{
    const char *end = memchr(r->text + r->at, '>', r->size - r->at);
    const size_t size = end ? (size_t)(end - r->text) - r->at + 1 : 0;
    if (size == 0 || memchr(r->text + r->at, '\n', size))
        return FAIL(r, "'>' is missing after a token");
    char shown[TSR__SPELLING_TEXT];
    const char *text = r->text + r->at;
    int64_t id = 0;
    if (text[1] == '[' && size > 4 && text[size - 2] == ']') {
        for (size_t i = 2; i < size - 2 && id >= 0; i++)
            id = text[i] >= '0' && text[i] <= '9' && id < TSR_TOKENIZER_MAX_SIZE
                     ? 10 * id + text[i] - '0'
                     : -1;
    } else {
        id = tsr_tokenizer_find(r->tokenizer, text, size);
    }
    if (id < 0 || id >= tsr_tokenizer_size(r->tokenizer))
        return FAIL(r, "there is no token %s", tsr__spelling_text(text, size, shown));
    r->at += size;
    *out = (int32_t)id;
    return TSR_OK;
}

/* Reads a token: its code, or the text of one that has none. */
static tsr_status read_token(reader *r, int32_t *out)
{
    tsr__expression e = here(r, TSR__EXPRESSION_LITERAL);
    int32_t id = 0;
    uint8_t code[TSR__TOKEN_CODE];
    TSR__TRY(read_id(r, &id));
    const tsr__token *token = &r->tokenizer->vocabulary.tokens[id];
    const bool coded = tsr__token_has_code(token);
    tsr__token_code(id, code);
    e.first = (int32_t)r->out->bytes.size;
    e.count = coded ? TSR__TOKEN_CODE : (int32_t)token->bytes_size;
    TSR__TRY(tsr__bytes_append(&r->out->bytes,
                               coded ? (const char *)code
                                     : r->tokenizer->vocabulary.strings.data + token->bytes,
                               (size_t)e.count));
    return add_expression(r, e, out);
}

/* Reads !<token>: any character. The token itself is read as what else the grammar allows, since
 * its code is preferred. */
static tsr_status read_other_token(reader *r, int32_t *out)
{
    tsr__expression e = here(r, TSR__EXPRESSION_CLASS);
    int32_t id;
    char shown[TSR__SPELLING_TEXT];
    r->at++;
    if (peek(r) != '<')
        return FAIL(r, "'!' without a token");
    const size_t start = r->at;
    TSR__TRY(read_id(r, &id));
    if (!tsr__token_has_code(&r->tokenizer->vocabulary.tokens[id]))
        return fail_at(e.line, e.column,
                       "the token %s is ordinary text, of which '!' cannot be the opposite",
                       tsr__spelling_text(r->text + start, r->at - start, shown));
    e.first = (int32_t)r->out->range_count;
    e.count = 1;
    TSR__TRY(add_range(r, 0, LAST_CHARACTER));
    return add_expression(r, e, out);
}

/* Schemas ------------------------------------------------------------------------------------ */

static tsr_status read_text(reader *r);

/* Reads the rules of a schema, which get a scope of their own, and gives the root's number. */
static tsr_status read_schema_rules(reader *r, const char *text, size_t size, int32_t *root)
{
    tsr__bytes gbnf = {0};
    tsr_status status = tsr__schema_to_gbnf(text, size, &gbnf);
    if (status == TSR_OK) {
        reader own = {.text = (const char *)gbnf.data,
                      .size = gbnf.size,
                      .line = 1,
                      .column = 1,
                      .tokenizer = r->tokenizer,
                      .schema = true,
                      .out = r->out};
        snprintf(own.scope, sizeof own.scope, "%%%zu:", ++r->out->schema_count);
        status = find_rule(&own, "root", 4, root);
        if (status == TSR_OK)
            status = read_text(&own);
    }
    tsr__free(gbnf.data);
    return status;
}

/* Reads %json and a schema. */
static tsr_status read_schema(reader *r, int32_t *out)
{
    tsr__expression e = here(r, TSR__EXPRESSION_RULE);
    if (!looking_at(r, "%json"))
        return FAIL(r, "'%%' without json");
    r->at += 5;
    skip_space(r, false);
    tsr__json json = {.text = r->text, .size = r->size, .at = r->at, .what = "schema"};
    tsr_status status = tsr__json_skip(&json);
    if (status == TSR_OK)
        status = read_schema_rules(r, r->text + r->at, json.at - r->at, &e.first);
    if (status != TSR_OK)
        return tsr__fail_context(status, "grammar: line %d, column %d", (int)e.line, (int)e.column);
    while (r->at < json.at)
        advance(r);
    return add_expression(r, e, out);
}

/* Sequences ---------------------------------------------------------------------------------- */

static tsr_status read_alternatives(reader *r, int32_t *out);

static tsr_status read_group(reader *r, int32_t *out)
{
    const tsr__expression e = here(r, TSR__EXPRESSION_SEQUENCE);
    if (++r->nesting > TSR_GRAMMAR_MAX_NESTING)
        return FAIL(r, "more than %d groups inside each other", TSR_GRAMMAR_MAX_NESTING);
    r->at++;
    skip_space(r, true);
    TSR__TRY(read_alternatives(r, out));
    if (peek(r) != ')')
        return FAIL(r, "the group of line %d, column %d is not closed", (int)e.line, (int)e.column);
    r->at++;
    r->nesting--;
    return TSR_OK;
}

static tsr_status read_number(reader *r, int32_t *out)
{
    *out = 0;
    if (peek(r) < '0' || peek(r) > '9')
        return FAIL(r, "a number of repetitions is missing");
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++) {
        *out = *out * 10 + (peek(r) - '0');
        if (*out > TSR_GRAMMAR_MAX_REPEAT)
            return FAIL(r, "more than %d repetitions", TSR_GRAMMAR_MAX_REPEAT);
    }
    return TSR_OK;
}

/* Reads {m}, {m,} or {m,n}. */
static tsr_status read_bounds(reader *r, int32_t *low, int32_t *high)
{
    r->at++;
    skip_space(r, r->nesting > 0);
    TSR__TRY(read_number(r, low));
    *high = *low;
    skip_space(r, r->nesting > 0);
    if (peek(r) == ',') {
        r->at++;
        skip_space(r, r->nesting > 0);
        *high = -1;
        if (peek(r) != '}')
            TSR__TRY(read_number(r, high));
        skip_space(r, r->nesting > 0);
    }
    if (peek(r) != '}')
        return FAIL(r, "'}' is missing after the number of repetitions");
    if (*high >= 0 && *high < *low)
        return FAIL(r, "at least %d repetitions, but at most %d", (int)*low, (int)*high);
    r->at++;
    return TSR_OK;
}

/* Reads the operators behind an expression, and wraps it. */
static tsr_status read_repeats(reader *r, int32_t *expression)
{
    for (int count = 0;; count++) {
        tsr__expression e = here(r, TSR__EXPRESSION_REPEAT);
        const char c = peek(r);
        e.child = *expression;
        e.first = c == '+';
        e.count = c == '?' ? 1 : -1;
        if (c == '{')
            TSR__TRY(read_bounds(r, &e.first, &e.count));
        else if (c == '*' || c == '+' || c == '?')
            r->at++;
        else
            return TSR_OK;
        if (count == MOST_REPEATS)
            return fail_at(e.line, e.column, "more than %d repetitions of repetitions",
                           MOST_REPEATS);
        TSR__TRY(add_expression(r, e, expression));
        skip_space(r, r->nesting > 0);
    }
}

/* Returns whether a rule's definition is next: a name and "::=". */
static bool is_definition(const reader *r)
{
    reader ahead = *r;
    while (is_name(peek(&ahead)))
        ahead.at++;
    skip_space(&ahead, false);
    return ahead.at > r->at && looking_at(&ahead, "::=");
}

static tsr_status read_part(reader *r, int32_t *out)
{
    const char c = peek(r);
    if (c == '"')
        return read_literal(r, out);
    if (c == '[' || c == '.')
        return read_class(r, out);
    if (c == '(')
        return read_group(r, out);
    if (c == '<')
        return read_token(r, out);
    if (c == '!')
        return read_other_token(r, out);
    if (c == '%')
        return read_schema(r, out);
    if (is_name(c)) {
        tsr__expression e = here(r, TSR__EXPRESSION_RULE);
        TSR__TRY(read_name(r, &e.first));
        return add_expression(r, e, out);
    }
    if (c == '*' || c == '+' || c == '?' || c == '{')
        return FAIL(r, "there is nothing before '%c' to repeat", c);
    return FAIL(r, "'%c' cannot be here", c >= ' ' && c <= '~' ? c : '?');
}

static tsr_status read_sequence(reader *r, int32_t *out)
{
    tsr__expression e = here(r, TSR__EXPRESSION_SEQUENCE);
    for (char c = peek(r); c != '\0' && c != '|' && c != ')' && c != '\n' && c != '\r';
         c = peek(r)) {
        int32_t part;
        if (is_definition(r)) {
            if (r->nesting > 0)
                break; /* the group is not closed */
            return FAIL(r, "a rule must begin in a line of its own");
        }
        TSR__TRY(read_part(r, &part));
        skip_space(r, r->nesting > 0);
        TSR__TRY(read_repeats(r, &part));
        r->out->list[part].before = e.child;
        e.child = part;
    }
    return add_expression(r, e, out);
}

/* Goes to a '|' at the start of one of the next lines, if there is one. */
static void join_lines(reader *r)
{
    reader ahead = *r;
    skip_space(&ahead, true);
    if (peek(&ahead) == '|')
        *r = ahead;
}

static tsr_status read_alternatives(reader *r, int32_t *out)
{
    tsr__expression e = here(r, TSR__EXPRESSION_ALTERNATIVES);
    for (bool more = true; more;) {
        int32_t part;
        TSR__TRY(read_sequence(r, &part));
        r->out->list[part].before = e.child;
        e.child = part;
        join_lines(r);
        more = peek(r) == '|';
        if (more) {
            r->at++;
            skip_space(r, true);
        }
    }
    return add_expression(r, e, out);
}

static tsr_status read_rule(reader *r)
{
    int32_t rule, expression;
    const int32_t line = r->line, column = column_of(r);
    if (!is_name(peek(r)))
        return FAIL(r, "a rule must begin with its name, of letters, digits, '-' and '_'");
    TSR__TRY(read_name(r, &rule));
    if (r->out->rules[rule].expression >= 0)
        return fail_at(line, column, "rule '%.80s' is defined twice",
                       name_of(r->out, (size_t)rule));
    r->out->rules[rule].line = line;
    r->out->rules[rule].column = column;
    skip_space(r, false);
    if (!looking_at(r, "::="))
        return FAIL(r, "'::=' is missing after the name of a rule");
    r->at += 3;
    skip_space(r, true);
    TSR__TRY(read_alternatives(r, &expression));
    r->out->rules[rule].expression = expression;
    if (peek(r) == ')')
        return FAIL(r, "there is no open group");
    skip_space(r, true);
    return TSR_OK;
}

static tsr_status read_text(reader *r)
{
    const char *zero = memchr(r->text, 0, r->size);
    if (zero) {
        r->size = (size_t)(zero - r->text);
        while (r->at < r->size)
            advance(r);
        return FAIL(r, "a zero byte");
    }
    skip_space(r, true);
    while (r->at < r->size)
        TSR__TRY(read_rule(r));
    return TSR_OK;
}

tsr_status tsr__gbnf_read(const tsr_tokenizer *tokenizer, const char *text, size_t size,
                          const char *root, bool schema, tsr__expressions *out)
{
    reader r = {.text = text,
                .size = size,
                .line = 1,
                .column = 1,
                .tokenizer = tokenizer,
                .schema = schema,
                .out = out};
    int32_t first;
    TSR__TRY(find_rule(&r, root, strlen(root), &first));
    TSR__TRY(read_text(&r));
    if (out->rules[first].expression < 0)
        return FAIL(&r, "there is no rule '%.80s'", root);
    for (size_t i = 0; i < out->rule_count; i++)
        if (out->rules[i].expression < 0)
            return fail_at(out->rules[i].line, out->rules[i].column, "there is no rule '%.80s'",
                           name_of(out, i));
    return TSR_OK;
}

void tsr__expressions_finish(tsr__expressions *e)
{
    tsr__free(e->list);
    tsr__free(e->ranges);
    tsr__free(e->rules);
    tsr__free(e->bytes.data);
    tsr__free(e->table);
    *e = (tsr__expressions){0};
}
