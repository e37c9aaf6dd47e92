/* Measures the time of passes on every rank of a job, each with models of its own. */
#include "bench/model/rates.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/clock.h"
#include "bench/harness/samples.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

#define SEED 1
/* The tokens that a sequence generates before it ends and another one begins, and those of one
 * sample. */
#define TOKENS 32
#define CHUNK 8
#define MAX_SAMPLES 512
/* The smaller models are as large as the part of one rank in a tensor-parallel group of this many
 * ranks. */
#define PARTS 2
/* The sizes of models with hardly any elements, if the whole model is not smaller. */
#define EMPTY_HIDDEN 256
#define EMPTY_VOCABULARY 16
/* How many times the models are measured in turn if they do not fit into memory together. */
#define ROUNDS 4

/* A model that is measured, for one kind of pass at a time. */
typedef struct subject {
    tsr_model *model;
    tsr_generator *generator;
    int left; /* the tokens that its sequences still generate */
    int count;
    double samples[MAX_SAMPLES]; /* seconds of a pass */
} subject;

/* The shape of a model that is measured. Its only kind of layer is `layer`, which most of the
 * model's layers are. */
typedef struct measured {
    tsr_model_config config;
    tsr_model_layer layer;
    tsr_model_experts experts;       /* to which `layer` may point */
    tsr_model_delta_net net;         /* the same */
    const tsr_model_layer *kinds[1]; /* to `layer` */
} measured;

/* A kind of pass. */
typedef struct kind {
    int sequences;
    int64_t prompt; /* the tokens of the prompt; 0: generates instead */
} kind;

typedef struct job {
    bench_rates_options *options;
    bench_options harness;
    bench_context context;
    tsr_comm *comm;
    tsr_model_file *file; /* NULL: a random model is measured */
    tsr_group *alone;     /* a group of this rank only */
    subject subjects[BENCH_RATES_MODELS];
    int *numbers;    /* [sequences]: in a generator; equal in all generators */
    int32_t *tokens; /* [prompt, or 1] */
    int rank;
    int models; /* of BENCH_RATES_MODELS, those that are measured */
    bench_rates_rank own;
    bench_rates_report report;
} job;

static bench_context *of(job *j)
{
    return &j->context;
}

/* Models --------------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t part_of(int64_t size)
{
    return (size + PARTS - 1) / PARTS;
}

/* Returns the elements of a block of this dtype. Rows of matrices have whole blocks. */
static int64_t block_of(tsr_dtype type)
{
    const tsr_quant_format *format = tsr_quant_format_of(type);
    return format != NULL ? format->block_count : 1;
}

/* Returns the features of a head's values. */
static int64_t value_dim(const tsr_model_layer *c)
{
    return c->latent ? c->latent->value_dim : c->value_dim > 0 ? c->value_dim : c->head_dim;
}

/* Returns the part of hidden features, in whole blocks. */
static int64_t part_of_hidden(int64_t size, int64_t block)
{
    return least(size, (part_of(size) + block - 1) / block * block);
}

/* Gives each layer the part of the heads and of the MLP that one rank would have. Heads that cannot
 * be divided stay as they are. */
static void take_part(tsr_model_layer *c, tsr_model_experts *e, int64_t block)
{
    if (c->heads % PARTS == 0 && c->kv_heads % PARTS == 0 &&
        c->heads / PARTS * value_dim(c) % block == 0) {
        c->heads /= PARTS;
        c->kv_heads /= PARTS;
    }
    int64_t *const sizes[] = {&c->hidden, &e->hidden, &e->shared_hidden};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i] = part_of_hidden(*sizes[i], block);
}

/* The same for a delta net: the part of its key heads, with their heads. */
static void take_part_of_net(tsr_model_delta_net *net, int64_t block)
{
    if (net->key_heads % PARTS != 0 || net->heads / PARTS * net->value_dim % block != 0)
        return;
    net->key_heads /= PARTS;
    net->heads /= PARTS;
}

