/* tessera plan --goal finetune: the memory that tessera finetune needs on each grid of ranks, and
 * how fast it is. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/plan/plan.h"
#include "tessera/tessera.h"

/* The bytes of a trained number, its gradient, and the two moments of AdamW, in f32. */
#define TRAINED_BYTES 16
#define LOGIT_BYTES (1 << 27) /* of the logits that exist at once, at most */
#define LOGIT_TOKENS 64       /* the fewest tokens whose logits exist at once */
#define KV_GROUPS 8           /* of heads whose keys context ranks gather one after the other */

/* The work of a step. */
typedef struct work {
    int64_t context, batch, accumulate, rank;
    int context_ranks; /* that divide each row */
    unsigned targets;
    bool full, shares; /* shares: data-parallel and context ranks share the weights */
} work;

/* What a rank needs, in bytes. `passing` is the memory of temporary tensors of all layers, which
 * the stream keeps until it needs them again (an eighth of the memory at most), `gathered` that of
 * the keys and values of context ranks. */
typedef struct need {
    double weights, trained, activations, recomputed, head, passing, gathered, limit;
} need;

/* A grid of data · context · tensor · stages ranks. */
typedef struct grid {
    int data, tensor, stages;
    need *needs;                 /* [tensor · stages]: of the ranks of one copy of the model */
    double peak[2];              /* the most bytes of a rank: without and with recomputation */
    bool fits[2];                /* whether all ranks have that */
    double tokens_per_second[2]; /* 0: not predicted */
} grid;

typedef struct plan {
    plan_ranks given;
    double *flops; /* [given.count]; NULL: not given */
    tsr_model_file *file;
    const tsr_model_config *config;
    work work;
    grid *grids;
    int count, best; /* the number of the best grid; −1: none fits */
    bool best_recomputes;
} plan;

/* What a rank needs ---------------------------------------------------------------------------- */

/* Returns the first layer with attention of a rank, of which a plan gives the sizes; or its first
 * layer. */
static const tsr_model_layer *layer_of(const tsr_model_config *c, const tsr_model_rank_plan *p)
{
    for (int i = p->first_layer; i < p->first_layer + p->layers; i++)
        if (c->kinds[c->layer_kinds[i]]->heads > 0)
            return c->kinds[c->layer_kinds[i]];
    return c->kinds[c->layer_kinds[p->first_layer]];
}

/* Hidden features that a rank computes for a token in one layer: of experts, as large a part as a
 * token uses of all. */
static double hidden_of(const tsr_model_layer *l, const tsr_model_rank_plan *p)
{
    return l->experts != NULL ? (double)(p->experts * p->expert_hidden * l->experts->used) /
                                    (double)l->experts->count
                              : (double)p->hidden;
}

/* Returns the numbers of a rank's adapters in a layer. */
static double layer_numbers(const plan *s, const tsr_model_rank_plan *p, const tsr_model_layer *l)
{
    const work *w = &s->work;
    const tsr_model_layer *usual = layer_of(s->config, p);
    const tsr_model_latent *latent = usual->latent;
    const bool dense = l->experts == NULL, direct = latent == NULL || latent->q_lora_rank == 0;
    const double width = (double)s->config->width, r = (double)w->rank, heads = (double)p->heads,
                 q = heads * (double)usual->head_dim, kv_heads = (double)p->kv_heads,
                 out = heads * (double)usual->value_dim, hidden = (double)p->hidden;
    const bool keys = (w->targets & TSR_LORA_K) != 0;
    double of_q = width + (usual->output_gate ? 2 * q : q),
           of_k = width + kv_heads * (double)usual->head_dim,
           of_v = width + kv_heads * (double)usual->value_dim;
    if (latent != NULL) { /* k_b and v_b have one matrix A */
        const double kv_rank = (double)latent->kv_lora_rank, q_rank = (double)latent->q_lora_rank;
        of_q += direct ? 0 : 2 * q_rank;
        of_k = width + 2 * kv_rank + (double)latent->rope_dim + heads * (double)latent->nope_dim;
        of_v = (keys ? 0 : kv_rank) + heads * (double)latent->value_dim;
    }
    const double sizes[] = {of_q,
                            of_k,
                            of_v,
                            out + width,
                            dense && l->gated ? width + hidden : 0,
                            dense ? width + hidden : 0,
                            dense ? hidden + width : 0};
    double sum = 0;
    for (int i = 0; i < 7; i++)
        if ((w->targets & 1U << i) != 0)
            sum += r * sizes[i];
    if (dense || (w->targets & TSR_LORA_EXPERTS) == 0)
        return sum;
    sum += 3 * r * (double)p->experts * (width + (double)p->expert_hidden);
    if (l->experts->shared_hidden > 0 && usual->heads > 0)
        sum += 3 * r * (width + (double)l->experts->shared_hidden * heads / (double)usual->heads);
    return sum;
}

