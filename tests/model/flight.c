/* Tests passes in flight, and drafts: texts, ends and the cache are those of generators that wait
 * for each token, and the host does not wait while the device has nothing to do. With several ranks
 * nothing is in flight, which shows that the parameter is accepted. */
#include <math.h>

#include "base/fault.h"
#include "gpu/internal.h"
#include "model/generate/draft.h"
#include "model/made.h"
#include "model/open.h"
#include "parallel/spmd.h"

enum { SEQUENCES = 3, MOST = 40, SEED = 5, STEPS = 60 };

static made_model made;
static tsr_model *model;

static void open_family(int family)
{
    made_init(&made, &made_families[family], SEED);
    OK(open_model(made_write_hf(&made), NULL, &model));
}

static void close_family(void)
{
    tsr_model_close(&model);
    made_finish(&made);
}

static int draft_tokens; /* of the generators; 0: no drafts */
static tsr_generator_stats drafted;
static bool compares_drafts; /* texts are compared with those of drafts */

static tsr_generator *generator_of(int sequences, int64_t cache_tokens, int ahead)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .sequences = sequences, .prefill = 4,
                             .cache_tokens = cache_tokens, .ahead = ahead,
                             .draft = draft_tokens > 0 ? TSR_DRAFT_NGRAM : TSR_DRAFT_NONE,
                             .draft_tokens = draft_tokens),
        &generator));
    if (draft_tokens > 0) /* there are drafts, whatever they cost */
        generator->drafts->trial = (tsr__draft_trial){.way = 1, .most = INT64_MAX};
    return generator;
}

static int add_sequence(tsr_generator *generator, int which, const tsr_sampling_params *sampling,
                        int64_t most, int32_t stop)
{
    int32_t ids[MOST];
    int sequence;
    const int64_t count = 1 + 5 * which;
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)((number(100 + (uint64_t)which, i) + 1) / 2 * MADE_VOCABULARY);
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = count,
                                             .sampling = sampling, .number = (uint64_t)which,
                                             .max_tokens = most, .stop = &stop,
                                             .stop_count = stop >= 0),
                         &sequence));
    return sequence;
}

/* What a generator has given, and the lengths of its sequences in the cache after each step. */
typedef struct story {
    int count;
    tsr_generated tokens[STEPS * SEQUENCES];
    int lengths; /* a hash */
} story;

static void note(tsr_generator *generator, story *s)
{
    int count;
    tsr_generated tokens[SEQUENCES];
    OK(step_tokens(generator, tokens, &count));
    CHECK(s->count + count <= STEPS * SEQUENCES, "%d tokens", s->count + count);
    memcpy(s->tokens + s->count, tokens, (size_t)count * sizeof *tokens);
    s->count += count;
    /* A sequence that goes on may have tokens of later steps in the cache. */
    for (int i = 0; i < count; i++)
        if (tokens[i].finish != TSR_FINISH_NONE)
            s->lengths = 31 * s->lengths +
                         (int)tsr_kv_cache_length(generator->cache,
                                                  generator->sequences[tokens[i].sequence].cache);
}

/* Sequences are added, end, are continued, removed and interrupted while others go on. */
static void tell(int ahead, const tsr_sampling_params *sampling, int32_t stop, story *s)
{
    static const int32_t more[] = {7, 8, 9};
    tsr_generator *generator = generator_of(SEQUENCES, 0, ahead);
    *s = (story){0};
    add_sequence(generator, 0, sampling, 9, -1);
    for (int i = 0; i < 4; i++)
        note(generator, s);
    add_sequence(generator, 2, sampling, 20, -1);
    for (int i = 0; i < 3; i++)
        note(generator, s);
    add_sequence(generator, 1, sampling, 30, stop); /* ends somewhere */
    for (int i = 0; i < 6; i++)
        note(generator, s);
    OK(tsr_generator_continue(generator, 0, 3, more, 11));
    for (int i = 0; i < 4; i++)
        note(generator, s);
    OK(tsr_generator_remove(generator, 1));
    for (int i = 0; i < 3; i++)
        note(generator, s);
    add_sequence(generator, 3, sampling, 12, -1);
    for (int i = 0; i < 4; i++)
        note(generator, s);
    /* With several ranks, tokens that have been chosen ahead come first (draft_model.c). */
    if (my_rank == ranks - 1 && (ranks == 1 || !compares_drafts))
        tsr_generator_interrupt(generator);
    note(generator, s);
    OK(tsr_generator_continue(generator, 0, 1, more, 0)); /* until the context is full */
    for (int i = 0; i < 5; i++)
        note(generator, s);
    memset(&drafted, 0, sizeof drafted);
    drafted.struct_size = sizeof drafted;
    OK(tsr_generator_get_stats(generator, &drafted));
    tsr_generator_destroy(&generator);
}