/* Gives a delta net as few key heads as possible. */
static void take_little_of_net(tsr_model_delta_net *net, int64_t block)
{
    const int64_t each = net->heads / net->key_heads;
    int64_t heads = 1;
    while (heads < net->key_heads && heads * each * net->value_dim % block != 0)
        heads++;
    net->key_heads = heads;
    net->heads = heads * each;
}

/* Gives each layer as few elements as possible. */
static void take_little(tsr_model_layer *c, tsr_model_experts *e, int64_t block)
{
    int64_t heads = 1;
    while (heads < c->heads && heads * value_dim(c) % block != 0)
        heads++;
    if (c->heads > 0) {
        c->heads = heads;
        c->kv_heads = c->latent ? heads : 1;
    }
    c->hidden = least(c->hidden, EMPTY_HIDDEN);
    e->hidden = least(e->hidden, EMPTY_HIDDEN);
    e->shared_hidden = least(e->shared_hidden, EMPTY_HIDDEN);
}

/* Returns the kind that most layers are. */
static const tsr_model_layer *usual_layer(const tsr_model_config *c)
{
    int counts[TSR_MODEL_MAX_LAYER_KINDS] = {0}, best = 0;
    for (int i = 0; c->layer_kinds != NULL && i < c->layers; i++)
        counts[c->layer_kinds[i]]++;
    for (int i = 1; i < c->kind_count; i++)
        best = counts[i] > counts[best] ? i : best;
    return c->kinds[best];
}

/* Returns the vocabulary of the models without a head. The tokens of the input are part of all
 * vocabularies. */
static int64_t empty_vocabulary(const tsr_model_config *full)
{
    return least(part_of(full->vocabulary), EMPTY_VOCABULARY);
}

static void describe(const job *j, int which, measured *out)
{
    const tsr_model_config *full = j->report.config;
    const int64_t block = block_of(j->options->type);
    out->config = *full;
    out->layer = *usual_layer(full);
    out->experts = TSR_INIT(tsr_model_experts);
    if (out->layer.experts) {
        out->experts = *out->layer.experts;
        out->layer.experts = &out->experts;
    }
    if (out->layer.delta_net) {
        out->net = *out->layer.delta_net;
        out->layer.delta_net = &out->net;
    }
    out->layer.shared_keys = false; /* there may be no layer that has them */
    out->kinds[0] = &out->layer;
    out->config.kind_count = 1;
    out->config.kinds = out->kinds;
    out->config.layer_kinds = NULL;
    out->config.layers = which == BENCH_RATES_DEEP_WHOLE || which == BENCH_RATES_DEEP_PART ||
                                 which == BENCH_RATES_DEEP_EMPTY ||
                                 which == BENCH_RATES_DEEP_EXPERTS
                             ? BENCH_RATES_MANY_LAYERS
                             : BENCH_RATES_FEW_LAYERS;
    out->config.bos = 0;
    out->config.end_count = 0;
    if (which == BENCH_RATES_PART || which == BENCH_RATES_DEEP_PART) {
        take_part(&out->layer, &out->experts, block);
        if (out->layer.delta_net)
            take_part_of_net(&out->net, block);
    }
    if (which == BENCH_RATES_EXPERTS || which == BENCH_RATES_DEEP_EXPERTS)
        out->experts.hidden = part_of_hidden(out->experts.hidden, block);
    if (which == BENCH_RATES_PART_HEAD)
        out->config.vocabulary = part_of(full->vocabulary);
    if (which == BENCH_RATES_EMPTY || which == BENCH_RATES_DEEP_EMPTY) {
        take_little(&out->layer, &out->experts, block);
        if (out->layer.delta_net)
            take_little_of_net(&out->net, block);
        out->config.vocabulary = empty_vocabulary(full);
    }
}

