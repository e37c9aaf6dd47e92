/* The output of tessera bench model: Markdown and CSV, which are tables of text, and JSON. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/model.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/terminal.h"

static double sum_of(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* The mean of the rates of all repetitions, and their standard deviation, as llama-bench has them.
 */
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
    out.weights = bytes * out.mean;
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

/* Tables ----------------------------------------------------------------------------------------
 */

#define CELL 320

/* A table of text, and its first row the headings. */
typedef struct grid {
    int rows, columns, next; /* the next cell */
    char (*cells)[CELL];
} grid;

CLI_PRINTF(2, 3) static void put(grid *g, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(g->cells[g->next++], CELL, format, arguments);
    va_end(arguments);
}

/* `headings` end in NULL. */
static grid grid_for(const bench_model_report *report, const char *const *headings)
{
    grid g = {.rows = report->test_count + 1};
    while (headings[g.columns] != NULL)
        g.columns++;
    g.cells = cli_alloc((size_t)g.rows * (size_t)g.columns, CELL);
    for (int i = 0; i < g.columns; i++)
        put(&g, "%s", headings[i]);
    return g;
}

/* Puts the cells that both tables have first. */
static void put_names(grid *g, const bench_model_report *report)
{
    char devices[CELL];
    name_devices(report, devices, sizeof devices);
    put(g, "%s", report->name);
    put(g, "%s", devices);
    put(g, "%s", tsr_dtype_name(report->dtype));
}

static void print_cell(const char *text, int width, bool right)
{
    const int fill = width - cli_text_width(text);
    cli_print(stdout, " %*s%s%*s |", right ? fill : 0, "", text, right ? 0 : fill, "");
}

static void print_rule(int width, bool right)
{
    putchar(' ');
    for (int i = 0; i < width - (right ? 1 : 0); i++)
        putchar('-');
    fputs(right ? ": |" : " |", stdout);
}

/* Returns the width of a column, or 0 if it has only a heading. Such a column is left out. */
static int column_width(const grid *g, int column)
{
    int width = 0;
    for (int row = 1; row < g->rows; row++) {
        const int own = cli_text_width(g->cells[row * g->columns + column]);
        width = own > width ? own : width;
    }
    const int heading = cli_text_width(g->cells[column]);
    return width > 0 && width < heading ? heading : width;
}

/* Columns from first_number on are aligned to the right. */
static void print_markdown(const grid *g, int first_number)
{
    for (int line = 0; line <= g->rows; line++) { /* the second line is a rule */
        putchar('|');
        for (int c = 0; c < g->columns; c++) {
            const int width = column_width(g, c);
            const int row = line == 0 ? 0 : line - 1;
            if (width > 0 && line == 1)
                print_rule(width, c >= first_number);
            else if (width > 0)
                print_cell(g->cells[row * g->columns + c], width, c >= first_number);
        }
        putchar('\n');
    }
}

static void put_parameters(grid *g, uint64_t count)
{
    if (count >= 1000000000)
        put(g, "%.2f B", (double)count * 1e-9);
    else
        put(g, "%.2f M", (double)count * 1e-6);
}

static void markdown(const bench_model_report *report)
{
    static const char *const headings[] = {"model",         "device",  "dtype",     "size",
                                           "params",        "ranks",   "test",      "t/s",
                                           "communication", "weights", "of memory", NULL};
    grid g = grid_for(report, headings);
    for (int i = 0; i < report->test_count; i++) {
        const bench_model_test *test = &report->tests[i];
        const bench_model_figures figures = bench_model_summarize(report, test);
        char text[CLI_NUMBER_TEXT], bytes[CLI_BYTES_TEXT];
        char *plus_minus = cli_localized("±");
        put_names(&g, report);
        put(&g, "%s", cli_bytes(all_weight_bytes(report), bytes));
        put_parameters(&g, report->parameters);
        put(&g, "%d", report->ranks);
        put(&g, "%s", test->name);
        put(&g, "%.2f %s %.2f", figures.mean, plus_minus, figures.deviation);
        free(plus_minus);
        put(&g, "%s", report->ranks > 1 ? cli_percent(figures.communication, text) : "");
        if (test->generates)
            put(&g, "%s GB/s", cli_number(figures.weights * 1e-9, text));
        else
            put(&g, "%s", "");
        put(&g, "%s", test->generates ? cli_percent(figures.memory, text) : "");
    }
    print_markdown(&g, 3);
    free(g.cells);
}

