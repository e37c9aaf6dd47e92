/* The output of tessera bench model: tables as text, Markdown and CSV, and JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/model.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"

#define NAMES_TEXT 320

static double sum_of(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* Computes the mean of the rates of all repetitions, and their standard deviation, as llama-bench
 * does. */
static void rates(const bench_model_test *test, bench_model_figures *out)
{
    double squares = 0;
    for (int i = 0; i < test->count; i++)
        out->mean += (double)test->tokens / test->seconds[i] / test->count;
    for (int i = 0; i < test->count; i++) {
        const double distance = (double)test->tokens / test->seconds[i] - out->mean;
        squares += distance * distance;
    }
    out->deviation = test->count > 1 ? sqrt(squares / (test->count - 1)) : 0;
}

bench_model_figures bench_model_summarize(const bench_model_report *report,
                                          const bench_model_test *test)
{
    bench_model_figures out = {.communication =
                                   sum_of(test->communication, report->ranks) / report->ranks};
    double bytes = 0, ceiling = 0;
    rates(test, &out);
    if (!test->generates)
        return out;
    for (int r = 0; r < report->ranks; r++) {
        bytes += (double)(report->rank[r].weight_bytes - report->rank[r].table_bytes);
        ceiling += report->rank[r].memory;
    }
    out.weights = bytes * out.mean / test->sequences;
    out.memory = ceiling > 0 ? out.weights / ceiling : 0;
    return out;
}

static uint64_t all_weight_bytes(const bench_model_report *report)
{
    uint64_t sum = 0;
    for (int r = 0; r < report->ranks; r++)
        sum += report->rank[r].weight_bytes;
    return sum;
}

/* Writes the names of all devices, each once. */
static void name_devices(const bench_model_report *report, char *text, size_t size)
{
    size_t used = 0;
    for (int r = 0; r < report->ranks && used < size; r++) {
        int before = 0;
        while (strcmp(report->rank[before].device, report->rank[r].device) != 0)
            before++;
        if (before == r)
            used += (size_t)snprintf(text + used, size - used, "%s%s", r > 0 ? " + " : "",
                                     report->rank[r].device);
    }
}

/* Tables ------------------------------------------------------------------------------------- */

/* Creates a table with the first columns of the text and the CSV table, which are the same in
 * both. */
static cli_table *table_for(void)
{
    cli_table *table = cli_table_create();
    cli_table_column(table, "model", CLI_LEFT);
    cli_table_column(table, "device", CLI_LEFT);
    cli_table_column(table, "dtype", CLI_LEFT);
    return table;
}

static void add_columns(cli_table *table, const char *const *names, unsigned how)
{
    for (; *names != NULL; names++)
        cli_table_column(table, *names, how);
}

static void add_names(cli_table *table, const bench_model_report *report)
{
    char devices[NAMES_TEXT];
    name_devices(report, devices, sizeof devices);
    cli_table_cell(table, "%s", report->name);
    cli_table_cell(table, "%s", devices);
    cli_table_cell(table, "%s", tsr_dtype_name(report->dtype));
}

static void add_parameters(cli_table *table, uint64_t count)
{
    if (count >= 1000000000)
        cli_table_cell(table, "%.2f B", (double)count * 1e-9);
    else
        cli_table_cell(table, "%.2f M", (double)count * 1e-6);
}

