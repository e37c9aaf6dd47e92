/* Compares models whose layers are divided over two stages with the model of one process. */
#include "model/made.h"
#include "model/open.h"
#include "model/place.h"
#include "parallel/spmd.h"

/* 5 layers */
#define STORIES TEST_DATA "/model/stories260K-f32.gguf"

enum { SEED = 5, SEQUENCES = 5, TOKENS = 8, SHOWN = 3 };

/* What sequences have generated, and the logits of their first positions. */
typedef struct texts {
    int32_t tokens[SEQUENCES][TOKENS];
    double log_probabilities[SEQUENCES][TOKENS];
    int count[SEQUENCES], logits_count;
    double logits_sum;
} texts;

static void add_logits(void *user, int sequence, int64_t position, const float *logits)
{
    texts *t = user;
    (void)sequence;
    CHECK(position < SHOWN, "position %lld", (long long)position);
    t->logits_count++;
    for (int i = 0; i < MADE_VOCABULARY; i++)
        t->logits_sum += (double)logits[i] * (i + 1);
}

static void run(tsr_model *model, int sequences, bool shows, texts *out)
{
    tsr_generator *generator = NULL;
    tsr_generated tokens[SEQUENCES];
    int count = 1, sequence;
    memset(out, 0, sizeof *out);
    OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = sequences,
                                                 .prefill = 4, .logits = shows ? add_logits : NULL,
                                                 .user = out, .log_probabilities = true,
                                                 .piece = sequences == SEQUENCES ? 4 : 0,
                                                 .prefix_cache = sequences == SEQUENCES,
                                                 .logits_positions = shows ? SHOWN : 0),
                            &generator));
    for (int s = 0; s < sequences; s++) {
        int32_t ids[1 + 5 * SEQUENCES];
        for (int i = 0; i < 1 + 5 * s; i++)
            ids[i] = (i * 7 + s * 3) % MADE_VOCABULARY;
        OK(tsr_generator_add(
            generator,
            tsr_sequence_params(.prompt = ids, .prompt_count = 1 + 5 * s, .number = (uint64_t)s,
                                .sampling =
                                    tsr_sampling_params(.temperature = s % 2 ? 1 : 0, .seed = 9),
                                .max_tokens = TOKENS - (s == 1), .ignore_end = true),
            &sequence));
    }
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    for (stats.running = 1; stats.running > 0;) {
        OK(step_tokens(generator, tokens, &count));
        OK(tsr_generator_get_stats(generator, &stats));
        for (int i = 0; i < count; i++) {
            const int s = tokens[i].sequence, at = out->count[s]++;
            out->tokens[s][at] = tokens[i].token;
            out->log_probabilities[s][at] = tokens[i].log_probability;
        }
    }
    tsr_generator_destroy(&generator);
}

static void compare(const texts *got, const texts *want, int sequences)
{
    CHECK(got->logits_count == want->logits_count &&
              fabs(got->logits_sum - want->logits_sum) <= 1e-3 * (1 + fabs(want->logits_sum)),
          "%d logits, sum %g, not %d, %g", got->logits_count, got->logits_sum, want->logits_count,
          want->logits_sum);
    for (int s = 0; s < sequences; s++) {
        CHECK(got->count[s] == want->count[s], "sequence %d has %d tokens", s, got->count[s]);
        for (int i = 0; i < got->count[s]; i++)
            CHECK(got->tokens[s][i] == want->tokens[s][i] &&
                      fabs(got->log_probabilities[s][i] - want->log_probabilities[s][i]) <= 1e-3,
                  "sequence %d, token %d: %d (%g), not %d (%g)", s, i, (int)got->tokens[s][i],
                  got->log_probabilities[s][i], (int)want->tokens[s][i],
                  want->log_probabilities[s][i]);
    }
}

/* Tests a family whose output matrix is separate from the embedding, one in which it is the
 * embedding, one with learned positions, and a model whose first stage has only delta nets. */
CASE(same, "stages: the tokens and probabilities of one process")
{
    static texts got, want;
    place p;
    if (!place_init(&p))
        return;
    const int families[] = {0, 3, 5};
    for (int f = 0; f < 4; f++) {
        made_model made;
        tsr_model *whole = NULL, *divided = NULL;
        tsr_model_stats all = TSR_INIT(tsr_model_stats), part = TSR_INIT(tsr_model_stats);
        const char *path = TEST_DATA "/model/families/qwen35moe/qwen35moe-f16.gguf";
        if (f < 3) {
            made_init(&made, &made_families[families[f]], SEED);
            path = made_write_hf(&made);
        }
        OK(open_model(path, tsr_model_params(.group = p.alone), &whole));
        OK(open_model(path, tsr_model_params(.group = p.group, .stages = p.stages), &divided));
        OK(tsr_model_get_stats(whole, &all));
        OK(tsr_model_get_stats(divided, &part));
        CHECK(part.parameters == all.parameters && part.weight_bytes < all.weight_bytes,
              "%llu of %llu bytes", (unsigned long long)part.weight_bytes,
              (unsigned long long)all.weight_bytes);
        for (int sequences = f == 0 ? 1 : 2; sequences <= SEQUENCES; sequences += f == 0 ? 1 : 3) {
            const bool shows = sequences % 2 == 0;
            run(whole, sequences, shows, &want);
            run(divided, sequences, shows, &got);
            compare(&got, &want, sequences);
        }
        tsr_model_close(&divided);
        tsr_model_close(&whole);
        if (f < 3)
            made_finish(&made);
    }
    place_finish(&p);
}