/* Returns the number of elements of the matrices of latent attention. */
static double latent_elements(const tsr_model_config *c, const tsr_model_layer *layer)
{
    const tsr_model_latent *l = layer->latent;
    const double width = (double)c->width, heads = (double)layer->heads,
                 queries = heads * (double)layer->head_dim, q_rank = (double)l->q_lora_rank,
                 kv_rank = (double)l->kv_lora_rank;
    return (q_rank > 0 ? q_rank * (width + queries) : width * queries) +
           width * (kv_rank + (double)l->rope_dim + heads * (double)l->value_dim) +
           kv_rank * heads * (double)(l->nope_dim + l->value_dim);
}

/* Returns the number of elements of a block's matrices: those with which a row is multiplied or, if
 * `all`, also those of experts that it does not use. */
static double block_elements(const tsr_model_config *c, bool all)
{
    const tsr_model_layer *layer = c->kinds[0];
    const tsr_model_experts *e = layer->experts;
    double mlp = (layer->gated ? 3 : 2) * (double)layer->hidden;
    if (e)
        mlp = (double)e->count +
              3 * (double)((all ? e->count : e->used) * e->hidden + e->shared_hidden);
    const tsr_model_delta_net *net = layer->delta_net;
    if (layer->latent)
        return latent_elements(c, layer) + (double)c->width * mlp;
    const double heads = (double)layer->heads, kv_heads = (double)layer->kv_heads,
                 values = (double)value_dim(layer),
                 mixer = net ? (double)(2 * net->key_heads * net->key_dim +
                                        net->heads * (3 * net->value_dim + 2))
                         : layer->conv_taps > 0
                             ? 4 * (double)c->width
                             : (heads + kv_heads) * (double)layer->head_dim +
                                   ((layer->output_gate ? 2 : 1) * heads + kv_heads) * values;
    return (double)c->width * (mixer + mlp);
}

/* Returns the number of elements of a block's experts that a row uses. */
static double expert_elements(const tsr_model_config *c)
{
    const tsr_model_experts *e = c->kinds[0]->experts;
    return e ? 3 * (double)c->width * (double)(e->used * e->hidden) : 0;
}

static double head_elements(const tsr_model_config *c)
{
    return (double)c->width * (double)c->vocabulary;
}

/* Timing --------------------------------------------------------------------------------------- */

static double median(double *values, int count)
{
    bench_sort(values, count);
    return bench_quantile(values, count, 0.5);
}

static bool barrier(job *j)
{
    BENCH_TRY(of(j), tsr_comm_barrier(j->comm, NULL));
    return true;
}

/* Returns a kind of pass: with 1, 2, 4, … rows (one row per sequence) up to --sequences; the last
 * one is a prompt. */
static kind kind_of(const job *j, int pass)
{
    const bench_rates_options *o = j->options;
    const int64_t rows = INT64_C(1) << pass;
    if (o->prompt > 0 && pass == j->report.passes - 1)
        return (kind){.sequences = 1, .prompt = o->prompt};
    return (kind){.sequences = (int)(rows < o->sequences ? rows : o->sequences)};
}

static int count_passes(const bench_rates_options *o)
{
    int count = 1;
    while (INT64_C(1) << (count - 1) < o->sequences)
        count++;
    return count + (o->prompt > 0);
}

static int64_t rows_of(const job *j, int pass)
{
    const kind k = kind_of(j, pass);
    return k.prompt > 0 ? k.prompt : k.sequences;
}

static void make_input(job *j)
{
    const size_t length = j->options->prompt > 0 ? (size_t)j->options->prompt : 1,
                 sequences = (size_t)j->options->sequences;
    j->tokens = cli_alloc(length, sizeof *j->tokens);
    for (size_t i = 0; i < length; i++)
        j->tokens[i] = (int32_t)((int64_t)i * 7 % empty_vocabulary(j->report.config));
    j->numbers = cli_alloc(sequences, sizeof *j->numbers);
}

static bool step(job *j, const subject *s)
{
    int given;
    BENCH_TRY(of(j), tsr_generator_step(s->generator, &given));
    return true;
}

