/* tessera plan --strategy inference: prints the share of a language model that each rank has, and
 * the speed. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/plan/plan.h"
#include "tessera/model.h"

#define USUAL_LATENCY_US 20.0

typedef struct result {
    plan_ranks given;
    tsr_model_file *file;
    const tsr_model_config *config;
    tsr_model_rank_plan *ranks; /* [given.count] */
    tsr_model_fit fit;
    /* [given.count], bytes per second; NULL: not given */
    uint64_t *bandwidth, *host_bandwidth;
    double *flops; /* [given.count] */
    int stages;
    int contexts;              /* groups of ranks, each of which has the model */
    bool on_host;              /* some experts are in the host's memory */
    bool auto_experts;         /* the plan chooses how experts are divided */
    tsr_dtype cache_dtype;     /* 0: not given */
    double *stage_rates;       /* [stages]; NULL: equal */
    double generation, prompt; /* tokens per second; 0: not predicted */
} result;

/* Rates ---------------------------------------------------------------------------------------- */

/* Reads the bytes per second of all ranks, the values of an option. */
static int read_bytes(const char *option, const plan_list *list, const result *r, uint64_t **out)
{
    const size_t count = list->count;
    if (count == 0)
        return CLI_DONE;
    if (count != 1 && count != (size_t)r->given.count)
        return cli_usage_error("plan: --%s has %zu value%s for %d rank%s", option, count,
                               CLI_PLURAL(count), r->given.count, CLI_PLURAL(r->given.count));
    *out = cli_alloc((size_t)r->given.count, sizeof **out);
    for (int i = 0; i < r->given.count; i++) {
        const char *text = list->texts[count == 1 ? 0 : i];
        if (!cli_read_bytes(text, &(*out)[i]) || (*out)[i] == 0)
            return cli_usage_error("plan: --%s takes bytes per second, such as 50G, not '%s'",
                                   option, text);
    }
    return CLI_DONE;
}

static int read_bandwidth(const plan_options *o, result *r)
{
    if (o->host_bandwidth.count > 0 && (o->experts.host == 0 || o->bandwidth.count == 0))
        return cli_usage_error("plan: --host-bandwidth is for --bandwidth with --experts host");
    if (o->host_bandwidth.count == 0 && o->experts.host > 0 && o->bandwidth.count > 0)
        return cli_usage_error("plan: with --experts host, --bandwidth needs --host-bandwidth: the "
                               "bytes per second that a device reads from the host's memory");
    const int code = read_bytes("bandwidth", &o->bandwidth, r, &r->bandwidth);
    return code != CLI_DONE
               ? code
               : read_bytes("host-bandwidth", &o->host_bandwidth, r, &r->host_bandwidth);
}

static int read_flops(const plan_options *o, result *r)
{
    const size_t count = o->gflops.count;
    if (count == 0)
        return CLI_DONE;
    if (count != 1 && count != (size_t)r->given.count)
        return cli_usage_error("plan: --gflops has %zu value%s for %d rank%s", count,
                               CLI_PLURAL(count), r->given.count, CLI_PLURAL(r->given.count));
    r->flops = cli_alloc((size_t)r->given.count, sizeof *r->flops);
    for (int i = 0; i < r->given.count; i++) {
        const char *text = o->gflops.texts[count == 1 ? 0 : i];
        if (!plan_read_rate(text, &r->flops[i]) || r->flops[i] == 0)
            return cli_usage_error("plan: --gflops takes positive numbers, not '%s'", text);
        r->flops[i] *= 1e9;
    }
    return CLI_DONE;
}

/* Stages --------------------------------------------------------------------------------------- */

