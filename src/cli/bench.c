/* tessera bench NAME: reads the options, opens the device, runs a benchmark and reports its rows.
 * The benchmarks themselves are in bench/. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/report.h"
#include "cli/command.h"
#include "cli/options.h"

#define LARGEST_SIDE ((int64_t)1 << 24)
#define LARGEST_MATRIX ((int64_t)1 << 31)

static bench_options chosen = {.seconds = 1};

static bool read_dtype(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    tsr_dtype dtype;
    if (tsr_dtype_parse(text, &dtype) != TSR_OK ||
        (dtype != TSR_F32 && dtype != TSR_F16 && dtype != TSR_BF16)) {
        snprintf(problem, size, "takes f32, f16 or bf16, not '%s'", text);
        return false;
    }
    for (int i = 0; i < chosen.dtype_count; i++)
        if (chosen.dtypes[i] == dtype) {
            snprintf(problem, size, "%s is given twice", text);
            return false;
        }
    chosen.dtypes[chosen.dtype_count++] = dtype;
    return true;
}

/* "512x1024x4096" */
static bool read_sides(const char *text, int64_t sides[3])
{
    char copy[64], *rest = copy;
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    for (int i = 0; i < 3; i++) {
        char *end = rest != NULL ? strchr(rest, 'x') : NULL;
        if (rest == NULL || (end == NULL) != (i == 2))
            return false;
        if (end != NULL)
            *end++ = '\0';
        if (!cli_read_integer(rest, 1, LARGEST_SIDE, &sides[i]))
            return false;
        rest = end;
    }
    return true;
}

static bool read_shape(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    int64_t sides[3];
    if (!read_sides(text, sides)) {
        snprintf(problem, size, "takes MxKxN, each from 1 to %lld, not '%.80s'",
                 (long long)LARGEST_SIDE, text);
        return false;
    }
    if (sides[0] * sides[1] > LARGEST_MATRIX || sides[1] * sides[2] > LARGEST_MATRIX ||
        sides[0] * sides[2] > LARGEST_MATRIX) {
        snprintf(problem, size, "%s has a matrix of more than %lld elements", text,
                 (long long)LARGEST_MATRIX);
        return false;
    }
    if (chosen.shape_count == BENCH_MAX_SHAPES) {
        snprintf(problem, size, "can be given at most %d times", BENCH_MAX_SHAPES);
        return false;
    }
    chosen.shapes[chosen.shape_count++] = (bench_shape){sides[0], sides[1], sides[2]};
    return true;
}

static const cli_option options[] = {
    {"device", "DEVICE", "index, UUID or part of the name (default: TESSERA_DEVICE, or the best)",
     .text = &chosen.device},
    {"dtype", "TYPE", "f32, f16 or bf16; may be repeated (default f32)", .read = read_dtype},
    {"shape", "MxKxN", "a shape instead of the usual ones; may be repeated", .read = read_shape},
    {"size", "MIB", "how much to copy (default 64)", .integer = &chosen.size_mib, .low = 1,
     .high = 1024},
    {"ranks", "N", "how many processes (default: 2, and then 4)", .integer = &chosen.ranks,
     .low = 2, .high = 16},
    {"large", NULL, "also what takes gigabytes of memory", .flag = &chosen.large},
    {"peer", NULL, "also measure OpenBLAS, or MPI", .flag = &chosen.peer},
    {"time", "SECONDS", "how long to measure each result (default 1)", .real = &chosen.seconds,
     .low = 0.001, .high = 600},
    {"json", NULL, "print JSON with every sample instead of a table", .flag = &chosen.json},
    {0},
};

static void help(FILE *out)
{
    fputs("Runs a benchmark. Every result is compared with a reference before it is timed, and a "
          "wrong one is an\n"
          "error. Figures are medians by the host's clock, with the 10th and 90th percentile.\n"
          "\nbenchmarks:\n",
          out);
    for (int i = 0; bench_list[i] != NULL; i++)
        fprintf(out, "  %-8s  %s\n", bench_list[i]->name, bench_list[i]->summary);
    for (int i = 0; bench_list[i] != NULL; i++)
        fprintf(out, "\n%s:\n%s", bench_list[i]->name, bench_list[i]->help);
    cli_options_help(out, options);
}

/* An option that would do nothing is a mistake. */
static int check_options(const bench *what)
{
    const struct {
        bool given;
        unsigned takes;
        const char *name;
    } all[] = {
        {chosen.shape_count > 0, BENCH_SHAPES, "shape"},
        {chosen.dtype_count > 0, BENCH_DTYPES, "dtype"},
        {chosen.size_mib > 0, BENCH_SIZE, "size"},
        {chosen.ranks > 0, BENCH_RANKS, "ranks"},
        {chosen.peer, BENCH_PEER, "peer"},
        {chosen.large, BENCH_LARGE, "large"},
    };
    if (chosen.device != NULL && what->host_only)
        return cli_usage_error("bench: %s does not take --device", what->name);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given && !(what->takes & all[i].takes))
            return cli_usage_error("bench: %s does not take --%s", what->name, all[i].name);
    return CLI_DONE;
}

static bool run_bench(bench_context *context, const bench *what)
{
    if (!what->opens_device && !what->host_only) {
        BENCH_TRY(context,
                  tsr_device_open(tsr_device_params(.device = chosen.device), &context->device));
        context->info = tsr_device_get_info(context->device);
        BENCH_TRY(context, tsr_stream_create(context->device, &context->stream));
    }
    return what->run(context);
}

static void finish(bench_context *context)
{
    tsr_stream_destroy(&context->stream);
    tsr_device_close(&context->device);
    for (int i = 0; i < context->row_count; i++) {
        bench_samples_free(&context->rows[i]->host);
        bench_samples_free(&context->rows[i]->device);
        bench_samples_free(&context->rows[i]->peer);
        free(context->rows[i]);
    }
    free(context->rows);
}

static int run(int argc, char **argv)
{
    const char *name = NULL;
    int words;
    int code = cli_options_read("bench", options, argc, argv, 1, &name, &words);
    if (code != CLI_DONE)
        return code;
    if (words == 0)
        return cli_usage_error("bench: which benchmark? 'tessera help bench' lists them");
    const bench *what = bench_find(name);
    if (what == NULL)
        return cli_usage_error("bench: there is no benchmark '%s'; 'tessera help bench' lists them",
                               name);
    code = check_options(what);
    if (code != CLI_DONE)
        return code;

    bench_context context = {.options = &chosen, .progress = isatty(STDERR_FILENO)};
    bool done = run_bench(&context, what);
    if (context.progress)
        fputs("\r\033[K", stderr);
    if (!done)
        code = cli_failed("%s", context.error);
    else if (chosen.json)
        bench_report_json(&context, what);
    else
        bench_report_text(&context, what);
    finish(&context);
    return code;
}

const cli_command cli_bench = {
    .name = "bench",
    .usage = "BENCHMARK [options]",
    .summary = "how fast a device or the host is, each result verified before it is timed",
    .run = run,
    .help = help,
};
