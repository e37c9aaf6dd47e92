/* Writes the results of a tuning as text, Markdown, CSV and JSON. */
#include <stdio.h>
#include <string.h>

#include "bench/report/report.h"
#include "bench/tune/tune.h"
#include "cli/lib/device.h"
#include "cli/lib/json.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"

#define CHOICE_TEXT 48

static char *choice_text(const tsr__tuning_choice *choice, char text[CHOICE_TEXT])
{
    if (choice->splits > 1)
        snprintf(text, CHOICE_TEXT, "%s, %u parts of k", choice->kernel, (unsigned)choice->splits);
    else
        snprintf(text, CHOICE_TEXT, "%s%s", choice->kernel,
                 choice->splits == 1 ? ", k not split" : "");
    return text;
}

/* Text and Markdown -------------------------------------------------------------------------- */

static void print_result(cli_table *table, const tune_result *result)
{
    char product[128], usual[CHOICE_TEXT], winner[CHOICE_TEXT];
    tsr__tuning_choice shown = result->usual;
    /* show the number of splits only if the kernel divides k, that is, if it is more than 1 */
    shown.splits = shown.splits > 1 ? shown.splits : 0;
    tune_product_text(&result->product, product, sizeof product);
    cli_table_cell(table, "%s", product);
    cli_table_cell(table, "%s", choice_text(&shown, usual));
    cli_table_cell(table, "%s", result->won ? choice_text(&result->winner, winner) : "–");
    if (result->ratio.pairs > 0) {
        cli_table_cell(table, "%.2f", result->ratio.median);
        cli_table_cell(table, "%.2f – %.2f", result->ratio.p10, result->ratio.p90);
    } else {
        cli_table_cell(table, "–");
        cli_table_cell(table, "%s", "");
    }
    cli_table_cell(table, "%s", !result->won ? "" : result->with_bias ? "yes" : "no");
    cli_table_cell(table, "%d", result->candidates);
}

static void print_device(const bench_context *context, const tune_report *report,
                         const tune_device *device, bench_format format, FILE *out)
{
    cli_table *table = cli_table_create();
    int won = 0, all = 0;
    cli_table_column(table, "class of", 0);
    cli_table_column(table, "built-in", 0);
    cli_table_column(table, "winner", 0);
    cli_table_column(table, "times as fast", 1);
    cli_table_column(table, "p10 – p90", 1);
    cli_table_column(table, "with bias", 0);
    cli_table_column(table, "tried", 1);
    for (int i = 0; i < report->result_count; i++) {
        const tune_result *result = &report->results[i];
        if (result->device_place != device->device_place)
            continue;
        print_result(table, result);
        won += result->won;
        all++;
    }
    fprintf(out, "%s%s\n\n", format == BENCH_AS_MARKDOWN ? "## " : "",
            context->devices[device->device_place]->name);
    if (format == BENCH_AS_MARKDOWN)
        cli_table_markdown(table, out);
    else
        cli_table_print(table, out, 0);
    cli_table_destroy(&table);
    for (int i = 0; i < context->left_out.count; i++)
        if (context->left_out.all[i].device_place == device->device_place)
            fprintf(out, "left out: %s\n", context->left_out.all[i].text);
    fprintf(out, "\n%d of %d classes have a winner; stored in %s\nit took %.0f s\n\n", won, all,
            device->path, device->seconds);
}

static void write_text(const bench_context *context, const tune_report *report, bench_format format,
                       FILE *out)
{
    char warnings[BENCH_WARNINGS][BENCH_WARNING_SIZE];
    for (int i = 0; i < report->device_count; i++)
        print_device(context, report, &report->devices[i], format, out);
    for (int i = 0; i < context->left_out.count; i++)
        if (context->left_out.all[i].device_place < 0)
            fprintf(out, "left out: %s\n", context->left_out.all[i].text);
    int count = bench_warnings(context, warnings);
    for (int i = 0; i < count; i++)
        fprintf(out, "warning: %s\n", warnings[i]);
}

/* CSV ---------------------------------------------------------------------------------------- */

static void number_cell(cli_table *table, bool known, double value)
{
    if (known)
        cli_table_cell(table, "%.6g", value);
    else
        cli_table_cell(table, "%s", "");
}

