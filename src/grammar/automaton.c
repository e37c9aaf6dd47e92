/* Makes an automaton of the expressions of a grammar. Each part is built after those that follow
 * it, so that it knows its next state. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/grammar.h"

/* A rule without loops that needs no more states than this is built into the rules that use it:
 * rules such as `digit` or `char` end after each character, and a mask is found fastest where
 * tokens stay inside a rule. */
#define MOST_INLINE_STATES 32
#define MOST_INLINE_DEPTH 8
/* Where copies of an expression would need more states than this, they call its rules instead. */
#define MOST_COPIED_STATES (TSR_GRAMMAR_MAX_SIZE / 4)
/* Of a repetition of a rule or class with at least this many optional copies, masks are found with
 * the unlimited repetition. */
#define LEAST_MODELLED 4
#define MOST_MODELS 256
/* Sizes of rules that others call: those with loops or calls, and those that are only too large. */
#define IS_CALLED (-1)
#define IS_LARGE (-2)

#define TOO_MANY 1000000000 /* states */
/* How many expressions are measured and built, counted in each copy. Those that read nothing, such
 * as "", need no states, so the limit of states does not bound their copies. */
#define MOST_PARTS (INT64_C(16) * TSR_GRAMMAR_MAX_SIZE)

/* heights of rules that have not been measured, while others are */
#define ENTERED (-1)
#define MEASURING (-2)

/* The states of an unlimited repetition: a split, and after it those of the repeated part. */
typedef struct loop {
    const tsr__expression *child;
    int32_t next, split;
    size_t size; /* of the part; 0: its states are not in a row */
} loop;

typedef struct builder {
    const tsr__expressions *expressions;
    tsr__automaton *out;
    uint32_t longest;
    int32_t *sizes;   /* by rule: the states of one that is built into others, or IS_… */
    int16_t *heights; /* by rule: how many rules are inside each other, with this one */
    int32_t *queue;   /* the rules that are called */
    size_t queued;
    int64_t parts;                 /* see MOST_PARTS */
    bool calls;                    /* all rules are called */
    const tsr__expression *repeat; /* the outermost repetition that is being built */
    int32_t end;                   /* the state at the end of all rules */
    int32_t
        *table; /* hash table of states that read a byte: number + 1, or 0; equal ones are one */
    size_t table_size, entered;
    loop *models; /* the unlimited repetitions so far */
    size_t model_count, model_capacity;
} builder;

/* Sizes -------------------------------------------------------------------------------------- */

/* Returns about how many states an expression needs. A rule that is called counts as 1. With
 * `inlines`, returns −1 if there is a loop or such a rule. *height becomes the most rules inside
 * each other. */
static int64_t size_of(builder *b, int32_t expression, bool inlines, int *height)
{
    const tsr__expression *e = &b->expressions->list[expression];
    int64_t sum = 0, size;
    b->parts++;
    switch (e->kind) {
    case TSR__EXPRESSION_LITERAL:
        return e->count;
    case TSR__EXPRESSION_CLASS:
        return 3 * (int64_t)e->count;
    case TSR__EXPRESSION_RULE:
        if (b->sizes[e->first] < 0)
            return inlines && b->sizes[e->first] != IS_LARGE ? -1 : 1;
        if (*height < b->heights[e->first])
            *height = b->heights[e->first];
        return b->sizes[e->first];
    case TSR__EXPRESSION_SEQUENCE:
    case TSR__EXPRESSION_ALTERNATIVES:
        for (int32_t i = e->child; i >= 0 && sum < TOO_MANY; i = b->expressions->list[i].before) {
            size = size_of(b, i, inlines, height);
            if (size < 0)
                return -1;
            sum += size + 1;
        }
        return sum;
    default:
        size = size_of(b, e->child, inlines, height);
        if (size < 0 || (inlines && e->count < 0))
            return -1;
        sum = (size + 1) * (e->count < 0 ? (int64_t)e->first + 1 : e->count);
        return sum < TOO_MANY ? sum : TOO_MANY;
    }
}