static void compare(const story *got, const story *want, int ahead)
{
    CHECK(got->count == want->count, "ahead %d: %d tokens, not %d", ahead, got->count, want->count);
    for (int i = 0; i < want->count; i++) {
        const tsr_generated *a = &got->tokens[i], *b = &want->tokens[i];
        CHECK(a->sequence == b->sequence && a->token == b->token && a->position == b->position &&
                  a->finish == b->finish,
              "ahead %d: token %d is %d of sequence %d at %d, not %d of %d at %d", ahead, i,
              (int)a->token, a->sequence, (int)a->position, (int)b->token, b->sequence,
              (int)b->position);
    }
    CHECK(got->lengths == want->lengths, "ahead %d: the cache has other lengths", ahead);
}

CASE(flight_same, "flight: the same tokens, ends and lengths as without")
{
    static const tsr_sampling_params samplings[] = {
        {.temperature = 0},
        {.temperature = 1, .top_k = 20, .seed = 9},
        {.temperature = 1.5, .top_p = 0.8, .repetition_penalty = 1.4, .seed = 3},
        {.repetition_penalty = 1.8}};
    static const int aheads[] = {1, 2, 5, TSR_GENERATOR_MAX_AHEAD};
    static story want, got;
    open_family(3);
    for (size_t p = 0; p < sizeof samplings / sizeof *samplings; p++) {
        tsr_sampling_params sampling = samplings[p];
        sampling.struct_size = sizeof sampling;
        tell(TSR_GENERATOR_WAITS, &sampling, -1, &want);
        /* A token that ends the sequence that is added last, in the middle of its text. */
        int32_t stop = -1;
        for (int i = 0; i < want.count; i++)
            if (want.tokens[i].sequence == 2 && want.tokens[i].position == 9)
                stop = want.tokens[i].token;
        CHECK(stop >= 0, "no sequence 2");
        tell(TSR_GENERATOR_WAITS, &sampling, stop, &want);
        for (size_t i = p % 2; i < sizeof aheads / sizeof *aheads; i += 2) {
            tell(aheads[i], &sampling, stop, &got);
            compare(&got, &want, aheads[i]);
        }
    }
    close_family();
}

CASE(draft_same, "draft: the same tokens, ends and lengths as without")
{
    static const tsr_sampling_params samplings[] = {
        {.temperature = 0},
        {.temperature = 0.2, .top_k = 20, .seed = 9},
        {.temperature = 0.3, .top_p = 0.8, .repetition_penalty = 1.05, .seed = 3},
        {.presence_penalty = 0.1}};
    static const int lengths[] = {1, 4, TSR_MAX_DRAFT_TOKENS};
    static story want, got;
    uint64_t right = 0, all = 0;
    open_family(3);
    compares_drafts = true;
    for (size_t p = 0; p < sizeof samplings / sizeof *samplings; p++) {
        tsr_sampling_params sampling = samplings[p];
        sampling.struct_size = sizeof sampling;
        draft_tokens = 0;
        tell(TSR_GENERATOR_WAITS, &sampling, -1, &want);
        CHECK(drafted.drafted_tokens == 0, "drafts that nobody asked for");
        for (size_t i = p % 2; i < sizeof lengths / sizeof *lengths; i += 2) {
            draft_tokens = lengths[i];
            tell(TSR_GENERATOR_WAITS, &sampling, -1, &got);
            compare(&got, &want, lengths[i]);
            right += drafted.accepted_tokens;
            all += drafted.drafted_tokens;
        }
    }
    draft_tokens = 0;
    compares_drafts = false;
    CHECK(right > 0 && right < all, "%llu of %llu drafts were right; some must be, not all",
          (unsigned long long)right, (unsigned long long)all);
    close_family();
}

