/* Tokens in flight: a pass is recorded before the tokens of the previous pass are read. The tokens
 * stay in device memory, where choose.comp writes them and the embedding of the next pass reads
 * them.
 *
 * A pass of one token per sequence is in flight from when it is recorded until a step takes its
 * tokens. The passes in flight have the sequences that the generator has at present. If these
 * change, because one ends, is added or removed, the passes that no step has asked for are
 * discarded: their tokens are taken back from the cache. The stream executes in order, so what is
 * recorded later overwrites what they still write. The passes that steps take therefore are those
 * that are computed without flight, with the same sequences in each. */
#include <string.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/error.h"
#include "gpu/internal.h"
#include "model/generate/generator.h"
#include "model/model.h"

/* With more sequences a pass takes so long that waiting for it costs little, and a sequence ends so
 * often that discarding passes would cost more. */
#define MOST_SEQUENCES 8
#define USUAL_AHEAD 2

typedef struct pass {
    uint64_t point;      /* where the stream has completed the pass */
    tsr_tensor *ids;     /* i32 [rows, 1]: the chosen tokens, for the next pass */
    tsr_tensor *results; /* i32 [rows]: the same, which the host reads */
} pass;

struct tsr__flight {
    int ahead; /* how many passes are recorded before a step takes the oldest one */
    int rows;
    int numbers[MOST_SEQUENCES]; /* [rows]: the sequences of the passes in flight */
    /* u32 [rows, words]: the tokens that each sequence has; NULL if none has a penalty */
    tsr_tensor *seen;
    int count;    /* passes in flight */
    pass *passes; /* [ahead + 1]: the first `count` of them are in flight, the oldest first */
};

/* Creating ----------------------------------------------------------------------------------- */

void tsr__flight_destroy(tsr__flight **flight)
{
    tsr__flight *f = *flight;
    if (!f)
        return;
    for (int i = 0; f->passes && i <= f->ahead; i++) {
        tsr_tensor_destroy(&f->passes[i].ids);
        tsr_tensor_destroy(&f->passes[i].results);
    }
    tsr_tensor_destroy(&f->seen);
    tsr__free(f->passes);
    tsr__free(f);
    *flight = NULL;
}

static int ahead_of(const tsr_generator *g)
{
    const bool is_cpu = tsr_device_get_info(g->model->device)->type == TSR_DEVICE_CPU;
    if (g->params.ahead != 0)
        return g->params.ahead > 0 ? g->params.ahead : 0;
    return is_cpu ? 0 : USUAL_AHEAD;
}

tsr_status tsr__flight_create(const tsr_generator *g, tsr__flight **out)
{
    const tsr_model *m = g->model;
    const int ahead = ahead_of(g);
    if (ahead == 0 || g->params.log_probabilities || !m->is_first || !m->is_last ||
        tsr_group_size(m->group) > 1)
        return TSR_OK;
    tsr__flight *f = tsr__calloc(1, sizeof *f);
    if (!f)
        return TSR_ERR_NO_MEMORY;
    f->ahead = ahead;
    f->passes = tsr__calloc((size_t)ahead + 1, sizeof *f->passes);
    tsr_status status = f->passes ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; i <= ahead && status == TSR_OK; i++)
        status = tsr_tensor_create_host(m->device, TSR_I32, 1, (int64_t[]){MOST_SEQUENCES},
                                        &f->passes[i].results);
    if (status != TSR_OK) {
        tsr__flight_destroy(&f);
        return status;
    }
    *out = f;
    return TSR_OK;
}

int tsr__flight_ahead(const tsr__flight *flight)
{
    return flight->ahead;
}

/* Recording ---------------------------------------------------------------------------------- */

/* Makes the first `words` of a row of `seen` say which tokens a sequence has. */
static void mark_seen(const tsr__sequence *s, uint32_t *words)
{
    for (int64_t i = 0; i < s->length; i++)
        words[s->tokens[i] / 32] |= UINT32_C(1) << (s->tokens[i] % 32);
}