/* Returns the numbers that this rank trains: of its layers' adapters, or all. */
static double trained_numbers(const plan *s, const grid *g, const tsr_model_rank_plan *p)
{
    const work *w = &s->work;
    const tsr_model_config *c = s->config;
    const bool has_head = p->stage == g->stages - 1 && !c->tied;
    double sum = 0;
    if (w->full)
        return (double)p->weight_bytes / sizeof(float);
    for (int i = p->first_layer; i < p->first_layer + p->layers; i++)
        sum += layer_numbers(s, p, c->kinds[c->layer_kinds[i]]);
    return sum + (has_head && (w->targets & TSR_LORA_HEAD) != 0
                      ? (double)w->rank * ((double)c->width + (double)p->vocabulary)
                      : 0);
}

/* Returns the bytes that a block keeps of a token for its backward pass: the inputs of norms and
 * products, q, k, v, and the values inside the MLP. */
static double block_bytes(const plan *s, const tsr_model_rank_plan *p)
{
    const tsr_model_layer *l = layer_of(s->config, p);
    const double whole = 6 * (double)s->config->width,
                 attention = (double)(2 * p->heads + 2 * p->kv_heads) * (double)l->head_dim,
                 mlp = (l->gated ? 4 : 3) * hidden_of(l, p);
    return sizeof(float) * (whole + attention + mlp);
}

/* Returns the bytes of the logits and their gradient that exist at once. */
static double head_bytes(const tsr_model_rank_plan *p, double tokens)
{
    const double classes = (double)p->vocabulary;
    double chunk = LOGIT_BYTES / (classes * sizeof(float));
    chunk = fmin(fmax(chunk, LOGIT_TOKENS), tokens);
    return 2 * chunk * classes * sizeof(float);
}

/* Returns the rows of a pass of a data-parallel rank. */
static double rows_of(const work *w, const grid *g)
{
    const int64_t rows = w->batch / w->accumulate, own = (rows + g->data - 1) / g->data;
    return (double)own;
}

/* The ranks that have the same part of the model. */
static int copies_of(const work *w, const grid *g)
{
    return g->data * w->context_ranks;
}

/* Returns the tokens of a pass of a rank; of the first context ranks, if they do not divide rows
 * equally. */
static double tokens_of(const work *w, const grid *g)
{
    const int64_t own = (w->context + w->context_ranks - 1) / w->context_ranks;
    return rows_of(w, g) * (double)own;
}

/* Estimates the bytes of keys and values that a context rank has of whole rows: those of two groups
 * of heads, as they come and in the order of the rows, and their gradients. Where heads are divided
 * unevenly, or rows are short, there is one group. */
static double gathered_keys(const plan *s, const grid *g, const tsr_model_rank_plan *p)
{
    const work *w = &s->work;
    const tsr_model_layer *l = layer_of(s->config, p);
    const double heads = (double)p->kv_heads, groups = fmin(fmax(heads, 1), KV_GROUPS);
    if (w->context_ranks == 1)
        return 0;
    return fmin(2, groups) * 2 * 2 * sizeof(float) * rows_of(w, g) * (double)w->context * heads *
           (double)(l->head_dim + l->value_dim) / groups;
}

