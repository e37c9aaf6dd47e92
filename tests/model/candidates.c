/* Tests that ranks choose the same tokens from their most likely ones as from all logits, which
 * generators with log-probabilities gather. */
#include "model/made.h"
#include "model/open.h"
#include "parallel/spmd.h"

enum { SEQUENCES = 3, STEPS = 20, SEED = 5 };

static made_model made;
static tsr_model *model;

typedef struct text {
    int count;
    int32_t tokens[STEPS * SEQUENCES];
    uint64_t gathered; /* how many operations of the group were needed */
} text;

/* Generates with these params, several sequences together. */
static void generate(const tsr_sampling_params *const samplings[SEQUENCES], bool all_logits,
                     text *out)
{
    tsr_generator *generator = NULL;
    tsr_generated tokens[SEQUENCES];
    tsr_group_stats stats = TSR_INIT(tsr_group_stats);
    int count = 1;
    *out = (text){0};
    OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = SEQUENCES,
                                                 .prefill = 4, .log_probabilities = all_logits),
                            &generator));
    for (int i = 0; i < SEQUENCES; i++) {
        int sequence;
        const int32_t ids[7] = {1, 5 + i, 30, 2, 8, 17, 11};
        OK(tsr_generator_add(generator,
                             tsr_sequence_params(.prompt = ids, .prompt_count = 3 + 2 * i,
                                                 .sampling = samplings[i], .number = (uint64_t)i,
                                                 .max_tokens = STEPS),
                             &sequence));
    }
    tsr_group_reset_stats(group);
    while (count > 0) {
        OK(step_tokens(generator, tokens, &count));
        for (int i = 0; i < count; i++)
            out->tokens[out->count++] = tokens[i].token;
    }
    OK(tsr_group_get_stats(group, &stats));
    out->gathered = stats.operations;
    tsr_generator_destroy(&generator);
}

enum { ALL_PASSES = SEQUENCES + STEPS - 1 }; /* that compute logits: of each prompt, then of all */

/* `saved`: how many passes need not gather all logits. */
static void compare(const char *name, const tsr_sampling_params *const samplings[SEQUENCES],
                    uint64_t saved)
{
    static text want, got;
    generate(samplings, true, &want);
    generate(samplings, false, &got);
    CHECK(got.count == want.count && want.count == SEQUENCES * STEPS, "%s: %d tokens", name,
          got.count);
    for (int i = 0; i < want.count; i++)
        CHECK(got.tokens[i] == want.tokens[i], "%s: token %d is %d, not %d", name, i,
              (int)got.tokens[i], (int)want.tokens[i]);
    /* With one rank, gathering is a copy. */
    CHECK(want.gathered - got.gathered == (ranks > 1 ? saved : 0), "%s: %d operations saved", name,
          (int)(want.gathered - got.gathered));
}

CASE(candidates_same, "candidates: the same tokens as from all logits")
{
    static const tsr_logit_bias biases[] = {{.token = 3, .bias = 4}, {.token = 30, .bias = 5}};
    const tsr_sampling_params *few = tsr_sampling_params(.temperature = 1, .top_k = 3, .seed = 9),
                              *nucleus =
                                  tsr_sampling_params(.temperature = 2, .top_k = 5, .top_p = 0.7,
                                                      .min_p = 0.05, .seed = 3),
                              *any = tsr_sampling_params(.temperature = 1, .seed = 3),
                              *top_p = tsr_sampling_params(.temperature = 2, .top_p = 0.8),
                              *min_p =
                                  tsr_sampling_params(.temperature = 2, .min_p = 0.1, .seed = 7),
                              *penalty = tsr_sampling_params(.repetition_penalty = 1.5),
                              *drawn = tsr_sampling_params(.temperature = 2, .top_p = 0.8,
                                                           .repetition_penalty = 1.3, .seed = 2),
                              *biased =
                                  tsr_sampling_params(.temperature = 1, .top_k = 4,
                                                      .biases = biases, .bias_count = 2, .seed = 6),
                              *present = tsr_sampling_params(.temperature = 1.5, .min_p = 0.05,
                                                             .presence_penalty = 1.5,
                                                             .frequency_penalty = -0.3),
                              *many = tsr_sampling_params(.temperature = 3, .top_k = 38, .seed = 1);
    made_init(&made, &made_families[0], SEED);
    OK(open_model(made_write_hf(&made), NULL, &model));
    compare("greedy", (const tsr_sampling_params *[]){NULL, NULL, NULL}, ALL_PASSES);
    compare("top_k", (const tsr_sampling_params *[]){few, nucleus, NULL}, ALL_PASSES);
    compare("top_k beyond a rank's part", (const tsr_sampling_params *[]){many, few, many},
            ALL_PASSES);
    compare("temperature, top_p, min_p", (const tsr_sampling_params *[]){any, top_p, min_p},
            ALL_PASSES);
    compare("penalty", (const tsr_sampling_params *[]){penalty, drawn, any}, ALL_PASSES);
    compare("biases", (const tsr_sampling_params *[]){biased, penalty, present}, ALL_PASSES);
    tsr_model_close(&model);
    made_finish(&made);
}

/* All logits are equal, so top_k keeps all tokens, and each rank has more than it sends. */
CASE(candidates_tie, "candidates: equal logits")
{
    const tsr_sampling_params *few = tsr_sampling_params(.temperature = 1, .top_k = 3, .seed = 9);
    made_init(&made, &made_families[0], SEED);
    made_tensor *head = made_find(&made, "lm_head.weight");
    CHECK(head, "no head");
    for (int64_t i = 0; i < MADE_VOCABULARY * MADE_WIDTH; i++)
        head->values[i] = head->values[i % MADE_WIDTH];
    OK(open_model(made_write_hf(&made), NULL, &model));
    compare("top_k", (const tsr_sampling_params *[]){few, few, few}, 0);
    compare("greedy", (const tsr_sampling_params *[]){NULL, NULL, NULL}, ALL_PASSES);
    tsr_model_close(&model);
    made_finish(&made);
}
