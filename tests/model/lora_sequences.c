/* Tests adapters of single sequences in one batch, with drafts and with the prefix cache. */
#include "model/open.h"
#include "parallel/spmd.h"
#include "tessera/lora.h"

#define FOLDER TEST_DATA "/training/lora/"

enum { ADAPTERS = 2, NONE = ADAPTERS, SEQUENCES = 6, TOKENS = 16, LONG = 70, SHORT = 20 };

static tsr_model *model;
static tsr_lora *adapters[ADAPTERS + 1]; /* adapters[NONE]: NULL */

static void open_base(void)
{
    OK(open_model(FOLDER "lora_base", tsr_model_params(.group = group), &model));
}

/* Loads an adapter, which only sequences use that name it. */
static void load(int i)
{
    static const char *const paths[] = {FOLDER "lora_final", FOLDER "lora_clip_final"};
    OK(tsr_lora_load(paths[i], tsr_lora_params(.stack = tsr_model_stack(model), .scale = 4 + i),
                     &adapters[i]));
    tsr_lora_set_enabled(adapters[i], false);
}

static void close_all(void)
{
    for (int i = ADAPTERS - 1; i >= 0; i--)
        tsr_lora_destroy(&adapters[i]);
    tsr_model_close(&model);
}

static tsr_generator *generator_of(tsr_draft draft, int64_t piece)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = SEQUENCES,
                                                 .context = 192, .piece = piece,
                                                 .prefix_cache = true, .draft = draft),
                            &generator));
    return generator;
}

/* Generates the tokens of sequences with these adapters, in one batch. Returns how many tokens of
 * the first sequence's prompt were found in the prefix cache. */
static int64_t generate(tsr_generator *generator, int prompt_count, int count, const int *which,
                        int32_t tokens[][TOKENS])
{
    int32_t prompt[LONG];
    int numbers[SEQUENCES], length[SEQUENCES] = {0};
    int64_t cached = 0;
    for (int i = 0; i < prompt_count; i++)
        prompt[i] = (7 * i + 3) % 65;
    for (int i = 0; i < count; i++)
        OK(tsr_generator_add(generator,
                             tsr_sequence_params(.prompt = prompt, .prompt_count = prompt_count,
                                                 .max_tokens = TOKENS, .lora = adapters[which[i]]),
                             &numbers[i]));
    for (int left = count * TOKENS; left > 0;) {
        int got = 0;
        OK(tsr_generator_step(generator, &got));
        for (int i = 0; i < got; i++) {
            const tsr_generated *token = tsr_generator_token(generator, i);
            for (int s = 0; s < count; s++)
                if (numbers[s] == token->sequence)
                    tokens[s][length[s]++] = token->token;
            if (token->sequence == numbers[0])
                cached = token->cached;
        }
        left -= got;
    }
    for (int i = 0; i < count; i++)
        OK(tsr_generator_remove(generator, numbers[i]));
    return cached;
}

static void expect(const int32_t *got, const int32_t *wanted, const char *what)
{
    for (int i = 0; i < TOKENS; i++)
        CHECK(got[i] == wanted[i], "%s: token %d is %d, not %d", what, i, (int)got[i],
              (int)wanted[i]);
}

/* Generates the tokens of a sequence that is alone, without an adapter of its own, for each adapter
 * that is enabled, and for none: wanted[NONE]. */
static void generate_alone(tsr_generator *generator, int prompt_count,
                           int32_t wanted[ADAPTERS + 1][TOKENS])
{
    for (int i = 0; i <= NONE; i++) {
        if (adapters[i])
            tsr_lora_set_enabled(adapters[i], true);
        generate(generator, prompt_count, 1, &(int){NONE}, &wanted[i]);
        if (adapters[i])
            tsr_lora_set_enabled(adapters[i], false);
    }
    for (int i = 0; i <= NONE; i++)
        CHECK(memcmp(wanted[i], wanted[(i + 1) % (NONE + 1)], sizeof wanted[i]) != 0,
              "adapters give the same text");
}

CASE(lora_sequences, "lora: sequences of one batch with different adapters")
{
    static const int which[SEQUENCES] = {1, NONE, 0, NONE, 1, 0};
    static const char *const rounds[] = {"together", "after an adapter is attached later",
                                         "with drafts"};
    static int32_t base[TOKENS], wanted[ADAPTERS + 1][TOKENS], tokens[SEQUENCES][TOKENS];
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    tsr_lora *trained = NULL;
    int refused;
    open_base();
    tsr_generator *generator = generator_of(TSR_DRAFT_NONE, 64);
    generate(generator, LONG, 1, &(int){NONE}, &base);
    for (int i = 0; i < ADAPTERS; i++)
        load(i);
    generate_alone(generator, LONG, wanted);
    expect(wanted[NONE], base, "with adapters that are not enabled");
    for (int round = 0; round < 3; round++) {
        if (round == 1) { /* the order of adapters in the stack changes */
            tsr_lora_destroy(&adapters[0]);
            load(0);
        } else if (round == 2) {
            tsr_generator_destroy(&generator);
            generator = generator_of(TSR_DRAFT_NGRAM, 64);
        }
        generate(generator, LONG, SEQUENCES, which, tokens);
        for (int i = 0; i < SEQUENCES; i++)
            expect(tokens[i], wanted[which[i]], rounds[round]);
    }
    OK(tsr_generator_get_stats(generator, &stats));
    CHECK(stats.drafted_tokens > 0, "no drafts");
    OK(tsr_lora_create(
        tsr_lora_params(.stack = tsr_model_stack(model), .name = "new", .trainable = true),
        &trained));
    FAILS(tsr_generator_add(generator,
                            tsr_sequence_params(.prompt = base, .prompt_count = 1, .lora = trained),
                            &refused),
          TSR_ERR_INVALID, "generator: adapter 'new' is trainable, which sequences cannot have");
    tsr_generator_destroy(&generator);
    tsr_lora_destroy(&trained);
    close_all();
}

CASE(adapters_and_prefixes, "lora: the prefix cache keeps adapters apart")
{
    static const struct {
        int which;
        int64_t cached;
    } turns[] = {{0, 0}, {1, 0}, {NONE, 0}, {0, 16}, {NONE, 16}, {1, 16}};
    static int32_t wanted[ADAPTERS + 1][TOKENS], tokens[1][TOKENS];
    open_base();
    for (int i = 0; i < ADAPTERS; i++)
        load(i);
    tsr_generator *generator = generator_of(TSR_DRAFT_NONE, 8);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        const int w = turns[i].which;
        const int64_t cached = generate(generator, SHORT, 1, &w, i < 3 ? &wanted[w] : tokens);
        CHECK(cached == turns[i].cached, "turn %d: %d tokens were cached, not %d", (int)i,
              (int)cached, (int)turns[i].cached);
        if (i >= 3)
            expect(tokens[0], wanted[w], "with a prefix");
    }
    for (int i = 0; i <= NONE; i++)
        CHECK(memcmp(wanted[i], wanted[(i + 1) % (NONE + 1)], sizeof wanted[i]) != 0,
              "adapters give the same text");
    tsr_generator_destroy(&generator);
    close_all();
}
