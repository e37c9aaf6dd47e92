/* The step of a generator: prompts and tokens pass through the model, and rank 0 chooses what
 * follows them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "gpu/internal.h"
#include "model/generate/generator.h"
#include "model/model.h"

#define PARTS_FOR_STAGE 4
/* A prompt passes through the stages in parts, which are ranges of its tokens. One run of the
 * stages takes at most USUAL_PARTS of them, or PARTS_FOR_STAGE for each stage if that is more.
 * Ranks look for interrupts between runs. */
#define USUAL_PARTS 32
#define MAX_PARTS (PARTS_FOR_STAGE * TSR_MODEL_MAX_LAYERS)
#define LEAST_PART 64 /* the fewest tokens of a part */
/* There are no drafts before a sequence that may get so many tokens. */
#define LEAST_WITH_DRAFTS 8

/* Passes ------------------------------------------------------------------------------------- */

static float *logits_of(const tsr_generator *g, int number)
{
    return g->logits + (size_t)number * (size_t)g->model->config->vocabulary;
}

/* One run of the model's stages: micro-batches of `rows` sequences with `tokens` tokens each. */
typedef struct run {
    tsr_generator *g;
    int rows;
    int64_t tokens;
    const int *cached;  /* [micro-batches · rows]: sequences of the cache */
    const int *numbers; /* [micro-batches · rows]: sequences of the generator */
    const int32_t *ids; /* [micro-batches · rows, tokens] */
    /* [rows]: how many of `tokens` each sequence has; NULL: all. Logits are then those of every
     * token, [rows, tokens, vocabulary], and `numbers` is [rows · tokens] */
    const int64_t *counts;
    int64_t ahead; /* how many tokens after those of the micro-batch before one begins, if both are
                    * of the same sequence; otherwise 0 */
    int64_t shown; /* the logits of so many first tokens are copied to g->shown */
    /* context ranks divide the tokens of the only row, of which the last one's logits may be needed
     */
    bool divided;
    /* the first micro-batch whose logits are needed; those of all later ones are needed, too */
    int first_with_logits;
    /* for each micro-batch from that one on: [rows, vocabulary], the logits of the last tokens;
     * NULL: no logits are needed */
    float *logits;
} run;

static tsr_status run_every_logits(const run *r, const tsr_tensor *features)
{
    const int rows = r->rows * (int)r->tokens;
    const int64_t shape[3] = {rows, 1, r->g->model->config->width};
    tsr_tensor *each = NULL;
    TSR__TRY(tsr_tensor_reshape(features, 3, shape, &each));
    const tsr_status status = tsr__candidate_logits(r->g, each, 0, rows, r->numbers, r->logits);
    tsr_tensor_destroy(&each);
    return status;
}

static tsr_status run_logits(const run *r, int micro_batch, const tsr_tensor *features)
{
    const size_t vocabulary = (size_t)r->g->model->config->vocabulary;
    const int number = micro_batch - r->first_with_logits;
    if (r->counts)
        return run_every_logits(r, features);
    if (r->shown > 0)
        TSR__TRY(tsr__model_logits(r->g->model, features, 0, r->shown, r->g->shown));
    return r->logits && number >= 0
               ? tsr__candidate_logits(r->g, features, r->divided ? 0 : r->tokens - 1, r->rows,
                                       r->numbers + (size_t)micro_batch * (size_t)r->rows,
                                       r->logits + (size_t)number * (size_t)r->rows * vocabulary)
               : TSR_OK;
}