/* Adds the rules in an expression that have not been entered yet to the stack. */
static void enter_rules(builder *b, int32_t expression, size_t *count)
{
    const tsr__expression *e = &b->expressions->list[expression];
    if (e->kind == TSR__EXPRESSION_RULE && b->heights[e->first] == 0) {
        b->heights[e->first] = ENTERED;
        b->queue[(*count)++] = e->first;
    }
    if (e->kind == TSR__EXPRESSION_REPEAT)
        enter_rules(b, e->child, count);
    if (e->kind == TSR__EXPRESSION_SEQUENCE || e->kind == TSR__EXPRESSION_ALTERNATIVES)
        for (int32_t i = e->child; i >= 0; i = b->expressions->list[i].before)
            enter_rules(b, i, count);
}

/* Finds out which rules are built into others: each is measured after those in it. A rule in a
 * circle is not. */
static void measure_rules(builder *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->expressions->rule_count; i++)
        b->sizes[i] = IS_CALLED;
    b->heights[0] = ENTERED;
    b->queue[count++] = 0;
    while (count > 0) {
        const int32_t rule = b->queue[count - 1];
        const int32_t expression = b->expressions->rules[rule].expression;
        int height = 0;
        if (b->heights[rule] == ENTERED) {
            b->heights[rule] = MEASURING;
            enter_rules(b, expression, &count);
            continue;
        }
        count--;
        const int64_t size = size_of(b, expression, true, &height);
        b->heights[rule] = (int16_t)(height < MOST_INLINE_DEPTH ? height + 1 : MOST_INLINE_DEPTH);
        if (size >= 0 && size <= MOST_INLINE_STATES && height < MOST_INLINE_DEPTH)
            b->sizes[rule] = (int32_t)size;
        else if (size >= 0)
            b->sizes[rule] = IS_LARGE;
    }
}

/* States ------------------------------------------------------------------------------------- */

static tsr_status too_large(const builder *b, int most, const char *what)
{
    const tsr__expression *e = b->repeat;
    return e ? tsr__fail(TSR_ERR_INVALID,
                         "grammar: line %d, column %d: with this repetition the grammar has more "
                         "than %d %s",
                         (int)e->line, (int)e->column, most, what)
             : tsr__fail(TSR_ERR_INVALID, "grammar: it has more than %d %s", most, what);
}

static tsr_status add_state(builder *b, tsr__state state, int32_t *out)
{
    tsr__automaton *a = b->out;
    if (a->count >= TSR_GRAMMAR_MAX_SIZE)
        return too_large(b, TSR_GRAMMAR_MAX_SIZE, "states");
    void *states = a->states, *alike = a->alike;
    TSR__TRY(tsr__grow(&states, &a->capacity, a->count + 1, sizeof *a->states));
    a->states = states;
    TSR__TRY(tsr__grow(&alike, &a->alike_capacity, a->count + 1, sizeof *a->alike));
    a->alike = alike;
    a->states[a->count] = state;
    a->alike[a->count] = (tsr__alike){(int32_t)a->count, TSR__ALIKE_ALWAYS};
    *out = (int32_t)a->count++;
    return TSR_OK;
}

static size_t place_of(const builder *b, const tsr__state *wanted)
{
    const uint64_t words[] = {(uint64_t)wanted->low << 8 | wanted->high, (uint64_t)wanted->next};
    size_t at = (size_t)tsr__hash(TSR__HASH_START, words, sizeof words) & (b->table_size - 1);
    for (; b->table[at] != 0; at = (at + 1) & (b->table_size - 1)) {
        const tsr__state *known = &b->out->states[b->table[at] - 1];
        if (known->low == wanted->low && known->high == wanted->high && known->next == wanted->next)
            break;
    }
    return at;
}

