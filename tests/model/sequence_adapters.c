/* Tests adapters of single sequences in one batch, with drafts and with the prefix cache. */
#include "model/open.h"
#include "parallel/spmd.h"
#include "tessera/lora.h"

#define FOLDER TEST_DATA "/training/lora/"

enum { ADAPTERS = 2, TEXTS = 5, TOKENS = 16, PROMPT = 20 };

static tsr_model *model;
static tsr_lora *adapters[ADAPTERS];

static void open_all(void)
{
    static const char *const paths[] = {FOLDER "lora_final", FOLDER "lora_clip_final"};
    OK(open_model(FOLDER "lora_base", NULL, &model));
    for (int i = 0; i < ADAPTERS; i++) {
        OK(tsr_lora_load(paths[i], tsr_lora_params(.stack = tsr_model_stack(model), .scale = 4 + i),
                         &adapters[i]));
        tsr_lora_set_enabled(adapters[i], false);
    }
}

static void close_all(void)
{
    for (int i = ADAPTERS - 1; i >= 0; i--)
        tsr_lora_destroy(&adapters[i]);
    tsr_model_close(&model);
}

static tsr_generator *generator_of(bool keeps, tsr_draft draft)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = TEXTS,
                                                 .piece = keeps ? 8 : 0, .prefix_cache = keeps,
                                                 .draft = draft),
                            &generator));
    return generator;
}

static int add(tsr_generator *generator, tsr_lora *lora)
{
    int32_t ids[PROMPT];
    int sequence;
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (7 * i + 3) % 65;
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = PROMPT,
                                             .max_tokens = TOKENS, .lora = lora),
                         &sequence));
    return sequence;
}

/* Generates until all sequences have ended: tokens[sequence][TOKENS]. Returns how many tokens of
 * the first sequence's prompt were found in the prefix cache. */
static int64_t finish(tsr_generator *generator, int32_t tokens[TEXTS][TOKENS])
{
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    int counts[TEXTS] = {0};
    int64_t cached = 0;
    for (uint64_t running = 1; running > 0;) {
        tsr_generated some[TEXTS];
        int count = 0;
        OK(step_tokens(generator, some, &count));
        for (int i = 0; i < count; i++) {
            tokens[some[i].sequence][counts[some[i].sequence]++] = some[i].token;
            cached = some[i].sequence == 0 ? some[i].cached : cached;
        }
        OK(tsr_generator_get_stats(generator, &stats));
        running = (uint64_t)stats.running;
    }
    return cached;
}

/* The tokens of one sequence that is alone, with an adapter that is enabled for all; NULL: none. */
static void alone(tsr_lora *lora, int32_t out[TOKENS])
{
    static int32_t tokens[TEXTS][TOKENS];
    tsr_generator *generator = generator_of(false, TSR_DRAFT_NONE);
    if (lora)
        tsr_lora_set_enabled(lora, true);
    add(generator, NULL);
    finish(generator, tokens);
    memcpy(out, tokens[0], sizeof tokens[0]);
    tsr_generator_destroy(&generator);
    if (lora)
        tsr_lora_set_enabled(lora, false);
}

static void expect(const int32_t *got, const int32_t *wanted, const char *what)
{
    for (int i = 0; i < TOKENS; i++)
        CHECK(got[i] == wanted[i], "%s: token %d is %d, not %d", what, i, (int)got[i],
              (int)wanted[i]);
}

CASE(sequence_adapters, "lora: sequences of a batch have adapters of their own")
{
    static int32_t wanted[ADAPTERS + 1][TOKENS], tokens[TEXTS][TOKENS];
    open_all();
    alone(NULL, wanted[ADAPTERS]);
    for (int i = 0; i < ADAPTERS; i++) {
        alone(adapters[i], wanted[i]);
        CHECK(memcmp(wanted[i], wanted[ADAPTERS], sizeof wanted[i]) != 0, "the base's text");
    }
    CHECK(memcmp(wanted[0], wanted[1], sizeof wanted[0]) != 0, "two adapters with one text");
    /* Two sequences have the first adapter, one the second, and two none. */
    static const int which[TEXTS] = {0, ADAPTERS, 1, 0, ADAPTERS};
    for (int drafts = 0; drafts < 2; drafts++) {
        tsr_generator *generator = generator_of(false, drafts ? TSR_DRAFT_NGRAM : TSR_DRAFT_NONE);
        for (int i = 0; i < TEXTS; i++)
            add(generator, which[i] < ADAPTERS ? adapters[which[i]] : NULL);
        finish(generator, tokens);
        for (int i = 0; i < TEXTS; i++)
            expect(tokens[i], wanted[which[i]], drafts ? "with drafts" : "together");
        tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
        OK(tsr_generator_get_stats(generator, &stats));
        CHECK(drafts == (stats.drafted_tokens > 0), "%d drafts", (int)stats.drafted_tokens);
        tsr_generator_destroy(&generator);
    }
    close_all();
}

CASE(adapters_and_prefixes, "lora: the prefix cache keeps adapters apart")
{
    static int32_t wanted[ADAPTERS + 1][TOKENS], tokens[TEXTS][TOKENS];
    static const struct {
        int which;
        int64_t cached;
    } turns[] = {{0, 0}, {1, 0}, {ADAPTERS, 0}, {0, 16}, {ADAPTERS, 16}, {1, 16}};
    open_all();
    alone(NULL, wanted[ADAPTERS]);
    for (int i = 0; i < ADAPTERS; i++)
        alone(adapters[i], wanted[i]);
    tsr_generator *generator = generator_of(true, TSR_DRAFT_NONE);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        const int w = turns[i].which, sequence = add(generator, w < ADAPTERS ? adapters[w] : NULL);
        const int64_t cached = finish(generator, tokens);
        CHECK(cached == turns[i].cached, "turn %d: %d tokens were cached, not %d", (int)i,
              (int)cached, (int)turns[i].cached);
        expect(tokens[sequence], wanted[w], "with a prefix");
        OK(tsr_generator_remove(generator, sequence));
    }
    tsr_generator_destroy(&generator);
    close_all();
}