/* Gives the device the tokens that the sequences have, if one of them has a repetition penalty. */
static tsr_status upload_seen(tsr_generator *g)
{
    tsr__flight *f = g->flight;
    const tsr_model *m = g->model;
    const int64_t words = (m->config->vocabulary + 31) / 32;
    bool needed = false;
    tsr_tensor_destroy(&f->seen);
    for (int i = 0; i < f->rows; i++) {
        const double penalty = g->sequences[f->numbers[i]].sampling.repetition_penalty;
        needed = needed || (penalty != 0 && penalty != 1);
    }
    if (!needed)
        return TSR_OK;
    uint32_t *bits = tsr__calloc((size_t)(f->rows * words), sizeof *bits);
    if (!bits)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < f->rows; i++)
        mark_seen(&g->sequences[f->numbers[i]], bits + i * words);
    tsr_status status =
        tsr_tensor_create(m->device, TSR_U32, 2, (int64_t[]){f->rows, words}, &f->seen);
    if (status == TSR_OK)
        status =
            tsr_tensor_upload(m->stream, f->seen, bits, (uint64_t)(f->rows * words) * sizeof *bits);
    tsr__free(bits);
    return status;
}

/* Gives the device the last token of each sequence, for the first pass. */
static tsr_status upload_ids(const tsr_generator *g, tsr_tensor **out)
{
    const tsr__flight *f = g->flight;
    int32_t ids[MOST_SEQUENCES];
    for (int i = 0; i < f->rows; i++) {
        const tsr__sequence *s = &g->sequences[f->numbers[i]];
        ids[i] = s->tokens[s->seen];
    }
    TSR__TRY(tsr_tensor_create(g->model->device, TSR_I32, 2, (int64_t[]){f->rows, 1}, out));
    return tsr_tensor_upload(g->model->stream, *out, ids, (uint64_t)f->rows * sizeof *ids);
}

/* Records the choice of the tokens that follow features [rows, 1, width]. */
static tsr_status record_choice(tsr_generator *g, const tsr_tensor *features, pass *next)
{
    tsr__flight *f = g->flight;
    struct tsr_choice_words choices[MOST_SEQUENCES];
    for (int i = 0; i < f->rows; i++) {
        const tsr__sequence *s = &g->sequences[f->numbers[i]];
        TSR__TRY(
            tsr__sampling_choice(&s->sampling, s->number, s->seen + f->count + 1, &choices[i]));
        choices[i].seen_row = (uint32_t)i;
    }
    return tsr__generator_record_choice(g->model, f->rows, features, choices, f->seen,
                                        next->results, &next->ids);
}

/* Records a pass, for which a step of the cache has begun. */
static tsr_status record_pass(tsr_generator *g, const tsr_tensor *ids, pass *next)
{
    tsr_stack *stack = g->model->stack;
    tsr_tensor *features = NULL;
    tsr_status status = tsr__generator_use_adapters(g, g->flight->rows, g->flight->numbers, 1);
    if (status == TSR_OK)
        status = tsr__stack_blocks_cached(stack, ids, g->cache, &features);
    tsr__stack_use_none(stack);
    if (status == TSR_OK)
        status = record_choice(g, features, next);
    if (status == TSR_OK)
        status = tsr__drafts_keep_features(g, g->flight->rows, g->flight->numbers, 1, NULL,
                                           g->flight->count, features);
    tsr_tensor_destroy(&features);
    tsr__stack_use_enabled(stack);
    if (status == TSR_OK)
        status = tsr_stream_mark(g->model->stream, &next->point);
    return status;
}

/* Takes the tokens from number `passes` of the passes in flight on back from the cache. */
static void truncate(tsr_generator *g, int passes)
{
    const tsr__flight *f = g->flight;
    for (int i = 0; i < f->rows; i++)
        tsr__generator_take_back(g, f->numbers[i], g->sequences[f->numbers[i]].seen + passes);
}

/* Records one more pass, and submits it. After an error the passes in flight and the cache are as
 * before. If only submitting failed, the commands may have been dropped, or run later: what they
 * write is overwritten then. */
static tsr_status add_pass(tsr_generator *g)
{
    tsr__flight *f = g->flight;
    int cached[MOST_SEQUENCES];
    int64_t tokens[MOST_SEQUENCES];
    tsr_tensor *uploaded = NULL;
    pass *next = &f->passes[f->count];
    tsr_tensor_destroy(&next->ids);
    for (int i = 0; i < f->rows; i++) {
        cached[i] = g->sequences[f->numbers[i]].cache;
        tokens[i] = 1;
    }
    if (f->count == 0) {
        TSR__TRY(upload_seen(g));
        const tsr_status status = upload_ids(g, &uploaded);
        if (status != TSR_OK) {
            tsr_tensor_destroy(&uploaded);
            return status;
        }
    }
    tsr_status status = tsr_kv_cache_begin(g->cache, f->rows, cached, tokens, NULL);
    if (status == TSR_OK) {
        status = record_pass(g, uploaded ? uploaded : f->passes[f->count - 1].ids, next);
        if (status == TSR_OK)
            status = tsr_stream_submit(g->model->stream);
        if (status != TSR_OK)
            truncate(g, f->count);
    }
    tsr_tensor_destroy(&uploaded);
    TSR__TRY(status);
    f->count++;
    return TSR_OK;
}

