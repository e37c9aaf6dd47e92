/* Where texts end, and which tokens may be chosen in sequences with a grammar. Every rank reads the
 * chosen tokens and finds the same end. Only the rank that chooses computes masks. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "grammar/grammar.h"
#include "model/generate/generator.h"
#include "model/model.h"

tsr_status tsr__limit_begin(tsr_generator *g, const tsr_grammar_state *from, tsr__sequence *s)
{
    const int64_t vocabulary = g->model->config->vocabulary;
    const int64_t tokens = tsr_tokenizer_size(from->grammar->tokenizer);
    TSR__REQUIRE(tokens <= vocabulary,
                 "generator: the grammar's tokenizer has %" PRId64
                 " tokens, but the vocabulary only %" PRId64,
                 tokens, vocabulary);
    if (!g->mask) {
        g->mask_words = (vocabulary + 31) / 32;
        uint32_t *mask = tsr__calloc((size_t)g->mask_words, sizeof *mask);
        float *allowed = tsr__calloc((size_t)vocabulary, sizeof *allowed);
        if (!mask || !allowed) {
            tsr__free(mask);
            tsr__free(allowed);
            return TSR_ERR_NO_MEMORY;
        }
        g->mask = mask;
        g->allowed = allowed;
    }
    TSR__TRY(tsr_grammar_state_create(from->grammar, from, &s->grammar_start));
    return tsr_grammar_state_create(from->grammar, from, &s->grammar);
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
 * bit or all. Sets *found if there is one above −inf, or a NaN. */
static void copy_allowed(const float *logits, int count, uint32_t bits, float *out, bool *found)
{
    if (bits == UINT32_MAX) {
        memcpy(out, logits, (size_t)count * sizeof *out);
    } else {
        for (int i = 0; i < count; i++)
            out[i] = -INFINITY;
        for (int i = 0; i < count && bits != 0; i++)
            if (bits >> i & 1)
                out[i] = logits[i];
    }
    for (int i = 0; i < count && bits != 0 && !*found; i++)
        *found = out[i] != -INFINITY;
}

tsr_status tsr__limit_logits(tsr_generator *g, const tsr__sequence *s, const float **logits,
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
        copy_allowed(*logits + first, count, g->mask[first / 32], g->allowed + first, &found);
    }
    *stuck = !found;
    *logits = g->allowed;
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
