/* Prints the results of a run as tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/machine.h"
#include "bench/report/report.h"
#include "cli/lib/device.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"

const char *bench_unit_name(bench_unit unit)
{
    return unit == BENCH_GFLOPS ? "GFLOP/s" : unit == BENCH_GBYTES ? "GB/s" : "time";
}

static char *value_text(const bench_row *row, double ns, char text[CLI_NUMBER_TEXT])
{
    double value = bench_value(row, ns);
    return row->unit == BENCH_TIME ? cli_duration(value, text) : cli_number(value, text);
}

/* Writes a cell "low – high", the ends of the middle 80 % of the samples, in the unit of the row.
 * The low end of a rate is that of the longest time. */
static void spread_cell(cli_table *table, const bench_row *row, const bench_summary *summary)
{
    char low[CLI_NUMBER_TEXT], high[CLI_NUMBER_TEXT];
    bool rate = row->unit != BENCH_TIME;
    cli_table_cell(table, "%s – %s%s", value_text(row, rate ? summary->p90 : summary->p10, low),
                   value_text(row, rate ? summary->p10 : summary->p90, high),
                   bench_is_noisy(summary) ? " *" : "  ");
}

typedef struct shown {
    const char
        /* the name of the ceiling that all rows have; many_ceilings if rows have different ones;
         * NULL if they have none */
        *ceiling;
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
        const bench_row *ceiling = bench_ceiling(row);
        if (ceiling != NULL)
            columns.ceiling =
                columns.ceiling == NULL || strcmp(columns.ceiling, ceiling->benchmark) == 0
                    ? ceiling->benchmark
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
        cli_table_column(table, row->params[i].name,
                         row->params[i].is_number ? CLI_RIGHT : CLI_LEFT);
    cli_table_column(table, bench_unit_name(row->unit), CLI_RIGHT);
    cli_table_column(table, "p10 – p90  ", CLI_RIGHT | CLI_OPTIONAL);
    cli_table_column(table, "best", CLI_RIGHT | CLI_OPTIONAL);
    if (columns.ceiling != NULL) {
        char heading[64];
        snprintf(heading, sizeof heading, "of %s", columns.ceiling);
        cli_table_column(table, heading, CLI_RIGHT);
    }
    if (columns.bus)
        cli_table_column(table, "busbw", CLI_RIGHT);
    if (row->unit != BENCH_TIME)
        cli_table_column(table, "time", CLI_RIGHT | CLI_OPTIONAL);
    if (columns.device)
        cli_table_column(table, "device clock", CLI_RIGHT | CLI_OPTIONAL);
    cli_table_column(table, "samples", CLI_RIGHT | CLI_OPTIONAL);
    if (columns.peer) {
        cli_table_column(table, "peer", CLI_RIGHT);
        cli_table_column(table, "of peer", CLI_RIGHT);
    }
    if (columns.memory)
        cli_table_column(table, "peak memory", CLI_RIGHT | CLI_OPTIONAL);
    if (columns.elsewhere)
        cli_table_column(table, "elsewhere", CLI_LEFT | CLI_OPTIONAL);
}

/* Writes a cell such as "72 %" or "134 % ^", where ^ marks a result above its ceiling. If `named`,
 * the name of the ceiling follows. This is used if the rows of the table have different
 * ceilings. */
static void ceiling_cell(cli_table *table, const bench_row *row, bool named)
{
    static const char *const marks[] = {
        [BENCH_WITHIN] = "", [BENCH_CACHED] = " ^", [BENCH_ABOVE] = " !"};
    char text[CLI_NUMBER_TEXT];
    const bench_row *ceiling = bench_ceiling(row);
    if (ceiling == NULL)
        cli_table_cell(table, "%s", "");
    else
        cli_table_cell(table, "%s%s%s%s", cli_percent(bench_fraction(row), text),
                       named ? " of " : "", named ? ceiling->benchmark : "",
                       marks[bench_stands(row)]);
}