static int read_stages(const plan_options *o, result *r)
{
    const int given = o->layers.count;
    r->stages = o->stages > 0 ? (int)o->stages : given > 0 ? given : 1;
    if (given > 0 && given != r->stages)
        return cli_usage_error("plan: --stage-layers has %d value%s for %d stage%s", given,
                               given == 1 ? "" : "s", r->stages, r->stages == 1 ? "" : "s");
    if (r->given.count % r->stages != 0)
        return cli_usage_error("plan: %d stages do not divide %d rank%s", r->stages, r->given.count,
                               r->given.count == 1 ? "" : "s");
    if (r->stages > 1 && (o->bandwidth.count > 0 || o->gflops.count > 0 || o->latency_us >= 0))
        return cli_usage_error("plan: --bandwidth, --gflops and --latency predict one stage; "
                               "--cluster predicts several");
    if (!r->given.rates || r->stages == 1)
        return CLI_DONE;
    r->stage_rates = cli_alloc((size_t)r->stages, sizeof *r->stage_rates);
    for (int i = 0; i < r->given.count; i++)
        r->stage_rates[i / (r->given.count / r->stages)] += r->given.rates[i];
    return CLI_DONE;
}

/* Context ranks -------------------------------------------------------------------------------- */

static int read_contexts(const plan_options *o, result *r)
{
    r->contexts = o->context_ranks > 0 ? (int)o->context_ranks : 1;
    if (r->contexts == 1)
        return CLI_DONE;
    if (r->stages > 1)
        return cli_usage_error("plan: --context-parallel %d cannot go with %d stages", r->contexts,
                               r->stages);
    const int code = plan_check_contexts(&r->given, r->contexts);
    if (code == CLI_DONE && r->given.rates)
        return cli_usage_error("plan: --rates cannot go with --context-parallel");
    return code;
}

/* Returns the least memory of the ranks that divide sequences with each of `each` ranks; 0: one of
 * them has no limit, or none is given. The caller must free it. */
static uint64_t *least_memory(const result *r, int each)
{
    if (!r->given.memory)
        return NULL;
    uint64_t *least = cli_alloc((size_t)each, sizeof *least);
    for (int i = 0; i < r->given.count; i++) {
        const uint64_t own = r->given.memory[i];
        uint64_t *to = &least[i % each];
        *to = i < each || (own > 0 && (own < *to || *to == 0)) ? own : *to;
    }
    return least;
}

/* Predictions ---------------------------------------------------------------------------------- */

/* Returns the part of token_bytes in experts. */
static double expert_token_bytes(const result *r, const tsr_model_rank_plan *p)
{
    for (int i = 0; i < r->config->kind_count; i++) {
        const tsr_model_experts *e = r->config->kinds[i]->experts;
        if (e)
            return (double)p->expert_bytes * (double)e->used / (double)e->count;
    }
    return 0;
}

/* Predicts the speeds with the cost model that the help describes. The slowest rank determines
 * them. */
static void predict(const plan_options *o, result *r)
{
    double token = 0, prompt = 0;
    const double latency = o->latency_us < 0 ? USUAL_LATENCY_US : o->latency_us;
    for (int i = 0; i < r->given.count; i++) {
        const tsr_model_rank_plan *p = &r->ranks[i];
        if (r->bandwidth) {
            /* on average half of the keys and values, and the state in and out */
            const double read = (double)p->token_bytes +
                                (double)(p->cache_bytes - p->state_bytes) / 2 +
                                2 * (double)p->used_state_bytes;
            const double more = p->expert_skew - 1;
            double seconds = (read + more * expert_token_bytes(r, p)) / (double)r->bandwidth[i];
            if (r->host_bandwidth)
                seconds +=
                    p->expert_skew * (double)p->host_token_bytes / (double)r->host_bandwidth[i];
            token = seconds > token ? seconds : token;
        }
        if (r->flops) {
            const double seconds = 2 * (double)p->token_parameters / r->flops[i];
            prompt = seconds > prompt ? seconds : prompt;
        }
    }
    const double reductions = r->given.count > 1 ? 2 * (double)r->config->layers + 2 : 0;
    const int64_t sequences = o->sequences > 0 ? o->sequences : 1;
    if (token > 0)
        r->generation = (double)sequences / (token + reductions * latency * 1e-6);
    if (prompt > 0)
        r->prompt = 1 / prompt;
}

/* Printing ------------------------------------------------------------------------------------- */

static bool has_experts(const tsr_model_config *c)
{
    for (int i = 0; i < c->kind_count; i++)
        if (c->kinds[i]->experts)
            return true;
    return false;
}