static void write_table(const bench_model_report *report, bench_format format, FILE *out)
{
    static const char *const headings[] = {"size", "params", "ranks", "test", "t/s", NULL};
    cli_table *table = table_for();
    add_columns(table, headings, CLI_RIGHT);
    if (report->ranks > 1)
        cli_table_column(table, "communication", CLI_RIGHT);
    cli_table_column(table, "weights", CLI_RIGHT);
    cli_table_column(table, "of memory", CLI_RIGHT);
    for (int i = 0; i < report->test_count; i++) {
        const bench_model_test *test = &report->tests[i];
        const bench_model_figures figures = bench_model_summarize(report, test);
        char text[CLI_NUMBER_TEXT], bytes[CLI_BYTES_TEXT];
        add_names(table, report);
        cli_table_cell(table, "%s", cli_bytes(all_weight_bytes(report), bytes));
        add_parameters(table, report->parameters);
        cli_table_cell(table, "%d", report->ranks);
        cli_table_cell(table, "%s", test->name);
        cli_table_cell(table, "%.2f ± %.2f", figures.mean, figures.deviation);
        if (report->ranks > 1)
            cli_table_cell(table, "%s", cli_percent(figures.communication, text));
        if (test->generates)
            cli_table_cell(table, "%s GB/s", cli_number(figures.weights * 1e-9, text));
        else
            cli_table_cell(table, "%s", "");
        cli_table_cell(table, "%s", test->generates ? cli_percent(figures.memory, text) : "");
    }
    if (format == BENCH_AS_MARKDOWN)
        cli_table_markdown(table, out);
    else
        cli_table_print(table, out, 0);
    cli_table_destroy(&table);
}

static void write_drafts(const bench_model_report *report, FILE *out)
{
    for (int i = 0; i < report->test_count; i++) {
        const bench_model_test *test = &report->tests[i];
        const tsr_generator_stats *s = &test->drafted;
        if (test->drafts)
            fprintf(out,
                    "\n%s: %" PRIu64 " of %" PRIu64 " drafts were right; %" PRIu64
                    " passes with drafts, %" PRIu64 " without\n",
                    test->name, s->accepted_tokens, s->drafted_tokens, s->drafted_passes,
                    s->plain_passes);
    }
}

static void add_if(cli_table *table, bool known, double value)
{
    if (known)
        cli_table_cell(table, "%.6g", value);
    else
        cli_table_cell(table, "%s", "");
}

static void write_csv(const bench_model_report *report, FILE *out)
{
    static const char *const headings[] = {
        "weight_bytes",  "parameters",         "ranks",           "test",
        "tokens",        "repetitions",        "tokens_per_s",    "deviation",
        "communication", "weight_bytes_per_s", "memory_fraction", NULL};
    cli_table *table = table_for();
    add_columns(table, headings, CLI_LEFT);
    for (int i = 0; i < report->test_count; i++) {
        const bench_model_test *test = &report->tests[i];
        const bench_model_figures figures = bench_model_summarize(report, test);
        add_names(table, report);
        cli_table_cell(table, "%llu", (unsigned long long)all_weight_bytes(report));
        cli_table_cell(table, "%llu", (unsigned long long)report->parameters);
        cli_table_cell(table, "%d", report->ranks);
        cli_table_cell(table, "%s", test->name);
        cli_table_cell(table, "%lld", (long long)test->tokens);
        cli_table_cell(table, "%d", test->count);
        cli_table_cell(table, "%.6g", figures.mean);
        cli_table_cell(table, "%.6g", figures.deviation);
        cli_table_cell(table, "%.6g", figures.communication);
        add_if(table, test->generates, figures.weights);
        add_if(table, test->generates, figures.memory);
    }
    cli_table_csv(table, out);
    cli_table_destroy(&table);
}

/* JSON --------------------------------------------------------------------------------------- */

static void add_model(json_t *document, const bench_model_report *report)
{
    const tsr_model_config *c = report->config;
    json_t *model = cli_json_add_object(document, "model");
    cli_json_text(model, "name", report->name);
    cli_json_text(model, "architecture", c->architecture);
    cli_json_add(model, "layers", json_integer(c->layers));
    cli_json_add(model, "width", json_integer(c->width));
    const tsr_model_layer *layer = c->kinds[0]; /* the first kind with attention */
    for (int i = 1; i < c->kind_count && layer->heads == 0; i++)
        layer = c->kinds[i];
    cli_json_add(model, "heads", json_integer(layer->heads));
    cli_json_add(model, "kv_heads", json_integer(layer->kv_heads));
    cli_json_add(model, "hidden", json_integer(layer->hidden));
    cli_json_add(model, "vocabulary", json_integer(c->vocabulary));
    cli_json_u64(model, "parameters", report->parameters);
    cli_json_text(model, "dtype", tsr_dtype_name(report->dtype));
    cli_json_u64(model, "weight_bytes", all_weight_bytes(report));
}

