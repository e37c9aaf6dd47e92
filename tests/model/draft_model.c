/* Tests drafts of a smaller model: texts are those without drafts, or have their distribution, with
 * the model on one rank or divided, when sequences wait, and with the prefix cache; and how often
 * ranks exchange something. */
#include <inttypes.h>
#include <math.h>

#include "comm/comm_state.h"
#include "model/generate/draft.h"
#include "model/open.h"
#include "parallel/spmd.h"

enum { SEQUENCES = 8, VOCABULARY = 96, CONTEXT = 512, SEED = 3, DRAFTS = 4, MOST_IDS = 400 };

/* Which ranks have the draft_model. */
typedef enum place { NOWHERE, ON_ONE, DIVIDED } place;

static tsr_model *model, *drafts_all, *drafts_one;
static tsr_group *alone;
static bool with_states; /* models have delta nets */

static flat_config config_of(int64_t vocabulary, int layers)
{
    return (flat_config){.architecture = "llama",
                         .layers = layers,
                         .width = 64,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 16,
                         .hidden = 64,
                         .vocabulary = vocabulary,
                         .context = CONTEXT,
                         .norm_epsilon = 1e-5,
                         .gated = true,
                         .activation = TSR_ACT_SILU,
                         .rope = {.rotary_dim = 16},
                         .bos = -1};
}

static void open_random(int64_t vocabulary, int layers, tsr_dtype dtype, tsr_group *of,
                        tsr_model **out)
{
    const flat_config config = config_of(vocabulary, layers);
    const tsr_model_params *params = tsr_model_params(.group = of, .dtype = dtype);
    OK(with_states ? open_delta(vocabulary, CONTEXT, SEED, params, out)
                   : create_random(&config, TSR_F32, SEED, params, out));
}

/* The draft_model has the same weights, rounded, so that some of its drafts are right. */
static void open_models(void)
{
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    open_random(VOCABULARY, 2, TSR_F32, group, &model);
    open_random(VOCABULARY, 2, TSR_Q8_0, group, &drafts_all);
    if (my_rank == 0)
        open_random(VOCABULARY, 2, TSR_Q8_0, alone, &drafts_one);
}

static void close_models(void)
{
    tsr_model_close(&drafts_one);
    tsr_model_close(&drafts_all);
    tsr_model_close(&model);
    tsr_group_destroy(&alone);
}

static tsr_generator *generator_of(place where, int sequences, bool rejects, int64_t piece,
                                   int64_t cache_tokens)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .sequences = sequences, .piece = piece, .prefill = 64,
                             .prefix_cache = piece > 0, .cache_tokens = cache_tokens,
                             .draft = where == NOWHERE ? TSR_DRAFT_NONE : TSR_DRAFT_MODEL,
                             .draft_tokens = DRAFTS, .rejection_sampling = rejects,
                             .draft_model = where == NOWHERE  ? NULL
                                            : where == ON_ONE ? drafts_one
                                                              : drafts_all),
        &generator));
    return generator;
}

/* All passes have the most drafts, whatever they cost. */
static void draft_always(tsr_generator *generator)
{
    tsr__drafts *drafts = generator->drafts;
    if (!drafts)
        return;
    drafts->trial = (tsr__draft_trial){.way = 1, .most = INT64_MAX};
    memset(drafts->passes, 0, sizeof drafts->passes);
}

static void add_text(tsr_generator *generator, int which, int64_t count, int64_t most,
                     const tsr_sampling_params *sampling)
{
    int32_t ids[MOST_IDS];
    int sequence;
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)((number(7 + (uint64_t)which % 2, i) + 1) / 2 * VOCABULARY);
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = count,
                                             .sampling = sampling, .number = (uint64_t)which,
                                             .max_tokens = most),
                         &sequence));
}

typedef struct texts {
    int count[SEQUENCES];
    int64_t found; /* tokens in the prefix cache of the draft_model */
    int32_t tokens[SEQUENCES][CONTEXT];
    double log_probabilities[SEQUENCES][CONTEXT];
    tsr_generator_stats stats;
    uint64_t collectives;
} texts;

static uint64_t collectives(void)
{
    return world ? tsr_group_comm(group)->sequence : 0;
}