static void print_table(const result *r)
{
    static const char *const headings[] = {"rank", "heads", "kv heads", "embedding", "attention",
                                           "MLP",  "head",  "norms",    "cache",     "total"};
    cli_table *table = cli_table_create();
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++) {
        cli_table_column(table, headings[i], CLI_RIGHT);
        if (i == 0 && r->stages > 1) {
            cli_table_column(table, "stage", CLI_RIGHT);
            cli_table_column(table, "layers", CLI_RIGHT);
        }
    }
    const bool experts = has_experts(r->config);
    if (experts) {
        cli_table_column(table, "experts", CLI_RIGHT);
        cli_table_column(table, "in experts", CLI_RIGHT);
        cli_table_column(table, "per token", CLI_RIGHT);
    }
    if (r->on_host) {
        cli_table_column(table, "on the host", CLI_RIGHT);
        cli_table_column(table, "per token", CLI_RIGHT);
    }
    if (r->given.memory)
        cli_table_column(table, "of memory", CLI_RIGHT);
    for (int i = 0; i < r->given.count; i++) {
        const tsr_model_rank_plan *p = &r->ranks[i];
        const uint64_t bytes[] = {p->embedding_bytes, p->attention_bytes, p->mlp_bytes,
                                  p->head_bytes,      p->norm_bytes,      p->cache_bytes,
                                  p->total_bytes};
        char text[CLI_BYTES_TEXT];
        cli_table_cell(table, "%d", i);
        if (r->stages > 1) {
            cli_table_cell(table, "%d", p->stage);
            cli_table_cell(table, "%d", p->layers);
        }
        cli_table_cell(table, "%" PRId64, p->heads);
        cli_table_cell(table, "%" PRId64, p->kv_heads);
        for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++)
            cli_table_cell(table, "%s", cli_bytes(bytes[b], text));
        if (experts) {
            cli_table_cell(table, "%" PRId64 " of %" PRId64, p->experts, p->expert_hidden);
            cli_table_cell(table, "%s", cli_bytes(p->expert_bytes, text));
            cli_table_cell(table, "%s", cli_bytes(p->token_bytes, text));
        }
        if (r->on_host) {
            cli_table_cell(table, "%s", cli_bytes(p->host_bytes, text));
            cli_table_cell(table, "%s", cli_bytes(p->host_token_bytes, text));
        }
        if (r->given.memory && r->given.memory[i] > 0)
            cli_table_cell(table, "%.1f %%",
                           100 * (double)p->total_bytes / (double)r->given.memory[i]);
        else if (r->given.memory)
            cli_table_cell(table, "-");
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

/* The devices, which are not known here, choose the dtype of the cache. Its size in f32 is that of
 * the table. */
static void print_cache(const result *r)
{
    uint64_t most = 0, states = 0; /* states are f32 on all devices */
    char wide[CLI_BYTES_TEXT], narrow[CLI_BYTES_TEXT];
    for (int i = 0; i < r->given.count; i++)
        if (r->ranks[i].cache_bytes > most) {
            most = r->ranks[i].cache_bytes;
            states = r->ranks[i].state_bytes;
        }
    printf("\ncache: f32, at most %s on a rank; %s in f16, if all devices have matrix units "
           "(--cache-dtype)\n",
           cli_bytes(most, wide), cli_bytes((most - states) / 2 + states, narrow));
}

static void print_fit(const result *r)
{
    char missing[CLI_BYTES_TEXT];
    if (r->fit.missing_bytes == 0) {
        puts("\nfits");
        return;
    }
    printf("\ndoes not fit: rank %d lacks %s", r->fit.rank,
           cli_bytes(r->fit.missing_bytes, missing));
    if (r->fit.ranks > 0 && r->stages > 1)
        printf("; %d equal stages would hold it", r->fit.ranks / (r->given.count / r->stages));
    else if (r->fit.ranks > 0)
        printf("; %d equal ranks would hold it", r->fit.ranks * r->contexts);
    if (r->fit.dtype != 0)
        printf("; --dtype %s would fit", tsr_dtype_name(r->fit.dtype));
    if (r->fit.host_experts > 0)
        printf("; --experts host:%d would fit", r->fit.host_experts);
    puts("");
}