static tsr_status forward(const run *r, int micro_batch, const tsr_tensor *x, tsr_tensor **y)
{
    tsr_model *m = r->g->model;
    const int64_t row = (int64_t)micro_batch * r->rows;
    int64_t tokens[TSR_GENERATOR_MAX_SEQUENCES];
    tsr_tensor *features = NULL;
    for (int i = 0; i < r->rows; i++)
        tokens[i] = r->counts ? r->counts[i] : r->tokens;
    TSR__TRY(tsr_kv_cache_begin(r->g->cache, r->rows, r->cached + row, tokens, NULL));
    /* With counts, `numbers` has the sequence of each token. */
    const int64_t own = r->divided ? r->tokens / tsr_group_size(m->context_group) : r->tokens;
    tsr_status status =
        r->counts ? tsr__generator_use_adapters(r->g, r->rows * (int)r->tokens, r->numbers, 1)
                  : tsr__generator_use_adapters(r->g, r->rows, r->numbers + row, own);
    if (status == TSR_OK)
        status = r->divided ? tsr__model_forward_divided(m, r->g->cache, r->ids, &features)
                            : tsr__model_forward(m, r->g->cache, r->rows, r->tokens,
                                                 r->ids + row * r->tokens, x, &features);
    if (status == TSR_OK && !m->is_last)
        *y = features;
    tsr__stack_use_none(m->stack);
    if (status == TSR_OK && m->is_last)
        status = run_logits(r, micro_batch, features);
    if (status == TSR_OK && m->is_last)
        status =
            tsr__drafts_keep_features(r->g, r->rows, r->numbers + row, r->counts ? r->tokens : 1,
                                      r->counts, micro_batch * r->ahead, features);
    if (m->is_last)
        tsr_tensor_destroy(&features);
    tsr__stack_use_enabled(m->stack);
    return status;
}

/* Ranks record a pass without waiting for the sums of its layers. If one of these has failed, that
 * is why the rest has: its results have no meaning. */
static tsr_status run_forward(void *user, int micro_batch, const tsr_tensor *x, tsr_tensor **y)
{
    const run *r = user;
    tsr_group *group = r->g->model->group;
    tsr__group_defer_begin(group);
    const tsr_status status = forward(r, micro_batch, x, y);
    const tsr_status deferred = tsr__group_defer_end(group);
    if (status == TSR_OK && deferred != TSR_OK && !r->g->model->is_last)
        tsr_tensor_destroy(y);
    return deferred != TSR_OK ? deferred : status;
}

static tsr_status run_stages(run *r, int micro_batches)
{
    const tsr_model *m = r->g->model;
    if (m->is_first && m->is_last) { /* one stage needs no pipeline */
        for (int i = 0; i < micro_batches; i++)
            TSR__TRY(run_forward(r, i, NULL, NULL));
        return TSR_OK;
    }
    return tsr_pipeline_run(m->pipeline,
                            tsr_pipeline_run_params(.micro_batches = micro_batches,
                                                    .dtype = TSR_F32, .ndim = 3,
                                                    .shape = {r->rows, r->tokens, m->config->width},
                                                    .forward = run_forward, .user = r));
}

/* Gives logits of the last stage to all stages, if the caller wants them on every rank. */
static tsr_status share(const tsr_generator *g, float *logits, int64_t rows)
{
    if (g->params.logits_positions == 0 || rows == 0)
        return TSR_OK;
    return tsr__model_from_last(g->model, logits, (uint64_t)(rows * g->model->config->vocabulary),
                                TSR_F32);
}

static void show_last(const tsr_generator *g, int number)
{
    const tsr__sequence *s = &g->sequences[number];
    if (s->seen - 1 < g->params.logits_positions)
        g->params.logits(g->params.user, number, s->seen - 1, logits_of(g, number));
}

/* Returns how many of the `left` next tokens of a prompt context ranks divide in one pass, each as
 * many as a pass may have; 0: they compute the same tokens, because there are too few, or because
 * the caller wants logits of all of them. */
static int64_t divided_tokens(const tsr_generator *g, const tsr__sequence *s, int64_t left)
{
    const int64_t ranks = g->model->context_group ? tsr_group_size(g->model->context_group) : 1,
                  each = left / ranks;
    if (ranks == 1 || s->seen < g->params.logits_positions)
        return 0;
    return ranks * (each < g->params.prefill ? each : g->params.prefill);
}

/* Computes the next part of a prompt, up to token `end` at most. The logits after its last token
 * are needed if the part ends the prompt, or if the caller wants them. The caller may also want the
 * logits of a sequence's first positions, some of which may be in this part. */