/* The bytes of the weights that a rank gathers at once: those of a layer, and of the next one. */
static double gathered_bytes(const tsr_model_rank_plan *p)
{
    const double block =
        (double)(p->attention_bytes + p->mlp_bytes + p->norm_bytes) / fmax(p->layers, 1);
    return 2 * fmax(block, fmax((double)p->embedding_bytes, (double)p->head_bytes));
}

/* Returns the bytes of f32 copies of weights in blocks, which backward passes multiply by: of all
 * layers, as far as the stream keeps temporary tensors, or of a layer and the next one if passes
 * wait until layers are gathered. Weights in blocks have less than two bytes. */
static double unpacked_bytes(const work *w, const grid *g, const tsr_model_rank_plan *p)
{
    const double numbers = (double)p->token_parameters;
    if (w->full || (double)p->token_bytes >= 1.9 * numbers)
        return 0;
    return sizeof(float) * numbers *
           (w->shares && copies_of(w, g) > 1 ? fmin(1, 2 / fmax(p->layers, 1)) : 1);
}

/* Divides the weights over the ranks that have the same ones, and what is trained unless it is an
 * adapter, which is small. */
static void share(const work *w, const grid *g, const tsr_model_rank_plan *p, need *n)
{
    const int copies = copies_of(w, g);
    if (!w->shares || copies == 1)
        return;
    const double gathered = gathered_bytes(p);
    n->weights = n->weights / copies + gathered;
    if (w->full)
        n->trained = n->trained / copies + gathered;
}

static need need_of(const plan *s, const grid *g, const tsr_model_rank_plan *p, uint64_t memory)
{
    const work *w = &s->work;
    const double tokens = tokens_of(w, g), width = (double)s->config->width;
    const int64_t after = g->stages - p->stage;
    /* The micro-batches whose activations a stage keeps at once. */
    const double kept = (double)(after < w->accumulate ? after : w->accumulate);
    const double block = tokens * block_bytes(s, p), input = tokens * width * sizeof(float);
    need all = {.weights = (double)p->weight_bytes,
                .trained = TRAINED_BYTES * trained_numbers(s, g, p) -
                           (w->full ? (double)p->weight_bytes : 0),
                .activations = kept * p->layers * block,
                .recomputed = kept * p->layers * input + 2 * block,
                .passing = kept * p->layers * block + unpacked_bytes(w, g, p),
                .gathered = gathered_keys(s, g, p),
                .limit = (double)memory,
                .head = p->stage == g->stages - 1 ? head_bytes(p, tokens) : 0};
    share(w, g, p, &all);
    return all;
}

static double passing_of(const need *n)
{
    return (n->limit > 0 ? fmin(n->passing, n->limit / 8) : n->passing) + n->gathered;
}

static double peak_of(const need *n, bool recompute)
{
    const double kept = recompute ? n->recomputed : n->activations;
    return n->weights + n->trained + n->head + kept + passing_of(n);
}

/* How long a step takes ------------------------------------------------------------------------ */

/* Returns the operations that a rank needs for a token: 2 for each number forward, 2 for the
 * gradients of features, 2 for those of weights that are trained, and 2 to compute it again. */
static double token_flops(const plan *s, const tsr_model_rank_plan *p, bool recompute)
{
    const double passes = 4 + (s->work.full ? 2 : 0) + (recompute ? 2 : 0);
    return passes * (double)p->token_parameters;
}

/* Returns the tokens that a grid learns in a second. The ranks of a stage wait for the slowest of
 * them, and the stages for the slowest stage. */
static double predict(const plan *s, const grid *g, const tsr_model_rank_plan *ranks,
                      bool recompute)
{
    const work *w = &s->work;
    const int stage = s->given.count / g->stages, each = g->tensor;
    double slowest = 0;
    for (int i = 0; i < s->given.count && s->flops != NULL; i++) {
        const tsr_model_rank_plan *p = &ranks[i / stage * each + i % each];
        slowest = fmax(slowest, token_flops(s, p, recompute) / s->flops[i]);
    }
    const double micro = slowest * tokens_of(w, g),
                 step = micro * (double)(w->accumulate + g->stages - 1);
    return step > 0 ? (double)(w->batch * w->context) / step : 0;
}

