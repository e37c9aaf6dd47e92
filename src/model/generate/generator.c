/* Generators: creating them, and their sequences. */
#include "model/generate/generator.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/model.h"
#include "tensor/dtype.h"

/* The tokens of a prompt in one pass. Large GPUs need more of them to occupy all processors. */
#define USUAL_PREFILL 256
#define LARGE_GPU_PREFILL 512
#define USUAL_DRAFTS 4
#define LARGE_GPU_PROCESSORS 64

/* Creating ----------------------------------------------------------------------------------- */

static void finish_sequence(tsr__sequence *s)
{
    tsr__free(s->tokens);
    tsr__free(s->stop);
    tsr__free(s->biases);
    tsr_grammar_state_destroy(&s->grammar);
    tsr_grammar_state_destroy(&s->grammar_start);
    *s = (tsr__sequence){0};
}

void tsr_generator_destroy(tsr_generator **generator)
{
    if (!generator || !*generator)
        return;
    tsr_generator *g = *generator;
    for (int i = 0; g->sequences && i < g->count; i++)
        finish_sequence(&g->sequences[i]);
    tsr__flight_destroy(&g->flight);
    tsr__drafts_destroy(&g->drafts);
    tsr__candidates_destroy(&g->candidates);
    tsr__prefix_destroy(&g->prefix);
    tsr_kv_cache_destroy(&g->cache);
    tsr__free(g->sequences);
    tsr__free(g->logits);
    tsr__free(g->shown);
    tsr__free(g->ids);
    tsr__free(g->votes);
    tsr__free(g->chosen);
    tsr__free(g->log_probabilities);
    tsr__free(g->generated);
    tsr__free(g->top);
    tsr__free(g->mask);
    tsr__free(g->allowed);
    tsr__free(g);
    *generator = NULL;
}

/* All ranks must divide a prompt in the same way, so the device counts only if there is one rank.
 */
static int64_t usual_prefill(const tsr_model *model)
{
    const tsr_device_info *info = tsr_device_get_info(tsr_stream_device(model->stream));
    const bool large =
        info->type != TSR_DEVICE_CPU && info->processor_count >= LARGE_GPU_PROCESSORS;
    return large && tsr_group_size(model->group) == 1 && !model->stages && !model->context_group
               ? LARGE_GPU_PREFILL
               : USUAL_PREFILL;
}

/* Checks that the model was not opened with the rotary positions of shorter contexts. */
static tsr_status check_long(const tsr_generator_params *p)
{
    const tsr_model *m = p->model;
    const tsr_model_config *c = m->config;
    const int64_t opened = m->context > 0 ? m->context : c->context;
    for (int i = 0; i < c->kind_count; i++)
        TSR__REQUIRE(!tsr__layer_is_long(c->kinds[i], p->context) ||
                         tsr__layer_is_long(c->kinds[i], opened),
                     "generator: context is %" PRId64 ", but the model was opened for %" PRId64
                     ", and its rotary positions differ beyond %g",
                     p->context, opened, c->kinds[i]->rope->original_length);
    return TSR_OK;
}

/* Returns the tokens of a page. Each context rank has an equal part of them. */
static int64_t page_tokens(const tsr_generator_params *p, int64_t context_ranks)
{
    /* Whole pieces fill whole pages, so that the prefix cache can keep them. */
    const int64_t least = p->piece > 0 ? p->piece : p->context,
                  each = (least + context_ranks - 1) / context_ranks;
    return context_ranks * (each < TSR__PAGE_TOKENS ? each : TSR__PAGE_TOKENS);
}