/* Makes steps until all sequences have ended. */
static void finish(tsr_generator *generator, texts *out)
{
    tsr_generated some[SEQUENCES];
    const uint64_t before = collectives();
    memset(out, 0, sizeof *out);
    out->stats.struct_size = sizeof out->stats;
    for (;;) {
        int count;
        draft_always(generator);
        OK(step_tokens(generator, some, &count));
        OK(tsr_generator_get_stats(generator, &out->stats));
        for (int i = 0; i < count; i++) {
            const int at = some[i].sequence;
            out->tokens[at][out->count[at]++] = some[i].token;
        }
        if (out->stats.running == 0)
            break;
    }
    out->collectives = collectives() - before;
    out->found = generator->drafts ? generator->drafts->found_tokens : 0;
    tsr_generator_destroy(&generator);
}

static int compare(const texts *got, const texts *want, const char *how)
{
    int all = 0;
    for (int s = 0; s < SEQUENCES; s++) {
        CHECK(got->count[s] == want->count[s], "%s: sequence %d has %d tokens, not %d", how, s,
              got->count[s], want->count[s]);
        for (int i = 0; i < want->count[s]; i++)
            CHECK(got->tokens[s][i] == want->tokens[s][i],
                  "%s: token %d of sequence %d is %d, not %d", how, i, s, (int)got->tokens[s][i],
                  (int)want->tokens[s][i]);
        all += got->count[s];
    }
    return all;
}

static const char *const names[] = {"without", "on one rank", "divided"};

CASE(drafts_exact, "draft: tokens are the same with a model's drafts")
{
    static const tsr_sampling_params samplings[] = {
        {.temperature = 0.4, .top_k = 20, .top_p = 0.9, .seed = 4},
        {.temperature = 0.3, .presence_penalty = 0.1, .seed = 3}};
    static texts want, got;
    uint64_t right = 0, all = 0;
    int tokens = 0;
    open_models();
    for (int p = 0; p < 2; p++) {
        tsr_sampling_params sampling = samplings[p];
        sampling.struct_size = sizeof sampling;
        for (int where = NOWHERE; where <= (ranks > 1 ? DIVIDED : ON_ONE); where++) {
            if (ranks > 1 && where == (p == 0 ? DIVIDED : ON_ONE)) /* one place for each sampling */
                continue;
            tsr_generator *generator = generator_of((place)where, SEQUENCES, false, 0, 0);
            for (int s = 0; s < SEQUENCES; s++)
                add_text(generator, s, 1 + 3 * s, 24, &sampling);
            finish(generator, where == NOWHERE ? &want : &got);
            if (where == NOWHERE)
                continue;
            tokens += compare(&got, &want, names[where]);
            right += got.stats.accepted_tokens;
            all += got.stats.drafted_tokens;
        }
    }
    CHECK(tokens >= 2 * SEQUENCES * 20 && right > all / 8 && right < all,
          "%d tokens; %" PRIu64 " of %" PRIu64 " drafts were right", tokens, right, all);
    close_models();
}

/* The cache has room for few texts, so that some wait, and are computed again. */
static void compare_scheduled(int tokens)
{
    static texts want, got;
    for (int where = NOWHERE; where <= (ranks > 1 ? DIVIDED : ON_ONE); where++) {
        tsr_generator *generator = generator_of((place)where, SEQUENCES, false, 64, 512);
        for (int s = 0; s < SEQUENCES; s++)
            add_text(generator, s, 140 + s, tokens, tsr_sampling_params(.temperature = 0.4));
        finish(generator, where == NOWHERE ? &want : &got);
        if (where == NOWHERE)
            continue;
        compare(&got, &want, names[where]);
        CHECK(got.stats.preemptions > 0 && got.stats.cached_tokens > 0 &&
                  got.stats.accepted_tokens > 0,
              "%" PRIu64 " waited, %" PRIu64 " tokens found, %" PRIu64 " drafts right",
              got.stats.preemptions, got.stats.cached_tokens, got.stats.accepted_tokens);
        if (!with_states && (where == DIVIDED || my_rank == 0))
            CHECK(got.found > 0, "%s: the draft_model has found no tokens", names[where]);
    }
}