/* Doubles the hash table if it would become more than half full. */
static tsr_status grow_table(builder *b)
{
    if (2 * (b->entered + 1) <= b->table_size)
        return TSR_OK;
    const size_t size = b->table_size > 0 ? 2 * b->table_size : 256;
    int32_t *larger = tsr__calloc(size, sizeof *larger), *old = b->table;
    const size_t old_size = b->table_size;
    if (!larger)
        return TSR_ERR_NO_MEMORY;
    b->table = larger;
    b->table_size = size;
    for (size_t i = 0; i < old_size; i++)
        if (old[i] != 0)
            larger[place_of(b, &b->out->states[old[i] - 1])] = old[i];
    tsr__free(old);
    return TSR_OK;
}

static tsr_status add_byte(builder *b, uint8_t low, uint8_t high, int32_t next, int32_t *out)
{
    const tsr__state state = {.kind = TSR__STATE_BYTE, .low = low, .high = high, .next = next};
    TSR__TRY(grow_table(b));
    const size_t at = place_of(b, &state);
    if (b->table[at] != 0) {
        *out = b->table[at] - 1;
        return TSR_OK;
    }
    TSR__TRY(add_state(b, state, out));
    b->table[at] = *out + 1;
    b->entered++;
    return TSR_OK;
}

/* Gives a state from which both *out and `other` can be reached. *out of −1 is none. */
static tsr_status add_choice(builder *b, int32_t other, int32_t *out)
{
    if (*out < 0) {
        *out = other;
        return TSR_OK;
    }
    return add_state(b, (tsr__state){.kind = TSR__STATE_SPLIT, .next = other, .other = *out}, out);
}

static tsr_status build_literal(builder *b, const tsr__expression *e, int32_t next, int32_t *out)
{
    const uint8_t *bytes = b->expressions->bytes.data + e->first;
    *out = next;
    for (int32_t i = e->count - 1; i >= 0; i--)
        TSR__TRY(add_byte(b, bytes[i], bytes[i], *out, out));
    return TSR_OK;
}

/* Characters --------------------------------------------------------------------------------- */

/* The states that read a character of a class. */
typedef struct characters {
    builder *b;
    int32_t next;
    int32_t any[4]; /* [n] reads n bytes from 0x80 to 0xbf; −1: none yet */
    int32_t start;  /* −1: none yet */
} characters;

static uint8_t byte_of(uint32_t c, int length, int index)
{
    static const uint8_t heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const uint32_t bits = c >> (6 * (length - 1 - index));
    return (uint8_t)(index == 0 ? heads[length] | bits : 0x80 | (bits & 0x3f));
}

/* Adds the characters from `low` to `high`, each byte of which can be any between those of `low`
 * and `high`. */
static tsr_status add_bytes(characters *c, uint32_t low, uint32_t high, int length)
{
    int32_t state = c->next;
    for (int i = length - 1; i >= 0; i--) {
        const uint8_t first = byte_of(low, length, i), last = byte_of(high, length, i);
        int32_t *any = &c->any[length - i];
        const bool is_any = i > 0 && first == 0x80 && last == 0xbf &&
                            (i == length - 1 || state == c->any[length - i - 1]);
        if (is_any && *any >= 0) {
            state = *any;
            continue;
        }
        TSR__TRY(add_byte(c->b, first, last, state, &state));
        if (is_any)
            *any = state;
    }
    return add_choice(c->b, state, &c->start);
}

/* Adds characters that all have `length` bytes: divides them until the bytes do not depend on each
 * other. */
static tsr_status add_characters(characters *c, uint32_t low, uint32_t high, int length)
{
    for (int i = 1; i < length; i++) {
        const uint32_t mask = (UINT32_C(1) << (6 * i)) - 1;
        if ((low & ~mask) == (high & ~mask))
            continue;
        if ((low & mask) != 0) {
            TSR__TRY(add_characters(c, low, low | mask, length));
            return add_characters(c, (low | mask) + 1, high, length);
        }
        if ((high & mask) != mask) {
            TSR__TRY(add_characters(c, low, (high & ~mask) - 1, length));
            return add_characters(c, high & ~mask, high, length);
        }
    }
    return add_bytes(c, low, high, length);
}

