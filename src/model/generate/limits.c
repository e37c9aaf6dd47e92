/* Where texts end, and which tokens may be chosen: the caller's function and the grammar of a
 * sequence. Every rank reads the chosen tokens and finds the same end. Only the rank that chooses
 * computes masks, and calls the function. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "grammar/grammar.h"
#include "model/generate/generator.h"
#include "model/model.h"

bool tsr__limit_changes(const tsr__sequence *s)
{
    return s->grammar || s->process;
}

static tsr_status begin_grammar(tsr_generator *g, const tsr_grammar_state *from, tsr__sequence *s)
{
    const int64_t vocabulary = g->model->config->vocabulary;
    const int64_t tokens = tsr_tokenizer_size(from->grammar->tokenizer);
    TSR__REQUIRE(tokens <= vocabulary,
                 "generator: the grammar's tokenizer has %" PRId64
                 " tokens, but the vocabulary only %" PRId64,
                 tokens, vocabulary);
    if (!g->mask) {
        g->mask_words = (vocabulary + 31) / 32;
        g->mask = tsr__calloc((size_t)g->mask_words, sizeof *g->mask);
        if (!g->mask)
            return TSR_ERR_NO_MEMORY;
    }
    TSR__TRY(tsr_grammar_state_create(from->grammar, from, &s->grammar_start));
    return tsr_grammar_state_create(from->grammar, from, &s->grammar);
}

tsr_status tsr__limit_begin(tsr_generator *g, const tsr_sequence_params *p, tsr__sequence *s)
{
    if (!p->grammar && !p->process)
        return TSR_OK;
    if (!g->allowed)
        g->allowed = tsr__calloc((size_t)g->model->config->vocabulary, sizeof *g->allowed);
    if (!g->allowed)
        return TSR_ERR_NO_MEMORY;
    s->process = p->process;
    s->process_user = p->process_user;
    return p->grammar ? begin_grammar(g, p->grammar, s) : TSR_OK;
}

tsr_status tsr__limit_restart(const tsr__sequence *s, tsr_grammar_state **out)
{
    *out = NULL;
    return s->grammar ? tsr_grammar_state_create(s->grammar->grammar, s->grammar_start, out)
                      : TSR_OK;
}

static void allow(tsr_generator *g, const int32_t *tokens, int count)
{
    for (int i = 0; i < count; i++)
        if (tokens[i] >= 0 && tokens[i] < g->model->config->vocabulary)
            g->mask[tokens[i] / 32] |= UINT32_C(1) << (tokens[i] % 32);
}

/* Copies the logits of which the bits are set; the others become −inf. Most words of a mask have no
 * bit or all. Sets *found if there is one above −inf, or a NaN. `out` may be `logits`. */
static void copy_allowed(const float *logits, int count, uint32_t bits, float *out, bool *found)
{
    if (bits == UINT32_MAX)
        memmove(out, logits, (size_t)count * sizeof *out);
    else
        for (int i = 0; i < count; i++)
            out[i] = bits >> i & 1 ? logits[i] : -INFINITY;
    for (int i = 0; i < count && bits != 0 && !*found; i++)
        *found = out[i] != -INFINITY;
}

/* Sets g->allowed to those of `logits` that the sequence's grammar allows. */
static tsr_status apply_grammar(tsr_generator *g, const tsr__sequence *s, const float *logits,
                                bool *stuck)
{
    const tsr_model_config *c = g->model->config;
    const tsr_status status = tsr_grammar_state_mask(s->grammar, g->mask_words, g->mask);
    *stuck = true;
    if (status == TSR_ERR_OVERFLOW)
        return TSR_OK;
    TSR__TRY(status);
    if (tsr_grammar_state_end(s->grammar) != TSR_GRAMMAR_INCOMPLETE) {
        allow(g, s->stop, s->stop_count);
        if (!s->ignore_end)
            allow(g, c->end, c->end_count);
    }
    bool found = false;
    for (int64_t first = 0; first < c->vocabulary; first += 32) {
        const int count = c->vocabulary - first < 32 ? (int)(c->vocabulary - first) : 32;
        copy_allowed(logits + first, count, g->mask[first / 32], g->allowed + first, &found);
    }
    *stuck = !found;
    return TSR_OK;
}

tsr_status tsr__limit_logits(tsr_generator *g, int number, const float **logits, bool *stuck)
{
    const tsr__sequence *s = &g->sequences[number];
    if (s->process) {
        memcpy(g->allowed, *logits, (size_t)g->model->config->vocabulary * sizeof *g->allowed);
        s->process(s->process_user, number, s->length, s->tokens, g->allowed);
        *logits = g->allowed;
    }
    if (s->grammar) {
        TSR__TRY(apply_grammar(g, s, *logits, stuck));
        *logits = g->allowed;
    }
    return TSR_OK;
}

tsr_finish tsr__limit_read(tsr__sequence *s, int32_t token)
{
    if (tsr_tokenizer_is_end(s->grammar->grammar->tokenizer, token))
        return TSR_FINISH_TOKEN;
    if (tsr_grammar_state_add(s->grammar, token) != TSR_OK)
        return TSR_FINISH_STUCK;
    return tsr_grammar_state_end(s->grammar) == TSR_GRAMMAR_MUST_END ? TSR_FINISH_GRAMMAR
                                                                     : TSR_FINISH_NONE;
}

static bool contains(const int32_t *tokens, int count, int32_t token)
{
    for (int i = 0; i < count; i++)
        if (tokens[i] == token)
            return true;
    return false;
}

bool tsr__limit_ends(const tsr_generator *g, const tsr__sequence *s, int32_t token)
{
    const tsr_model_config *c = g->model->config;
    return contains(s->stop, s->stop_count, token) ||
           (!s->ignore_end && contains(c->end, c->end_count, token));
}