static tsr_status prefill(tsr_generator *g, int number, int64_t end)
{
    tsr__sequence *s = &g->sequences[number];
    const int64_t left = end - s->seen, first = s->seen;
    const int64_t divided = divided_tokens(g, s, left), count = divided > 0 ? divided
                                                                : left < g->params.prefill
                                                                    ? left
                                                                    : g->params.prefill;
    const bool needed =
        first + count == s->length || first + count - 1 < g->params.logits_positions;
    int64_t shown = g->params.logits_positions - first;
    shown = shown < count - 1 ? shown : count - 1;
    shown = shown > 0 ? shown : 0;
    run r = {.g = g,
             .rows = 1,
             .tokens = count,
             .cached = &s->cache,
             .numbers = &number,
             .ids = s->tokens + first,
             .shown = shown,
             .divided = divided > 0,
             .logits = needed ? logits_of(g, number) : NULL};
    TSR__TRY(run_stages(&r, 1));
    s->seen += count;
    g->stats.prompt_tokens += (uint64_t)count;
    TSR__TRY(share(g, g->shown, shown));
    for (int64_t i = 0; i < shown; i++)
        g->params.logits(g->params.user, number, first + i,
                         g->shown + (size_t)i * (size_t)g->model->config->vocabulary);
    if (!needed)
        return TSR_OK;
    TSR__TRY(share(g, logits_of(g, number), 1));
    show_last(g, number);
    return TSR_OK;
}

/* How the remaining tokens of a prompt are divided: a pass of `first` tokens, unless `first` is 0,
 * and then `count` passes of `size` tokens each. */
typedef struct prompt_parts {
    int64_t first, size, count;
} prompt_parts;

/* Parts of a prompt follow each other through the stages, and the last part has left the last of S
 * stages after (parts + S − 1) times the time of a part on a stage. If the caller has not given the
 * size of a pass, there are PARTS_FOR_STAGE parts for each stage, unless they get too small for
 * efficient products. */
static prompt_parts divide_prompt(const tsr_generator *g, int64_t tokens)
{
    const int64_t wanted = (int64_t)g->model->stage_count * PARTS_FOR_STAGE;
    int64_t count = (tokens + g->params.prefill - 1) / g->params.prefill;
    if (!g->prefill_given && count < wanted && count < tokens / LEAST_PART)
        count = wanted < tokens / LEAST_PART ? wanted : tokens / LEAST_PART;
    const int64_t size = (tokens + count - 1) / count;
    return (prompt_parts){.first = tokens % size, .size = size, .count = tokens / size};
}

static tsr_status run_parts(tsr_generator *g, int number, int count, int64_t size, bool needed)
{
    tsr__sequence *s = &g->sequences[number];
    int cached[MAX_PARTS], numbers[MAX_PARTS];
    for (int i = 0; i < count; i++) {
        cached[i] = s->cache;
        numbers[i] = number;
    }
    run r = {.g = g,
             .rows = 1,
             .tokens = size,
             .cached = cached,
             .numbers = numbers,
             .ids = s->tokens + s->seen,
             .ahead = size,
             .first_with_logits = count - 1,
             .logits = needed ? logits_of(g, number) : NULL};
    TSR__TRY(run_stages(&r, count));
    s->seen += count * size;
    g->stats.prompt_tokens += (uint64_t)(count * size);
    return TSR_OK;
}

static int64_t most_parts(const tsr_generator *g)
{
    const int64_t parts = (int64_t)g->model->stage_count * PARTS_FOR_STAGE;
    return parts > USUAL_PARTS ? parts : USUAL_PARTS;
}

/* Computes the rest of a prompt up to token `end`, or the parts of it that one run takes, so that
 * all stages compute different parts at the same time. The caller must have got all logits that it
 * wants. */
static tsr_status prefill_stages(tsr_generator *g, int number, int64_t end)
{
    const tsr__sequence *s = &g->sequences[number];
    const prompt_parts parts = divide_prompt(g, end - s->seen);
    const int64_t most = most_parts(g);
    const int count = (int)(parts.count < most ? parts.count : most);
    /* If the prompt does not divide into equal parts, its first part is shorter and runs alone,
     * because run_parts takes parts of one size. It is not the last part, so its logits are not
     * needed, and no stage waits for it to pass all stages. */
    if (parts.first > 0)
        TSR__TRY(run_parts(g, number, 1, parts.first, false));
    return run_parts(g, number, count, parts.size, s->seen + count * parts.size == s->length);
}

static tsr_status prefill_some(tsr_generator *g, int number, int64_t end)
{
    return g->model->stage_count > 1 && g->sequences[number].seen >= g->params.logits_positions
               ? prefill_stages(g, number, end)
               : prefill(g, number, end);
}

/* Returns into how many micro-batches of the same size the sequences are divided, so that each
 * stage has one of them at a time. */