CASE(interrupts, "stages: an interrupt on one rank ends the sequences of all stages")
{
    place p;
    tsr_model *model = NULL;
    tsr_generator *generator = NULL;
    tsr_generated token;
    made_model made;
    const int32_t id = 1;
    int sequence, count;
    if (!place_init(&p))
        return;
    made_init(&made, &made_families[0], SEED);
    OK(open_model(made_write_hf(&made), tsr_model_params(.group = p.group, .stages = p.stages),
                  &model));
    OK(tsr_generator_create(tsr_generator_params(.model = model), &generator));
    OK(tsr_generator_add(generator, tsr_sequence_params(.prompt = &id, .prompt_count = 1),
                         &sequence));
    OK(step_tokens(generator, &token, &count));
    CHECK(token.finish == TSR_FINISH_NONE, "%s", tsr_finish_name(token.finish));
    if (my_rank == 0)
        tsr_generator_interrupt(generator);
    OK(step_tokens(generator, &token, &count));
    CHECK(token.finish == TSR_FINISH_INTERRUPT, "%s", tsr_finish_name(token.finish));
    tsr_generator_destroy(&generator);
    tsr_model_close(&model);
    made_finish(&made);
    place_finish(&p);
}

/* Returns the most bytes that a rank of the first stage needs if it has `layers` of the 5 layers.
 */
static uint64_t first_stage_bytes(int layers)
{
    const int given[STAGES] = {layers, 5 - layers};
    uint64_t most = 0;
    tsr_model_rank_plan *all = calloc((size_t)ranks, sizeof *all);
    CHECK(all, "out of memory");
    OK(plan_model(STORIES,
                  tsr_model_plan_params(.ranks = ranks, .stages = STAGES, .stage_layers = given),
                  NULL, all, NULL));
    for (int r = 0; r < ranks / STAGES; r++)
        most = all[r].weight_bytes > most ? all[r].weight_bytes : most;
    free(all);
    return most;
}

static void expect_layers(const place *p, tsr_group *on, uint64_t memory_bytes, int first_layers)
{
    tsr_model *model = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    OK(open_model(STORIES,
                  tsr_model_params(.group = on, .stages = p->stages,
                                   .memory_bytes = p->stage == 0 ? memory_bytes : 0),
                  &model));
    OK(tsr_model_get_stats(model, &stats));
    const int want = p->stage == 0 ? first_layers : 5 - first_layers;
    CHECK(stats.layers == want, "stage %d has %d layers, not %d", p->stage, stats.layers, want);
    tsr_model_close(&model);
}

/* The first stage gets 3 of the 5 layers, because the last stage has the output matrix. */
CASE(memory, "stages: layers move from a stage with too little memory")
{
    place p;
    if (!place_init(&p))
        return;
    expect_layers(&p, p.group, 0, 3);
    expect_layers(&p, p.group, first_stage_bytes(3), 3);
    expect_layers(&p, p.group, first_stage_bytes(3) - 1, 2);
    expect_layers(&p, p.group, first_stage_bytes(2) - 1, 1);
    place_finish(&p);
}

/* The limit of memory is not given, so it is that of the device. Tensors occupy whole pages of
 * it. */
CASE(devices, "stages: layers move from a device with too little memory")
{
    place p;
    tsr_device *small = NULL;
    tsr_stream *stream = NULL;
    tsr_group *own = NULL;
    if (!place_init(&p))
        return;
    const uint64_t limit = p.stage == 0 ? (first_stage_bytes(2) + first_stage_bytes(3)) / 2 : 0;
    OK(tsr_device_open(tsr_device_params(.memory_limit_bytes = limit), &small));
    OK(tsr_stream_create(small, &stream));
    OK(tsr_group_create(p.row, stream, NULL, &own));
    expect_layers(&p, own, 0, 2);
    tsr_group_destroy(&own);
    tsr_stream_destroy(&stream);
    tsr_device_close(&small);
    place_finish(&p);
}

