/* Grammars and their states: the public functions. */
#include "grammar/grammar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/struct_size.h"
#include "tokenizer/tokenizer.h"

/* Grammars ----------------------------------------------------------------------------------- */

/* Lists the tokens at which generation ends. */
static tsr_status list_ends(tsr_grammar *g)
{
    const int32_t tokens = tsr_tokenizer_size(g->tokenizer);
    for (int32_t id = 0; id < tokens; id++)
        g->end_count += tsr_tokenizer_is_end(g->tokenizer, id);
    g->ends = tsr__calloc(g->end_count, sizeof *g->ends);
    if (!g->ends)
        return TSR_ERR_NO_MEMORY;
    for (int32_t id = 0, i = 0; id < tokens; id++)
        if (tsr_tokenizer_is_end(g->tokenizer, id))
            g->ends[i++] = id;
    return TSR_OK;
}

/* Compiles GBNF; `schema`: of a schema. */
static tsr_status compile(tsr_grammar *g, const char *text, size_t size, const char *root,
                          bool schema)
{
    tsr__expressions expressions = {0};
    tsr_status status = tsr__gbnf_read(g->tokenizer, text, size, root, schema, &expressions);
    if (status == TSR_OK)
        status = tsr__automaton_build(&expressions, g->trie->longest, &g->automaton);
    tsr__expressions_finish(&expressions);
    if (status == TSR_OK)
        status = tsr__shared_masks_of(g, &g->shared);
    return status;
}

static tsr_status fill(tsr_grammar *g, const tsr_grammar_params *p)
{
    tsr__bytes gbnf = {0};
    g->mask_words = (g->tokenizer->vocabulary.count + 31) / 32;
    TSR__TRY(tsr__readings_init(&g->readings));
    TSR__TRY(tsr__tokenizer_trie(g->tokenizer, &g->trie));
    TSR__TRY(list_ends(g));
    g->path = tsr__calloc(2 * ((size_t)g->trie->longest + 1), sizeof *g->path);
    g->once.words = tsr__calloc(g->mask_words, sizeof *g->once.words);
    g->partial.words = tsr__calloc(g->mask_words, sizeof *g->partial.words);
    if (!g->path || !g->once.words || !g->partial.words)
        return TSR_ERR_NO_MEMORY;
    if (p->kind == TSR_GRAMMAR_GBNF)
        return compile(g, p->text, p->size_bytes, p->root ? p->root : "root", false);
    tsr_status status = tsr__schema_to_gbnf(p->text, p->size_bytes, &gbnf);
    if (status == TSR_OK) {
        status = compile(g, (const char *)gbnf.data, gbnf.size, "root", true);
        if (status != TSR_OK)
            (void)tsr__fail_context(status, "schema");
    }
    tsr__free(gbnf.data);
    return status;
}