static int micro_batches_of(const tsr_generator *g, int count)
{
    int parts = g->model->stage_count;
    if (parts > count)
        return count;
    while (count % parts != 0)
        parts++;
    return parts;
}

/* Computes the logits of the last token of each of these sequences and of its drafts. */
static tsr_status decode_drafts(tsr_generator *g, int count, const int *numbers)
{
    const size_t vocabulary = (size_t)g->model->config->vocabulary;
    int cached[TSR_GENERATOR_MAX_SEQUENCES];
    int64_t tokens[TSR_GENERATOR_MAX_SEQUENCES];
    const uint64_t start = tsr__now_ns();
    int longest;
    TSR__TRY(tsr__drafts_propose(g, count, numbers, tokens, &longest));
    for (int i = 0; i < count; i++)
        cached[i] = g->sequences[numbers[i]].cache;
    run r = {.g = g,
             .rows = count,
             .tokens = longest + 1,
             .cached = cached,
             .numbers = tsr__drafts_numbers(g),
             .ids = tsr__drafts_ids(g),
             .counts = tokens,
             .logits = tsr__drafts_logits(g)};
    TSR__TRY(run_stages(&r, 1));
    TSR__TRY(share(g, r.logits, (int64_t)count * r.tokens));
    tsr__drafts_keep(g, count, numbers, longest, tsr__now_ns() - start);
    for (int i = 0; i < count; i++) {
        memcpy(logits_of(g, numbers[i]), tsr__drafts_first(g, numbers[i]),
               vocabulary * sizeof *g->logits);
        g->sequences[numbers[i]].seen++;
    }
    return TSR_OK;
}

/* Returns the first of these sequences that may get so many more tokens that kernels of drafts are
 * worth building; −1: none. */
static int find_long(const tsr_generator *g, int count, const int *numbers)
{
    for (int i = 0; i < count; i++)
        if (g->sequences[numbers[i]].limit - g->sequences[numbers[i]].length >= LEAST_WITH_DRAFTS)
            return numbers[i];
    return -1;
}

/* Builds the kernels of passes with drafts, so that it does not take place while tokens are being
 * generated. The sequence's prompt has been computed, because longer texts need other kernels. It
 * is as before afterwards. */
static tsr_status warm_up(tsr_generator *g, int number)
{
    const uint64_t start = tsr__now_ns();
    int count = 0;
    tsr_status status = TSR_OK;
    g->warm = true;
    if (!g->drafts)
        return TSR_OK;
    while (status == TSR_OK && (count = tsr__drafts_warm_up(g, number, count)) > 0) {
        const int64_t tokens = count + 1;
        run r = {.g = g,
                 .rows = 1,
                 .tokens = tokens,
                 .cached = &g->sequences[number].cache,
                 .numbers = tsr__drafts_numbers(g),
                 .ids = tsr__drafts_ids(g),
                 .counts = &tokens,
                 .logits = tsr__drafts_logits(g)};
        status = run_stages(&r, 1);
        tsr__generator_take_back(g, number, g->sequences[number].seen);
    }
    TSR__TRY(status);
    TSR__TRY(tsr__drafts_warm_up_model(g, number));
    const uint64_t ns = tsr__now_ns() - start;
    tsr__drafts_note_warm_up(g, ns);
    g->stats.prompt_ns += ns;
    return TSR_OK;
}

/* Lists those of `count` sequences of which only the last token is not in the cache: numbers[0 …
 * *rows − 1]. Of the others, numbers[*rows …], more tokens were taken back than was wanted, because
 * a state was not kept (states.c). */
static void move_behind(const tsr_generator *g, int count, int *numbers, int *rows)
{
    int behind[TSR_GENERATOR_MAX_SEQUENCES], others = 0;
    *rows = 0;
    for (int i = 0; i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        if (s->length - s->seen > 1)
            behind[others++] = numbers[i];
        else
            numbers[(*rows)++] = numbers[i];
    }
    memcpy(numbers + *rows, behind, (size_t)others * sizeof *behind);
}

/* Computes all tokens of these sequences that are not in the cache, and the logits that follow. */
static tsr_status compute_again(tsr_generator *g, int count, const int *numbers)
{
    for (int i = 0; i < count; i++) {
        tsr__sequence *s = &g->sequences[numbers[i]];
        while (s->seen < s->length)
            TSR__TRY(prefill_some(g, numbers[i], s->length));
        s->in_prompt = false;
    }
    return TSR_OK;
}