/* True if steps will ask for one more pass than are in flight, unless a token ends a sequence. */
static bool wants_pass(const tsr_generator *g)
{
    const tsr__flight *f = g->flight;
    for (int i = 0; i < f->rows; i++) {
        const tsr__sequence *s = &g->sequences[f->numbers[i]];
        if (s->seen + f->count + 1 >= s->limit)
            return false;
    }
    return true;
}

/* Taking ------------------------------------------------------------------------------------- */

void tsr__flight_discard(tsr_generator *g)
{
    if (!g->flight || g->flight->count == 0)
        return;
    truncate(g, 0);
    g->flight->count = 0;
}

/* True if the sequences are those of the passes in flight. */
static bool same_sequences(const tsr__flight *f, int count, const int *numbers)
{
    return f->rows == count && memcmp(f->numbers, numbers, (size_t)count * sizeof *numbers) == 0;
}

/* True if the tokens of these sequences can be chosen without their logits. */
static bool suits(const tsr_generator *g, int count, const int *numbers)
{
    if (!g->flight || count > MOST_SEQUENCES)
        return false;
    for (int i = 0; i < count; i++)
        if (tsr__limit_changes(&g->sequences[numbers[i]]) ||
            g->sequences[numbers[i]].seen < g->params.logits_positions ||
            tsr__generator_wants_probability(g, numbers[i]) ||
            tsr__sampling_adjusts(&g->sequences[numbers[i]].sampling))
            return false;
    return true;
}

/* Reads the tokens of the oldest pass, and removes it. *chosen is false if a row has no token; the
 * pass then stays. */
static tsr_status take_pass(tsr_generator *g, int32_t *tokens, bool *chosen)
{
    tsr__flight *f = g->flight;
    const pass oldest = f->passes[0];
    void *results;
    TSR__TRY(tsr_stream_wait_point(g->model->stream, oldest.point, UINT64_MAX));
    TSR__TRY(tsr_tensor_map(oldest.results, &results));
    memcpy(tokens, results, (size_t)f->rows * sizeof *tokens);
    for (int i = 0; i < f->rows; i++)
        if (tokens[i] < 0)
            return TSR_OK;
    memmove(f->passes, f->passes + 1, (size_t)f->ahead * sizeof *f->passes);
    f->passes[f->ahead] = oldest;
    f->count--;
    for (int i = 0; i < f->rows; i++)
        g->sequences[f->numbers[i]].seen++;
    *chosen = true;
    return TSR_OK;
}

/* Without the kernel, tokens are chosen on the host from now on. */
static tsr_status give_up(tsr_generator *g)
{
    tsr__log(TSR_LOG_WARNING, "generator: the host chooses the tokens: %s", tsr_last_error());
    tsr__flight_discard(g);
    tsr__flight_destroy(&g->flight);
    return TSR_OK;
}

tsr_status tsr__flight_step(tsr_generator *g, int count, const int *numbers, bool more,
                            int32_t *tokens, bool *chosen)
{
    tsr__flight *f = g->flight;
    *chosen = false;
    if (!suits(g, count, numbers)) {
        tsr__flight_discard(g);
        return TSR_OK;
    }
    if (f->count > 0 && !same_sequences(f, count, numbers))
        tsr__flight_discard(g);
    for (int i = 0; i < count && f->count == 0; i++)
        if (g->sequences[numbers[i]].length - g->sequences[numbers[i]].seen > 1)
            return TSR_OK; /* more was taken back than was discarded: see states.c */
    if (f->count == 0) {
        f->rows = count;
        memcpy(f->numbers, numbers, (size_t)count * sizeof *numbers);
        const tsr_status status = add_pass(g);
        if (status == TSR_ERR_UNSUPPORTED)
            return give_up(g);
        TSR__TRY(status);
    }
    /* Later passes are not needed yet. If one cannot be recorded, for example because the cache has
     * too few free pages, the step that needs it tries again and reports the error. */
    while (more && f->count <= f->ahead && wants_pass(g) && add_pass(g) == TSR_OK)
        continue;
    TSR__TRY(take_pass(g, tokens, chosen));
    /* The host finds out which token has the wrong logit. */
    if (!*chosen)
        tsr__flight_discard(g);
    return TSR_OK;
}