/* A field of CSV is quoted if it contains a character that has a meaning. */
static void print_field(const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void put_if(grid *g, bool known, double value)
{
    if (known)
        put(g, "%.6g", value);
    else
        put(g, "%s", "");
}

static void csv(const bench_model_report *report)
{
    static const char *const headings[] = {"model",
                                           "device",
                                           "dtype",
                                           "weight_bytes",
                                           "parameters",
                                           "ranks",
                                           "test",
                                           "tokens",
                                           "repetitions",
                                           "tokens_per_s",
                                           "deviation",
                                           "communication",
                                           "weight_bytes_per_s",
                                           "memory_fraction",
                                           NULL};
    grid g = grid_for(report, headings);
    for (int i = 0; i < report->test_count; i++) {
        const bench_model_test *test = &report->tests[i];
        const bench_model_figures figures = bench_model_summarize(report, test);
        put_names(&g, report);
        put(&g, "%llu", (unsigned long long)all_weight_bytes(report));
        put(&g, "%llu", (unsigned long long)report->parameters);
        put(&g, "%d", report->ranks);
        put(&g, "%s", test->name);
        put(&g, "%lld", (long long)test->tokens);
        put(&g, "%d", test->count);
        put(&g, "%.6g", figures.mean);
        put(&g, "%.6g", figures.deviation);
        put(&g, "%.6g", figures.communication);
        put_if(&g, test->generates, figures.weights);
        put_if(&g, test->generates, figures.memory);
    }
    for (int i = 0; i < g.next; i++) {
        print_field(g.cells[i]);
        putchar((i + 1) % g.columns == 0 ? '\n' : ',');
    }
    free(g.cells);
}

/* JSON ------------------------------------------------------------------------------------------
 */

static void add_model(json_t *document, const bench_model_report *report)
{
    const tsr_model_config *c = report->config;
    json_t *model = cli_json_add_object(document, "model");
    cli_json_text(model, "name", report->name);
    cli_json_text(model, "architecture", c->architecture);
    cli_json_add(model, "layers", json_integer(c->layers));
    cli_json_add(model, "width", json_integer(c->width));
    cli_json_add(model, "heads", json_integer(c->heads));
    cli_json_add(model, "kv_heads", json_integer(c->kv_heads));
    cli_json_add(model, "hidden", json_integer(c->hidden));
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
        cli_json_u64(rank, "weight_bytes", from->weight_bytes);
        cli_json_real(rank, "open_s", (double)from->open_ns * 1e-9);
        cli_json_real(rank, "memory_bytes_per_s", from->memory);
    }
}

static void add_reals(json_t *object, const char *name, const double *values, int count)
{
    json_t *array = cli_json_add_array(object, name);
    for (int i = 0; i < count; i++)
        cli_json_append(array, json_real(values[i]));
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
    } else {
        cli_json_null(object, "weight_bytes_per_s");
        cli_json_null(object, "memory_fraction");
    }
}

static void print_json(const bench_model_report *report)
{
    json_t *document = cli_json_document("tessera.bench.model", 1);
    add_model(document, report);
    add_ranks(document, report);
    json_t *results = cli_json_add_array(document, "results");
    for (int i = 0; i < report->test_count; i++)
        add_test(cli_json_append_object(results), report, &report->tests[i]);
    cli_json_print(document);
}

void bench_model_print(const bench_model_report *report, bench_model_format format)
{
    switch (format) {
    case BENCH_MODEL_MARKDOWN:
        markdown(report);
        break;
    case BENCH_MODEL_CSV:
        csv(report);
        break;
    case BENCH_MODEL_JSON:
        print_json(report);
        break;
    }
}