static tsr_status build_class(builder *b, const tsr__expression *e, int32_t next, int32_t *out)
{
    /* surrogates are no characters */
    static const struct {
        uint32_t low, high;
        int length;
    } lengths[] = {{0, 0x7f, 1},
                   {0x80, 0x7ff, 2},
                   {0x800, 0xd7ff, 3},
                   {0xe000, 0xffff, 3},
                   {0x10000, 0x10ffff, 4}};
    characters c = {.b = b, .next = next, .any = {-1, -1, -1, -1}, .start = -1};
    for (int32_t i = 0; i < e->count; i++) {
        const tsr__character_range one = b->expressions->ranges[e->first + i];
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            const uint32_t low = one.low > lengths[k].low ? one.low : lengths[k].low;
            const uint32_t high = one.high < lengths[k].high ? one.high : lengths[k].high;
            if (low <= high)
                TSR__TRY(add_characters(&c, low, high, lengths[k].length));
        }
    }
    *out = c.start;
    return TSR_OK;
}

/* Expressions -------------------------------------------------------------------------------- */

static tsr_status build(builder *b, int32_t expression, int32_t next, int32_t *out);

static tsr_status build_rule(builder *b, const tsr__expression *e, int32_t next, int32_t *out)
{
    const int32_t rule = e->first;
    if (!b->calls && b->sizes[rule] >= 0)
        return build(b, b->expressions->rules[rule].expression, next, out);
    if (b->out->starts[rule] < 0) {
        b->out->starts[rule] = 0;
        b->queue[b->queued++] = rule;
    }
    return add_state(b, (tsr__state){.kind = TSR__STATE_CALL, .next = next, .other = rule}, out);
}

/* Says that each state from `first` on allows the same tokens of up to `depth` bytes as one from
 * `model` on. */
static void set_alike(tsr__automaton *a, size_t first, size_t model, size_t size, int64_t depth)
{
    const int32_t most = depth < TSR__ALIKE_ALWAYS ? (int32_t)depth : TSR__ALIKE_ALWAYS;
    for (size_t k = 0; k < size; k++)
        a->alike[first + k] = (tsr__alike){(int32_t)(model + k), most};
}

/* Builds required copies of an expression before *state. */
static tsr_status build_required(builder *b, int32_t expression, int32_t copies, int32_t *state)
{
    tsr__automaton *a = b->out;
    size_t model = 0, size = 0;
    for (int32_t i = 0; i < copies; i++) {
        const size_t first = a->count;
        TSR__TRY(build(b, expression, *state, state));
        /* A token has at most `longest` bytes, and each copy reads one. Whether this many copies
         * follow or more makes no difference for it. */
        if (i == (int64_t)b->longest + 1) {
            model = first;
            size = a->count - first;
        } else if (i > (int64_t)b->longest + 1 && a->count - first == size) {
            set_alike(a, first, model, size, TSR__ALIKE_ALWAYS);
        }
    }
    return TSR_OK;
}

static bool is_same_part(const tsr__expression *a, const tsr__expression *b)
{
    return a == b || (a->kind == TSR__EXPRESSION_RULE && b->kind == TSR__EXPRESSION_RULE &&
                      a->first == b->first);
}

/* Builds an unlimited repetition, or finds it among the models if it need not be part of a rule of
 * its own. */