/* Says how the experts of each stage are divided. */
static void print_division(const result *r)
{
    const int each = r->given.count / r->stages;
    for (int s = 0; s < r->stages && each > 1; s++) {
        const tsr_model_rank_plan *p = &r->ranks[(ptrdiff_t)s * each];
        char stage[32] = "";
        if (r->stages > 1)
            snprintf(stage, sizeof stage, " of stage %d", s);
        if (p->expert_division != TSR_EXPERT_DIVISION_AUTO)
            cli_line(stdout,
                     "experts%s are divided: %s%s; for a token, the slowest rank is expected to "
                     "have %.2f times its part of the work",
                     stage, cli_expert_division_name(p->expert_division),
                     r->auto_experts ? " (chosen)" : "", p->expert_skew);
    }
}

static void print_text(const char *path, const result *r)
{
    cli_print(stdout, "%s: %s, %d layer%s, on %d rank%s", path, r->config->architecture,
              r->config->layers, CLI_PLURAL(r->config->layers), r->given.count,
              CLI_PLURAL(r->given.count));
    if (r->stages > 1)
        printf(" in %d stages", r->stages);
    if (r->contexts > 1)
        printf(" in %d groups that divide sequences", r->contexts);
    fputs("\n\n", stdout);
    print_table(r);
    if (has_experts(r->config))
        puts("\nexperts: how many a rank has of a layer, and hidden features of each; per token: "
             "weights that it reads");
    print_division(r);
    if (r->on_host)
        puts("on the host: experts in the host's memory, and what a token reads of them");

    if (!r->cache_dtype)
        print_cache(r);
    if (r->given.memory)
        print_fit(r);
    if (r->generation > 0)
        printf("\nprediction: generates %.1f tokens/s\n", r->generation);
    if (r->prompt > 0)
        printf("\nprediction: reads prompts at %.0f tokens/s\n", r->prompt);
}

static void add_rank(json_t *list, const result *r, int rank)
{
    const tsr_model_rank_plan *p = &r->ranks[rank];
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"heads", (uint64_t)p->heads},
        {"kv_heads", (uint64_t)p->kv_heads},
        {"hidden", (uint64_t)p->hidden},
        {"vocabulary", (uint64_t)p->vocabulary},
        {"embedding_bytes", p->embedding_bytes},
        {"attention_bytes", p->attention_bytes},
        {"mlp_bytes", p->mlp_bytes},
        {"norm_bytes", p->norm_bytes},
        {"head_bytes", p->head_bytes},
        {"weight_bytes", p->weight_bytes},
        {"cache_bytes", p->cache_bytes},
        {"state_bytes", p->state_bytes},
        {"used_state_bytes", p->used_state_bytes},
        {"total_bytes", p->total_bytes},
        {"token_bytes", p->token_bytes},
        {"stage", (uint64_t)p->stage},
        {"first_layer", (uint64_t)p->first_layer},
        {"layers", (uint64_t)p->layers},
        {"experts", (uint64_t)p->experts},
        {"expert_hidden", (uint64_t)p->expert_hidden},
        {"expert_bytes", p->expert_bytes},
        {"host_bytes", p->host_bytes},
        {"host_token_bytes", p->host_token_bytes},
    };
    json_t *object = cli_json_append_object(list);
    cli_json_u64(object, "rank", (uint64_t)rank);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        cli_json_u64(object, members[i].name, members[i].value);
    if (p->expert_division != TSR_EXPERT_DIVISION_AUTO) {
        cli_json_u64(object, "expert_parameters", p->expert_parameters);
        cli_json_text(object, "expert_division", cli_expert_division_name(p->expert_division));
        cli_json_real(object, "expert_skew", p->expert_skew);
    }
    if (r->given.memory && r->given.memory[rank] > 0)
        cli_json_u64(object, "memory_bytes", r->given.memory[rank]);
}

static void add_fit(json_t *document, const tsr_model_fit *fit)
{
    json_t *object = cli_json_add_object(document, "fit");
    cli_json_bool(object, "fits", fit->missing_bytes == 0);
    if (fit->missing_bytes == 0)
        return;
    cli_json_u64(object, "rank", (uint64_t)fit->rank);
    cli_json_u64(object, "missing_bytes", fit->missing_bytes);
    if (fit->ranks > 0)
        cli_json_u64(object, "ranks", (uint64_t)fit->ranks);
    if (fit->dtype != 0)
        cli_json_text(object, "dtype", tsr_dtype_name(fit->dtype));
    if (fit->host_experts > 0)
        cli_json_u64(object, "host_experts", (uint64_t)fit->host_experts);
}