/* Refuses what context ranks cannot divide. */
static tsr_status check_context_group(tsr_generator_params *p)
{
    const tsr_model_config *c = p->model->config;
    if (!p->model->context_group)
        return TSR_OK;
    const int ranks = tsr_group_size(p->model->context_group);
    TSR__REQUIRE(p->draft == TSR_DRAFT_NONE,
                 "generator: draft is %d, but the model has %d context ranks, which have no drafts",
                 (int)p->draft, ranks);
    TSR__REQUIRE(p->model->stage_count == 1,
                 "generator: the model has %d stages and %d context ranks, which need one stage",
                 p->model->stage_count, ranks);
    for (int i = 0; i < c->kind_count; i++) {
        const tsr_model_layer *layer = c->kinds[i];
        const char *what = tsr__layer_has_state(layer) ? "states"
                           : layer->latent             ? "latent attention"
                           : layer->shared_keys        ? "keys of other layers"
                           : layer->temperature != 0   ? "position-dependent temperatures"
                           : layer->window > 0         ? "attention windows"
                                                       : NULL;
        if (what)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "generator: %d context ranks cannot divide the cache of layers with "
                             "%s",
                             ranks, what);
    }
    TSR__REQUIRE(p->cache_dtype == 0 || tsr__dtype_is_float(p->cache_dtype),
                 "generator: %d context ranks cannot divide a cache of %s; f32, f16 and bf16 are "
                 "possible",
                 ranks, tsr_dtype_name(p->cache_dtype));
    if (p->prefix_cache && p->piece > 0) {
        /* Whole pieces fill whole pages, of which each rank has an equal part. */
        const int64_t page = page_tokens(p, ranks);
        p->piece = (p->piece + page - 1) / page * page;
    }
    p->ahead = TSR_GENERATOR_WAITS; /* the ranks choose tokens together */
    return TSR_OK;
}

static tsr_status check_draft_model(const tsr_generator_params *p)
{
    const tsr_model *m = p->model, *draft = p->draft_model;
    const int rank = tsr_group_rank(m->group), ranks = tsr_group_size(m->group);
    const bool by_model = p->draft == TSR_DRAFT_MODEL, by_own = p->draft == TSR_DRAFT_MTP,
               chooses = tsr__model_chooses(m);
    TSR__REQUIRE(by_model || !draft,
                 "generator: draft_model needs draft TSR_DRAFT_MODEL, but draft is %d",
                 (int)p->draft);
    TSR__REQUIRE(by_model || by_own || !p->rejection_sampling,
                 "generator: rejection_sampling needs draft TSR_DRAFT_MODEL or TSR_DRAFT_MTP, but "
                 "draft is %d",
                 (int)p->draft);
    TSR__REQUIRE(!by_own || m->next_token,
                 "generator: draft is TSR_DRAFT_MTP, but the model was opened without next_token");
    if (!by_model)
        return TSR_OK;
    TSR__REQUIRE(draft || !chooses, "generator: draft_model is NULL on rank 0 of the last stage");
    if (!draft)
        return TSR_OK;
    const int of_draft = tsr_group_size(draft->group);
    TSR__REQUIRE(draft->stage_count == 1,
                 "generator: draft_model has %d stages; only 1 is possible", draft->stage_count);
    TSR__REQUIRE(of_draft == 1 || (of_draft == ranks && tsr_group_rank(draft->group) == rank &&
                                   m->stage_count == 1),
                 "generator: draft_model has rank %d of %d, but the model rank %d of %d in %d "
                 "stages; rank 0 alone, or all ranks of a model without stages can have it",
                 tsr_group_rank(draft->group), of_draft, rank, ranks, m->stage_count);
    TSR__REQUIRE(
        of_draft > 1 || chooses,
        "generator: draft_model is not divided, but this is rank %d of stage %d; only rank "
        "0 of the last stage can have it",
        rank, m->stage);
    TSR__REQUIRE(draft->config->vocabulary == m->config->vocabulary,
                 "generator: the vocabulary of draft_model has %" PRId64
                 " tokens, that of the model %" PRId64,
                 draft->config->vocabulary, m->config->vocabulary);
    return TSR_OK;
}