static void add_csv_row(cli_table *table, const bench_context *context, const tune_result *result)
{
    const tune_product *product = &result->product;
    const int64_t sizes[] = {product->batch, product->shape.m, product->shape.k, product->shape.n};
    cli_table_cell(table, "%s", context->devices[result->device_place]->name);
    cli_table_cell(table, "%s", tsr_dtype_name(product->dtype));
    cli_table_cell(table, "%d", product->transposed);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        cli_table_cell(table, "%lld", (long long)sizes[i]);
    cli_table_cell(table, "%s", result->usual.kernel);
    cli_table_cell(table, "%u", (unsigned)result->usual.splits);
    cli_table_cell(table, "%s", result->won ? result->winner.kernel : "");
    number_cell(table, result->won, result->winner.splits);
    cli_table_cell(table, "%d", result->with_bias);
    cli_table_cell(table, "%d", result->candidates);
    number_cell(table, result->ratio.pairs > 0, result->ratio.median);
    number_cell(table, result->ratio.pairs > 0, result->ratio.p10);
    number_cell(table, result->ratio.pairs > 0, result->ratio.p90);
}

static void write_csv(const bench_context *context, const tune_report *report, FILE *out)
{
    static const char *const headings[] = {
        "device",       "dtype",  "transposed",    "batch",     "m",     "k",     "n",   "usual",
        "usual_splits", "winner", "winner_splits", "with_bias", "tried", "ratio", "p10", "p90"};
    cli_table *table = cli_table_create();
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        cli_table_column(table, headings[i], CLI_LEFT);
    for (int i = 0; i < report->result_count; i++)
        add_csv_row(table, context, &report->results[i]);
    cli_table_csv(table, out);
    cli_table_destroy(&table);
}

/* JSON --------------------------------------------------------------------------------------- */

static void add_choice(json_t *object, const char *name, const tsr__tuning_choice *choice)
{
    json_t *added = cli_json_add_object(object, name);
    cli_json_text(added, "kernel", choice->kernel);
    cli_json_u64(added, "splits", choice->splits);
}

static void add_result(json_t *array, const tune_result *result)
{
    const tune_product *product = &result->product;
    json_t *object = cli_json_append_object(array);
    cli_json_u64(object, "device", (uint64_t)result->device_place);
    cli_json_text(object, "dtype", tsr_dtype_name(product->dtype));
    cli_json_bool(object, "transposed", product->transposed);
    cli_json_u64(object, "batch", (uint64_t)product->batch);
    cli_json_u64(object, "m", (uint64_t)product->shape.m);
    cli_json_u64(object, "k", (uint64_t)product->shape.k);
    cli_json_u64(object, "n", (uint64_t)product->shape.n);
    add_choice(object, "usual", &result->usual);
    if (result->won)
        add_choice(object, "winner", &result->winner);
    else
        cli_json_null(object, "winner");
    cli_json_bool(object, "with_bias", result->with_bias);
    cli_json_u64(object, "tried", (uint64_t)result->candidates);
    if (result->ratio.pairs == 0) {
        cli_json_null(object, "ratio");
        return;
    }
    json_t *ratio = cli_json_add_object(object, "ratio");
    cli_json_u64(ratio, "pairs", (uint64_t)result->ratio.pairs);
    cli_json_real(ratio, "median", result->ratio.median);
    cli_json_real(ratio, "p10", result->ratio.p10);
    cli_json_real(ratio, "p90", result->ratio.p90);
}

static void write_json(const bench_context *context, const tune_report *report, FILE *out)
{
    char warnings[BENCH_WARNINGS][BENCH_WARNING_SIZE];
    json_t *document = cli_json_document(TUNE_SCHEMA, TUNE_SCHEMA_VERSION);
    cli_json_real(document, "seconds_per_measurement", context->options->seconds);
    json_t *devices = cli_json_add_array(document, "devices");
    for (int i = 0; i < context->device_count; i++)
        cli_json_append(devices, cli_json_device(context->devices[i]));
    json_t *stored = cli_json_add_array(document, "stored");
    for (int i = 0; i < report->device_count; i++) {
        json_t *object = cli_json_append_object(stored);
        cli_json_u64(object, "device", (uint64_t)report->devices[i].device_place);
        cli_json_text(object, "path", report->devices[i].path);
        cli_json_real(object, "duration_s", report->devices[i].seconds);
    }
    json_t *classes = cli_json_add_array(document, "classes");
    for (int i = 0; i < report->result_count; i++)
        add_result(classes, &report->results[i]);
    json_t *left_out = cli_json_add_array(document, "left_out");
    for (int i = 0; i < context->left_out.count; i++)
        cli_json_append(left_out, json_string(context->left_out.all[i].text));
    json_t *array = cli_json_add_array(document, "warnings");
    int count = bench_warnings(context, warnings);
    for (int i = 0; i < count; i++)
        cli_json_append(array, json_string(warnings[i]));
    cli_json_write(document, out);
}

void bench_tune_write(const bench_context *context, const tune_report *report, bench_format format,
                      FILE *out)
{
    if (format == BENCH_AS_JSON)
        write_json(context, report, out);
    else if (format == BENCH_AS_CSV)
        write_csv(context, report, out);
    else
        write_text(context, report, format, out);
}
