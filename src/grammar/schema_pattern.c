/* Regular expressions of a schema's `pattern`: the part of ECMAScript's that describes characters,
 * without look-around and back references. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_gbnf.h"

#define MOST_NESTING 32
#define MOST_RANGES 256
#define MOST_QUANTIFIER 24 /* bytes */
#define LAST_CHARACTER UINT32_C(0x10ffff)

typedef struct pattern {
    tsr__schema_writer *w;
    size_t at; /* the offset of the pattern in the schema */
    const char *text, *next;
    int nesting;
    bool alternatives; /* outside groups */
} pattern;

/* A set of characters: ranges, later in ascending order and apart from each other. */
typedef struct set {
    tsr__character_range ranges[MOST_RANGES];
    size_t count;
} set;

static tsr_status unsupported(const pattern *p, const char *what)
{
    return tsr__schema_unsupported(p->w, p->at, "character %zu of the pattern, %s,",
                                   (size_t)(p->next - p->text) + 1, what);
}

/* Sets ------------------------------------------------------------------------------------------
 */

static tsr_status add(const pattern *p, set *s, uint32_t low, uint32_t high)
{
    if (s->count == MOST_RANGES)
        return unsupported(p, "in a class of too many ranges");
    s->ranges[s->count++] = (tsr__character_range){low, high};
    return TSR_OK;
}

static int compare(const void *a, const void *b)
{
    const tsr__character_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorts and unites the ranges. */
static void tidy(set *s)
{
    size_t kept = 0;
    if (s->count == 0)
        return;
    qsort(s->ranges, s->count, sizeof *s->ranges, compare);
    for (size_t i = 1; i < s->count; i++) {
        if (s->ranges[i].low > s->ranges[kept].high + 1)
            s->ranges[++kept] = s->ranges[i];
        else if (s->ranges[i].high > s->ranges[kept].high)
            s->ranges[kept].high = s->ranges[i].high;
    }
    s->count = kept + 1;
}

static tsr_status invert(const pattern *p, set *s)
{
    set inverted = {.count = 0};
    uint32_t low = 0;
    tidy(s);
    for (size_t i = 0; i < s->count; i++) {
        if (s->ranges[i].low > low)
            TSR__TRY(add(p, &inverted, low, s->ranges[i].low - 1));
        low = s->ranges[i].high + 1;
    }
    if (low <= LAST_CHARACTER)
        TSR__TRY(add(p, &inverted, low, LAST_CHARACTER));
    *s = inverted;
    return TSR_OK;
}

static bool contains(const set *s, uint32_t c)
{
    for (size_t i = 0; i < s->count; i++)
        if (c >= s->ranges[i].low && c <= s->ranges[i].high)
            return true;
    return false;
}

/* Appends an expression of the characters of a set, as they are written in a JSON string. */
static tsr_status put_set(const pattern *p, set *s)
{
    static const struct {
        char c;
        const char *json;
    } escapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"},
                   {'\t', "\\t"}, {'\f', "\\f"},  {'\b', "\\b"}};
    /* between these, a character stands for itself */
    static const tsr__character_range plain[] = {
        {0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, LAST_CHARACTER}};
    bool any = false, open = false;
    tidy(s);
    TSR__TRY(tsr__schema_put(p->w, "("));
    for (size_t i = 0; i < s->count; i++)
        for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
            const tsr__character_range r = s->ranges[i];
            const uint32_t low = r.low > plain[k].low ? r.low : plain[k].low;
            const uint32_t high = r.high < plain[k].high ? r.high : plain[k].high;
            if (low > high)
                continue;
            TSR__TRY(tsr__schema_put(p->w, "%s\\U%08X-\\U%08X", open ? "" : "[", (unsigned)low,
                                     (unsigned)high));
            open = any = true;
        }
    if (open)
        TSR__TRY(tsr__schema_put(p->w, "]"));
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (!contains(s, (unsigned char)escapes[i].c))
            continue;
        if (any)
            TSR__TRY(tsr__schema_put(p->w, " | "));
        TSR__TRY(tsr__schema_put_literal(p->w, escapes[i].json, strlen(escapes[i].json)));
        any = true;
    }
    if (!any)
        return unsupported(p, "which no string of JSON can have");
    return tsr__schema_put(p->w, ") ");
}