static tsr_status check_params(tsr_generator_params *p)
{
    const tsr_model_config *c = p->model->config;
    if (p->sequences == 0)
        p->sequences = 1;
    TSR__REQUIRE(p->sequences >= 1 && p->sequences <= TSR_GENERATOR_MAX_SEQUENCES,
                 "generator: sequences is %d; 1 to %d is possible", p->sequences,
                 TSR_GENERATOR_MAX_SEQUENCES);
    if (p->context == 0)
        p->context = c->context;
    TSR__REQUIRE(p->context >= 1 && p->context <= TSR_MODEL_MAX_CONTEXT,
                 "generator: context is %" PRId64 "; 1 to %d is possible", p->context,
                 TSR_MODEL_MAX_CONTEXT);
    TSR__REQUIRE(!c->learned_positions || p->context <= c->context,
                 "generator: context is %" PRId64 ", but the model has learned %" PRId64
                 " positions",
                 p->context, c->context);
    TSR__TRY(check_long(p));
    if (p->prefill == 0)
        p->prefill = usual_prefill(p->model);
    TSR__REQUIRE(p->prefill >= 1 && p->prefill <= TSR_MODEL_MAX_CONTEXT,
                 "generator: prefill is %" PRId64 "; 1 to %d is possible", p->prefill,
                 TSR_MODEL_MAX_CONTEXT);
    if (p->prefill > p->context)
        p->prefill = p->context;
    TSR__REQUIRE(p->cache_tokens >= 0 && p->logits_positions >= 0,
                 "generator: cache_tokens is %" PRId64 ", logits_positions %" PRId64
                 "; neither may be negative",
                 p->cache_tokens, p->logits_positions);
    TSR__REQUIRE(p->piece >= 0 && p->piece <= TSR_MODEL_MAX_CONTEXT,
                 "generator: piece is %" PRId64 "; 0 to %d is possible", p->piece,
                 TSR_MODEL_MAX_CONTEXT);
    TSR__REQUIRE(!p->prefix_cache || (p->piece > 0 && !p->logits),
                 "generator: prefix_cache needs a piece and no function for logits; piece is "
                 "%" PRId64 ", and logits is %s",
                 p->piece, p->logits ? "not NULL" : "NULL");
    TSR__REQUIRE(p->ahead >= TSR_GENERATOR_WAITS && p->ahead <= TSR_GENERATOR_MAX_AHEAD,
                 "generator: ahead is %d; %d to %d is possible", p->ahead, TSR_GENERATOR_WAITS,
                 TSR_GENERATOR_MAX_AHEAD);
    TSR__REQUIRE((unsigned)p->draft <= TSR_DRAFT_MTP, "generator: draft is %d, not a tsr_draft",
                 (int)p->draft);
    TSR__REQUIRE(p->draft_tokens >= 0 && p->draft_tokens <= TSR_MAX_DRAFT_TOKENS,
                 "generator: draft_tokens is %d; 0 to %d is possible", p->draft_tokens,
                 TSR_MAX_DRAFT_TOKENS);
    if (p->draft_tokens == 0)
        p->draft_tokens = USUAL_DRAFTS;
    TSR__TRY(check_draft_model(p));
    TSR__TRY(check_context_group(p));
    TSR__REQUIRE(p->snapshots >= 0 && p->snapshots <= TSR_GENERATOR_MAX_SNAPSHOTS &&
                     (p->snapshots == 0 || p->prefix_cache),
                 "generator: snapshots is %d, and prefix_cache is %s; 0 to %d is possible, and 0 "
                 "without it",
                 p->snapshots, p->prefix_cache ? "set" : "not set", TSR_GENERATOR_MAX_SNAPSHOTS);
    if (!p->logits)
        p->logits_positions = 0;
    if (p->cache_dtype == 0)
        p->cache_dtype = p->model->cache_dtype;
    return TSR_OK;
}

static tsr_status create_cache(tsr_generator *g)
{
    const tsr_generator_params *p = &g->params;
    const tsr_group *context = g->model->context_group;
    const int64_t page = page_tokens(p, context ? tsr_group_size(context) : 1);
    TSR__REQUIRE(!p->prefix_cache || p->piece % page == 0,
                 "generator: piece is %" PRId64 "; with prefix_cache it must be a multiple of "
                 "%" PRId64 ", the tokens of a page",
                 p->piece, page);
    /* Each sequence may leave a part of its last page unused. */
    const int64_t all = p->sequences * ((p->context + page - 1) / page);
    const int64_t given = p->cache_tokens / page + (p->cache_tokens % page != 0);
    const int64_t pages = given == 0 || given > all ? all : given; /* no more can be used */
    g->page_tokens = page;
    g->pages = pages;
    g->longest = p->piece > 0 && pages * page < p->context ? pages * page : p->context;
    TSR__TRY(tsr__generator_create_cache(g, g->model, &g->cache));
    return p->prefix_cache ? tsr__prefix_create(g->cache, p->piece, page, pages,
                                                tsr__generator_has_states(g->model), &g->prefix)
                           : TSR_OK;
}