static tsr_status build_loop(builder *b, int32_t expression, int32_t next, bool finds, loop *out)
{
    const tsr__expression *child = &b->expressions->list[expression];
    int32_t body;
    for (size_t i = 0; finds && i < b->model_count; i++)
        if (b->models[i].next == next && is_same_part(b->models[i].child, child)) {
            *out = b->models[i];
            return TSR_OK;
        }
    *out = (loop){.child = child, .next = next};
    TSR__TRY(add_state(b, (tsr__state){.kind = TSR__STATE_SPLIT, .next = next, .other = next},
                       &out->split));
    const size_t first = b->out->count;
    TSR__TRY(build(b, expression, out->split, &body));
    b->out->states[out->split].other = body;
    out->size = first == (size_t)out->split + 1 ? b->out->count - first : 0;
    void *models = b->models;
    TSR__TRY(tsr__grow(&models, &b->model_capacity, b->model_count + 1, sizeof *b->models));
    b->models = models;
    if (b->model_count < MOST_MODELS)
        b->models[b->model_count++] = *out;
    return TSR_OK;
}

/* Builds optional copies of an expression before *state. After each one, or in its place, `end`
 * follows. Tokens that are too short to read all copies are those that the unlimited repetition
 * allows. */
static tsr_status build_optional(builder *b, int32_t expression, int32_t copies, int32_t end,
                                 int32_t *state)
{
    tsr__automaton *a = b->out;
    const tsr__expression_kind kind = b->expressions->list[expression].kind;
    loop unlimited = {0};
    if (copies >= LEAST_MODELLED && (kind == TSR__EXPRESSION_RULE || kind == TSR__EXPRESSION_CLASS))
        TSR__TRY(build_loop(b, expression, end, true, &unlimited));
    for (int32_t i = 0; i < copies; i++) {
        const size_t first = a->count;
        int32_t body;
        TSR__TRY(build(b, expression, *state, &body));
        const size_t size = a->count - first;
        TSR__TRY(add_state(b, (tsr__state){.kind = TSR__STATE_SPLIT, .next = body, .other = end},
                           state));
        if (unlimited.size > 0 && size == unlimited.size) {
            const int64_t depth = i >= (int64_t)b->longest + 1 ? TSR__ALIKE_ALWAYS : i;
            set_alike(a, first, (size_t)unlimited.split + 1, size, depth);
            set_alike(a, first + size, (size_t)unlimited.split, 1, depth);
        }
    }
    return TSR_OK;
}

static tsr_status build_repeat(builder *b, const tsr__expression *e, int32_t next, int32_t *out)
{
    const int32_t finite = e->count < 0 ? 0 : e->count - e->first;
    int32_t state = next, required = e->first;
    int height = 0;
    const bool calls = b->calls;
    const tsr__expression *outer = b->repeat;
    if (!b->repeat)
        b->repeat = e;
    if (size_of(b, e->child, false, &height) * ((int64_t)e->first + finite) > MOST_COPIED_STATES)
        b->calls = true;
    if (e->count < 0) {
        loop unlimited;
        TSR__TRY(build_loop(b, e->child, next, false, &unlimited));
        state = unlimited.split;
        if (required > 0) {
            state = b->out->states[state].other;
            required--;
        }
    }
    TSR__TRY(build_optional(b, e->child, finite, next, &state));
    TSR__TRY(build_required(b, e->child, required, &state));
    b->calls = calls;
    b->repeat = outer;
    *out = state;
    return TSR_OK;
}

/* Alternatives ------------------------------------------------------------------------------- */

/* A text that is one of several alternatives. */
typedef struct choice {
    const uint8_t *bytes;
    size_t size;
} choice;

static int compare_choices(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    const size_t size = x->size < y->size ? x->size : y->size;
    const int order = size > 0 ? memcmp(x->bytes, y->bytes, size) : 0;
    return order != 0 ? order : x->size < y->size ? -1 : x->size > y->size;
}