static void add_ranks(json_t *document, const bench_model_report *report)
{
    json_t *ranks = cli_json_add_array(document, "ranks");
    for (int r = 0; r < report->ranks; r++) {
        const bench_model_rank *from = &report->rank[r];
        json_t *rank = cli_json_append_object(ranks);
        cli_json_text(rank, "device", from->device);
        cli_json_add(rank, "heads", json_integer(from->heads));
        cli_json_add(rank, "kv_heads", json_integer(from->kv_heads));
        cli_json_add(rank, "first_layer", json_integer(from->first_layer));
        cli_json_add(rank, "layers", json_integer(from->layers));
        cli_json_u64(rank, "weight_bytes", from->weight_bytes);
        cli_json_real(rank, "open_s", (double)from->open_ns * 1e-9);
        cli_json_real(rank, "memory_bytes_per_s", from->memory);
    }
}

static void add_reals(json_t *object, const char *name, const double *values, int count)
{
    json_t *array = cli_json_add_array(object, name);
    for (int i = 0; i < count; i++)
        cli_json_append_real(array, values[i]);
}

static void add_test(json_t *object, const bench_model_report *report, const bench_model_test *test)
{
    const bench_model_figures figures = bench_model_summarize(report, test);
    cli_json_text(object, "test", test->name);
    cli_json_add(object, "tokens", json_integer(test->tokens));
    cli_json_real(object, "tokens_per_s", figures.mean);
    cli_json_real(object, "deviation", figures.deviation);
    add_reals(object, "seconds", test->seconds, test->count);
    cli_json_real(object, "communication", figures.communication);
    add_reals(object, "communication_of_ranks", test->communication, report->ranks);
    if (test->generates) {
        cli_json_real(object, "weight_bytes_per_s", figures.weights);
        cli_json_real(object, "memory_fraction", figures.memory);
        cli_json_real(object, "submissions_per_step", test->submissions);
        cli_json_real(object, "waits_per_step", test->waits);
        cli_json_real(object, "idle_waits_per_step", test->idle_waits);
        if (test->drafts) {
            cli_json_u64(object, "drafted_tokens", test->drafted.drafted_tokens);
            cli_json_u64(object, "accepted_tokens", test->drafted.accepted_tokens);
            cli_json_u64(object, "drafted_passes", test->drafted.drafted_passes);
            cli_json_u64(object, "plain_passes", test->drafted.plain_passes);
            cli_json_real(object, "draft_s", (double)test->drafted.draft_ns * 1e-9);
        }
    } else {
        cli_json_null(object, "weight_bytes_per_s");
        cli_json_null(object, "memory_fraction");
    }
}

static void write_json(const bench_model_report *report, FILE *out)
{
    json_t *document = cli_json_document("tessera.bench.model", 1);
    add_model(document, report);
    add_ranks(document, report);
    json_t *results = cli_json_add_array(document, "results");
    for (int i = 0; i < report->test_count; i++)
        add_test(cli_json_append_object(results), report, &report->tests[i]);
    if (report->kernels_count > 0)
        bench_model_add_kernels(document, report);
    cli_json_write(document, out);
}

void bench_model_write(const bench_model_report *report, bench_format format, FILE *out)
{
    if (format == BENCH_AS_JSON)
        write_json(report, out);
    else if (format == BENCH_AS_CSV)
        write_csv(report, out);
    else {
        write_table(report, format, out);
        write_drafts(report, out);
        bench_model_write_kernels(report, format, out);
    }
}