CASE(drafts_scheduled, "draft: texts that wait, and the prefix cache, with a model's drafts")
{
    open_models();
    compare_scheduled(12);
    close_models();
}

CASE(drafts_collectives, "draft: one set of collectives for each pass")
{
    static texts want, got;
    open_models();
    tsr_generator *generator = generator_of(NOWHERE, 1, false, 0, 0);
    add_text(generator, 0, 5, 101, NULL);
    finish(generator, &want);
    generator = generator_of(ON_ONE, 1, false, 0, 0);
    add_text(generator, 0, 5, 101, NULL);
    finish(generator, &got);
    compare(&got, &want, "one text");
    const uint64_t passes = got.stats.drafted_passes + got.stats.plain_passes;
    CHECK(want.stats.plain_passes == 100 && want.stats.drafted_passes == 0 && passes < 50 &&
              got.stats.accepted_tokens + passes == 100,
          "%" PRIu64 " passes without drafts, %" PRIu64 " with, %" PRIu64 " right",
          want.stats.plain_passes, passes, got.stats.accepted_tokens);
    /* Both have one comparison of params, and the prompt's pass. With drafts, one more exchange of
     * a pass tells what was chosen, and the next drafts; and passes with one, three and four drafts
     * were made to build their kernels. */
    const uint64_t each = (want.collectives - 1) / (100 + 1);
    CHECK(want.collectives == (ranks > 1 ? 1 + each * 101 : 0) &&
              got.collectives == (ranks > 1 ? 1 + (each + 1) * (passes + 1) + 3 * each : 0),
          "%" PRIu64 " collectives for 101 passes, %" PRIu64 " for %" PRIu64, want.collectives,
          got.collectives, passes + 1);
    close_models();
}

/* Texts that are too short for drafts do not build their kernels. */
static void check_short(void)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .draft = TSR_DRAFT_NGRAM),
                            &generator));
    for (int most = 7; most <= 8; most++) {
        tsr_generated some[SEQUENCES];
        int count;
        add_text(generator, 0, 40, most, NULL);
        do {
            draft_always(generator);
            OK(step_tokens(generator, some, &count));
        } while (some[0].finish == TSR_FINISH_NONE);
        OK(tsr_generator_remove(generator, 0));
        CHECK(generator->warm == (most == 8), "%d tokens: %d", most, generator->warm);
    }
    tsr_generator_destroy(&generator);
}

/* Ranks then exchange sums of weights, and one rank alone knows the token. */
CASE(drafts_off, "draft: texts of a temperature while there are no drafts")
{
    static texts want, got;
    open_models();
    for (int with = 0; with < 2; with++) {
        texts *out = with ? &got : &want;
        tsr_generator *generator = NULL;
        OK(tsr_generator_create(
            tsr_generator_params(.model = model, .draft = with ? TSR_DRAFT_NGRAM : TSR_DRAFT_NONE),
            &generator));
        if (with)
            generator->drafts->trial = (tsr__draft_trial){.most = INT64_MAX};
        add_text(generator, 0, 5, 100, tsr_sampling_params(.temperature = 1, .seed = 5));
        memset(out, 0, sizeof *out);
        out->stats.struct_size = sizeof out->stats;
        for (int count = 1; count > 0;) {
            tsr_generated some[SEQUENCES];
            OK(step_tokens(generator, some, &count));
            for (int i = 0; i < count; i++)
                out->tokens[0][out->count[0]++] = some[i].token;
        }
        OK(tsr_generator_get_stats(generator, &out->stats));
        tsr_generator_destroy(&generator);
    }
    compare(&got, &want, "off");
    CHECK(got.stats.drafted_passes <= 1 && got.count[0] == 100, "%" PRIu64 " passes with drafts",
          got.stats.drafted_passes);
    check_short();
    close_models();
}