/* Appends the bytes of an expression, if it is one text; otherwise *is_text becomes false. */
static tsr_status append_text(const builder *b, int32_t expression, tsr__bytes *out, bool *is_text)
{
    const tsr__expression *list = b->expressions->list, *e = &list[expression];
    const uint8_t *bytes = b->expressions->bytes.data;
    size_t size = 0;
    if (e->kind == TSR__EXPRESSION_LITERAL)
        return tsr__bytes_append(out, bytes + e->first, (size_t)e->count);
    *is_text = e->kind == TSR__EXPRESSION_SEQUENCE;
    for (int32_t i = *is_text ? e->child : -1; i >= 0 && *is_text; i = list[i].before) {
        *is_text = list[i].kind == TSR__EXPRESSION_LITERAL;
        size += (size_t)list[i].count;
    }
    if (!*is_text)
        return TSR_OK;
    void *data = out->data;
    TSR__TRY(tsr__grow(&data, &out->capacity, out->size + size + 1, 1));
    out->data = data;
    out->size += size;
    /* The last part is the first one of the list. */
    uint8_t *end = out->data + out->size;
    for (int32_t i = e->child; i >= 0; i = list[i].before) {
        end -= list[i].count;
        memcpy(end, bytes + list[i].first, (size_t)list[i].count);
    }
    return TSR_OK;
}

/* Builds texts that have the same first `depth` bytes as a tree: the bytes that they share are read
 * once. */
static tsr_status build_tree(builder *b, const choice *texts, size_t count, size_t depth,
                             int32_t next, int32_t *out)
{
    size_t same = depth, first = 0;
    int32_t state = -1;
    while (same < texts[0].size && same < texts[count - 1].size &&
           texts[0].bytes[same] == texts[count - 1].bytes[same])
        same++;
    while (first < count && texts[first].size == same) /* they end here */
        first++;
    if (first > 0)
        state = next;
    for (size_t end; first < count; first = end) {
        int32_t part;
        for (end = first; end < count && texts[end].bytes[same] == texts[first].bytes[same];)
            end++;
        TSR__TRY(build_tree(b, texts + first, end - first, same + 1, next, &part));
        TSR__TRY(add_byte(b, texts[first].bytes[same], texts[first].bytes[same], part, &part));
        TSR__TRY(add_choice(b, part, &state));
    }
    for (; same > depth; same--)
        TSR__TRY(add_byte(b, texts[0].bytes[same - 1], texts[0].bytes[same - 1], state, &state));
    *out = state;
    return TSR_OK;
}

/* Builds a tree of the alternatives that are texts, whose sizes are in `texts`; *out is −1 if there
 * is none. */
static tsr_status build_texts(builder *b, const tsr__bytes *bytes, choice *texts, size_t count,
                              int32_t next, int32_t *out)
{
    size_t at = 0;
    *out = -1;
    if (count == 0)
        return TSR_OK;
    for (size_t i = 0; i < count; at += texts[i++].size)
        texts[i].bytes = bytes->size > 0 ? bytes->data + at : NULL;
    qsort(texts, count, sizeof *texts, compare_choices);
    return build_tree(b, texts, count, 0, next, out);
}

static tsr_status build_alternatives(builder *b, const tsr__expression *e, int32_t next,
                                     int32_t *out)
{
    const tsr__expression *list = b->expressions->list;
    tsr__bytes bytes = {0};
    size_t count = 0, texts = 0;
    int32_t part, others = -1;
    for (int32_t i = e->child; i >= 0; i = list[i].before)
        count++;
    choice *all = tsr__calloc(count, sizeof *all);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = TSR_OK;
    for (int32_t i = e->child; i >= 0 && status == TSR_OK; i = list[i].before) {
        bool is_text = count > 1;
        const size_t before = bytes.size;
        if (is_text)
            status = append_text(b, i, &bytes, &is_text);
        if (status == TSR_OK && is_text) {
            all[texts++].size = bytes.size - before;
            continue;
        }
        if (status == TSR_OK)
            status = build(b, i, next, &part);
        if (status == TSR_OK)
            status = add_choice(b, part, &others);
    }
    if (status == TSR_OK)
        status = build_texts(b, &bytes, all, texts, next, &part);
    if (status == TSR_OK && part >= 0)
        status = add_choice(b, part, &others);
    tsr__free(all);
    tsr__free(bytes.data);
    *out = others;
    return status;
}