/* Gets the logits that follow the last token of each of these sequences, some of which may have
 * been computed with drafts. */
static tsr_status decode_with_drafts(tsr_generator *g, int count, const int *numbers)
{
    int left[TSR_GENERATOR_MAX_SEQUENCES], all = 0, rows = 0;
    for (int i = 0; i < count; i++)
        if (!tsr__drafts_take(g, numbers[i], logits_of(g, numbers[i])))
            left[all++] = numbers[i];
    move_behind(g, all, left, &rows);
    if (rows > 0)
        TSR__TRY(decode_drafts(g, rows, left));
    TSR__TRY(compute_again(g, all - rows, left + rows));
    for (int i = 0; i < count; i++)
        show_last(g, numbers[i]);
    g->stats.generated_tokens += (uint64_t)count;
    return TSR_OK;
}

/* Computes the logits that follow the last token of each of these sequences. */
static tsr_status decode(tsr_generator *g, int count, const int *numbers)
{
    const size_t vocabulary = (size_t)g->model->config->vocabulary;
    const int parts = micro_batches_of(g, count);
    int cached[TSR_GENERATOR_MAX_SEQUENCES];
    for (int i = 0; i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        cached[i] = s->cache;
        g->ids[i] = s->tokens[s->seen];
    }
    run r = {.g = g,
             .rows = count / parts,
             .tokens = 1,
             .cached = cached,
             .numbers = numbers,
             .ids = g->ids,
             .logits = g->logits};
    TSR__TRY(run_stages(&r, parts));
    TSR__TRY(share(g, g->logits, count));
    /* Row i belongs to sequence numbers[i] ≥ i. The last row is moved first, so that no row is
     * overwritten before it is moved. */
    for (int i = count - 1; i >= 0; i--)
        if (g->chosen[numbers[i]] == TSR__CHOSEN_NONE)
            memmove(logits_of(g, numbers[i]), g->logits + (size_t)i * vocabulary,
                    vocabulary * sizeof *g->logits);
    for (int i = 0; i < count; i++) {
        g->sequences[numbers[i]].seen++;
        show_last(g, numbers[i]);
    }
    g->stats.generated_tokens += (uint64_t)count;
    g->stats.plain_passes++;
    return TSR_OK;
}

/* Agreement ---------------------------------------------------------------------------------- */

/* Returns how many drafts the next pass has, as rank 0 of the last stage says; on the others 0. */
static int32_t own_wish(const tsr_generator *g)
{
    return g->warm && tsr__model_chooses(g->model) ? tsr__drafts_wish(g) : 0;
}

/* Replaces votes[0 … count + 1 + more] by the largest of all ranks, and sets *interrupted to
 * whether a rank was interrupted. votes[count + 1] must be own_wish. */
static tsr_status agree(tsr_generator *g, int count, int more, bool *interrupted)
{
    g->votes[count] = atomic_load(&g->interrupt);
    TSR__TRY(tsr__model_all_max(g->model, g->votes, (uint64_t)(count + 2 + more)));
    *interrupted = g->votes[count] != 0;
    tsr__drafts_set(g, g->votes[count + 1]);
    return TSR_OK;
}

/* Chooses the token of a sequence, on rank 0 of the last stage, unless it has been chosen. */
static tsr_status choose(tsr_generator *g, int number, int32_t *token)
{
    const tsr__sequence *s = &g->sequences[number];
    if (g->chosen[number] >= 0)
        *token = g->chosen[number];
    if (g->chosen[number] != TSR__CHOSEN_NONE || !tsr__model_chooses(g->model))
        return TSR_OK;
    const float *logits = logits_of(g, number);
    const int64_t vocabulary = g->model->config->vocabulary;
    bool stuck = false;
    tsr_status status =
        tsr__limit_changes(s) ? tsr__limit_logits(g, number, &logits, &stuck) : TSR_OK;
    if (status == TSR_OK && stuck)
        *token = (int32_t)vocabulary; /* tells the other ranks that there is no token */
    else if (status == TSR_OK)
        status =
            tsr__drafts_draw(g, number, tsr__drafts_next_row(g, number), s->length, logits, token);
    return status == TSR_OK ? TSR_OK
                            : tsr__fail_context(status, "generator: sequence %d, position %" PRId64,
                                                number, s->length);
}