CASE(drafts_continued, "draft: interrupted and continued texts with a model's drafts")
{
    tsr_generated some[SEQUENCES];
    int32_t tokens[3][80];
    static const int32_t more[] = {7, 8, 9};
    open_models();
    for (int where = NOWHERE; where <= (ranks > 1 ? DIVIDED : ON_ONE); where++) {
        tsr_generator *generator = generator_of((place)where, 1, false, 0, 0);
        int count, known = 0, given = 0;
        add_text(generator, 0, 9, 0, NULL);
        for (int i = 0; i < 20; i++) {
            draft_always(generator);
            OK(step_tokens(generator, some, &count));
        }
        if (my_rank == ranks - 1)
            tsr_generator_interrupt(generator);
        for (some[0].finish = TSR_FINISH_NONE; some[0].finish == TSR_FINISH_NONE; known++) {
            draft_always(generator);
            OK(step_tokens(generator, some, &count));
        }
        CHECK(some[0].finish == TSR_FINISH_INTERRUPT && some[0].token == -1 &&
                  known <= (ranks > 1 && where != NOWHERE ? 1 + DRAFTS : 1),
              "%s: ended by %s after %d steps", names[where], tsr_finish_name(some[0].finish),
              known);
        /* Goes on from where a text without drafts was interrupted. */
        OK(tsr_generator_remove(generator, 0));
        add_text(generator, 0, 9, 20, NULL);
        do {
            draft_always(generator);
            OK(step_tokens(generator, some, &count));
        } while (some[0].finish == TSR_FINISH_NONE);
        OK(tsr_generator_continue(generator, 0, 3, more, 60));
        do {
            draft_always(generator);
            OK(step_tokens(generator, some, &count));
            tokens[where][given++] = some[0].token;
        } while (some[0].finish == TSR_FINISH_NONE);
        CHECK(given == 60 && memcmp(tokens[where], tokens[NOWHERE], 60 * sizeof more[0]) == 0,
              "%s: other tokens", names[where]);
        tsr_generator_destroy(&generator);
    }
    close_models();
}

/* Makes steps until the only sequence ends, and adds its tokens to tokens[*count]. */
static void go_on(tsr_generator *generator, int32_t *tokens, int *count)
{
    tsr_generated some[SEQUENCES];
    int given;
    do {
        draft_always(generator);
        OK(step_tokens(generator, some, &given));
        if (some[0].token >= 0)
            tokens[(*count)++] = some[0].token;
    } while (some[0].finish == TSR_FINISH_NONE);
}

/* An interrupt takes drafts, and tokens that were chosen ahead, from caches with states. The text
 * then goes on as one that begins with the same tokens. */
CASE(drafts_states, "draft: a draft_model with states, and an interrupt that takes drafts back")
{
    static const int32_t more[] = {7, 8, 9};
    with_states = true;
    open_models();
    if (ranks == 1)
        compare_scheduled(9);
    const int where = ranks > 1 ? DIVIDED : ON_ONE;
    int32_t tokens[CONTEXT], fresh[CONTEXT];
    int count = 9, again = 0, sequence;
    for (int i = 0; i < count; i++)
        tokens[i] = (int32_t)((number(7, i) + 1) / 2 * VOCABULARY);
    tsr_generator *generator = generator_of((place)where, 1, false, 0, 0);
    add_text(generator, 0, count, 0, NULL);
    while (count < 16 || generator->drafts->of[0].next == 0) { /* drafts are in the cache */
        tsr_generated some[SEQUENCES];
        int given;
        draft_always(generator);
        OK(step_tokens(generator, some, &given));
        tokens[count++] = some[0].token;
        CHECK(count < CONTEXT / 2, "no drafts");
    }
    if (my_rank == ranks - 1)
        tsr_generator_interrupt(generator);
    go_on(generator, tokens, &count);
    OK(tsr_generator_continue(generator, 0, 3, more, 30));
    memcpy(tokens + count, more, sizeof more);
    count += 3;
    const int before = count;
    go_on(generator, tokens, &count);
    tsr_generator_destroy(&generator);
    generator = generator_of(NOWHERE, 1, false, 0, 0);
    OK(tsr_generator_add(
        generator, tsr_sequence_params(.prompt = tokens, .prompt_count = before, .max_tokens = 30),
        &sequence));
    go_on(generator, fresh, &again);
    tsr_generator_destroy(&generator);
    CHECK(again == 30 && count == before + 30 &&
              memcmp(fresh, tokens + before, 30 * sizeof *fresh) == 0,
          "%s: other tokens after an interrupt", names[where]);
    close_models();
    with_states = false;
}

