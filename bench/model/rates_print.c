/* Prints what tessera bench rates has measured. */
#include "bench/model/rates.h"

#include <stdio.h>

#include "cli/lib/json.h"
#include "cli/lib/table.h"

static cli_table *make_table(const bench_rates_report *report)
{
    static const char *const headings[] = {
        "rank",    "rows",        "pass µs",       "layer µs", "layers µs/10⁶",
        "head µs", "head µs/10⁶", "collective µs", "device",   NULL};
    static const char expert_heading[] = "experts µs/10⁶";
    cli_table *table = cli_table_create();
    for (int i = 0; headings[i] != NULL; i++) {
        if (headings[i + 1] == NULL && report->experts)
            cli_table_column(table, expert_heading, CLI_RIGHT);
        cli_table_column(table, headings[i], headings[i + 1] != NULL ? CLI_RIGHT : CLI_LEFT);
    }
    for (int r = 0; r < report->ranks; r++)
        for (int i = 0; i < report->passes; i++) {
            const bench_rates_rank *rank = &report->rank[r];
            const bench_rates_pass *pass = &rank->pass[i];
            cli_table_cell(table, "%d", r);
            cli_table_cell(table, "%lld", (long long)pass->rows);
            cli_table_cell(table, "%.1f", pass->pass * 1e6);
            cli_table_cell(table, "%.1f", pass->layer * 1e6);
            cli_table_cell(table, "%.4g", pass->element * 1e12);
            cli_table_cell(table, "%.1f", pass->head * 1e6);
            cli_table_cell(table, "%.4g", pass->head_element * 1e12);
            cli_table_cell(table, "%.1f", rank->collective * 1e6);
            if (report->experts)
                cli_table_cell(table, "%.4g", pass->expert_element * 1e12);
            cli_table_cell(table, "%s", rank->device);
        }
    return table;
}

static void write_json(const bench_rates_report *report, FILE *out)
{
    json_t *document = cli_json_document("tessera.bench.rates", 1);
    json_t *model = cli_json_add_object(document, "model");
    cli_json_text(model, "name", report->name);
    cli_json_text(model, "architecture", report->config->architecture);
    cli_json_add(model, "width", json_integer(report->config->width));
    cli_json_text(model, "dtype", tsr_dtype_name(report->type));
    cli_json_real(model, "bytes_per_element", report->element_bytes);
    json_t *ranks = cli_json_add_array(document, "ranks");
    for (int r = 0; r < report->ranks; r++) {
        json_t *rank = cli_json_append_object(ranks);
        cli_json_text(rank, "device", report->rank[r].device);
        cli_json_real(rank, "collective_us", report->rank[r].collective * 1e6);
        cli_json_real(rank, "host_collective_us", report->rank[r].host_collective * 1e6);
        json_t *passes = cli_json_add_array(rank, "passes");
        for (int i = 0; i < report->passes; i++) {
            const bench_rates_pass *from = &report->rank[r].pass[i];
            json_t *pass = cli_json_append_object(passes);
            cli_json_add(pass, "rows", json_integer(from->rows));
            cli_json_real(pass, "pass_us", from->pass * 1e6);
            cli_json_real(pass, "layer_us", from->layer * 1e6);
            cli_json_real(pass, "million_elements_us", from->element * 1e12);
            cli_json_real(pass, "head_us", from->head * 1e6);
            cli_json_real(pass, "million_head_elements_us", from->head_element * 1e12);
            if (report->experts)
                cli_json_real(pass, "million_expert_elements_us", from->expert_element * 1e12);
        }
    }
    cli_json_write(document, out);
}

void bench_rates_write(const bench_rates_report *report, bench_format format, FILE *out)
{
    if (format == BENCH_AS_JSON) {
        write_json(report, out);
        return;
    }
    cli_table *table = make_table(report);
    if (format == BENCH_AS_CSV)
        cli_table_csv(table, out);
    else if (format == BENCH_AS_MARKDOWN)
        cli_table_markdown(table, out);
    else
        cli_table_print(table, out, 0);
    cli_table_destroy(&table);
}