/* Makes a text of `most` tokens with drafts that are always computed, and compares it with one
 * without any. Returns how many drafts were right. */
static uint64_t long_text(const tsr_sampling_params *sampling, int most)
{
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    tsr_generator *with, *without;
    draft_tokens = 3;
    with = generator_of(1, 0, 0);
    draft_tokens = 0;
    without = generator_of(1, 0, 0);
    add_sequence(with, 2, sampling, most, -1);
    add_sequence(without, 2, sampling, most, -1);
    for (int i = 0; i < most; i++) {
        tsr_generated a[SEQUENCES], b[SEQUENCES];
        int counts[2];
        tsr__drafts_set(with, 3);
        OK(step_tokens(with, a, &counts[0]));
        OK(step_tokens(without, b, &counts[1]));
        CHECK(counts[0] == 1 && counts[1] == 1 && a[0].token == b[0].token &&
                  a[0].finish == b[0].finish,
              "token %d is %d, not %d", i, (int)a[0].token, (int)b[0].token);
        if (a[0].finish != TSR_FINISH_NONE)
            break;
    }
    OK(tsr_generator_get_stats(with, &stats));
    tsr_generator_destroy(&with);
    tsr_generator_destroy(&without);
    return stats.accepted_tokens;
}

CASE(draft_always, "draft: texts to the end of the context with drafts in every pass")
{
    uint64_t right = 0;
    open_family(3);
    for (uint64_t seed = 0; seed < 2; seed++)
        right +=
            long_text(tsr_sampling_params(.temperature = seed == 0 ? 0 : 0.25, .seed = seed), 1000);
    CHECK(right > 0, "no draft was right");
    close_family();
}

/* Adds a sequence whose prompt repeats three tokens, and makes steps until it has `length` tokens.
 */
static void repeat_until(tsr_generator *generator, int64_t count, int64_t length)
{
    int32_t ids[64];
    int sequence, given;
    tsr_generated some[SEQUENCES];
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)(1 + i % 3);
    OK(tsr_generator_add(
        generator, tsr_sequence_params(.prompt = ids, .prompt_count = count, .ignore_end = true),
        &sequence));
    do {
        tsr__drafts_set(generator, TSR_MAX_DRAFT_TOKENS);
        OK(step_tokens(generator, some, &given));
        CHECK(given >= 1 && some[0].finish == TSR_FINISH_NONE, "the text has ended");
    } while (some[0].position + 1 < length);
}

CASE(draft_pages, "draft: pages of drafts do not keep others from going on")
{
    open_family(3);
    for (int64_t count = 34; count <= 43; count++)
        for (int pieces = 0; pieces < 2; pieces++) {
            tsr_generator *generator = NULL;
            OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = 2,
                                                         .context = 128, .cache_tokens = 128,
                                                         .draft = TSR_DRAFT_NGRAM,
                                                         .draft_tokens = TSR_MAX_DRAFT_TOKENS,
                                                         .piece = pieces ? 64 : 0),
                                    &generator));
            /* the first text needs the second page only for drafts */
            repeat_until(generator, count, 63);
            repeat_until(generator, 20, 21);
            CHECK(tsr_kv_cache_length(generator->cache, generator->sequences[1].cache) >= 20,
                  "the second text waits");
            tsr_generator_destroy(&generator);
        }
    close_family();
}

/* Of delta nets, states of the last tokens are kept, so that passes in flight and drafts can be
 * taken back. With more passes than states, some tokens are computed again. */