/* Whether there are drafts ----------------------------------------------------------------------
 */

/* Notes `steps` steps, which take 1 ms without drafts, and with drafts drafted_ms for `tokens`
 * tokens. Returns the time of a token. */
static double pace(tsr_generator *generator, int steps, double drafted_ms, int tokens)
{
    double ms = 0, all = 0;
    bool drafted = generator->drafts->length > 0;
    for (int i = 0; i < steps; i++) {
        const double took = drafted ? drafted_ms : 1;
        const int32_t length = tsr__drafts_wish(generator);
        tsr__drafts_measure(generator, drafted ? tokens : 1, (uint64_t)(took * 1e6));
        tsr__drafts_set(generator, length);
        ms += took;
        all += drafted ? tokens : 1;
        drafted = length > 0;
    }
    return ms / all;
}

CASE(drafts_paced, "draft: useless drafts lose 3 % in 2,000 tokens, and good ones are used")
{
    open_models();
    for (int kind = 0; kind < 2 && my_rank == 0; kind++) {
        tsr_generator *generator = NULL;
        OK(tsr_generator_create(
            tsr_generator_params(.model = model, .draft = kind ? TSR_DRAFT_MODEL : TSR_DRAFT_NGRAM,
                                 .draft_model = kind ? drafts_one : NULL),
            &generator));
        const double useless = pace(generator, 2000, 6, 1),
                     slightly = pace(generator, 20000, 1.2, 1),
                     good = pace(generator, 20000, 1.5, 3), bad = pace(generator, 2000, 1.5, 1);
        CHECK(useless <= 1 / 0.97 && slightly <= 1 / 0.97 && good < 0.55 && bad < 1.3,
              "%d: %g, %g, %g and %g ms for a token", kind, useless, slightly, good, bad);
        tsr_generator_destroy(&generator);
        OK(tsr_generator_create(
            tsr_generator_params(.model = model, .draft = kind ? TSR_DRAFT_MODEL : TSR_DRAFT_NGRAM,
                                 .draft_model = kind ? drafts_one : NULL),
            &generator));
        const double first = pace(generator, 200, 1.5, 3);
        CHECK(first < 0.53, "%d: %g ms for a token", kind, first);
        tsr_generator_destroy(&generator);
    }
    close_models();
}

/* Rejection sampling -------------------------------------------------------------------------- */

enum { CLASSES = 6 };

/* How often the r-th most likely token was chosen, and how often it should have been. */
static struct counts {
    float logits[SEQUENCES][VOCABULARY];
    double got[CLASSES], want[CLASSES], variance[CLASSES];
} counts;

static void keep_logits(void *user, int sequence, int64_t position, const float *logits)
{
    (void)user;
    (void)position;
    memcpy(counts.logits[sequence], logits, sizeof counts.logits[sequence]);
}

static void count_token(const tsr_sampling_params *sampling, int sequence, int32_t token)
{
    double p[VOCABULARY];
    OK(tsr__sampling_probabilities(sampling, VOCABULARY, counts.logits[sequence], 0, NULL, p));
    int class = 0;
    for (int i = 0; i < VOCABULARY; i++)
        class += p[i] > p[token];
    counts.got[class < CLASSES ? class : CLASSES - 1]++;
    for (int c = 0; c < CLASSES; c++) {
        double sum = 0;
        for (int i = 0; i < VOCABULARY; i++) {
            int before = 0;
            for (int j = 0; j < VOCABULARY; j++)
                before += p[j] > p[i];
            sum += before == c || (c == CLASSES - 1 && before > c) ? p[i] : 0;
        }
        counts.want[c] += sum;
        counts.variance[c] += sum * (1 - sum);
    }
}