static tsr_finish finish_of(const tsr_generator *g, const tsr__sequence *s, int32_t token)
{
    if (tsr__limit_ends(g, s, token))
        return TSR_FINISH_TOKEN;
    return s->length >= s->limit ? s->at_limit : TSR_FINISH_NONE;
}

/* Appends token `index` of this step to its sequence. */
static void append(tsr_generator *g, int index, int number)
{
    tsr__sequence *s = &g->sequences[number];
    tsr_generated *out = &g->generated[index];
    const int32_t token = g->votes[index];
    if (token == g->model->config->vocabulary) {
        s->finish = TSR_FINISH_STUCK;
        *out = (tsr_generated){
            .sequence = number, .token = -1, .position = s->length, .finish = TSR_FINISH_STUCK};
        return;
    }
    *out = (tsr_generated){
        .sequence = number,
        .token = token,
        .position = s->length,
        .log_probability = g->log_probabilities[index],
        .cached = s->cached,
        .top = s->top_log_probabilities > 0 ? g->top + (size_t)index * TSR_MAX_TOP_LOG_PROBABILITIES
                                            : NULL,
        .top_count = s->top_log_probabilities,
    };
    s->tokens[s->length++] = token;
    s->finish = finish_of(g, s, token);
    if (s->grammar && s->finish != TSR_FINISH_TOKEN) {
        const tsr_finish by_grammar = tsr__limit_read(s, token);
        s->finish = by_grammar != TSR_FINISH_NONE ? by_grammar : s->finish;
    }
    out->finish = s->finish;
}

/* Steps -------------------------------------------------------------------------------------- */

static void interrupt_all(tsr_generator *g, int count, const int *numbers, tsr_generated *out)
{
    for (int i = 0; i < count; i++) {
        tsr__sequence *s = &g->sequences[numbers[i]];
        s->finish = TSR_FINISH_INTERRUPT;
        out[i] = (tsr_generated){.sequence = numbers[i],
                                 .token = -1,
                                 .position = s->length,
                                 .finish = TSR_FINISH_INTERRUPT};
    }
    atomic_store(&g->interrupt, false);
}

static tsr_status prefill_all(tsr_generator *g, int count, const int *numbers, bool *interrupted)
{
    for (int i = 0; i < count && !*interrupted; i++) {
        tsr__sequence *s = &g->sequences[numbers[i]];
        while (s->seen < s->length && !*interrupted) {
            TSR__TRY(prefill_some(g, numbers[i], s->length));
            if (s->seen == s->length)
                break;
            g->votes[1] = own_wish(g);
            TSR__TRY(agree(g, 0, 0, interrupted));
        }
    }
    return TSR_OK;
}

/* Lists the sequences that have not ended: those with a prompt to compute, and those that only need
 * their next token. */
static void divide(const tsr_generator *g, int *running, int *all, int *prompts, int *first,
                   int *steps, int *next)
{
    for (int i = 0; i < g->count; i++) {
        const tsr__sequence *s = &g->sequences[i];
        if (!s->used || s->finish != TSR_FINISH_NONE)
            continue;
        all[(*running)++] = i;
        if (s->length - s->seen > 1 || s->seen == 0)
            first[(*prompts)++] = i;
        else
            next[(*steps)++] = i;
    }
}

/* Computes the next token of each of these sequences on the device, or, if it cannot choose them,
 * the logits from which the host does. `more` is as in tsr__flight_step. */
static tsr_status decode_or_choose(tsr_generator *g, int count, const int *numbers, bool more)
{
    int32_t tokens[TSR_GENERATOR_MAX_SEQUENCES];
    bool chosen = false;
    if (tsr__drafts_are_on(g, count, numbers)) {
        tsr__flight_discard(g);
        return decode_with_drafts(g, count, numbers);
    }
    TSR__TRY(tsr__flight_step(g, count, numbers, more, tokens, &chosen));
    if (!chosen) {
        int left[TSR_GENERATOR_MAX_SEQUENCES], rows = 0;
        memcpy(left, numbers, (size_t)count * sizeof *left);
        move_behind(g, count, left, &rows);
        if (rows > 0)
            TSR__TRY(decode(g, rows, left));
        return compute_again(g, count - rows, left + rows);
    }
    for (int i = 0; i < count; i++)
        g->chosen[numbers[i]] = tokens[i];
    g->stats.generated_tokens += (uint64_t)count;
    g->stats.plain_passes++;
    return TSR_OK;
}