static bool add_sequences(job *j, const subject *s, const kind *k)
{
    for (int i = 0; i < k->sequences; i++)
        BENCH_TRY(of(j), tsr_generator_add(
                             s->generator,
                             tsr_sequence_params(.prompt = j->tokens,
                                                 .prompt_count = k->prompt > 0 ? k->prompt : 1,
                                                 .max_tokens = k->prompt > 0 ? 1 : TOKENS + 1,
                                                 .ignore_end = true),
                             &j->numbers[i]));
    return true;
}

static bool remove_sequences(job *j, const subject *s, const kind *k)
{
    for (int i = 0; i < k->sequences; i++)
        BENCH_TRY(of(j), tsr_generator_remove(s->generator, j->numbers[i]));
    return true;
}

/* Computes a prompt, or some tokens of each sequence, and keeps the time of a pass, unless this
 * only warms up. */
static bool sample(job *j, subject *s, const kind *k, bool warms_up)
{
    const int steps = k->prompt > 0 ? 1 : CHUNK;
    if (s->left == 0) {
        s->left = k->prompt > 0 ? 1 : TOKENS;
        /* The first step of a new sequence computes its own prompt of one token, so it is not
         * measured. */
        if (!add_sequences(j, s, k) || (k->prompt == 0 && !step(j, s)))
            return false;
    }
    const double start = bench_now_ns();
    for (int i = 0; i < steps; i++)
        if (!step(j, s))
            return false;
    if (!warms_up)
        s->samples[s->count++] = (bench_now_ns() - start) * 1e-9 / steps;
    s->left -= steps;
    return s->left > 0 || remove_sequences(j, s, k);
}

static bool create_generators(job *j, subject *subjects, int count, const kind *k)
{
    const int64_t context = k->prompt > 0 ? k->prompt : TOKENS + 1;
    for (int i = 0; i < count; i++) {
        subject *s = &subjects[i];
        s->left = s->count = 0;
        tsr_generator_destroy(&s->generator);
        BENCH_TRY(of(j), tsr_generator_create(
                             tsr_generator_params(.model = s->model, .sequences = k->sequences,
                                                  .context = context, .prefill = context),
                             &s->generator));
    }
    return true;
}

/* Measures a kind of pass of open models, in seconds. The models take turns, because only
 * differences of their times count, and machines become faster and slower. All ranks start
 * together. */
static bool time_pass(job *j, subject *subjects, int count, const kind *k, double seconds,
                      double *times)
{
    if (!create_generators(j, subjects, count, k) || !barrier(j))
        return false;
    const double end = bench_now_ns() + seconds * 1e9 * count;
    /* In the first rounds, all tokens of a sequence are generated once to warm up. */
    const int warm = k->prompt > 0 ? 1 : TOKENS / CHUNK;
    for (int round = 0; round < warm + MAX_SAMPLES && (round <= warm || bench_now_ns() < end);
         round++)
        for (int i = 0; i < count; i++)
            if (!sample(j, &subjects[i], k, round < warm))
                return false;
    for (int i = 0; i < count; i++)
        times[i] = median(subjects[i].samples, subjects[i].count);
    return barrier(j);
}

/* Opens a model beside models of `used` bytes. */
static tsr_status open_model(job *j, tsr_group *group, const tsr_model_config *config, double used,
                             subject *s, double *bytes)
{
    const bench_rates_options *o = j->options;
    const int64_t most = o->prompt > TOKENS + 1 ? o->prompt : TOKENS + 1;
    tsr_model_params params = {.struct_size = sizeof params,
                               .group = group,
                               .context = most,
                               .sequences = (int)o->sequences};
    cli_stages_divide(&j->options->stages, j->comm, &params);
    if (params.memory_bytes > 0) /* 0: no limit was given */
        params.memory_bytes =
            (double)params.memory_bytes > used ? params.memory_bytes - (uint64_t)used : 1;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    tsr_model_file *file = NULL;
    tsr_status status = tsr_model_file_open_random(config, o->type, SEED, &file);
    if (status == TSR_OK)
        status = tsr_model_open(file, &params, &s->model);
    tsr_model_file_close(&file);
    if (status != TSR_OK)
        return status;
    status = tsr_model_get_stats(s->model, &stats);
    *bytes = (double)stats.weight_bytes;
    return status;
}