CASE(drafts_rejected, "draft: rejection sampling chooses tokens with the model's probabilities")
{
    const tsr_sampling_params *sampling =
        tsr_sampling_params(.temperature = 1.1, .top_p = 0.95, .seed = 17);
    open_models();
    for (int where = ON_ONE; where <= (ranks > 1 ? DIVIDED : ON_ONE); where++) {
        tsr_generator *generator = NULL;
        tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
        tsr_generated some[SEQUENCES];
        int count = 1, tokens = 0;
        double distance = 0;
        memset(&counts, 0, sizeof counts);
        OK(tsr_generator_create(
            tsr_generator_params(.model = model, .sequences = SEQUENCES, .logits = keep_logits,
                                 .logits_positions = CONTEXT, .draft = TSR_DRAFT_MODEL,
                                 .draft_model = where == ON_ONE ? drafts_one : drafts_all,
                                 .draft_tokens = DRAFTS, .rejection_sampling = true),
            &generator));
        for (int s = 0; s < SEQUENCES; s++)
            add_text(generator, s, 4, 60, sampling);
        while (count > 0) {
            draft_always(generator);
            OK(step_tokens(generator, some, &count));
            for (int i = 0; i < count; i++, tokens++)
                count_token(sampling, some[i].sequence, some[i].token);
        }
        OK(tsr_generator_get_stats(generator, &stats));
        for (int c = 0; c < CLASSES; c++)
            distance += pow(counts.got[c] - counts.want[c], 2) / counts.variance[c];
        /* beyond 27, one of 10,000 samples of a right distribution would be */
        CHECK(distance < 27 && stats.accepted_tokens * 5 > stats.drafted_tokens,
              "%s: %d tokens, %" PRIu64 " of %" PRIu64 " accepted, chi-squared %g; most likely "
              "%g, not %g",
              names[where], tokens, stats.accepted_tokens, stats.drafted_tokens, distance,
              counts.got[0], counts.want[0]);
        tsr_generator_destroy(&generator);
    }
    close_models();
}

/* Errors -------------------------------------------------------------------------------------- */

#define REFUSED(text, ...)                                                                         \
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, __VA_ARGS__), &generator),     \
          TSR_ERR_INVALID, text)

CASE(drafts_refused, "draft: wrong models")
{
    tsr_generator *generator = NULL;
    tsr_model *other = NULL;
    char text[256];
    open_models();
    open_random(VOCABULARY + 8, 1, TSR_F32, group, &other);
    REFUSED("generator: draft_model needs draft TSR_DRAFT_MODEL, but draft is 0",
            .draft_model = drafts_all);
    REFUSED("generator: rejection_sampling needs draft TSR_DRAFT_MODEL or TSR_DRAFT_MTP, but draft "
            "is 1",
            .draft = TSR_DRAFT_NGRAM, .rejection_sampling = true);
    REFUSED("generator: draft is TSR_DRAFT_MTP, but the model was opened without next_token",
            .draft = TSR_DRAFT_MTP);
    REFUSED("generator: the vocabulary of draft_model has 104 tokens, that of the model 96",
            .draft = TSR_DRAFT_MODEL, .draft_model = other);
    if (my_rank == 0)
        REFUSED("generator: draft_model is NULL on rank 0 of the last stage",
                .draft = TSR_DRAFT_MODEL);
    tsr_model_close(&other);
    if (my_rank == 1) {
        open_random(VOCABULARY, 1, TSR_F32, alone, &other);
        REFUSED("generator: draft_model is not divided, but this is rank 1 of stage 0; only rank 0 "
                "of the last stage can have it",
                .draft = TSR_DRAFT_MODEL, .draft_model = other);
        tsr_model_close(&other);
    }
    if (ranks == 2) {
        const flat_config config = config_of(VOCABULARY, 2);
        tsr_model *whole = model;
        OK(create_random(&config, TSR_F32, SEED, tsr_model_params(.group = alone, .stages = world),
                         &other));
        if (my_rank == 0)
            REFUSED("generator: draft_model has 2 stages; only 1 is possible",
                    .draft = TSR_DRAFT_MODEL, .draft_model = other);
        model = other;
        snprintf(text, sizeof text,
                 "generator: draft_model has rank %d of 2, but the model rank 0 of 1 in 2 stages; "
                 "rank 0 alone, or all ranks of a model without stages can have it",
                 my_rank);
        REFUSED(text, .draft = TSR_DRAFT_MODEL, .draft_model = drafts_all);
        model = whole;
        tsr_model_close(&other);
    }
    close_models();
}