tsr_status tsr_grammar_create(const tsr_grammar_params *params, tsr_grammar **out)
{
    TSR__REQUIRE(params && out, "grammar: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_grammar_params, params);
    TSR__REQUIRE(params->tokenizer, "grammar: tokenizer is NULL");
    TSR__REQUIRE(params->kind == TSR_GRAMMAR_GBNF || params->kind == TSR_GRAMMAR_JSON_SCHEMA,
                 "grammar: there is no kind %d", (int)params->kind);
    TSR__REQUIRE(params->text && params->size_bytes <= TSR_GRAMMAR_MAX_TEXT,
                 "grammar: text is %s and has %zu bytes; at most %d are possible",
                 params->text ? "not NULL" : "NULL", params->size_bytes, TSR_GRAMMAR_MAX_TEXT);
    TSR__REQUIRE(!params->root || params->kind == TSR_GRAMMAR_GBNF,
                 "grammar: root is '%.80s', but a schema has no rules", params->root);
    tsr_grammar *g = tsr__calloc(1, sizeof *g);
    if (!g)
        return TSR_ERR_NO_MEMORY;
    g->tokenizer = params->tokenizer;
    g->digest = tsr__hash(tsr__hash_word(TSR__HASH_START, (uint32_t)params->kind), params->text,
                          params->size_bytes);
    if (params->root)
        g->digest = tsr__hash(g->digest, params->root, strlen(params->root));
    tsr_status status = fill(g, params);
    if (status == TSR_OK && params->ahead_ns > 0)
        status = tsr__masks_ahead(g, params->ahead_ns);
    if (status != TSR_OK) {
        tsr_grammar_destroy(&g);
        return status;
    }
    *out = g;
    return TSR_OK;
}

void tsr_grammar_destroy(tsr_grammar **grammar)
{
    if (!grammar || !*grammar)
        return;
    tsr_grammar *g = *grammar;
    tsr__readings_finish(&g->readings);
    tsr__automaton_finish(&g->automaton);
    tsr__free(g->work);
    tsr__free(g->found);
    tsr__free(g->visited);
    tsr__free(g->path);
    tsr__free(g->ends);
    tsr__free(g->once.words);
    tsr__free(g->partial.words);
    tsr__free(g->partial.ends);
    tsr__free(g);
    *grammar = NULL;
}

uint64_t tsr_grammar_bytes(const tsr_grammar *g)
{
    if (!g)
        return 0;
    const tsr__automaton *a = &g->automaton;
    const tsr__readings *r = &g->readings;
    return sizeof *g + a->capacity * sizeof *a->states + a->alike_capacity * sizeof *a->alike +
           a->rule_count * sizeof *a->starts + r->stack_capacity * sizeof *r->stacks +
           r->stack_table_size * sizeof *r->stack_table + r->set_capacity * sizeof *r->sets +
           r->set_table_size * sizeof *r->set_table + r->reading_capacity * sizeof *r->readings +
           r->bytes + (g->work_capacity + g->found_capacity) * sizeof *g->work +
           g->visited_size * sizeof *g->visited + 2 * g->mask_words * sizeof *g->once.words;
}

/* States ------------------------------------------------------------------------------------- */

tsr_status tsr_grammar_state_create(tsr_grammar *grammar, const tsr_grammar_state *from,
                                    tsr_grammar_state **out)
{
    TSR__REQUIRE(grammar && out, "grammar: %s is NULL", grammar ? "out" : "grammar");
    TSR__REQUIRE(!from || from->grammar == grammar, "grammar: `from` is of another grammar");
    tsr_grammar_state *s = tsr__calloc(1, sizeof *s);
    if (!s)
        return TSR_ERR_NO_MEMORY;
    s->grammar = grammar;
    tsr_status status = TSR_OK;
    if (from) {
        s->set = from->set;
    } else {
        grammar->effort = 0;
        status = tsr__readings_find(
            grammar, 1, (const uint64_t[]){tsr__reading(grammar->automaton.starts[0], 0)}, &s->set);
    }
    if (status != TSR_OK) {
        tsr__free(s);
        return status;
    }
    s->after = grammar->states;
    if (s->after)
        s->after->before = s;
    grammar->states = s;
    *out = s;
    return TSR_OK;
}

void tsr_grammar_state_destroy(tsr_grammar_state **state)
{
    if (!state || !*state)
        return;
    tsr_grammar_state *s = *state;
    if (s->after)
        s->after->before = s->before;
    if (s->before)
        s->before->after = s->after;
    else
        s->grammar->states = s->after;
    tsr__free(s);
    *state = NULL;
}

/* Reads bytes. `what` says in the error text what they are. */
static tsr_status add_bytes(tsr_grammar_state *s, const uint8_t *bytes, size_t size,
                            const char *what)
{
    tsr_grammar *g = s->grammar;
    TSR__TRY(tsr__readings_shrink(g));
    int32_t set = s->set;
    for (size_t i = 0; i < size; i++) {
        g->effort = 0;
        TSR__TRY(tsr__readings_step(g, set, bytes[i], &set));
        TSR__REQUIRE(set != 0 && bytes[i] != TSR__TOKEN_CODE_FIRST,
                     "grammar: byte %zu of %s, 0x%02x, is not allowed here", i, what,
                     (unsigned)bytes[i]);
    }
    s->set = set;
    return TSR_OK;
}

/* Reads a token as itself, if the grammar allows that here. */
static tsr_status add_code(tsr_grammar_state *s, int32_t token, bool *read)
{
    tsr_grammar *g = s->grammar;
    uint8_t code[TSR__TOKEN_CODE];
    tsr__token_code(token, code);
    TSR__TRY(tsr__readings_shrink(g));
    int32_t set = s->set;
    for (size_t i = 0; i < sizeof code && set != 0; i++) {
        g->effort = 0;
        TSR__TRY(tsr__readings_step(g, set, code[i], &set));
    }
    *read = set != 0;
    if (*read)
        s->set = set;
    return TSR_OK;
}

tsr_status tsr_grammar_state_add(tsr_grammar_state *state, int32_t token)
{
    char what[32];
    TSR__REQUIRE(state, "grammar: state is NULL");
    const tsr_tokenizer *t = state->grammar->tokenizer;
    bool read = false;
    TSR__TRY(tsr__check_id(t, token));
    const tsr__token *one = &t->vocabulary.tokens[token];
    if (tsr__token_has_code(one))
        TSR__TRY(add_code(state, token, &read));
    if (read)
        return TSR_OK;
    TSR__REQUIRE(!tsr__is_control(one),
                 "grammar: token %" PRId32 " is a control token, which is not allowed here", token);
    snprintf(what, sizeof what, "token %" PRId32, token);
    return add_bytes(state, (const uint8_t *)t->vocabulary.strings.data + one->bytes,
                     one->bytes_size, what);
}

tsr_status tsr_grammar_state_add_text(tsr_grammar_state *state, const void *text, size_t size_bytes)
{
    TSR__REQUIRE(state && (text || size_bytes == 0), "grammar: %s is NULL",
                 state ? "text" : "state");
    return add_bytes(state, text, size_bytes, "the text");
}

tsr_grammar_end tsr_grammar_state_end(const tsr_grammar_state *state)
{
    if (!state)
        return TSR_GRAMMAR_INCOMPLETE;
    const tsr__reading_set *set = &state->grammar->readings.sets[state->set];
    return !set->ends       ? TSR_GRAMMAR_INCOMPLETE
           : set->count > 1 ? TSR_GRAMMAR_MAY_END
                            : TSR_GRAMMAR_MUST_END;
}

tsr_status tsr_grammar_state_mask(tsr_grammar_state *state, int64_t count, uint32_t *mask)
{
    TSR__REQUIRE(state && mask, "grammar: %s is NULL", state ? "mask" : "state");
    tsr_grammar *g = state->grammar;
    const int32_t tokens = tsr_tokenizer_size(g->tokenizer);
    const tsr__mask *found;
    TSR__REQUIRE(count >= (int64_t)g->mask_words,
                 "grammar: the mask has %" PRId64 " words of 32 bits, but there are %" PRId32
                 " tokens",
                 count, tokens);
    TSR__TRY(tsr__readings_shrink(g));
    g->effort = 0;
    TSR__TRY(tsr__mask_find(g, state->set, &found));
    memcpy(mask, found->words, g->mask_words * sizeof *mask);
    memset(mask + g->mask_words, 0, ((size_t)count - g->mask_words) * sizeof *mask);
    for (size_t i = 0; g->readings.sets[state->set].ends && i < g->end_count; i++)
        mask[g->ends[i] / 32] |= UINT32_C(1) << (g->ends[i] % 32);
    return TSR_OK;
}