static void close_models(job *j)
{
    for (int m = 0; m < BENCH_RATES_MODELS; m++) {
        tsr_generator_destroy(&j->subjects[m].generator);
        tsr_model_close(&j->subjects[m].model);
    }
}

/* Opens all models. If a rank has too little memory for all of them together, *together is false on
 * all ranks, and none is open. */
static bool open_together(job *j, const measured models[BENCH_RATES_MODELS],
                          double bytes[BENCH_RATES_MODELS], bool *together)
{
    int32_t lacks_memory = 0;
    double used = 0;
    for (int m = 0; m < j->models && !lacks_memory; m++) {
        const tsr_status status =
            open_model(j, j->alone, &models[m].config, used, &j->subjects[m], &bytes[m]);
        lacks_memory = status == TSR_ERR_DEVICE_MEMORY || status == TSR_ERR_NO_MEMORY;
        if (!lacks_memory) {
            BENCH_TRY(of(j), status);
            used += bytes[m];
        }
    }
    BENCH_TRY(of(j), tsr_comm_all_reduce(j->comm, &lacks_memory, &lacks_memory, 1, TSR_I32,
                                         TSR_OP_MAX, NULL));
    *together = !lacks_memory;
    if (lacks_memory)
        close_models(j);
    return true;
}

/* Shows which pass is measured. `seconds`: the time that the passes from this one on take. */
static void show_pass(job *j, const kind *k, double seconds)
{
    char text[64];
    bench_progress_expect(&j->context.progress, seconds);
    if (k->prompt > 0)
        snprintf(text, sizeof text, "measuring passes of a prompt of %" PRId64 " tokens",
                 k->prompt);
    else
        snprintf(text, sizeof text, "measuring passes of %d row%s", (int)k->sequences,
                 k->sequences == 1 ? "" : "s");
    bench_progress_show(&j->context.progress, text);
}