static uint64_t again(int ahead, story *s)
{
    tsr_generator *generator = generator_of(2, 0, ahead);
    tsr_generator_stats before = TSR_INIT(tsr_generator_stats), after = before;
    *s = (story){0};
    add_sequence(generator, 0, NULL, 45, -1);
    add_sequence(generator, 1, NULL, 2, -1);
    for (int i = 0; i < 6; i++)
        note(generator, s);
    OK(tsr_generator_get_stats(generator, &before));
    OK(tsr_generator_remove(generator, 1)); /* passes in flight are discarded */
    for (int i = 0; i < 40; i++)
        note(generator, s);
    OK(tsr_generator_get_stats(generator, &after));
    tsr_generator_destroy(&generator);
    return after.prompt_tokens - before.prompt_tokens;
}

CASE(states_same, "draft: delta nets, whose states are taken back, give the same tokens")
{
    static const int aheads[] = {2, TSR_GENERATOR_MAX_AHEAD}, lengths[] = {4, TSR_MAX_DRAFT_TOKENS};
    static story want, got;
    const int lengths_tested = ranks == 1 ? 2 : 1;
    uint64_t right = 0, all = 0;
    OK(open_delta(MADE_VOCABULARY, MADE_CONTEXT, SEED, NULL, &model));
    CHECK(again(TSR_GENERATOR_WAITS, &want) == 0, "tokens are computed again");
    for (int i = 0; i < 2; i++) {
        const uint64_t computed = again(aheads[i], &got);
        const bool lost = aheads[i] > TSR_MAX_KEPT_TOKENS && ranks == 1;
        compare(&got, &want, aheads[i]);
        CHECK((computed > 0) == lost, "%llu tokens are computed again",
              (unsigned long long)computed);
    }
    const tsr_sampling_params *sampling =
        tsr_sampling_params(.temperature = 0.3, .top_k = 20, .seed = 9);
    tell(TSR_GENERATOR_WAITS, sampling, -1, &want);
    tell(aheads[0], sampling, -1, &got);
    compare(&got, &want, aheads[0]);
    compares_drafts = true;
    tell(TSR_GENERATOR_WAITS, sampling, -1, &want);
    for (int i = 0; i < lengths_tested; i++) {
        draft_tokens = lengths[i];
        tell(TSR_GENERATOR_WAITS, sampling, -1, &got);
        compare(&got, &want, lengths[i]);
        right += drafted.accepted_tokens;
        all += drafted.drafted_tokens;
    }
    draft_tokens = 0;
    compares_drafts = false;
    CHECK(right < all, "all of %llu drafts were right", (unsigned long long)all);
    CHECK(ranks > 1 || long_text(NULL, 1000) > 0, "no draft was right");
    tsr_model_close(&model);
}

CASE(draft_refusals, "draft: wrong params")
{
    tsr_generator *generator = NULL;
    open_family(3);
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .draft = (tsr_draft)4),
                               &generator),
          TSR_ERR_INVALID, "generator: draft is 4, not a tsr_draft");
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .draft = TSR_DRAFT_NGRAM,
                                                    .draft_tokens = TSR_MAX_DRAFT_TOKENS + 1),
                               &generator),
          TSR_ERR_INVALID, "generator: draft_tokens is 16; 0 to 15 is possible");
    close_family();
}

CASE(flight_families, "flight: the same tokens as without in every family")
{
    static story want, got;
    const tsr_sampling_params *sampling = tsr_sampling_params(.temperature = 1, .seed = 4);
    for (int family = 0; family < made_family_count; family++) {
        open_family(family);
        for (int ahead = TSR_GENERATOR_WAITS; ahead <= 3; ahead += 4) {
            story *s = ahead < 0 ? &want : &got;
            tsr_generator *generator = generator_of(2, 0, ahead);
            *s = (story){0};
            add_sequence(generator, 1, sampling, 8, -1);
            add_sequence(generator, 0, NULL, 8, -1);
            for (int i = 0; i < 9; i++)
                note(generator, s);
            tsr_generator_destroy(&generator);
        }
        compare(&got, &want, 3);
        close_family();
    }
}

