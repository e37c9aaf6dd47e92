/* Rows as a table. */
#include <stdio.h>
#include <string.h>

#include "bench/harness/format.h"
#include "bench/harness/host.h"
#include "bench/report/report.h"
#include "cli/lib/device.h"
#include "cli/lib/format.h"
#include "cli/lib/table.h"

const char *bench_unit_name(bench_unit unit)
{
    return unit == BENCH_GFLOPS ? "GFLOP/s" : unit == BENCH_GBYTES ? "GB/s" : "time";
}

static char *value_text(const bench_row *row, double ns, char text[BENCH_NUMBER])
{
    double value = bench_value(row, ns);
    return row->unit == BENCH_TIME ? bench_duration(value, text) : bench_number(value, text);
}

/* The lower end of what was seen first: for rates, that is the longest time. */
static void spread_cell(cli_table *table, const bench_row *row, const bench_summary *summary)
{
    char low[BENCH_NUMBER], high[BENCH_NUMBER];
    bool rate = row->unit != BENCH_TIME;
    cli_table_cell(table, "%s – %s%s", value_text(row, rate ? summary->p90 : summary->p10, low),
                   value_text(row, rate ? summary->p10 : summary->p90, high),
                   bench_is_noisy(summary) ? " *" : "  ");
}

typedef struct shown {
    const char *ceiling; /* the name of all rows' ceiling; "ceiling": each has its own; or NULL */
    bool bus, device, peer, memory, elsewhere;
} shown;

static const char many_ceilings[] = "ceiling";

static shown what_is_shown(const bench_context *context, int first, int last)
{
    shown columns = {0};
    for (int i = first; i < last; i++) {
        const bench_row *row = context->rows[i];
        if (row->is_ceiling)
            continue;
        if (row->ceiling != NULL)
            columns.ceiling =
                columns.ceiling == NULL || strcmp(columns.ceiling, row->ceiling->benchmark) == 0
                    ? row->ceiling->benchmark
                    : many_ceilings;
        columns.bus = columns.bus || row->bus_factor > 0;
        columns.device = columns.device || row->device.count > 0;
        columns.peer = columns.peer || row->peer.count > 0;
        columns.memory = columns.memory || row->peak_bytes > 0;
        columns.elsewhere = columns.elsewhere || row->elsewhere != NULL;
    }
    return columns;
}

static void add_columns(cli_table *table, const bench_row *row, shown columns)
{
    for (int i = 0; i < row->param_count; i++)
        cli_table_column(table, row->params[i].name, row->params[i].is_number);
    cli_table_column(table, bench_unit_name(row->unit), 1);
    cli_table_column(table, "p10 – p90  ", 1);
    cli_table_column(table, "best", 1);
    if (columns.ceiling != NULL) {
        char heading[64];
        snprintf(heading, sizeof heading, "of %s", columns.ceiling);
        cli_table_column(table, heading, 1);
    }
    if (columns.bus)
        cli_table_column(table, "busbw", 1);
    if (row->unit != BENCH_TIME)
        cli_table_column(table, "time", 1);
    if (columns.device)
        cli_table_column(table, "device clock", 1);
    cli_table_column(table, "samples", 1);
    if (columns.peer) {
        cli_table_column(table, "peer", 1);
        cli_table_column(table, "of peer", 1);
    }
    if (columns.memory)
        cli_table_column(table, "peak memory", 1);
    if (columns.elsewhere)
        cli_table_column(table, "elsewhere", 0);
}

static void add_cells(cli_table *table, const bench_row *row, shown columns)
{
    char text[BENCH_NUMBER];
    bench_summary host = bench_summarize(&row->host), device = bench_summarize(&row->device);
    for (int i = 0; i < row->param_count; i++)
        cli_table_cell(table, "%s", row->params[i].text);
    cli_table_cell(table, "%s", value_text(row, host.median, text));
    spread_cell(table, row, &host);
    cli_table_cell(table, "%s", value_text(row, host.min, text));
    if (columns.ceiling != NULL && row->ceiling != NULL)
        cli_table_cell(table, "%s%s%s", bench_percent(bench_fraction(row), text),
                       columns.ceiling == many_ceilings ? " of " : "",
                       columns.ceiling == many_ceilings ? row->ceiling->benchmark : "");
    else if (columns.ceiling != NULL)
        cli_table_cell(table, "%s", "");
    if (columns.bus)
        cli_table_cell(table, "%s", bench_number(bench_median(row) * row->bus_factor, text));
    if (row->unit != BENCH_TIME)
        cli_table_cell(table, "%s", bench_duration(host.median, text));
    if (columns.device) {
        double per_thing = row->unit == BENCH_TIME ? device.median / row->work : device.median;
        cli_table_cell(table, "%s", row->device.count > 0 ? bench_duration(per_thing, text) : "");
    }
    cli_table_cell(table, row->host.repetitions > 1 ? "%d x %llu" : "%d", row->host.count,
                   (unsigned long long)row->host.repetitions);
    if (columns.peer) {
        bench_summary peer = bench_summarize(&row->peer);
        if (row->peer.count > 0) {
            cli_table_cell(table, "%s", value_text(row, peer.median, text));
            cli_table_cell(table, "%.2f", bench_median(row) / bench_value(row, peer.median));
        } else {
            cli_table_cell(table, "%s", "");
            cli_table_cell(table, "%s", "");
        }
    }
}

/* What only some rows have. */
static void add_last_cells(cli_table *table, const bench_row *row, shown columns)
{
    char text[CLI_BYTES_TEXT];
    if (columns.memory)
        cli_table_cell(table, "%s",
                       row->peak_bytes > 0 ? cli_bytes((uint64_t)row->peak_bytes, text) : "");
    if (columns.elsewhere)
        cli_table_cell(table, "%s", row->elsewhere != NULL ? row->elsewhere : "");
}