/* Grids ---------------------------------------------------------------------------------------- */

/* Adds the rates of the copies of the model, as tessera finetune does: rates[tensor · stages]. */
static double *add_rates(const plan *s, const grid *g)
{
    const int stage = s->given.count / g->stages;
    double *rates = cli_alloc((size_t)g->tensor * (size_t)g->stages, sizeof *rates);
    for (int i = 0; i < s->given.count; i++)
        rates[i / stage * g->tensor + i % g->tensor] += s->given.rates[i];
    return rates;
}

static tsr_status plan_ranks_of(const plan *s, const plan_options *o, const grid *g,
                                tsr_model_rank_plan *ranks)
{
    const int count = g->tensor * g->stages;
    double *rates = s->given.rates != NULL ? add_rates(s, g) : NULL,
           *stages = rates != NULL ? cli_alloc((size_t)g->stages, sizeof *stages) : NULL;
    for (int i = 0; rates != NULL && i < count; i++)
        stages[i / g->tensor] += rates[i];
    const tsr_partition_params partition = {.struct_size = sizeof partition,
                                            .kind = rates != NULL ? TSR_PARTITION_WEIGHTED
                                                                  : TSR_PARTITION_UNEVEN,
                                            .rates = rates};
    for (int i = 0; i < count; i++)
        ranks[i] = TSR_INIT(tsr_model_rank_plan);
    const tsr_status status = tsr_model_plan(
        s->file,
        tsr_model_plan_params(.ranks = count, .dtype = s->work.full ? TSR_F32 : o->dtype,
                              .partition = &partition, .context = 1, .stages = g->stages,
                              .stage_rates = stages),
        NULL, ranks, NULL);
    free(rates);
    free(stages);
    return status;
}

/* Returns the least memory of the ranks at a place of the model, one for each copy; 0: no limit. */
static uint64_t least_memory(const plan *s, const grid *g, int place)
{
    const int stage = s->given.count / g->stages;
    uint64_t least = 0;
    for (int i = 0; s->given.memory != NULL && i < s->given.count; i++) {
        const uint64_t memory = s->given.memory[i];
        if (i / stage * g->tensor + i % g->tensor == place && memory > 0 &&
            (least == 0 || memory < least))
            least = memory;
    }
    return least;
}

static tsr_status judge(const plan *s, const plan_options *o, grid *g)
{
    const int count = g->tensor * g->stages, stage = s->given.count / g->stages;
    tsr_model_rank_plan *ranks = cli_alloc((size_t)count, sizeof *ranks);
    const tsr_status status = plan_ranks_of(s, o, g, ranks);
    g->needs = cli_alloc((size_t)count, sizeof *g->needs);
    for (int i = 0; status == TSR_OK && i < count; i++)
        g->needs[i] = need_of(s, g, &ranks[i], least_memory(s, g, i));
    for (int r = 0; status == TSR_OK && r < 2; r++) {
        g->fits[r] = true;
        for (int i = 0; i < s->given.count; i++) {
            const double peak = peak_of(&g->needs[i / stage * g->tensor + i % g->tensor], r == 1);
            const uint64_t memory = s->given.memory != NULL ? s->given.memory[i] : 0;
            g->peak[r] = fmax(g->peak[r], peak);
            g->fits[r] = g->fits[r] && (memory == 0 || peak <= (double)memory);
        }
        g->tokens_per_second[r] = predict(s, g, ranks, r == 1);
    }
    free(ranks);
    return status;
}

/* Computes all grids that the model allows. A grid with more ranks than the model has heads or
 * layers is left out. */