/* Opens a model that must not fit, and checks the start and the end of the error. */
static void expect_too_small(const place *p, uint64_t memory_bytes, const int *layers,
                             int64_t context, const char *start, const char *end)
{
    tsr_model *model = NULL;
    const tsr_status status =
        open_model(STORIES,
                   tsr_model_params(.group = p->group, .stages = p->stages,
                                    .memory_bytes = p->stage == 0 ? memory_bytes : 0,
                                    .stage_layers = layers, .context = context),
                   &model);
    const char *text = tsr_last_error();
    const size_t length = strlen(text), tail = strlen(end);
    CHECK(status == TSR_ERR_DEVICE_MEMORY && strncmp(text, start, strlen(start)) == 0 &&
              length >= tail && strcmp(text + length - tail, end) == 0,
          "%s: \"%s\", not \"%s …%s\"", tsr_status_name(status), text, start, end);
}

CASE(too_small, "stages: all ranks say which stage lacks how much, and what would fit")
{
    place p;
    char start[160];
    if (!place_init(&p))
        return;
    const int given[STAGES] = {4, 1};
    const bool alone = ranks == STAGES;
    const char *of = alone ? "" : "rank 0 of ";
    snprintf(start, sizeof start, "model: the weights of %sstage 0 (layers 0 to 0) need %.1f KiB, ",
             of, (double)first_stage_bytes(1) / 1024);
    expect_too_small(&p, 1000, NULL, 0, start, "; no more stages and no other dtype would fit");
    snprintf(start, sizeof start, "model: the weights of %sstage 0 (layers 0 to 3) need %.1f KiB, ",
             of, (double)first_stage_bytes(4) / 1024);
    expect_too_small(&p, first_stage_bytes(3), given, 0, start,
                     "; 3 stages of this size, or the dtype f16 would fit");
    snprintf(start, sizeof start,
             "model: the weights and the cache of %sstage 0 (layers 0 to 3) need ", of);
    expect_too_small(&p, first_stage_bytes(4), given, 8, start, "or the dtype f16 would fit");
    /* If the caller asks for a longer context than the model's, the memory for all of it counts. */
    expect_too_small(&p, UINT64_C(1) << 30, given, TSR_MODEL_MAX_CONTEXT, start,
                     "; no more stages and no other dtype would fit");
    place_finish(&p);
}

CASE(mistakes, "stages: mistakes are errors that name the values, on all ranks")
{
    const struct {
        int layers[STAGES];
        const char *text;
    } wrong[] = {{{0, 2}, "model: stage 0 has 0 layers; at least 1 is needed"},
                 {{1, 2}, "model: the stages have 3 layers, but the model has 2"}};
    place p;
    tsr_model *model = NULL;
    made_model made;
    char text[100];
    if (!place_init(&p))
        return;
    made_init(&made, &made_families[0], SEED);
    const char *path = made_write_hf(&made);
    for (int i = 0; i < 2; i++)
        FAILS(open_model(path,
                         tsr_model_params(.group = p.group, .stages = p.stages,
                                          .stage_layers = wrong[i].layers),
                         &model),
              TSR_ERR_INVALID, wrong[i].text);
    /* Each stage could be opened with these layers, but together they would miss a layer or have
     * it twice. */
    const int different[STAGES][STAGES] = {{2, 3}, {3, 2}};
    char divided[240];
    snprintf(divided, sizeof divided,
             "model: the ranks divide the layers over the stages in different ways; all ranks need "
             "the same params; by those of this rank, stage %d has 2 layers from layer %d on",
             p.stage, p.stage == 0 ? 0 : 3);
    FAILS(open_model(STORIES,
                     tsr_model_params(.group = p.group, .stages = p.stages,
                                      .stage_layers = different[p.stage]),
                     &model),
          TSR_ERR_INVALID, divided);
    const double standing[STAGES] = {1, 0};
    FAILS(open_model(
              path, tsr_model_params(.group = p.group, .stages = p.stages, .stage_rates = standing),
              &model),
          TSR_ERR_INVALID,
          "model: pipeline_divide: the rate of stage 1 is 0; it must be finite and more than 0");
    FAILS(open_model(path, tsr_model_params(.group = p.alone, .stage_layers = (int[]){1}), &model),
          TSR_ERR_INVALID, "model: the stages have 1 layers, but the model has 2");
    const tsr_status status =
        open_model(my_rank == ranks - 1 ? "/proc/nowhere" : path,
                   tsr_model_params(.group = p.group, .stages = p.stages), &model);
    snprintf(text, sizeof text, "model: rank %d of stage 1 could not open the model",
             ranks / STAGES - 1);
    CHECK(status != TSR_OK && (my_rank == ranks - 1 || strcmp(tsr_last_error(), text) == 0),
          "%s: %s", tsr_status_name(status), tsr_last_error());
    made_finish(&made);
    place_finish(&p);
}