static void add_cells(cli_table *table, const bench_row *row, shown columns)
{
    char text[CLI_NUMBER_TEXT];
    bench_summary host = bench_summarize(&row->host), device = bench_summarize(&row->device);
    for (int i = 0; i < row->param_count; i++)
        cli_table_cell(table, "%s", row->params[i].text);
    cli_table_cell(table, "%s", value_text(row, host.median, text));
    spread_cell(table, row, &host);
    cli_table_cell(table, "%s", value_text(row, host.min, text));
    if (columns.ceiling != NULL)
        ceiling_cell(table, row, columns.ceiling == many_ceilings);
    if (columns.bus)
        cli_table_cell(table, "%s", cli_number(bench_median(row) * row->bus_factor, text));
    if (row->unit != BENCH_TIME)
        cli_table_cell(table, "%s", cli_duration(host.median, text));
    if (columns.device) {
        double per_thing = row->unit == BENCH_TIME ? device.median / row->work : device.median;
        cli_table_cell(table, "%s", row->device.count > 0 ? cli_duration(per_thing, text) : "");
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

/* Writes the last cells of a row, in the columns that only some tables have (peak memory, results
 * of other systems). */
static void add_last_cells(cli_table *table, const bench_row *row, shown columns)
{
    char text[CLI_BYTES_TEXT];
    if (columns.memory)
        cli_table_cell(table, "%s",
                       row->peak_bytes > 0 ? cli_bytes((uint64_t)row->peak_bytes, text) : "");
    if (columns.elsewhere)
        cli_table_cell(table, "%s", row->elsewhere != NULL ? row->elsewhere : "");
}

/* Returns true if no other row of the same ceiling is faster: some ceilings are measured with
 * several variants of a kernel. */
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
    char text[CLI_NUMBER_TEXT];
    for (int i = 0; i < context->row_count; i++) {
        const bench_row *row = context->rows[i];
        if (!row->is_ceiling || row->device_place != place || !is_best(context, row))
            continue;
        bench_summary summary = bench_summarize(&row->host);
        char params[BENCH_MAX_PARAMS * 80] = "", low[CLI_NUMBER_TEXT], high[CLI_NUMBER_TEXT];
        size_t used = 0;
        for (int j = 0; j < row->param_count && used < sizeof params; j++)
            used += (size_t)snprintf(params + used, sizeof params - used, ", %s %s",
                                     row->params[j].name, row->params[j].text);
        cli_line(stdout, "ceiling  %s %s %s (p10 – p90: %s – %s%s)%s", row->benchmark,
                 value_text(row, summary.median, text), bench_unit_name(row->unit),
                 value_text(row, summary.p90, low), value_text(row, summary.p10, high),
                 bench_is_noisy(&summary) ? " *" : "", params);
    }
}

/* Prints the rows of one benchmark on one device, which have the same columns. */
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
        cli_line(stdout, "peer     %s", peer);
    puts("");
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
    if (columns.elsewhere)
        puts("\nelsewhere: time of another system on a similar machine, not measured in this run.");
}

/* Returns the first row from `from` on that belongs to this device and is not a ceiling. */
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
            puts("");
            cli_line(stdout, "%s: %s", name, known != NULL ? known->summary : "");
        }
        print_table(context, first, last);
    }
}

static void print_device(const tsr_device_info *info)
{
    char version[CLI_VERSION_TEXT];
    cli_line(stdout, "device   %d  %s (%s), %s%s%s, Vulkan %s", info->index, info->name,
             cli_device_type(info->type), info->driver_name,
             info->driver_info[0] != '\0' ? " " : "", info->driver_info,
             cli_vulkan_version(info->api_version, version));
}

static int count_standing(const bench_context *context, bench_standing standing)
{
    int count = 0;
    for (int i = 0; i < context->row_count; i++)
        count += bench_stands(context->rows[i]) == standing;
    return count;
}

/* Explains the marks that the tables contain. */
static void print_legend(const bench_context *context)
{
    if (bench_noisy_rows(context) > 0)
        cli_wrap(stdout, "\n*  noisy: the middle 80 % of the samples spread over more than 20 % of "
                         "the median\n");
    if (count_standing(context, BENCH_CACHED) > 0)
        cli_wrap(stdout, "\n^  above the bandwidth of the memory: the data fits in caches\n");
    if (count_standing(context, BENCH_ABOVE) > 0)
        cli_wrap(stdout,
                 "\n!  above its ceiling, although that is the best of several measurements: "
                 "the device was slower during them\n");
}

static bool same_place(const bench_note *a, const bench_note *b)
{
    return a->device_place == b->device_place && strcmp(a->benchmark, b->benchmark) == 0;
}

/* Prints notes. Notes about one benchmark on one device share a line. */
static void print_notes(const char *heading, const bench_notes *notes, const bench_context *context)
{
    if (notes->count == 0)
        return;
    cli_line(stdout, "\n%s:", heading);
    for (int first = 0, last; first < notes->count; first = last) {
        const bench_note *note = &notes->all[first];
        const char *device =
            note->device_place >= 0 ? context->devices[note->device_place]->name : "";
        char *text = cli_alloc(1, 1);
        size_t used = 0;
        for (last = first; last < notes->count && same_place(note, &notes->all[last]); last++) {
            size_t size = used + strlen(notes->all[last].text) + 3;
            text = cli_resize(text, size, 1);
            used += (size_t)snprintf(text + used, size - used, "%s%s", last > first ? ", " : "",
                                     notes->all[last].text);
        }
        cli_line(stdout, "  %s%s%s: %s", device, device[0] != '\0' ? ", " : "", note->benchmark,
                 text);
        free(text);
    }
}

void bench_report_text(const bench_context *context, const bench *what)
{
    char warnings[BENCH_WARNINGS][BENCH_WARNING_SIZE];
    bench_host host;
    bench_host_read(&host);
    if (what != NULL)
        cli_line(stdout, "%-7s  %s", what->name, what->summary);
    if (what != NULL && context->device_count > 0)
        print_device(context->devices[0]);
    cli_line(stdout, "host     %s, %d CPUs, %s; tessera %s", host.cpu, host.cpus, host.os,
             tsr_version());
    int count = bench_warnings(context, warnings);
    for (int i = 0; i < count; i++)
        cli_line(stdout, "warning  %s", warnings[i]);
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
    print_notes("not measured, mostly because one repetition takes longer than --time",
                &context->left_out, context);
    print_notes("FAILED, without results", &context->failures, context);
    print_legend(context);
}