/* Makes steps until a sequence has ended, or one fails. */
static tsr_status run(tsr_generator *generator, int *tokens)
{
    tsr_generated some[SEQUENCES];
    int count = 1;
    *tokens = 0;
    while (count > 0) {
        const tsr_status status = step_tokens(generator, some, &count);
        if (status != TSR_OK)
            return status;
        *tokens += count;
    }
    return TSR_OK;
}

CASE(flight_counts, "flight: no wait while the device has nothing to do")
{
    enum { TOKENS = 40, AHEAD = 3 };
    int tokens;
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    open_family(3);
    for (int ahead = TSR_GENERATOR_WAITS; ahead <= AHEAD; ahead += 1 + AHEAD) {
        tsr_generator *generator = generator_of(1, 0, ahead);
        const uint64_t steps_before = tsr__stream_get_counts(queue).steps;
        add_sequence(generator, 0, NULL, TOKENS, -1);
        OK(run(generator, &tokens));
        CHECK(tokens == TOKENS, "%d tokens", tokens);
        OK(tsr_generator_get_stats(generator, &stats));
        CHECK(stats.generated_tokens == TOKENS - 1, "%d tokens", (int)stats.generated_tokens);
        const uint64_t steps = tsr__stream_get_counts(queue).steps - steps_before;
        if (ahead < 0 || ranks > 1)
            CHECK(stats.generated_idle_waits >= TOKENS - 1 &&
                      stats.generated_waits >= stats.generated_idle_waits,
                  "%d idle waits", (int)stats.generated_idle_waits);
        else /* only the last pass has none after it */
            CHECK(stats.generated_idle_waits <= 1 && stats.generated_waits <= TOKENS - 1 &&
                      stats.generated_submissions < 2 * TOKENS,
                  "%d waits, %d idle ones, %d submissions", (int)stats.generated_waits,
                  (int)stats.generated_idle_waits, (int)stats.generated_submissions);
        /* Several ranks wait once for a token, for its candidates. The sums of a pass are host
         * steps, with which the recording of the pass goes on: one of the embedding, and two of
         * each layer. */
        if (ranks == 1)
            CHECK(steps == 0, "%d host steps", (int)steps);
        else
            CHECK(stats.generated_waits <= TOKENS - 1 &&
                      steps >= (1 + 2 * MADE_LAYERS) * (TOKENS - 1),
                  "%d waits and %d host steps for %d tokens", (int)stats.generated_waits,
                  (int)steps, TOKENS - 1);
        tsr_generator_destroy(&generator);
    }
    close_family();
}

/* A pass in flight takes a page that another sequence needs, and gives it back. */
CASE(flight_full, "flight: passes in flight do not fill the cache")
{
    static story want, got;
    open_family(3);
    for (int ahead = TSR_GENERATOR_WAITS; ahead <= 8; ahead += 9) {
        story *s = ahead < 0 ? &want : &got;
        /* Two pages of 64 tokens: the first sequence needs one, until its 65th token. */
        tsr_generator *generator = NULL;
        tsr_generated some[SEQUENCES];
        int count, tokens = 0;
        tsr_status status = TSR_OK;
        *s = (story){0};
        OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = 2, .context = 128,
                                                     .cache_tokens = 128, .ahead = ahead),
                                &generator));
        add_sequence(generator, 0, NULL, 100, -1);
        while (tokens < 62) {
            OK(step_tokens(generator, some, &count));
            tokens += count;
        }
        add_sequence(generator, 1, NULL, 100, -1);
        while (status == TSR_OK) {
            status = step_tokens(generator, some, &count);
            for (int i = 0; status == TSR_OK && i < count; i++)
                s->tokens[s->count++] = some[i];
        }
        CHECK(status == TSR_ERR_DEVICE_MEMORY, "%s", tsr_status_name(status));
        OK(tsr_generator_remove(generator, 0));
        OK(tsr_generator_remove(generator, 1));
        CHECK(tsr_kv_cache_free_pages(generator->cache) == 2, "pages are lost");
        tsr_generator_destroy(&generator);
    }
    compare(&got, &want, 8);
    close_family();
}