/* Characters ------------------------------------------------------------------------------------
 */

/* Reads a character of UTF-8, which is valid. */
static uint32_t read_utf8(pattern *p)
{
    const unsigned char first = (unsigned char)*p->next++;
    const int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t value = more == 0 ? first : first & (0x3fU >> more);
    for (int i = 0; i < more && ((unsigned char)*p->next & 0xc0) == 0x80; i++)
        value = value << 6 | ((unsigned char)*p->next++ & 0x3f);
    return value;
}

static tsr_status read_hex(pattern *p, int digits, uint32_t *out)
{
    static const char all[] = "0123456789abcdef0123456789ABCDEF";
    *out = 0;
    for (int i = 0; i < digits; i++) {
        const char *place = *p->next != '\0' ? strchr(all, *p->next) : NULL;
        if (!place)
            return unsupported(p, "an escape without its hexadecimal digits");
        *out = *out << 4 | ((uint32_t)(place - all) & 15);
        p->next++;
    }
    return *out >= 0xd800 && *out < 0xe000 ? unsupported(p, "a half of a surrogate pair") : TSR_OK;
}

/* Adds what an escape stands for, behind its backslash. *single becomes its only character, or is
 * left unchanged if it is a class. */
static tsr_status add_escape(pattern *p, set *s, uint32_t *single)
{
    static const char plain[] = "^$\\.*+?()[]{}|/-\"' @#%&=!<>:;,~`_";
    static const char letters[] = "nrtfv", values[] = "\n\r\t\f\v";
    const char c = *p->next;
    set class = {.count = 0};
    const char lower = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    if (lower == 'd' || lower == 'w' || lower == 's') {
        p->next++;
        if (lower == 's') {
            TSR__TRY(add(p, &class, '\t', '\r'));
            TSR__TRY(add(p, &class, ' ', ' '));
            TSR__TRY(add(p, &class, 0xa0, 0xa0));
        } else {
            TSR__TRY(add(p, &class, '0', '9'));
        }
        if (lower == 'w') {
            TSR__TRY(add(p, &class, 'a', 'z'));
            TSR__TRY(add(p, &class, 'A', 'Z'));
            TSR__TRY(add(p, &class, '_', '_'));
        }
        if (c != lower)
            TSR__TRY(invert(p, &class));
        for (size_t i = 0; i < class.count; i++)
            TSR__TRY(add(p, s, class.ranges[i].low, class.ranges[i].high));
        return TSR_OK;
    }
    if (c == 'x' || c == 'u') {
        p->next++;
        TSR__TRY(read_hex(p, c == 'x' ? 2 : 4, single));
    } else if (c != '\0' && strchr(letters, c) != NULL) {
        *single = (unsigned char)values[strchr(letters, c) - letters];
        p->next++;
    } else if (c != '\0' && strchr(plain, c) != NULL) {
        *single = (unsigned char)c;
        p->next++;
    } else {
        return unsupported(p, "an escape");
    }
    return add(p, s, *single, *single);
}

/* Reads one character of a class, or an escape for several. */
static tsr_status read_member(pattern *p, set *s, uint32_t *single)
{
    *single = UINT32_MAX;
    if (*p->next == '\0')
        return unsupported(p, "a class without its end");
    if (*p->next == '\\') {
        p->next++;
        return add_escape(p, s, single);
    }
    *single = read_utf8(p);
    return add(p, s, *single, *single);
}

static tsr_status put_class(pattern *p)
{
    set s = {.count = 0};
    p->next++;
    const bool inverted = *p->next == '^';
    p->next += inverted;
    while (*p->next != ']') {
        uint32_t low, high;
        TSR__TRY(read_member(p, &s, &low));
        if (*p->next != '-' || p->next[1] == ']' || low == UINT32_MAX)
            continue;
        p->next++;
        TSR__TRY(read_member(p, &s, &high));
        if (high == UINT32_MAX || high < low)
            return unsupported(p, "a range that ends before its start");
        TSR__TRY(add(p, &s, low, high));
    }
    p->next++;
    if (inverted)
        TSR__TRY(invert(p, &s));
    return put_set(p, &s);
}