static int compute(plan *s, const plan_options *o)
{
    const int contexts = s->work.context_ranks, ranks = s->given.count / contexts;
    const int64_t rows = s->work.batch / s->work.accumulate;
    const int code = plan_check_contexts(&s->given, contexts);
    if (code != CLI_DONE)
        return code;
    s->grids = cli_alloc((size_t)ranks * (size_t)ranks + 1, sizeof *s->grids);
    for (int stages = 1; stages <= ranks && stages <= s->config->layers; stages++)
        for (int data = 1; data <= ranks / stages && data <= rows; data++) {
            grid *g = &s->grids[s->count];
            if (ranks % (stages * data) != 0 || (o->stages > 0 && o->stages != stages))
                continue;
            *g = (grid){.data = data, .tensor = ranks / (stages * data), .stages = stages};
            const tsr_status status = judge(s, o, g);
            if (status == TSR_OK)
                s->count++;
            else
                free(g->needs);
            if (status != TSR_OK && (s->count == 0 || status != TSR_ERR_INVALID))
                return cli_failed_in("plan", tsr_last_error());
        }
    if (s->count == 0)
        return cli_usage_error("plan: no grid of %d rank%s has %" PRId64 " stages", s->given.count,
                               CLI_PLURAL(s->given.count), o->stages);
    return CLI_DONE;
}

/* Finds the fastest grid that fits; without predictions, that with the fewest tensor-parallel
 * ranks, which exchange most, and without recomputation if possible. */
static void choose(plan *s)
{
    double most = -1;
    s->best = -1;
    for (int i = 0; i < s->count; i++)
        for (int r = 0; r < 2; r++) {
            const grid *g = &s->grids[i];
            const double speed = s->flops != NULL ? g->tokens_per_second[r]
                                                  : (r == 0 ? 2 : 1) + 1 / (1.0 + g->tensor);
            if (!g->fits[r] || speed <= most)
                continue;
            most = speed;
            s->best = i;
            s->best_recomputes = r == 1;
        }
}

/* Printing ------------------------------------------------------------------------------------- */

static void add_bytes(cli_table *table, double bytes)
{
    char text[CLI_BYTES_TEXT];
    cli_table_cell(table, "%s", cli_bytes((uint64_t)bytes, text));
}

