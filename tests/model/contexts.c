/* Compares models whose prompts and cache context ranks divide with the model of one process. */
#include "gpu/stream/profile.h"
#include "model/made.h"
#include "model/open.h"
#include "parallel/spmd.h"

/* 5 layers, 8 heads and 4 kv heads */
#define STORIES TEST_DATA "/model/stories260K-f32.gguf"

enum { SEED = 5, SEQUENCES = 3, TOKENS = 3, TOP = 8, SHOWN = 6, LONGEST = 170, VOCABULARY = 512 };

/* This rank's place in the job, which has `contexts` groups of ranks that divide the model. */
typedef struct place {
    tsr_comm *row, *column;
    tsr_group *group, *contexts, *alone;
} place;

static void place_init(int contexts, place *p)
{
    const int each = ranks / contexts;
    *p = (place){0};
    OK(tsr_comm_split(world, my_rank / each, my_rank, &p->row));
    OK(tsr_comm_split(world, my_rank % each, my_rank, &p->column));
    OK(tsr_group_create(p->row, queue, NULL, &p->group));
    OK(tsr_group_create(p->column, queue, NULL, &p->contexts));
    OK(tsr_group_create(NULL, queue, NULL, &p->alone));
}

static void place_finish(place *p)
{
    tsr_group_destroy(&p->contexts);
    tsr_group_destroy(&p->group);
    tsr_group_destroy(&p->alone);
    tsr_comm_destroy(&p->row);
    tsr_comm_destroy(&p->column);
}

/* What sequences have generated, and logits of the first positions. */
typedef struct texts {
    int32_t tokens[SEQUENCES][TOKENS];
    double top[SEQUENCES][TOKENS][TOP]; /* log-probabilities of the most likely tokens */
    int count[SEQUENCES], logits_count;
    float logits[SHOWN][VOCABULARY];
    int64_t vocabulary;
    uint64_t cached;
    uint64_t by_matrices; /* dispatches of attention on matrix units */
} texts;

static void add_logits(void *user, int sequence, int64_t position, const float *logits)
{
    texts *t = user;
    (void)sequence;
    t->logits_count++;
    memcpy(t->logits[position], logits, (size_t)t->vocabulary * sizeof *logits);
}

/* How prompts are computed. */
typedef struct manner {
    const int *lengths; /* [count] */
    int count, shown;
    int64_t prefill, piece;
    tsr_dtype cache; /* 0: f32 */
} manner;

static uint64_t attention_by_matrices(const tsr__profile *profile)
{
    uint64_t commands = 0;
    for (int i = 0; i < profile->kernel_count; i++)
        if (profile->kernels[i].matrix_units && strstr(profile->kernels[i].name, "attention"))
            commands += profile->kernels[i].commands;
    return commands;
}

static void run(tsr_model *model, const manner *by, texts *out)
{
    static tsr__profile profile;
    tsr_generator *generator = NULL;
    tsr_generated tokens[SEQUENCES];
    int count = 1, sequence;
    memset(out, 0, sizeof *out);
    out->vocabulary = tsr_model_get_config(model)->vocabulary;
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .sequences = by->count,
                             .context = LONGEST + TOKENS < tsr_model_get_config(model)->context
                                            ? LONGEST + TOKENS
                                            : 0,
                             .prefill = by->prefill, .piece = by->piece,
                             .cache_dtype = by->cache > 0 ? by->cache : TSR_F32,
                             .prefix_cache = by->piece > 0, .log_probabilities = true,
                             .logits = by->shown > 0 ? add_logits : NULL, .user = out,
                             .logits_positions = by->shown),
        &generator));
    for (int s = 0; s < by->count; s++) {
        int32_t ids[LONGEST];
        for (int i = 0; i < by->lengths[s]; i++)
            ids[i] = (i * 7 + i / 11 * 3) % (int)out->vocabulary;
        OK(tsr_generator_add(
            generator,
            tsr_sequence_params(.prompt = ids, .prompt_count = by->lengths[s],
                                .number = (uint64_t)s, .log_probabilities = true,
                                .top_log_probabilities = TOP,
                                .sampling =
                                    tsr_sampling_params(.temperature = s % 2 ? 1 : 0, .seed = 9),
                                .max_tokens = TOKENS, .ignore_end = true),
            &sequence));
    }
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    OK(tsr__stream_profile_begin(queue));
    for (stats.running = 1; stats.running > 0;) {
        OK(step_tokens(generator, tokens, &count));
        OK(tsr_generator_get_stats(generator, &stats));
        for (int i = 0; i < count; i++) {
            const int s = tokens[i].sequence, at = out->count[s]++;
            out->tokens[s][at] = tokens[i].token;
            for (int k = 0; k < TOP; k++)
                out->top[s][at][k] = tokens[i].top[k].log_probability;
        }
    }
    OK(tsr__stream_profile_end(queue, &profile));
    out->by_matrices = attention_by_matrices(&profile);
    out->cached = stats.cached_tokens;
    tsr_generator_destroy(&generator);
}