/* Measures the models one after the other, several times, and takes the medians. */
static bool time_in_turn(job *j, const measured models[BENCH_RATES_MODELS],
                         bench_rates_times *times, double bytes[BENCH_RATES_MODELS])
{
    double seconds[BENCH_RATES_MODELS][BENCH_RATES_PASSES][ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        for (int m = 0; m < j->models; m++) {
            subject *s = &j->subjects[m];
            BENCH_TRY(of(j), open_model(j, j->alone, &models[m].config, 0, s, &bytes[m]));
            for (int i = 0; i < j->report.passes; i++) {
                const kind k = kind_of(j, i);
                const int left = ((ROUNDS - round) * j->models - m) * j->report.passes - i;
                show_pass(j, &k, left * j->options->seconds / ROUNDS);
                if (!time_pass(j, s, 1, &k, j->options->seconds / ROUNDS, &seconds[m][i][round]))
                    return false;
            }
            close_models(j);
        }
    for (int m = 0; m < j->models; m++)
        for (int i = 0; i < j->report.passes; i++)
            times->seconds[m][i] = median(seconds[m][i], ROUNDS);
    return true;
}

/* Measures all kinds of passes of all models. */
static bool time_models(job *j, const measured models[BENCH_RATES_MODELS], bench_rates_times *times,
                        double bytes[BENCH_RATES_MODELS])
{
    bool together;
    bench_progress_show(&j->context.progress, "generating the models");
    if (!open_together(j, models, bytes, &together))
        return false;
    if (!together && j->rank == 0)
        cli_say("bench rates: the models do not fit into memory together; they are measured one "
                "after the other, which is less exact");
    if (!together)
        return time_in_turn(j, models, times, bytes);
    for (int i = 0; i < j->report.passes; i++) {
        const kind k = kind_of(j, i);
        double seconds[BENCH_RATES_MODELS];
        show_pass(j, &k, (j->report.passes - i) * j->models * j->options->seconds);
        if (!time_pass(j, j->subjects, j->models, &k, j->options->seconds, seconds))
            return false;
        for (int m = 0; m < j->models; m++)
            times->seconds[m][i] = seconds[m];
    }
    close_models(j);
    return true;
}

/* Collectives ---------------------------------------------------------------------------------- */

/* The all-reduces of a tensor-parallel pass with many layers: two for each layer, and one for the
 * embedding. */
#define PASS_REDUCTIONS (2 * BENCH_RATES_MANY_LAYERS + 1)

/* The ranks that divide a model, and the host memory of the collectives of one pass. */
typedef struct party {
    tsr_comm *comm;
    tsr_group *group;
    float *activations, *own_logits, *logits;
    uint64_t width, own_vocabulary;
} party;

static bool create_party(job *j, tsr_comm *comm, const tsr_model_config *config, party *out)
{
    const uint64_t ranks = (uint64_t)tsr_comm_size(comm);
    out->comm = comm;
    out->width = (uint64_t)config->width;
    out->own_vocabulary = ((uint64_t)config->vocabulary + ranks - 1) / ranks;
    out->activations = cli_alloc(out->width, sizeof *out->activations);
    out->own_logits = cli_alloc(out->own_vocabulary, sizeof *out->own_logits);
    out->logits = cli_alloc(out->own_vocabulary * ranks, sizeof *out->logits);
    BENCH_TRY(of(j), tsr_group_create(comm, j->context.stream, tsr_group_params(0), &out->group));
    return true;
}

static void free_party(party *p)
{
    tsr_group_destroy(&p->group);
    free(p->activations);
    free(p->own_logits);
    free(p->logits);
}

/* Makes the collectives of a tensor-parallel pass with data in host memory. With the last one, the
 * ranks agree on the token. */
static bool exchange(job *j, const party *p)
{
    int32_t token[2] = {0};
    for (int i = 0; i < PASS_REDUCTIONS; i++)
        BENCH_TRY(of(j), tsr_comm_all_reduce(p->comm, p->activations, p->activations, p->width,
                                             TSR_F32, TSR_OP_SUM, NULL));
    BENCH_TRY(of(j), tsr_comm_all_gather(p->comm, p->own_logits, p->logits, p->own_vocabulary,
                                         TSR_F32, NULL));
    BENCH_TRY(of(j), tsr_comm_all_reduce(p->comm, token, token, 2, TSR_I32, TSR_OP_MAX, NULL));
    return true;
}

/* Measures a pass of the model that the ranks divide, and its collectives in host memory, in turn.
 * Each time is that of the slowest rank. */
static bool time_divided(job *j, subject *s, const party *p, double *pass, double *exchanges)
{
    const kind k = {.sequences = 1};
    const int warm = TOKENS / CHUNK;
    double samples[MAX_SAMPLES], slowest[2];
    uint8_t more = 1;
    if (!create_generators(j, s, 1, &k))
        return false;
    const double end = bench_now_ns() + j->options->seconds * 1e9;
    for (int round = 0; more; round++) {
        if (!sample(j, s, &k, round < warm))
            return false;
        const double start = bench_now_ns();
        for (int i = 0; i < CHUNK; i++)
            if (!exchange(j, p))
                return false;
        if (round >= warm)
            samples[s->count - 1] = (bench_now_ns() - start) * 1e-9 / CHUNK;
        /* The first rank decides whether all ranks take another sample. */
        more = round < warm + 3 || (bench_now_ns() < end && s->count < MAX_SAMPLES);
        BENCH_TRY(of(j), tsr_comm_broadcast(p->comm, &more, 1, TSR_U8, 0, NULL));
    }
    slowest[0] = median(s->samples, s->count);
    slowest[1] = median(samples, s->count);
    BENCH_TRY(of(j), tsr_comm_all_reduce(p->comm, slowest, slowest, 2, TSR_F64, TSR_OP_MAX, NULL));
    *pass = slowest[0];
    *exchanges = slowest[1];
    return true;
}

/* Measures how much longer a collective of tensors takes than one of as much host memory: that by
 * which a pass of a model that the ranks of `comm` divide is longer than the computation of the
 * slowest rank and the collectives in host memory, for each collective. */
static bool measure_collective(job *j, tsr_comm *comm, const tsr_model_config *config,
                               const bench_rates_sizes *sizes, double *out)
{
    const int ranks = tsr_comm_size(comm);
    double computes = bench_rates_part_seconds(&j->own.pass[0], sizes, (int)config->layers, ranks),
           bytes, pass = 0, exchanges = 0;
    party p = {0};
    if (ranks == 1)
        return true;
    BENCH_TRY(of(j), tsr_comm_all_reduce(comm, &computes, &computes, 1, TSR_F64, TSR_OP_MAX, NULL));
    bool good = create_party(j, comm, config, &p) &&
                bench_passed(of(j), open_model(j, p.group, config, 0, &j->subjects[0], &bytes),
                             "opening a random model") &&
                time_divided(j, &j->subjects[0], &p, &pass, &exchanges);
    *out = fmax(pass - computes - exchanges, 0) / (PASS_REDUCTIONS + 1);
    close_models(j);
    free_party(&p);
    return good;
}

/* Measures collectives of all ranks, and of the ranks of each host, of all hosts at the same
 * time. */
static bool measure_collectives(job *j, const tsr_model_config *config,
                                const bench_rates_sizes *sizes)
{
    tsr_comm *host = NULL;
    if (!measure_collective(j, j->comm, config, sizes, &j->own.collective))
        return false;
    j->own.host_collective = j->own.collective;
    if (tsr_comm_host_count(j->comm) == 1)
        return true;
    BENCH_TRY(of(j), tsr_comm_split(j->comm, tsr_comm_host(j->comm, j->rank), j->rank, &host));
    const bool good = measure_collective(j, host, config, sizes, &j->own.host_collective);
    tsr_comm_destroy(&host);
    return good;
}

/* The job -------------------------------------------------------------------------------------- */

static bool open_job(job *j)
{
    bench_rates_options *o = j->options;
    BENCH_TRY(of(j), tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(o->timeout * 1e9)),
                                     &j->comm));
    j->rank = tsr_comm_rank(j->comm);
    j->report.ranks = tsr_comm_size(j->comm);
    if (!cli_stages_fit(&o->stages, j->report.ranks, j->context.error, sizeof j->context.error))
        return false;
    j->report.type = o->type;
    j->report.passes = count_passes(o);
    j->report.config = &o->shape->config;
    snprintf(j->report.name, sizeof j->report.name, "%s", o->path ? o->path : o->shape->name);
    if (o->path != NULL) {
        BENCH_TRY(of(j), tsr_model_file_open(o->path, &j->file));
        j->report.config = tsr_model_file_config(j->file);
    }
    j->models = o->experts ? BENCH_RATES_MODELS : BENCH_RATES_EXPERTS;
    j->report.experts = o->experts;
    if (o->experts && !usual_layer(j->report.config)->experts)
        return bench_fail(of(j), "--experts: most layers of %s have no experts", j->report.name);
    if (!bench_open_device(of(j), o->device))
        return false;
    snprintf(j->own.device, sizeof j->own.device, "%s", j->context.info->name);
    BENCH_TRY(of(j), tsr_group_create(NULL, j->context.stream, tsr_group_params(0), &j->alone));
    return true;
}