static tsr_status create_memory(tsr_generator *g)
{
    const tsr_generator_params *p = &g->params;
    const size_t vocabulary = (size_t)g->model->config->vocabulary, count = (size_t)p->sequences,
                 prefill = (size_t)p->prefill;
    g->count = p->sequences;
    g->sequences = tsr__calloc(count, sizeof *g->sequences);
    g->logits = tsr__calloc(count, vocabulary * sizeof *g->logits);
    g->ids = tsr__calloc(count > prefill ? count : prefill, sizeof *g->ids);
    g->votes = tsr__calloc(count + 2 + (size_t)tsr__drafts_votes(p), sizeof *g->votes);
    g->chosen = tsr__calloc(count, sizeof *g->chosen);
    g->log_probabilities = tsr__calloc(count, sizeof *g->log_probabilities);
    g->generated = tsr__calloc(count, sizeof *g->generated);
    if (!g->sequences || !g->logits || !g->ids || !g->votes || !g->chosen ||
        !g->log_probabilities || !g->generated)
        return TSR_ERR_NO_MEMORY;
    if (p->logits_positions > 0) {
        const size_t rows =
            p->logits_positions < p->prefill ? (size_t)p->logits_positions : prefill;
        g->shown = tsr__calloc(rows, vocabulary * sizeof *g->shown);
        if (!g->shown)
            return TSR_ERR_NO_MEMORY;
    }
    TSR__TRY(tsr__flight_create(g, &g->flight));
    TSR__TRY(tsr__candidates_create(g, &g->candidates));
    TSR__TRY(create_cache(g));
    return tsr__drafts_create(g);
}