/* Builds an expression that `next` follows. */
static tsr_status build(builder *b, int32_t expression, int32_t next, int32_t *out)
{
    const tsr__expression *e = &b->expressions->list[expression];
    int32_t state = next;
    if (++b->parts > MOST_PARTS)
        return too_large(b, MOST_PARTS, "parts");
    switch (e->kind) {
    case TSR__EXPRESSION_LITERAL:
        return build_literal(b, e, next, out);
    case TSR__EXPRESSION_CLASS:
        return build_class(b, e, next, out);
    case TSR__EXPRESSION_RULE:
        return build_rule(b, e, next, out);
    case TSR__EXPRESSION_SEQUENCE:
        for (int32_t i = e->child; i >= 0; i = b->expressions->list[i].before)
            TSR__TRY(build(b, i, state, &state));
        *out = state;
        return TSR_OK;
    case TSR__EXPRESSION_ALTERNATIVES:
        return build_alternatives(b, e, next, out);
    default:
        return build_repeat(b, e, next, out);
    }
}

/* Automata ----------------------------------------------------------------------------------- */

static tsr_status build_rules(builder *b)
{
    const int32_t first = b->expressions->json_string;
    TSR__TRY(add_state(b, (tsr__state){.kind = TSR__STATE_END}, &b->end));
    /* The strings of schemas come first, so that their states have the same numbers in all
     * grammars, which share the masks. */
    if (first > 0) {
        b->out->starts[first] = 0;
        b->queue[b->queued++] = first;
    }
    b->out->starts[0] = 0;
    b->queue[b->queued++] = 0;
    for (size_t i = 0; i < b->queued; i++) {
        const int32_t rule = b->queue[i];
        int32_t start;
        TSR__TRY(build(b, b->expressions->rules[rule].expression, b->end, &start));
        b->out->starts[rule] = start;
        if (i == 0 && first > 0)
            b->out->shared_count = b->out->count;
    }
    return TSR_OK;
}

/* Finds the bytes that no state tells apart. */
static void find_classes(tsr__automaton *a)
{
    bool begins[257] = {true};
    int class = -1;
    for (size_t i = 0; i < a->count; i++)
        if (a->states[i].kind == TSR__STATE_BYTE)
            begins[a->states[i].low] = begins[a->states[i].high + 1] = true;
    for (int byte = 0; byte < 256; byte++) {
        class += begins[byte];
        a->classes[byte] = (uint8_t) class;
    }
    a->class_count = class + 1;
}

tsr_status tsr__automaton_build(const tsr__expressions *expressions, uint32_t longest,
                                tsr__automaton *out)
{
    builder b = {.expressions = expressions, .out = out, .longest = longest};
    const size_t rules = expressions->rule_count;
    out->rule_count = rules;
    out->starts = tsr__calloc(rules, sizeof *out->starts);
    b.sizes = tsr__calloc(rules, sizeof *b.sizes);
    b.heights = tsr__calloc(rules, sizeof *b.heights);
    b.queue = tsr__calloc(rules, sizeof *b.queue);
    tsr_status status = out->starts && b.sizes && b.heights && b.queue ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (size_t i = 0; status == TSR_OK && i < rules; i++)
        out->starts[i] = -1;
    if (status == TSR_OK) {
        measure_rules(&b);
        status = build_rules(&b);
    }
    if (status == TSR_OK)
        status = tsr__automaton_check(expressions, out);
    if (status == TSR_OK)
        find_classes(out);
    tsr__free(b.sizes);
    tsr__free(b.heights);
    tsr__free(b.queue);
    tsr__free(b.table);
    tsr__free(b.models);
    return status;
}

void tsr__automaton_finish(tsr__automaton *a)
{
    tsr__free(a->states);
    tsr__free(a->alike);
    tsr__free(a->starts);
    *a = (tsr__automaton){0};
}