/* The prompt has the only token whose features are not NaN. */
CASE(flight_nan, "flight: logits that are NaN are the same error as without")
{
    char errors[2][256];
    made_init(&made, &made_families[0], SEED);
    made_tensor *table = made_find(&made, "embed_tokens.weight");
    for (int64_t i = 0; i < MADE_VOCABULARY * MADE_WIDTH; i++)
        table->values[i] = i / MADE_WIDTH == 3 ? table->values[i] : NAN;
    OK(open_model(made_write_hf(&made), NULL, &model));
    for (int ahead = TSR_GENERATOR_WAITS; ahead <= 2; ahead += 3) {
        tsr_generator *generator = generator_of(1, 0, ahead);
        int sequence, tokens;
        OK(tsr_generator_add(
            generator,
            tsr_sequence_params(.prompt = (int32_t[]){3}, .prompt_count = 1, .max_tokens = 10),
            &sequence));
        const tsr_status status = run(generator, &tokens);
        CHECK(status == TSR_ERR_INVALID && tokens >= 1 && tokens < 10, "%s after %d tokens",
              tsr_status_name(status), tokens);
        snprintf(errors[ahead > 0], sizeof errors[0], "%s", tsr_last_error());
        tsr_generator_destroy(&generator);
    }
    CHECK(strcmp(errors[0], errors[1]) == 0, "\"%s\", not \"%s\"", errors[1], errors[0]);
    CHECK(my_rank > 0 || strstr(errors[0], "the logit of token 0 is NaN"), "%s", errors[0]);
    close_family();
}

/* Generates while the nth allocation or Vulkan call fails. A step that fails has not given tokens;
 * after the sequences have been removed, the generator gives the same text as before. */
static bool fails_at(tsr_generator *generator, tsr__fault_kind kind, uint64_t nth,
                     const story *want)
{
    story s = {0};
    tsr_generated tokens[SEQUENCES];
    int count = 1;
    const int sequence = add_sequence(generator, 0, NULL, 5, -1);
    tsr__fault_arm(kind, nth, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */);
    while (count > 0 && step_tokens(generator, tokens, &count) == TSR_OK) {
        memcpy(s.tokens + s.count, tokens, (size_t)count * sizeof *tokens);
        s.count += count;
    }
    const bool reached = tsr__fault_site() != NULL;
    tsr__fault_disarm();
    for (int i = 0; i < s.count; i++)
        CHECK(s.tokens[i].token == want->tokens[i].token, "token %d", i);
    CHECK(reached || s.count == want->count, "%d tokens", s.count);
    OK(tsr_generator_remove(generator, sequence));
    return reached;
}

CASE(flight_failures, "flight: memory runs out, and the driver fails")
{
    story want = {0};
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    open_family(5);
    tsr_generator *generator = generator_of(1, 0, 2);
    add_sequence(generator, 0, NULL, 5, -1);
    for (int i = 0; i < 6; i++)
        note(generator, &want);
    OK(tsr_generator_remove(generator, 0));
    for (uint64_t nth = 0; fails_at(generator, TSR__FAULT_ALLOC, nth, &want); nth += 1 + nth / 8)
        ;
    for (uint64_t nth = 0; fails_at(generator, TSR__FAULT_VULKAN, nth, &want); nth += 1)
        ;
    tsr_generator_destroy(&generator);
    close_family();
}

CASE(flight_mistakes, "flight: refused values")
{
    tsr_generator *generator = NULL;
    open_family(3);
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .ahead = -2), &generator),
          TSR_ERR_INVALID, "generator: ahead is -2; -1 to 16 is possible");
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .ahead = 17), &generator),
          TSR_ERR_INVALID, "generator: ahead is 17; -1 to 16 is possible");
    close_family();
}
