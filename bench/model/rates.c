/* tessera bench rates: its options and its output. */
#include "bench/model/rates.h"

#include <stdio.h>

#include "cli/lib/json.h"
#include "cli/lib/options.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"

static bench_rates_options chosen = {
    .type = TSR_F16,
    .sequences = 1,
    .prompt = 256,
    .seconds = 3,
    .timeout = 600,
    .to = {.format = BENCH_AS_TEXT},
};

static const cli_option options[] = {
    {"shape", "NAME",
     "without MODEL: the shape of the model: llama-1b, llama-7b, llama-110m or llama-15m (default: "
     "llama-1b)",
     .read = bench_model_read_shape, .user = &chosen.shape},
    {"type", "TYPE",
     "the type of its matrices: f32, f16, bf16 or a block format, such as q4_k (default: f16)",
     .read = cli_read_matrix_dtype, .user = &chosen.type},
    {"sequences", "N", "measure passes of 1, 2, 4 and so on up to N rows (default: 1)",
     .integer = &chosen.sequences, .low = 1, .high = TSR_GENERATOR_MAX_SEQUENCES},
    {"prompt-tokens", "N", "measure a pass of a prompt of N tokens; 0: none (default: 256)",
     .integer = &chosen.prompt, .low = 0, .high = 1 << 16, .letter = 'p'},
    {"time", "SECONDS", "time for each model and number of rows (default: 3)",
     .real = &chosen.seconds, .low = 0.001, .high = 600},
    {"memory", "LIST",
     "device memory of each rank for the models, such as 8G,12G, or one value for all (default: "
     "what each device has left)",
     .read = cli_read_memory, .user = &chosen.stages.memory},
    {"device", "DEVICE",
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the fastest)",
     .text = &chosen.device},
    {"timeout", "SECONDS", "the longest time that ranks wait for each other (default: 600)",
     .real = &chosen.timeout, .low = 1, .high = 1e6},
    BENCH_DESTINATION_OPTIONS(chosen.to),
    {0},
};

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Measures what 'tessera plan --cluster --rank-rates FILE' needs to know about each rank of "
        "a "
        "job: how long it takes for a pass of a model's layers while all ranks of the job compute, "
        "each by itself. Start it with the ranks and hosts of the job that is planned.\n"
        "\n"
        "Each rank generates with models of random weights, which have layers of MODEL's or "
        "--shape's width: one and five layers, the same with half of the heads and the MLP (or "
        "only of the MLP), one layer with half of the vocabulary, and one and five layers with "
        "hardly anything. They take turns after a few tokens, and times of equal ranks are "
        "averaged. From these times follow the time of a pass that depends neither on layers nor "
        "on sizes ('pass'), that of a "
        "layer and of the head without their sizes ('layer', 'head'), and those of 10⁶ elements of "
        "their matrices (µs/10⁶). 'collective' is how much longer a collective of tensors takes "
        "than one of host memory, in a model that all ranks of the job divide; in JSON also in "
        "models that the ranks of each host divide.\n");
    cli_options_help(out, options);
}

static int run(int argc, char **argv)
{
    const char *path = NULL;
    int words;
    int code = cli_options_read("bench rates", options, argc, argv, 1, &path, &words);
    if (code != CLI_DONE)
        return code;
    if (words == 1)
        chosen.path = path;
    if (chosen.path != NULL && chosen.shape != NULL)
        return cli_usage_error("bench rates: --shape and '%s' are two models", chosen.path);
    code = bench_destination_check("bench rates", &chosen.to);
    if (code != CLI_DONE)
        return code;
    if (chosen.shape == NULL)
        chosen.shape = bench_model_shape_find("llama-1b");
    return bench_rates_run(&chosen);
}

const cli_command bench_rates_command = {
    .name = "bench rates",
    .usage = "[MODEL] [options]",
    .summary = "measure the rates of ranks for plan --cluster",
    .run = run,
    .help = help,
};

/* Output --------------------------------------------------------------------------------------- */

static cli_table *make_table(const bench_rates_report *report)
{
    static const char *const headings[] = {
        "rank",    "rows",        "pass µs",       "layer µs", "layers µs/10⁶",
        "head µs", "head µs/10⁶", "collective µs", "device",   NULL};
    cli_table *table = cli_table_create();
    for (int i = 0; headings[i] != NULL; i++)
        cli_table_column(table, headings[i], headings[i + 1] != NULL ? CLI_RIGHT : CLI_LEFT);
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