/* Sets the passes of this rank from the times of all ranks. */
static bool fit(job *j, const bench_rates_sizes *sizes, bench_rates_times *own)
{
    bench_rates_times mean;
    int noisy;
    bench_rates_times *all = cli_alloc((size_t)j->report.ranks, sizeof *all);
    snprintf(own->device, sizeof own->device, "%s", j->own.device);
    const bool gathered =
        bench_passed(of(j), tsr_comm_all_gather(j->comm, own, all, sizeof *own, TSR_U8, NULL),
                     "tsr_comm_all_gather");
    if (gathered)
        bench_rates_average(j->report.ranks, all, j->rank, j->report.passes, &mean);
    free(all);
    if (!gathered)
        return false;
    for (int i = 0; i < j->report.passes; i++)
        j->own.pass[i].rows = rows_of(j, i);
    if (!bench_rates_fit(&mean, sizes, j->report.passes, j->own.pass, &noisy))
        cli_say(
            "bench rates: warning: on rank %d a pass of %lld rows takes %g ms with %d layers and "
            "%g ms with %d; with parts of them, %g and %g ms; measure longer (--time), without "
            "other programs",
            j->rank, (long long)j->own.pass[noisy].rows,
            mean.seconds[BENCH_RATES_WHOLE][noisy] * 1e3, BENCH_RATES_FEW_LAYERS,
            mean.seconds[BENCH_RATES_DEEP_WHOLE][noisy] * 1e3, BENCH_RATES_MANY_LAYERS,
            mean.seconds[BENCH_RATES_PART][noisy] * 1e3,
            mean.seconds[BENCH_RATES_DEEP_PART][noisy] * 1e3);
    return true;
}