/* Adds what the stream has counted since `before`. */
static void count_waits(tsr_generator *g, const tsr__stream_counts *before)
{
    const tsr__stream_counts now = tsr__stream_get_counts(g->model->stream);
    g->stats.generated_submissions += now.submissions - before->submissions;
    g->stats.generated_waits += now.waits - before->waits;
    g->stats.generated_idle_waits += now.idle_waits - before->idle_waits;
}

static tsr_status compute_tokens(tsr_generator *g, int count, const int *numbers, bool more)
{
    const uint64_t start = tsr__now_ns();
    const tsr__stream_counts before = tsr__stream_get_counts(g->model->stream);
    TSR__TRY(decode_or_choose(g, count, numbers, more));
    const uint64_t ns = tsr__now_ns() - start;
    g->stats.generated_ns += ns;
    g->step_ns = ns;
    g->step_tokens = count;
    count_waits(g, &before);
    return TSR_OK;
}

/* Computes the next tokens of all sequences, and all prompts. */
static tsr_status compute_all(tsr_generator *g, int prompts, const int *first, int steps,
                              const int *next, bool *interrupted)
{
    /* Decoding comes first, because it uses all rows of `logits`. */
    if (steps > 0)
        TSR__TRY(compute_tokens(g, steps, next, prompts == 0));
    if (prompts > 0) {
        tsr__flight_discard(g);
        (void)tsr__drafts_drop_all(g); /* the prompts may need their pages */
        const uint64_t start = tsr__now_ns();
        TSR__TRY(prefill_all(g, prompts, first, interrupted));
        g->stats.prompt_ns += tsr__now_ns() - start;
    }
    return TSR_OK;
}

static tsr_status compute_piece(tsr_generator *g, int number, int64_t end)
{
    while (g->sequences[number].seen < end)
        TSR__TRY(prefill_some(g, number, end));
    return TSR_OK;
}

/* Computes what the schedule says, and lists the sequences that get a token: numbers[*count]. */
static tsr_status compute_scheduled(tsr_generator *g, int *count, int *numbers)
{
    int next[TSR_GENERATOR_MAX_SEQUENCES], steps = 0;
    tsr__schedule_tokens(g, &steps, next);
    const bool prompts = tsr__schedule_has_prompts(g);
    if (steps > 0)
        TSR__TRY(compute_tokens(g, steps, next, !prompts));
    if (prompts) {
        tsr__flight_discard(g);
        const uint64_t start = tsr__now_ns();
        TSR__TRY(tsr__schedule_prompts(g, compute_piece));
        g->stats.prompt_ns += tsr__now_ns() - start;
    }
    *count = 0;
    for (int i = 0; i < g->count; i++) {
        const tsr__sequence *s = &g->sequences[i];
        if (s->used && s->finish == TSR_FINISH_NONE && s->seen == s->length)
            numbers[(*count)++] = i;
    }
    return TSR_OK;
}

/* Chooses the tokens of `count` sequences on rank 0 of the last stage, votes[count], with what
 * follows from them, and tells all ranks. */
static tsr_status choose_and_agree(tsr_generator *g, int count, const int *numbers,
                                   bool *interrupted)
{
    tsr_status own = TSR_OK;
    for (int i = 0; i < count; i++) {
        g->votes[i] = -1;
        if (own == TSR_OK)
            own = choose(g, numbers[i], &g->votes[i]);
    }
    if (!tsr__candidates_agree(g, count, numbers, interrupted)) {
        g->votes[count + 1] = own_wish(g);
        const int more = tsr__drafts_vote(g, count, numbers, g->votes, g->votes[count + 1],
                                          g->votes + count + 2, &own);
        for (int i = 0; i < count && own != TSR_OK; i++)
            g->votes[i] = -1; /* tells the other ranks */
        TSR__TRY(agree(g, count, more, interrupted));
    }
    TSR__TRY(own);
    if (*interrupted)
        return TSR_OK;
    for (int i = 0; i < count; i++)
        TSR__REQUIRE(g->votes[i] >= 0, "generator: rank 0 could not choose a token");
    tsr__drafts_note_votes(g, count, numbers, g->votes + count + 2);
    return TSR_OK;
}