/* Of the variants of a ceiling, the one that counts. */
static bool is_best(const bench_context *context, const bench_row *row)
{
    for (int i = 0; i < context->row_count; i++) {
        const bench_row *other = context->rows[i];
        if (other->is_ceiling && other->device_place == row->device_place &&
            strcmp(other->benchmark, row->benchmark) == 0 &&
            strcmp(other->params[0].text, row->params[0].text) == 0 &&
            bench_median(other) > bench_median(row))
            return false;
    }
    return true;
}

static void print_ceilings(const bench_context *context, int place)
{
    char text[BENCH_NUMBER];
    for (int i = 0; i < context->row_count; i++) {
        const bench_row *row = context->rows[i];
        if (!row->is_ceiling || row->device_place != place || !is_best(context, row))
            continue;
        bench_summary summary = bench_summarize(&row->host);
        printf("ceiling  %s %s", row->benchmark, value_text(row, summary.median, text));
        printf(" %s", bench_unit_name(row->unit));
        printf(" (p10 – p90: %s", value_text(row, summary.p90, text));
        printf(" – %s%s)", value_text(row, summary.p10, text),
               bench_is_noisy(&summary) ? " *" : "");
        for (int j = 0; j < row->param_count; j++)
            printf(", %s %s", row->params[j].name, row->params[j].text);
        puts("");
    }
}

/* Rows of one benchmark on one device, which have the same columns. */
static void print_table(const bench_context *context, int first, int last)
{
    shown columns = what_is_shown(context, first, last);
    cli_table *table = cli_table_create();
    const char *peer = "";
    add_columns(table, context->rows[first], columns);
    for (int i = first; i < last; i++) {
        const bench_row *row = context->rows[i];
        if (row->is_ceiling)
            continue;
        add_cells(table, row, columns);
        add_last_cells(table, row, columns);
        peer = row->peer.count > 0 ? row->peer_name : peer;
    }
    if (columns.peer)
        printf("peer     %s\n", peer);
    puts("");
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
    if (columns.elsewhere)
        puts("\nelsewhere: what another system took on a machine like ours, not measured here.");
}

/* The first row at or behind `from` that is no ceiling, on this device. */
static int next_row(const bench_context *context, int from, int place)
{
    while (from < context->row_count &&
           (context->rows[from]->is_ceiling || context->rows[from]->device_place != place))
        from++;
    return from;
}

static void print_rows(const bench_context *context, int place, bool headings)
{
    int last;
    for (int first = next_row(context, 0, place); first < context->row_count;
         first = next_row(context, last, place)) {
        const char *name = context->rows[first]->benchmark;
        last = first;
        while (last < context->row_count && (context->rows[last]->is_ceiling ||
                                             (strcmp(context->rows[last]->benchmark, name) == 0 &&
                                              context->rows[last]->device_place == place)))
            last++;
        if (headings) {
            const bench *known = bench_find(name);
            printf("\n%s: %s\n", name, known != NULL ? known->summary : "");
        }
        print_table(context, first, last);
    }
}

static void print_device(const tsr_device_info *info)
{
    char version[CLI_VERSION_TEXT];
    printf("device   %d  %s (%s), %s%s%s, Vulkan %s\n", info->index, info->name,
           cli_device_type(info->type), info->driver_name, info->driver_info[0] != '\0' ? " " : "",
           info->driver_info, cli_vulkan_version(info->api_version, version));
}

/* What belongs to one benchmark on one device stands in one line. */
static void print_notes(const char *heading, const bench_notes *notes, const char *separator,
                        const bench_context *context)
{
    for (int i = 0; i < notes->count; i++) {
        const bench_note *note = &notes->all[i], *before = i > 0 ? note - 1 : NULL;
        const char *device =
            note->device_place >= 0 ? context->devices[note->device_place]->name : "";
        if (before == NULL)
            printf("\n%s:", heading);
        if (before != NULL && before->device_place == note->device_place &&
            strcmp(before->benchmark, note->benchmark) == 0)
            printf("%s%s", separator, note->text);
        else
            printf("\n  %s%s%s: %s", device, device[0] != '\0' ? ", " : "", note->benchmark,
                   note->text);
    }
    if (notes->count > 0)
        puts("");
}

void bench_report_text(const bench_context *context, const bench *what)
{
    char warnings[BENCH_WARNINGS][BENCH_WARNING_SIZE];
    bench_host host;
    bench_host_read(&host);
    if (what != NULL)
        printf("%-7s  %s\n", what->name, what->summary);
    if (what != NULL && context->device_count > 0)
        print_device(context->devices[0]);
    printf("host     %s, %d CPUs, %s; tessera %s\n", host.cpu, host.cpus, host.os, tsr_version());
    int count = bench_warnings(context, warnings);
    for (int i = 0; i < count; i++)
        printf("warning  %s\n", warnings[i]);
    for (int place = 0; place < context->device_count; place++) {
        if (what == NULL) {
            puts("");
            print_device(context->devices[place]);
        }
        print_ceilings(context, place);
        print_ceilings(context, -1);
        print_rows(context, place, what == NULL);
    }
    if (context->device_count == 0)
        print_ceilings(context, -1);
    print_rows(context, -1, what == NULL);
    print_notes("left out, mostly since doing it once takes longer than --time", &context->left_out,
                ", ", context);
    print_notes("FAILED, and without figures", &context->failures, "\n    ", context);
    if (bench_noisy_rows(context) > 0)
        puts("\n* noisy: the middle 80 % of the samples spread over more than 20 % of the median.");
}
