/* Prints the grids that were found, as text and as JSON. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/lib/json.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "cli/plan/cluster/cluster.h"

static const char *const places_of[] = {"best", "second", "third"};

static const char *unit(const plan_outcome *o)
{
    static const char *const units[] = {"a token", "a pass", "a step"};
    return units[o->search->work.goal];
}

/* Returns the predicted tokens per second. */
static double speed(const plan_outcome *o, const plan_candidate *c)
{
    const plan_work *w = &o->search->work;
    const double tokens = w->goal == PLAN_GENERATION ? w->sequences
                          : w->goal == PLAN_PROMPT   ? w->pass_tokens
                                                     : w->context * w->sequences * w->micro_batches;
    return tokens / c->predicted.seconds;
}

/* Writes the hosts and the ranks that a candidate uses, as in "left 0-1, right 2". */
static char *places(const plan_outcome *o, const plan_candidate *c, size_t size, char *text)
{
    const plan_cluster *cluster = o->search->cluster;
    size_t used = 0;
    for (int i = 0; i < c->count && used < size;) {
        int last = i;
        const int host = cluster->rank[c->ranks[i]].host;
        while (last + 1 < c->count && cluster->rank[c->ranks[last + 1]].host == host)
            last++;
        used +=
            (size_t)snprintf(text + used, size - used, last > i ? "%s%s %d-%d" : "%s%s %d",
                             i > 0 ? ", " : "", cluster->names[host], c->ranks[i], c->ranks[last]);
        i = last + 1;
    }
    return text;
}

static double most_memory(const plan_candidate *c)
{
    double most = 0;
    for (int i = 0; i < c->count; i++)
        most = c->memory[i] > most ? c->memory[i] : most;
    return most;
}

static void time_cell(cli_table *table, double seconds)
{
    char text[CLI_NUMBER_TEXT];
    /* Differences of equal times may be a rounding error. */
    cli_table_cell(table, "%s", seconds > 1e-12 ? cli_duration(1e9 * seconds, text) : "-");
}

/* Adds the predicted times, or "?" if they cannot be predicted. */
static void add_times(cli_table *table, const plan_outcome *o, const plan_candidate *c)
{
    const plan_prediction *p = &c->predicted;
    char text[CLI_NUMBER_TEXT];
    if (c->sharing.is_part) {
        for (int i = 0; i < 5; i++)
            cli_table_cell(table, "?");
        return;
    }
    time_cell(table, p->seconds);
    cli_table_cell(table, "%s", cli_number(speed(o, c), text));
    time_cell(table, p->compute);
    time_cell(table, p->tensor + p->data + p->pipeline);
    time_cell(table, p->idle);
}