tsr_status tsr_generator_create(const tsr_generator_params *params, tsr_generator **out)
{
    TSR__REQUIRE(params && out, "generator: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_generator_params, params);
    TSR__REQUIRE(params->model, "generator: model is NULL");
    tsr_generator_params checked = *params;
    TSR__TRY(check_params(&checked));
    tsr_generator *g = tsr__calloc(1, sizeof *g);
    if (!g)
        return TSR_ERR_NO_MEMORY;
    g->params = checked;
    g->prefill_given = params->prefill != 0;
    g->model = checked.model;
    atomic_init(&g->interrupt, false);
    tsr__generator_note_settings(g);
    const tsr_status status = create_memory(g);
    if (status != TSR_OK) {
        tsr_generator_destroy(&g);
        return status;
    }
    *out = g;
    return TSR_OK;
}

void tsr_generator_interrupt(tsr_generator *generator)
{
    if (generator)
        atomic_store(&generator->interrupt, true);
}

tsr_status tsr_generator_get_stats(const tsr_generator *generator, tsr_generator_stats *out)
{
    TSR__REQUIRE(generator && out, "generator: %s is NULL", generator ? "out" : "generator");
    tsr_generator_stats stats = generator->stats;
    tsr__schedule_count(generator, &stats);
    TSR__GIVE(tsr_generator_stats, &stats, out);
    return TSR_OK;
}

const tsr_generated *tsr_generator_token(const tsr_generator *generator, int index)
{
    return generator && index >= 0 && index < generator->generated_count
               ? &generator->generated[index]
               : NULL;
}

/* Sequences ---------------------------------------------------------------------------------- */

/* Checks that the ids are tokens of the vocabulary. `which` says in the error text where the ids
 * come from. */
static tsr_status check_ids(const tsr_generator *g, const int32_t *ids, int64_t count,
                            const char *which)
{
    const int64_t vocabulary = g->model->config->vocabulary;
    for (int64_t i = 0; i < count; i++)
        TSR__REQUIRE(ids[i] >= 0 && ids[i] < vocabulary,
                     "generator: token %" PRId64 " %s is %" PRId32
                     "; the vocabulary has 0 to %" PRId64,
                     i, which, ids[i], vocabulary - 1);
    return TSR_OK;
}

static tsr_status check_prompt(const tsr_generator *g, const tsr_sequence_params *p)
{
    TSR__REQUIRE(p->prompt_count >= 1 && p->prompt,
                 "generator: the prompt is empty; at least one token is needed");
    TSR__REQUIRE(p->prompt_count <= g->longest,
                 "generator: the prompt has %" PRId64 " tokens, but the context only %" PRId64,
                 p->prompt_count, g->longest);
    TSR__TRY(check_ids(g, p->prompt, p->prompt_count, "of the prompt"));
    TSR__REQUIRE(p->max_tokens >= 0, "generator: max_tokens is %" PRId64, p->max_tokens);
    TSR__REQUIRE(p->generated_count >= 0 && p->generated_count <= p->prompt_count,
                 "generator: generated_count is %" PRId64 " in a prompt of %" PRId64 " tokens",
                 p->generated_count, p->prompt_count);
    TSR__REQUIRE(p->top_log_probabilities >= 0 &&
                     p->top_log_probabilities <= TSR_MAX_TOP_LOG_PROBABILITIES &&
                     p->top_log_probabilities <= g->model->config->vocabulary &&
                     (p->log_probabilities || p->top_log_probabilities == 0),
                 "generator: top_log_probabilities is %d; 0 to %d is possible, with "
                 "log_probabilities",
                 p->top_log_probabilities, TSR_MAX_TOP_LOG_PROBABILITIES);
    TSR__REQUIRE(p->stop_count == 0 || (p->stop_count > 0 && p->stop),
                 "generator: stop_count is %d, and stop is %s", p->stop_count,
                 p->stop ? "not NULL" : "NULL");
    return TSR_OK;
}

/* Sets the limit of a sequence that has `length` tokens and gets up to max_tokens more; 0: any
 * number. */
static void set_limit(const tsr_generator *g, tsr__sequence *s, int64_t length, int64_t max_tokens)
{
    /* The last token is not read by any later one, so it need not fit into the cache. */
    const int64_t longest = g->longest + 1;
    const bool limited = max_tokens > 0 && max_tokens <= longest - length;
    s->limit = limited ? length + max_tokens : longest;
    s->at_limit = limited ? TSR_FINISH_MAX_TOKENS : TSR_FINISH_CONTEXT;
}

static tsr_status fill_sequence(tsr_generator *g, const tsr_sequence_params *p,
                                const tsr_sampling_params *sampling, tsr__sequence *s)
{
    set_limit(g, s, p->prompt_count, p->max_tokens);
    s->tokens = tsr__calloc((size_t)s->limit, sizeof *s->tokens);
    s->stop = tsr__calloc((size_t)p->stop_count, sizeof *s->stop);
    s->biases = tsr__calloc((size_t)sampling->bias_count, sizeof *s->biases);
    if (!s->tokens || !s->stop || !s->biases)
        return TSR_ERR_NO_MEMORY;
    memcpy(s->tokens, p->prompt, (size_t)p->prompt_count * sizeof *s->tokens);
    if (p->stop_count > 0)
        memcpy(s->stop, p->stop, (size_t)p->stop_count * sizeof *s->stop);
    s->length = p->prompt_count;
    s->stop_count = p->stop_count;
    s->sampling = *sampling;
    if (sampling->bias_count > 0)
        memcpy(s->biases, sampling->biases, (size_t)sampling->bias_count * sizeof *s->biases);
    s->sampling.biases = s->biases;
    s->sampling.prompt_count = p->prompt_count - p->generated_count;
    s->log_probabilities = p->log_probabilities;
    s->top_log_probabilities = p->top_log_probabilities;
    s->number = p->number;
    s->ignore_end = p->ignore_end;
    s->age = g->added++;
    s->in_prompt = true;
    s->prompt = p->prompt_count;
    s->block = TSR__PREFIX_NONE;
    TSR__TRY(tsr__limit_begin(g, p, s));
    TSR__TRY(tsr__generator_take_adapter(g, p->lora, s));
    return tsr_kv_cache_add(g->cache, -1, &s->cache);
}

tsr_status tsr_generator_add(tsr_generator *g, const tsr_sequence_params *params, int *out)
{
    TSR__REQUIRE(g && params && out, "generator: %s is NULL",
                 !g        ? "generator"
                 : !params ? "params"
                           : "out");
    tsr_sampling_params sampling;
    TSR__TAKE(tsr_sequence_params, params);
    TSR__TRY(check_prompt(g, params));
    TSR__TRY(TSR__TAKE_PART(tsr_sampling_params, params->sampling, &sampling));
    TSR__TRY(tsr__sampling_check(&sampling));
    for (int i = 0; i < sampling.bias_count; i++)
        TSR__TRY(check_ids(g, &sampling.biases[i].token, 1, "with a bias"));
    int at = 0;
    while (at < g->count && g->sequences[at].used)
        at++;
    TSR__REQUIRE(at < g->count, "generator: it has its largest number of sequences, %d", g->count);
    tsr__sequence *s = &g->sequences[at];
    const tsr_status status = fill_sequence(g, params, &sampling, s);
    if (status != TSR_OK) {
        finish_sequence(s);
        return status;
    }
    s->used = true;
    tsr__generator_note_sequence(g, at);
    *out = at;
    return TSR_OK;
}

static tsr_status check_continue(const tsr_generator *g, int number, int64_t count,
                                 const int32_t *tokens, int64_t max_tokens)
{
    TSR__REQUIRE(g, "generator: generator is NULL");
    TSR__REQUIRE(number >= 0 && number < g->count && g->sequences[number].used,
                 "generator: there is no sequence %d", number);
    const tsr__sequence *s = &g->sequences[number];
    TSR__REQUIRE(s->finish != TSR_FINISH_NONE, "generator: sequence %d has not ended", number);
    TSR__REQUIRE(count >= 1 && tokens,
                 "generator: continuing needs at least one token; count is %" PRId64
                 ", and tokens is %s",
                 count, tokens ? "not NULL" : "NULL");
    TSR__REQUIRE(s->length <= g->longest && count <= g->longest - s->length,
                 "generator: the sequence has %" PRId64 " tokens and gets %" PRId64
                 ", but the context has only %" PRId64,
                 s->length, count, g->longest);
    TSR__REQUIRE(max_tokens >= 0, "generator: max_tokens is %" PRId64, max_tokens);
    return check_ids(g, tokens, count, "to append");
}

tsr_status tsr_generator_continue(tsr_generator *g, int number, int64_t count,
                                  const int32_t *tokens, int64_t max_tokens)
{
    TSR__TRY(check_continue(g, number, count, tokens, max_tokens));
    tsr__sequence *s = &g->sequences[number], longer = *s;
    set_limit(g, &longer, s->length + count, max_tokens);
    longer.tokens = tsr__calloc((size_t)longer.limit, sizeof *longer.tokens);
    if (!longer.tokens)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr__limit_restart(s, &longer.grammar);
    if (status != TSR_OK) {
        tsr__free(longer.tokens);
        return status;
    }
    memcpy(longer.tokens, s->tokens, (size_t)s->length * sizeof *s->tokens);
    memcpy(longer.tokens + s->length, tokens, (size_t)count * sizeof *tokens);
    longer.length += count;
    longer.finish = TSR_FINISH_NONE;
    longer.in_prompt = true;
    longer.prompt = longer.length;
    longer.cached = 0;
    tsr__free(s->tokens);
    tsr_grammar_state_destroy(&s->grammar);
    *s = longer;
    tsr__generator_note_tokens(g, number, count);
    return TSR_OK;
}

tsr_status tsr_generator_remove(tsr_generator *g, int number)
{
    TSR__REQUIRE(g, "generator: generator is NULL");
    TSR__REQUIRE(number >= 0 && number < g->count && g->sequences[number].used,
                 "generator: there is no sequence %d", number);
    tsr__flight_discard(g);
    tsr__drafts_forget(g, number, 0);
    TSR__TRY(tsr_kv_cache_remove(g->cache, g->sequences[number].cache));
    if (g->prefix)
        tsr__prefix_leave(g->prefix, g->sequences[number].block);
    finish_sequence(&g->sequences[number]);
    return TSR_OK;
}