static bool measure_all(job *j)
{
    double bytes[BENCH_RATES_MODELS];
    measured models[BENCH_RATES_MODELS];
    bench_rates_times own = {0};
    for (int m = 0; m < j->models; m++)
        describe(j, m, &models[m]);
    const tsr_model_config *whole = &models[BENCH_RATES_WHOLE].config,
                           *part = &models[BENCH_RATES_PART].config;
    const bool experts = j->options->experts;
    const bench_rates_sizes sizes = {
        .experts = experts ? expert_elements(whole) : 0,
        .part_experts = experts ? expert_elements(part) : 0,
        .layer = block_elements(&models[BENCH_RATES_WHOLE].config, false),
        .part_layer = block_elements(&models[BENCH_RATES_PART].config, false),
        .head = head_elements(&models[BENCH_RATES_WHOLE].config),
        .part_head = head_elements(&models[BENCH_RATES_PART_HEAD].config),
    };
    make_input(j);
    if (!time_models(j, models, &own, bytes))
        return false;
    j->report.element_bytes = (bytes[BENCH_RATES_DEEP_WHOLE] - bytes[BENCH_RATES_WHOLE]) /
                              (BENCH_RATES_MANY_LAYERS - BENCH_RATES_FEW_LAYERS) /
                              block_elements(&models[BENCH_RATES_WHOLE].config, true);
    bench_progress_show(&j->context.progress, "measuring collectives");
    if (!fit(j, &sizes, &own) ||
        !measure_collectives(j, &models[BENCH_RATES_DEEP_WHOLE].config, &sizes))
        return false;
    j->report.rank = cli_alloc((size_t)j->report.ranks, sizeof *j->report.rank);
    BENCH_TRY(of(j),
              tsr_comm_all_gather(j->comm, &j->own, j->report.rank, sizeof j->own, TSR_U8, NULL));
    return true;
}

static void close_job(job *j)
{
    free(j->report.rank);
    tsr_model_file_close(&j->file);
    tsr_group_destroy(&j->alone);
    bench_finish(&j->context);
    tsr_comm_destroy(&j->comm);
}

static void write_report(void *user, bench_format format, FILE *out)
{
    bench_rates_write(user, format, out);
}

int bench_rates_run(bench_rates_options *options)
{
    job *j = cli_alloc(1, sizeof *j);
    int code = CLI_DONE;
    j->options = options;
    j->context.options = &j->harness;
    bool done = open_job(j);
    if (done && j->rank == 0)
        bench_progress_begin(&j->context.progress, stderr, isatty(STDERR_FILENO));
    done = done && measure_all(j);
    bench_progress_end(&j->context.progress);
    if (!done)
        code = cli_failed("bench rates: %s", j->context.error);
    else if (j->rank == 0)
        code = bench_destination_write("bench rates", &options->to, write_report, &j->report);
    close_job(j);
    free(j);
    return code;
}