static void print_grids(const plan_outcome *o)
{
    cli_table *table = cli_table_create();
    static const char *const headings[] = {"data", "tensor", "stages"};
    for (int i = 0; i < 3; i++)
        cli_table_column(table, headings[i], CLI_RIGHT);
    cli_table_column(table, "ranks", CLI_LEFT);
    cli_table_column(table, unit(o), CLI_RIGHT);
    cli_table_column(table, "tokens/s", CLI_RIGHT);
    cli_table_column(table, "computing", CLI_RIGHT);
    cli_table_column(table, "messages", CLI_RIGHT);
    cli_table_column(table, "waiting", CLI_RIGHT);
    cli_table_column(table, "memory", CLI_RIGHT);
    for (int i = 0; i < o->shown_count; i++) {
        const plan_candidate *c = &o->candidates->all[o->shown[i]];
        char text[512];
        cli_table_cell(table, "%d%s", c->data, c->sharded ? " (sharded)" : "");
        cli_table_cell(table, "%d", c->tensor);
        cli_table_cell(table, "%d", c->stages);
        cli_table_cell(table, "%s", places(o, c, sizeof text, text));
        add_times(table, o, c);
        cli_table_cell(table, "%s", cli_bytes(plan_whole_bytes(most_memory(c)), text));
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

/* Prints which predictions may differ from measurements by more than 25 %, and why. */
static void print_trust(const plan_outcome *o)
{
    const plan_cluster *cluster = o->search->cluster;
    for (int i = 0; i < o->shown_count; i++) {
        const plan_sharing *s = &o->candidates->all[o->shown[i]].sharing;
        const double processors = s->host < 0 ? 0 : cluster->processors[s->host];
        if (s->host < 0)
            continue;
        if (s->is_part)
            cli_line(stdout,
                     "%s: not predicted, because %s has %g of a processor for %d rank%s and "
                     "shares it with other hosts",
                     places_of[i], cluster->names[s->host], processors, s->ranks,
                     s->ranks == 1 ? "" : "s");
        else
            cli_line(stdout,
                     "%s: %d ranks share %g processor%s of %s; the prediction may be a third too "
                     "low",
                     places_of[i], s->ranks, processors, processors == 1 ? "" : "s",
                     cluster->names[s->host]);
    }
}

static void print_ranks(const plan_outcome *o)
{
    const plan_candidate *c = &o->candidates->all[o->best];
    const plan_cluster *cluster = o->search->cluster;
    cli_table *table = cli_table_create();
    cli_table_column(table, "rank", CLI_RIGHT);
    cli_table_column(table, "host", CLI_LEFT);
    cli_table_column(table, "stage", CLI_RIGHT);
    cli_table_column(table, "layers", CLI_RIGHT);
    cli_table_column(table, "memory", CLI_RIGHT);
    cli_table_column(table, "of", CLI_RIGHT);
    for (int i = 0; i < c->count; i++) {
        const plan_rank *rank = &cluster->rank[c->ranks[i]];
        const int stage = i / (c->data * c->tensor);
        char text[CLI_BYTES_TEXT];
        cli_table_cell(table, "%d", c->ranks[i]);
        cli_table_cell(table, "%s", cluster->names[rank->host]);
        cli_table_cell(table, "%d", stage);
        cli_table_cell(table, "%d", c->blocks[stage]);
        cli_table_cell(table, "%s", cli_bytes(plan_whole_bytes(c->memory[i]), text));
        cli_table_cell(table, "%s", rank->memory > 0 ? cli_bytes(rank->memory, text) : "-");
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

#define OPTIONS_TEXT 4096

static void append(char text[OPTIONS_TEXT], const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, OPTIONS_TEXT - used, format, values);
    va_end(values);
}

/* Writes the options with which programs divide the model like this, if any are needed: those of
 * tessera generate, chat and bench model, and for training those of examples/gpt. */
static char *options_of(const plan_outcome *o, const plan_candidate *c, char text[OPTIONS_TEXT])
{
    const bool training = o->search->work.goal == PLAN_TRAINING;
    text[0] = '\0';
    if (training)
        append(text, " --grid %dx%d%s", c->data, c->tensor, c->sharded ? " --strategy full" : "");
    if (c->stages > 1) {
        append(text, training ? " --pipeline %d --blocks" : " --stages %d --stage-layers",
               c->stages);
        for (int s = 0; s < c->stages; s++)
            append(text, "%s%d", s > 0 ? "," : " ", c->blocks[s]);
    }
    const double *rates = training ? c->shares : c->rates;
    const int count = training ? c->tensor : c->count;
    if (c->by_rates)
        append(text, training ? " --tensor-rates" : " --rates");
    for (int i = 0; c->by_rates && i < count; i++)
        append(text, "%s" PLAN_RATE_FORMAT, i > 0 ? "," : " ", rates[i]);
    return text[0] == ' ' ? text + 1 : text;
}

void plan_cluster_print(const plan_outcome *o)
{
    const plan_cluster *cluster = o->search->cluster;
    cli_print(stdout, "%s: %s, %d layers, on %d host%s with %d rank%s\n\n", o->path,
              o->config->architecture, o->config->layers, cluster->hosts,
              cluster->hosts == 1 ? "" : "s", cluster->ranks, cluster->ranks == 1 ? "" : "s");
    print_grids(o);
    puts("");
    if (o->best < 0)
        puts("no grid fits");
    for (int i = o->best < 0 ? 0 : 1; i < o->shown_count; i++) {
        const plan_candidate *c = &o->candidates->all[o->shown[i]];
        char text[PLAN_REASON_TEXT];
        if (c->missing_bytes > 0 || !c->sharing.is_part)
            cli_line(stdout, "%s: %s", places_of[i], plan_cluster_reason(o, o->shown[i], text));
    }
    print_trust(o);
    if (o->best < 0)
        return;
    puts(o->shown_count > 1 ? "\nthe best:" : "the best:");
    print_ranks(o);
    char text[OPTIONS_TEXT];
    const char *options = options_of(o, &o->candidates->all[o->best], text);
    if (options[0])
        cli_line(stdout, "\noptions of %s: %s",
                 o->search->work.goal == PLAN_TRAINING ? "examples/gpt" : "tessera generate",
                 options);
}

/* JSON ----------------------------------------------------------------------------------------- */

static void add_candidate(json_t *list, const plan_outcome *o, int number)
{
    const plan_candidate *c = &o->candidates->all[number];
    const plan_prediction *p = &c->predicted;
    const struct {
        const char *name;
        double seconds;
    } times[] = {{"seconds", p->seconds},
                 {"compute_seconds", p->compute},
                 {"tensor_message_seconds", p->tensor},
                 {"data_message_seconds", p->data},
                 {"stage_message_seconds", p->pipeline},
                 {"idle_seconds", p->idle}};
    json_t *object = cli_json_append_object(list);
    cli_json_u64(object, "data", (uint64_t)c->data);
    cli_json_u64(object, "tensor", (uint64_t)c->tensor);
    cli_json_u64(object, "stages", (uint64_t)c->stages);
    cli_json_bool(object, "sharded", c->sharded);
    cli_json_bool(object, "by_rates", c->by_rates);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (c->sharing.is_part)
            cli_json_null(object, times[i].name);
        else
            cli_json_real(object, times[i].name, times[i].seconds);
    if (c->sharing.is_part)
        cli_json_null(object, "tokens_per_second");
    else
        cli_json_real(object, "tokens_per_second", speed(o, c));
    cli_json_bool(object, "processors_are_shared", c->sharing.host >= 0);
    json_t *blocks = cli_json_add_array(object, "layers");
    for (int s = 0; s < c->stages; s++)
        cli_json_append(blocks, json_integer(c->blocks[s]));
    json_t *ranks = cli_json_add_array(object, "ranks");
    for (int i = 0; i < c->count; i++) {
        const plan_cluster *cluster = o->search->cluster;
        json_t *rank = cli_json_append_object(ranks);
        cli_json_u64(rank, "rank", (uint64_t)c->ranks[i]);
        cli_json_text(rank, "host", cluster->names[cluster->rank[c->ranks[i]].host]);
        cli_json_u64(rank, "memory_bytes", plan_whole_bytes(c->memory[i]));
    }
    char options[OPTIONS_TEXT];
    cli_json_text(object, "options", options_of(o, c, options));
    cli_json_bool(object, "fits", c->missing_bytes == 0);
    cli_json_bool(object, "best", number == o->best);
    if (number != o->best && (c->missing_bytes > 0 || o->best >= 0)) {
        char text[PLAN_REASON_TEXT];
        cli_json_text(object, "why_not", plan_cluster_reason(o, number, text));
    }
}

void plan_cluster_print_json(const plan_outcome *o)
{
    static const char *const goals[] = {"generation", "prompt", "training"};
    json_t *document = cli_json_document("tessera.plan.cluster", 1);
    cli_json_text(document, "model", o->path);
    cli_json_text(document, "architecture", o->config->architecture);
    cli_json_u64(document, "layers", (uint64_t)o->config->layers);
    cli_json_text(document, "goal", goals[o->search->work.goal]);
    cli_json_bool(document, "fits", o->best >= 0);
    json_t *list = cli_json_add_array(document, "candidates");
    for (int i = 0; i < o->candidates->count; i++)
        add_candidate(list, o, i);
    cli_json_print(document);
}