static void compare(const texts *got, const texts *want, const manner *by, double bound)
{
    CHECK(got->logits_count == want->logits_count && got->cached == want->cached,
          "%d logits, not %d; %llu tokens of the prefix cache, not %llu", got->logits_count,
          want->logits_count, (unsigned long long)got->cached, (unsigned long long)want->cached);
    for (int p = 0; p < SHOWN; p++)
        for (int64_t i = 0; i < got->vocabulary; i++)
            CHECK(fabs((double)got->logits[p][i] - (double)want->logits[p][i]) <= bound,
                  "position %d, token %d: %g, not %g", p, (int)i, (double)got->logits[p][i],
                  (double)want->logits[p][i]);
    for (int s = 0; s < by->count; s++) {
        CHECK(got->count[s] == TOKENS && want->count[s] == TOKENS, "sequence %d has %d tokens", s,
              got->count[s]);
        for (int i = 0; i < got->count[s]; i++) {
            CHECK(got->tokens[s][i] == want->tokens[s][i],
                  "prompt of %d tokens, token %d: %d, not %d", by->lengths[s], i,
                  (int)got->tokens[s][i], (int)want->tokens[s][i]);
            for (int k = 0; k < TOP; k++)
                CHECK(fabs(got->top[s][i][k] - want->top[s][i][k]) <= bound,
                      "prompt of %d tokens, token %d, place %d: %g, not %g", by->lengths[s], i, k,
                      got->top[s][i][k], want->top[s][i][k]);
        }
    }
}

/* For each manner, another rank computes what one process gives; each compares it with its own.
 * Matrix units compute attention with queries, probabilities and results of 16 bits, which both
 * round in another order. */
static void compare_model(const char *path, const place *p, const manner *by, int count)
{
    static texts got, want;
    tsr_model *whole = NULL, *divided = NULL;
    OK(open_model(path, tsr_model_params(.group = p->alone), &whole));
    OK(open_model(path, tsr_model_params(.group = p->group, .context_group = p->contexts),
                  &divided));
    for (int i = 0; i < count; i++) {
        run(divided, &by[i], &got);
        if (i % ranks == my_rank)
            run(whole, &by[i], &want);
        OK(tsr_comm_broadcast(world, &want, sizeof want, TSR_U8, i % ranks, NULL));
        compare(&got, &want, &by[i],
                want.by_matrices > 0     ? 1e-3
                : by[i].cache == TSR_F16 ? 2e-4
                                         : 5e-5);
        if (by[i].cache == TSR_F16 && tsr_group_size(p->contexts) == 2)
            CHECK(got.by_matrices * 4 == want.by_matrices * 3,
                  "%d dispatches of attention on matrix units, and %d of one process",
                  (int)got.by_matrices, (int)want.by_matrices);
    }
    tsr_model_close(&whole);
    tsr_model_close(&divided);
}

/* Prompts shorter than the ranks, of several passes and of several pages of each rank; alone and
 * together; in pieces that a prefix cache keeps; with logits of all positions. With a cache of 16
 * bits, where one process computes four passes on matrix units, each of two context ranks computes
 * two, the second of which also has keys from before. */
CASE(same, "contexts: the tokens and logits of one process")
{
    static const int one[] = {1}, few[] = {2, 3, 7}, many[] = {LONGEST}, shown[] = {SHOWN - 1},
                     alike[] = {100, 100, 1}, mixed[] = {2, 3, LONGEST};
    static const manner manners[] = {
        {one, 1, .prefill = 5},
        {few, SEQUENCES, .prefill = 3},
        {many, 1, .prefill = 37},
        {shown, 1, SHOWN, .prefill = 16},
        {alike, SEQUENCES, .prefill = 32, .piece = 64},
        {mixed, SEQUENCES, .prefill = 42, .cache = TSR_F16},
    };
    if (ranks < 2) {
        case_skip("%d ranks", ranks);
        return;
    }
    for (int contexts = 2; contexts <= ranks; contexts++) {
        place p;
        if (ranks % contexts != 0)
            continue;
        place_init(contexts, &p);
        compare_model(STORIES, &p, manners, (int)(sizeof manners / sizeof *manners));
        place_finish(&p);
    }
}

/* Families with biases, and with learned positions. */
CASE(families, "contexts: learned positions and biases")
{
    static const int lengths[] = {30, 9};
    static const manner by = {lengths, 2, .prefill = 7};
    const int families[] = {1, 5};
    if (ranks < 2) {
        case_skip("%d ranks", ranks);
        return;
    }
    place p;
    place_init(ranks, &p);
    for (int f = 0; f < 2; f++) {
        made_model made;
        made_init(&made, &made_families[families[f]], SEED);
        compare_model(made_write_hf(&made), &p, &by, 1);
        made_finish(&made);
    }
    place_finish(&p);
}

/* All ranks refuse alike. */
CASE(refused, "contexts: what they cannot divide")
{
    tsr_model *model = NULL;
    tsr_generator *generator = NULL;
    char text[128];
    made_model made;
    place p;
    if (ranks < 2) {
        case_skip("%d ranks", ranks);
        return;
    }
    place_init(ranks, &p);
    const tsr_model_params *params =
        tsr_model_params(.group = p.group, .context_group = p.contexts);
    made_init(&made, &made_families[2], SEED);
    OK(open_model(made_write_hf(&made), params, &model));
    snprintf(text, sizeof text,
             "generator: %d context ranks cannot divide the cache of layers with attention windows",
             ranks);
    FAILS(tsr_generator_create(tsr_generator_params(.model = model), &generator),
          TSR_ERR_UNSUPPORTED, text);
    tsr_model_close(&model);
    made_finish(&made);
    OK(open_model(STORIES, params, &model));
    snprintf(text, sizeof text,
             "generator: draft is 1, but the model has %d context ranks, which have no drafts",
             ranks);
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .draft = TSR_DRAFT_NGRAM),
                               &generator),
          TSR_ERR_INVALID, text);
    snprintf(text, sizeof text,
             "generator: %d context ranks cannot divide a cache of q8_0; f32, f16 and bf16 are "
             "possible",
             ranks);
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .cache_dtype = TSR_Q8_0),
                               &generator),
          TSR_ERR_INVALID, text);
    tsr_model_close(&model);
    place_finish(&p);
}