static void print_json(const char *path, const result *r)
{
    json_t *document = cli_json_document("tessera.plan.inference", 1);
    cli_json_text(document, "model", path);
    cli_json_text(document, "architecture", r->config->architecture);
    cli_json_u64(document, "layers", (uint64_t)r->config->layers);
    json_t *list = cli_json_add_array(document, "ranks");
    for (int i = 0; i < r->given.count; i++)
        add_rank(list, r, i);
    if (r->given.memory)
        add_fit(document, &r->fit);
    if (r->generation > 0)
        cli_json_real(document, "generation_tokens_per_second", r->generation);
    if (r->prompt > 0)
        cli_json_real(document, "prompt_tokens_per_second", r->prompt);
    cli_json_print(document);
}

/* Running -------------------------------------------------------------------------------------- */

static tsr_status compute(const char *path, const plan_options *o, result *r)
{
    const tsr_partition_params partition = {.struct_size = sizeof partition,
                                            .kind = r->given.rates ? TSR_PARTITION_WEIGHTED
                                                                   : TSR_PARTITION_UNEVEN,
                                            .rates = r->given.rates};
    tsr_status status = tsr_model_file_open(path, &r->file);
    const int each = r->given.count / r->contexts;
    int *hosts = cli_experts_hosts(&o->experts, r->stages, each);
    uint64_t *memory = least_memory(r, each);
    r->config = tsr_model_file_config(r->file);
    if (status == TSR_OK)
        status = tsr_model_plan(
            r->file,
            tsr_model_plan_params(.ranks = each, .context_ranks = r->contexts, .dtype = o->dtype,
                                  .partition = &partition, .context = o->context,
                                  .sequences = (int)o->sequences, .cache_dtype = o->cache_dtype,
                                  .stages = r->stages, .stage_layers = o->layers.values,
                                  .stage_rates = r->stage_rates,
                                  .expert_division = o->experts.division, .hosts = hosts,
                                  .host_experts = o->experts.host, .draft_tokens = o->draft.tokens,
                                  .next_token = o->draft.from == TSR_DRAFT_MTP),
            memory, r->ranks, memory ? &r->fit : NULL);
    for (int i = each; i < r->given.count && status == TSR_OK; i++)
        r->ranks[i] = r->ranks[i % each];
    free(memory);
    free(hosts);
    return status;
}

int plan_inference(const char *path, const plan_options *o)
{
    result r = {.fit = TSR_INIT(tsr_model_fit)};
    int code = plan_refuse_sharding(PLAN_INFERENCE, o);
    r.cache_dtype = o->cache_dtype;
    r.auto_experts = o->experts.division == TSR_EXPERT_DIVISION_AUTO;
    if (code == CLI_DONE)
        code = plan_ranks_read(o, &r.given);
    if (code == CLI_DONE) {
        r.ranks = cli_alloc((size_t)r.given.count, sizeof *r.ranks);
        for (int i = 0; i < r.given.count; i++)
            r.ranks[i] = TSR_INIT(tsr_model_rank_plan);
        code = read_bandwidth(o, &r);
    }
    if (code == CLI_DONE)
        code = read_flops(o, &r);
    if (code == CLI_DONE)
        code = read_stages(o, &r);
    if (code == CLI_DONE)
        code = read_contexts(o, &r);
    if (code == CLI_DONE && compute(path, o, &r) != TSR_OK)
        code = cli_failed_in("plan", tsr_last_error());
    if (code == CLI_DONE) {
        for (int i = 0; i < r.given.count; i++)
            r.on_host = r.on_host || r.ranks[i].host_bytes > 0;
        predict(o, &r);
        if (o->json)
            print_json(path, &r);
        else
            print_text(path, &r);
    }
    tsr_model_file_close(&r.file);
    plan_ranks_free(&r.given);
    free(r.ranks);
    free(r.bandwidth);
    free(r.host_bandwidth);
    free(r.flops);
    free(r.stage_rates);
    return code;
}