static void print_grids(const plan *s)
{
    static const char *const headings[] = {"data", "tensor",           "stages",
                                           "peak", "with --recompute", "fits"};
    cli_table *table = cli_table_create();
    for (int i = 0; i < 6; i++)
        cli_table_column(table, headings[i], i < 5 ? CLI_RIGHT : CLI_LEFT);
    if (s->flops != NULL)
        cli_table_column(table, "tokens/s", CLI_RIGHT);
    for (int i = 0; i < s->count; i++) {
        const grid *g = &s->grids[i];
        char text[CLI_NUMBER_TEXT];
        cli_table_cell(table, "%d", g->data);
        cli_table_cell(table, "%d", g->tensor);
        cli_table_cell(table, "%d", g->stages);
        add_bytes(table, g->peak[0]);
        add_bytes(table, g->peak[1]);
        cli_table_cell(table, "%s", g->fits[0] ? "yes" : g->fits[1] ? "with --recompute" : "no");
        if (s->flops != NULL)
            cli_table_cell(table, "%s", cli_number(g->tokens_per_second[g->fits[0] ? 0 : 1], text));
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

static void print_ranks(const plan *s)
{
    const grid *g = &s->grids[s->best];
    const int stage = s->given.count / g->stages;
    cli_table *table = cli_table_create();
    cli_table_column(table, "rank", CLI_RIGHT);
    cli_table_column(table, "weights", CLI_RIGHT);
    cli_table_column(table, s->work.full ? "gradients and optimizer" : "adapter and optimizer",
                     CLI_RIGHT);
    cli_table_column(table, "activations", CLI_RIGHT);
    cli_table_column(table, "logits", CLI_RIGHT);
    cli_table_column(table, "in passing", CLI_RIGHT);
    cli_table_column(table, "peak", CLI_RIGHT);
    cli_table_column(table, "of", CLI_RIGHT);
    for (int i = 0; i < s->given.count; i++) {
        const need *n = &g->needs[i / stage * g->tensor + i % g->tensor];
        cli_table_cell(table, "%d", i);
        add_bytes(table, n->weights);
        add_bytes(table, n->trained);
        add_bytes(table, s->best_recomputes ? n->recomputed : n->activations);
        add_bytes(table, n->head);
        add_bytes(table, passing_of(n));
        add_bytes(table, peak_of(n, s->best_recomputes));
        if (s->given.memory != NULL && s->given.memory[i] > 0)
            add_bytes(table, (double)s->given.memory[i]);
        else
            cli_table_cell(table, "-");
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

#define OPTIONS_TEXT 128
/* Writes the options of tessera finetune for the best grid. Returns `text`. */
static const char *options_of_best(const plan *s, char text[OPTIONS_TEXT])
{
    const grid *g = &s->grids[s->best];
    size_t used = 0;
    text[0] = '\0';
    if (g->data > 1)
        used += (size_t)snprintf(text + used, OPTIONS_TEXT - used, " --data-parallel %d", g->data);
    if (s->work.context_ranks > 1)
        used += (size_t)snprintf(text + used, OPTIONS_TEXT - used, " --context-parallel %d",
                                 s->work.context_ranks);
    if (copies_of(&s->work, g) > 1 && s->work.shares)
        used += (size_t)snprintf(text + used, OPTIONS_TEXT - used, " --fsdp");
    if (g->stages > 1)
        used += (size_t)snprintf(text + used, OPTIONS_TEXT - used, " --stages %d", g->stages);
    if (s->best_recomputes)
        (void)snprintf(text + used, OPTIONS_TEXT - used, " --recompute");
    return text[0] == ' ' ? text + 1 : text;
}

static void print_text(const char *path, const plan *s)
{
    char options[OPTIONS_TEXT];
    cli_print(stdout, "%s: %s, %d layer%s, on %d rank%s; %" PRId64 " rows of %" PRId64 " tokens",
              path, s->config->architecture, s->config->layers, CLI_PLURAL(s->config->layers),
              s->given.count, CLI_PLURAL(s->given.count), s->work.batch, s->work.context);
    if (s->work.context_ranks > 1)
        printf(", each divided over %d ranks", s->work.context_ranks);
    fputs("\n\n", stdout);
    print_grids(s);
    if (s->best < 0) {
        puts("\nno grid fits");
        return;
    }
    puts("\nthe best:");
    print_ranks(s);
    if (options_of_best(s, options)[0] != '\0')
        cli_line(stdout, "\noptions of tessera finetune: %s", options_of_best(s, options));
}

static void add_need(json_t *list, const need *n)
{
    json_t *object = cli_json_append_object(list);
    cli_json_u64(object, "weight_bytes", (uint64_t)n->weights);
    cli_json_u64(object, "trained_bytes", (uint64_t)n->trained);
    cli_json_u64(object, "activation_bytes", (uint64_t)n->activations);
    cli_json_u64(object, "recomputed_activation_bytes", (uint64_t)n->recomputed);
    cli_json_u64(object, "logit_bytes", (uint64_t)n->head);
    cli_json_u64(object, "passing_bytes", (uint64_t)passing_of(n));
    cli_json_u64(object, "peak_bytes", (uint64_t)peak_of(n, false));
    cli_json_u64(object, "recomputed_peak_bytes", (uint64_t)peak_of(n, true));
}

static void print_json(const char *path, const plan *s)
{
    char options[OPTIONS_TEXT];
    json_t *document = cli_json_document("tessera.plan.finetune", 1);
    cli_json_text(document, "model", path);
    cli_json_text(document, "architecture", s->config->architecture);
    cli_json_bool(document, "fits", s->best >= 0);
    if (s->best >= 0)
        cli_json_text(document, "options", options_of_best(s, options));
    json_t *list = cli_json_add_array(document, "grids");
    for (int i = 0; i < s->count; i++) {
        const grid *g = &s->grids[i];
        json_t *object = cli_json_append_object(list);
        cli_json_u64(object, "data", (uint64_t)g->data);
        cli_json_u64(object, "context", (uint64_t)s->work.context_ranks);
        cli_json_u64(object, "tensor", (uint64_t)g->tensor);
        cli_json_u64(object, "stages", (uint64_t)g->stages);
        cli_json_bool(object, "fits", g->fits[0]);
        cli_json_bool(object, "fits_recomputed", g->fits[1]);
        cli_json_bool(object, "best", i == s->best);
        if (s->flops != NULL) {
            cli_json_real(object, "tokens_per_second", g->tokens_per_second[0]);
            cli_json_real(object, "recomputed_tokens_per_second", g->tokens_per_second[1]);
        }
        json_t *ranks = cli_json_add_array(object, "ranks");
        for (int r = 0; r < g->tensor * g->stages; r++)
            add_need(ranks, &g->needs[r]);
    }
    cli_json_print(document);
}

/* Running -------------------------------------------------------------------------------------- */

static int read_flops(const plan_options *o, plan *s)
{
    const size_t count = o->gflops.count;
    if (count == 0)
        return CLI_DONE;
    if (count != 1 && count != (size_t)s->given.count)
        return cli_usage_error("plan: --gflops has %zu value%s for %d rank%s", count,
                               CLI_PLURAL(count), s->given.count, CLI_PLURAL(s->given.count));
    s->flops = cli_alloc((size_t)s->given.count, sizeof *s->flops);
    for (int i = 0; i < s->given.count; i++) {
        const char *text = o->gflops.texts[count == 1 ? 0 : i];
        if (!plan_read_rate(text, &s->flops[i]) || s->flops[i] == 0)
            return cli_usage_error("plan: --gflops takes positive numbers, not '%s'", text);
        s->flops[i] *= 1e9;
    }
    return CLI_DONE;
}

static int read_work(const plan_options *o, plan *s)
{
    work *w = &s->work;
    *w = (work){.context = o->context > 0 ? o->context : 1024,
                .batch = o->batch > 0 ? o->batch : 8,
                .accumulate = o->accumulate > 0 ? o->accumulate : 1,
                .context_ranks = o->context_ranks > 0 ? (int)o->context_ranks : 1,
                .rank = o->lora_rank > 0 ? o->lora_rank : 16,
                .targets = o->targets != 0 ? o->targets : TSR_LORA_EXPERTS - 1U,
                .full = o->trains_all,
                .shares = o->shares_weights};
    if (w->batch % w->accumulate != 0)
        return cli_usage_error("plan: --accumulate %" PRId64 " does not divide --batch %" PRId64,
                               w->accumulate, w->batch);
    if (w->context < w->context_ranks)
        return cli_usage_error("plan: --context %" PRId64 " has fewer tokens than "
                               "--context-parallel %d has ranks",
                               w->context, w->context_ranks);
    return CLI_DONE;
}

int plan_finetune(const char *path, const plan_options *o)
{
    plan s = {0};
    const plan_given refused[] = {{o->experts.given, "experts"},
                                  {o->draft.from != TSR_DRAFT_NONE, "draft"},
                                  {o->sequences > 0, "sequences"},
                                  {o->cache_dtype != 0, "cache-dtype"},
                                  {o->layers.count > 0, "stage-layers"},
                                  {o->bandwidth.count > 0, "bandwidth"},
                                  {o->host_bandwidth.count > 0, "host-bandwidth"},
                                  {o->latency_us >= 0, "latency"},
                                  {0}};
    int code = plan_refuse_sharding("--goal finetune", o);
    if (code == CLI_DONE)
        code = plan_refuse("--goal finetune", refused);
    if (code == CLI_DONE)
        code = read_work(o, &s);
    if (code == CLI_DONE)
        code = plan_ranks_read(o, &s.given);
    if (code == CLI_DONE)
        code = read_flops(o, &s);
    if (code == CLI_DONE && tsr_model_file_open(path, &s.file) != TSR_OK)
        code = cli_failed_in("plan", tsr_last_error());
    if (code == CLI_DONE) {
        s.config = tsr_model_file_config(s.file);
        code = compute(&s, o);
    }
    if (code == CLI_DONE) {
        choose(&s);
        if (o->json)
            print_json(path, &s);
        else
            print_text(path, &s);
    }
    for (int i = 0; i < s.count; i++)
        free(s.grids[i].needs);
    free(s.grids);
    free(s.flops);
    tsr_model_file_close(&s.file);
    plan_ranks_free(&s.given);
    return code;
}
