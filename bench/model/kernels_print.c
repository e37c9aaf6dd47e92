/* tessera bench model --kernels: its tables and JSON. */
#include <stdio.h>
#include <string.h>

#include "bench/model/model.h"
#include "cli/lib/json.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"

/* The sums of all kernels of a pass. */
typedef struct totals {
    tsr__profile_kernel all, matrix_units;
} totals;

static void add_kernel(tsr__profile_kernel *sum, const tsr__profile_kernel *kernel)
{
    sum->commands += kernel->commands;
    sum->barriers += kernel->barriers;
    sum->read_bytes += kernel->read_bytes;
    sum->written_bytes += kernel->written_bytes;
    sum->operations += kernel->operations;
    sum->timed += kernel->timed;
    sum->ns += kernel->ns;
}

static totals totals_of(const tsr__profile *profile)
{
    totals out = {0};
    for (int i = 0; i < profile->kernel_count; i++) {
        add_kernel(&out.all, &profile->kernels[i]);
        if (profile->kernels[i].matrix_units)
            add_kernel(&out.matrix_units, &profile->kernels[i]);
    }
    return out;
}

static double bytes_of(const tsr__profile_kernel *kernel)
{
    return kernel->read_bytes + kernel->written_bytes;
}

static double fraction(double part, double all)
{
    return all > 0 ? part / all : 0;
}

/* Tables --------------------------------------------------------------------------------------- */

static void add_row(cli_table *table, const tsr__profile *profile, const char *name,
                    const tsr__profile_kernel *kernel, const tsr__profile_kernel *matrix_units)
{
    char text[CLI_NUMBER_TEXT];
    const double bytes = bytes_of(kernel);
    cli_table_cell(table, "%s", name);
    cli_table_cell(table, "%llu", (unsigned long long)kernel->commands);
    cli_table_cell(table, "%llu", (unsigned long long)kernel->barriers);
    cli_table_cell(table, "%s", cli_number(kernel->read_bytes * 1e-6, text));
    cli_table_cell(table, "%s", cli_number(kernel->written_bytes * 1e-6, text));
    cli_table_cell(table, "%s", cli_number(kernel->operations * 1e-6, text));
    cli_table_cell(table, "%s", cli_percent(fraction(bytes_of(matrix_units), bytes), text));
    cli_table_cell(table, "%s",
                   cli_percent(fraction(matrix_units->operations, kernel->operations), text));
    if (profile->has_times)
        cli_table_cell(table, "%s", cli_number(kernel->ns * 1e-3, text));
}

static void write_pass(const bench_model_kernels *pass, bench_format format, FILE *out)
{
    static const char *const numbers[] = {"commands",          "barriers", "MB read",
                                          "MB written",        "MFLOP",    "matrix units: bytes",
                                          "matrix units: FLOP"};
    const tsr__profile *profile = &pass->profile;
    const tsr__profile_kernel none = {0};
    const totals sums = totals_of(profile);
    cli_table *table = cli_table_create();
    cli_table_column(table, pass->name, CLI_LEFT);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cli_table_column(table, numbers[i], CLI_RIGHT);
    if (profile->has_times)
        cli_table_column(table, "us", CLI_RIGHT);
    for (int i = 0; i < profile->kernel_count; i++) {
        const tsr__profile_kernel *kernel = &profile->kernels[i];
        add_row(table, profile, kernel->name, kernel, kernel->matrix_units ? kernel : &none);
    }
    add_row(table, profile, "total", &sums.all, &sums.matrix_units);
    fputc('\n', out);
    if (format == BENCH_AS_MARKDOWN)
        cli_table_markdown(table, out);
    else
        cli_table_print(table, out, 0);
    cli_table_destroy(&table);
    char elapsed[CLI_NUMBER_TEXT], gaps[CLI_NUMBER_TEXT];
    fprintf(out, "\n%s: %llu submission%s", pass->name, (unsigned long long)profile->batches,
            CLI_PLURAL(profile->batches));
    if (profile->has_times)
        fprintf(out, ", %s on the device, of which %s between commands\n",
                cli_duration(profile->elapsed_ns, elapsed), cli_duration(profile->gaps_ns, gaps));
    else
        fputs("; the device has no timestamps\n", out);
}

void bench_model_write_kernels(const bench_model_report *report, bench_format format, FILE *out)
{
    for (int i = 0; i < report->kernels_count; i++)
        write_pass(&report->kernels[i], format, out);
}

/* JSON ----------------------------------------------------------------------------------------- */

static void add_figures(json_t *object, const tsr__profile *profile,
                        const tsr__profile_kernel *kernel)
{
    cli_json_u64(object, "commands", kernel->commands);
    cli_json_u64(object, "barriers", kernel->barriers);
    cli_json_real(object, "read_bytes", kernel->read_bytes);
    cli_json_real(object, "written_bytes", kernel->written_bytes);
    cli_json_real(object, "operations", kernel->operations);
    if (profile->has_times)
        cli_json_real(object, "ns", kernel->ns);
    else
        cli_json_null(object, "ns");
}

void bench_model_add_kernels(json_t *document, const bench_model_report *report)
{
    json_t *passes = cli_json_add_array(document, "kernels");
    for (int i = 0; i < report->kernels_count; i++) {
        const bench_model_kernels *pass = &report->kernels[i];
        const tsr__profile *profile = &pass->profile;
        const totals sums = totals_of(profile);
        json_t *object = cli_json_append_object(passes);
        cli_json_text(object, "pass", pass->name);
        json_t *kernels = cli_json_add_array(object, "kernels");
        for (int k = 0; k < profile->kernel_count; k++) {
            json_t *kernel = cli_json_append_object(kernels);
            cli_json_text(kernel, "kernel", profile->kernels[k].name);
            cli_json_bool(kernel, "matrix_units", profile->kernels[k].matrix_units);
            add_figures(kernel, profile, &profile->kernels[k]);
        }
        json_t *total = cli_json_add_object(object, "total");
        add_figures(total, profile, &sums.all);
        cli_json_real(total, "matrix_unit_bytes", bytes_of(&sums.matrix_units));
        cli_json_real(total, "matrix_unit_operations", sums.matrix_units.operations);
        cli_json_u64(total, "submissions", profile->batches);
        if (profile->has_times) {
            cli_json_real(total, "elapsed_ns", profile->elapsed_ns);
            cli_json_real(total, "gaps_ns", profile->gaps_ns);
        } else {
            cli_json_null(total, "elapsed_ns");
            cli_json_null(total, "gaps_ns");
        }
    }
}