/* Gives each of `count` sequences its token. */
static tsr_status choose_all(tsr_generator *g, int count, const int *numbers, bool *interrupted)
{
    if (tsr__drafts_all_ready(g, count, numbers))
        for (int i = 0; i < count; i++)
            g->votes[i] = g->chosen[numbers[i]];
    else
        TSR__TRY(choose_and_agree(g, count, numbers, interrupted));
    if (*interrupted)
        return TSR_OK;
    TSR__TRY(tsr__generator_find_probabilities(g, count, numbers));
    for (int i = 0; i < count; i++)
        append(g, i, numbers[i]);
    return TSR_OK;
}

/* Notes the time of this step's tokens, with that for choosing them and for finding drafts. */
static void measure(tsr_generator *g, uint64_t choosing_ns, bool prompts)
{
    if (g->drafts)
        tsr__drafts_measure(g, g->step_tokens, g->step_ns + (prompts ? 0 : choosing_ns));
}

/* Makes a step with sequences that have not ended: all[running]. */
static tsr_status step(tsr_generator *g, int running, const int *all, int prompts, const int *first,
                       int steps, const int *next)
{
    int some[TSR_GENERATOR_MAX_SEQUENCES], given = running;
    bool interrupted = false;
    const int *numbers = all;
    const uint64_t computed = g->stats.prompt_tokens;
    if (g->unchecked)
        TSR__TRY(tsr__generator_check_same(g));
    if (g->params.piece > 0) {
        numbers = some;
        TSR__TRY(compute_scheduled(g, &given, some));
    } else {
        TSR__TRY(compute_all(g, prompts, first, steps, next, &interrupted));
    }
    const bool counts = g->warm || g->step_tokens == 0;
    const int first_long = interrupted ? -1 : find_long(g, given, numbers);
    if (!g->warm && first_long >= 0)
        TSR__TRY(warm_up(g, first_long));
    const uint64_t start = tsr__now_ns();
    if (!interrupted)
        TSR__TRY(choose_all(g, given, numbers, &interrupted));
    if (counts)
        measure(g, tsr__now_ns() - start, g->stats.prompt_tokens > computed);
    g->step_tokens = 0;
    if (interrupted)
        interrupt_all(g, running, all, g->generated);
    g->generated_count = interrupted ? running : given;
    for (int i = 0; i < g->generated_count; i++)
        if (g->generated[i].finish != TSR_FINISH_NONE) {
            const int number = g->generated[i].sequence;
            tsr__flight_discard(g);
            tsr__drafts_forget(g, number, g->sequences[number].length);
            tsr__kv_cache_drop_kept(g->cache, g->sequences[number].cache);
        }
    return TSR_OK;
}

/* After a pass that may not have written all of its keys and values. What sequences go on with does
 * not continue a kept prefix. */
static void forget_prefixes(tsr_generator *g)
{
    tsr__drafts_forget_prefixes(g);
    if (!g->prefix)
        return;
    tsr__prefix_clear(g->prefix);
    for (int i = 0; i < g->count; i++) {
        g->sequences[i].block = TSR__PREFIX_NONE;
        g->sequences[i].whole = -1;
    }
}

tsr_status tsr_generator_step(tsr_generator *g, int *count)
{
    TSR__REQUIRE(g && count, "generator: %s is NULL", g ? "count" : "generator");
    int all[TSR_GENERATOR_MAX_SEQUENCES], first[TSR_GENERATOR_MAX_SEQUENCES],
        next[TSR_GENERATOR_MAX_SEQUENCES];
    int running = 0, prompts = 0, steps = 0;
    divide(g, &running, all, &prompts, first, &steps, next);
    for (int i = 0; i < g->count; i++)
        g->chosen[i] = TSR__CHOSEN_NONE;
    tsr__candidates_begin_step(g);
    if (running == 0) { /* an interrupt after the last token must not end the next sequence */
        atomic_store(&g->interrupt, false);
        *count = g->generated_count = 0;
        return TSR_OK;
    }
    const tsr_status status = step(g, running, all, prompts, first, steps, next);
    if (status != TSR_OK) {
        forget_prefixes(g);
        return status;
    }
    *count = g->generated_count;
    return TSR_OK;
}