/* Expressions -----------------------------------------------------------------------------------
 */

static tsr_status put_alternatives(pattern *p);

static tsr_status put_group(pattern *p)
{
    if (++p->nesting > MOST_NESTING)
        return unsupported(p, "a group that is nested too deep");
    p->next++;
    if (*p->next == '?') {
        if (p->next[1] != ':')
            return unsupported(p, "a group with '?'");
        p->next += 2;
    }
    TSR__TRY(tsr__schema_put(p->w, "("));
    TSR__TRY(put_alternatives(p));
    if (*p->next != ')')
        return unsupported(p, "a group without its end");
    p->next++;
    p->nesting--;
    return tsr__schema_put(p->w, ") ");
}

static tsr_status put_atom(pattern *p)
{
    set s = {.count = 0};
    uint32_t c;
    switch (*p->next) {
    case '(':
        return put_group(p);
    case '[':
        return put_class(p);
    case '.':
        p->next++;
        TSR__TRY(add(p, &s, '\n', '\n'));
        TSR__TRY(add(p, &s, '\r', '\r'));
        TSR__TRY(invert(p, &s));
        return put_set(p, &s);
    case '\\':
        p->next++;
        TSR__TRY(add_escape(p, &s, &c));
        return put_set(p, &s);
    case '^':
    case '$':
        return unsupported(p, "an anchor inside the pattern");
    case '*':
    case '+':
    case '?':
    case '{':
        return unsupported(p, "a repetition of nothing");
    default:
        c = read_utf8(p);
        TSR__TRY(add(p, &s, c, c));
        return put_set(p, &s);
    }
}

/* Copies a quantifier, which GBNF writes in the same way. A lazy one matches the same texts. */
static tsr_status put_quantifier(pattern *p)
{
    const char c = *p->next;
    size_t size = c == '*' || c == '+' || c == '?' ? 1 : 0;
    if (c == '{') {
        size = strspn(p->next + 1, "0123456789,") + 1;
        if (p->next[size] != '}')
            return unsupported(p, "a wrong number of repetitions");
        size++;
    }
    if (size == 0)
        return TSR_OK;
    if (size > MOST_QUANTIFIER)
        return unsupported(p, "a wrong number of repetitions");
    TSR__TRY(tsr__schema_put(p->w, "%.*s ", (int)size, p->next));
    p->next += size;
    p->next += *p->next == '?';
    return TSR_OK;
}

static tsr_status put_alternatives(pattern *p)
{
    for (;;) {
        while (*p->next != '\0' && *p->next != '|' && *p->next != ')' &&
               !(*p->next == '$' && p->next[1] == '\0')) {
            TSR__TRY(put_atom(p));
            TSR__TRY(put_quantifier(p));
        }
        if (*p->next != '|')
            return TSR_OK;
        p->next++;
        p->alternatives = p->alternatives || p->nesting == 0;
        TSR__TRY(tsr__schema_put(p->w, "| "));
    }
}

tsr_status tsr__schema_put_pattern(tsr__schema_writer *w, size_t at, const char *text)
{
    pattern p = {.w = w, .at = at, .text = text, .next = text};
    const bool begins = *text == '^';
    p.next += begins;
    TSR__TRY(tsr__schema_put(w, "\"\\\"\" %s(", begins ? "" : "char* "));
    TSR__TRY(put_alternatives(&p));
    const bool ends = *p.next == '$';
    p.next += ends;
    if (*p.next != '\0')
        return unsupported(&p, "a ')' without its '('");
    if ((begins || ends) && p.alternatives)
        return unsupported(&p, "an anchor beside alternatives that have no group");
    return tsr__schema_put(w, ") %s\"\\\"\" ", ends ? "" : "char* ");
}
