/* tessera bench: reads the options, runs one benchmark or all of them and reports their rows; or
 * hands over to what is done with reports. The benchmarks themselves are in bench/. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "bench/compare/compare.h"
#include "bench/harness/bench.h"
#include "bench/harness/complete.h"
#include "bench/report/page.h"
#include "bench/report/report.h"
#include "bench/tune/tune.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"

#define LARGEST_SIDE ((int64_t)1 << 24)
#define LARGEST_MATRIX ((int64_t)1 << 31)
#define MOST_BYTES ((int64_t)1 << 30)

static bench_options chosen;
static const char *output;
static bool tune;

/* "8", "64K", "1g": as nccl-tests takes them. */
static bool read_bytes(void *user, const char *text, char *problem, size_t size)
{
    static const char units[] = "KMG";
    char digits[24];
    const size_t length = strlen(text);
    const char *unit = length > 1 ? strchr(units, toupper((unsigned char)text[length - 1])) : NULL;
    int64_t value;
    snprintf(digits, sizeof digits, "%.*s", (int)(unit != NULL ? length - 1 : length), text);
    bool read = length < sizeof digits && cli_read_integer(digits, 1, MOST_BYTES, &value);
    for (const char *at = units; read && unit != NULL && at <= unit && value <= MOST_BYTES; at++)
        value *= 1024;
    if (!read || value < 4 || value > MOST_BYTES) {
        snprintf(problem, size, "takes bytes from 4 to 1G, such as 8, 64K or 16M, not '%.40s'",
                 text);
        return false;
    }
    *(int64_t *)user = value;
    return true;
}

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
    /* Reports and comparisons know a result by its case. */
    for (int i = 0; i < chosen.shape_count; i++) {
        const bench_shape *other = &chosen.shapes[i];
        if (other->m == sides[0] && other->k == sides[1] && other->n == sides[2]) {
            snprintf(problem, size, "%s is given twice", text);
            return false;
        }
    }
    if (chosen.shape_count == BENCH_MAX_SHAPES) {
        snprintf(problem, size, "can be given at most %d times", BENCH_MAX_SHAPES);
        return false;
    }
    chosen.shapes[chosen.shape_count++] = (bench_shape){sides[0], sides[1], sides[2]};
    return true;
}

static const cli_option options[] = {
    {"device", "DEVICE",
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the best; of a complete run, "
     "and of --tune, all)",
     .text = &chosen.device},
    {"dtype", "TYPE", "f32, f16 or bf16; may be repeated (default f32; of --tune all three)",
     .read = read_dtype},
    {"shape", "MxKxN", "a shape instead of the usual ones; may be repeated", .read = read_shape},
    {"size", "MIB", "how much to copy (default 64)", .integer = &chosen.size_mib, .low = 1,
     .high = 1024},
    {"ranks", "N", "how many processes (default: 2, and then 4)", .integer = &chosen.ranks,
     .low = BENCH_FEWEST_RANKS, .high = 16},
    {"minbytes", "BYTES", "the smallest size of a collective operation (default 8); -b BYTES",
     .read = read_bytes, .user = &chosen.min_bytes, .letter = 'b'},
    {"maxbytes", "BYTES", "the largest (default 64M); -e BYTES", .read = read_bytes,
     .user = &chosen.max_bytes, .letter = 'e'},
    {"stepfactor", "N", "how many times as large the next one is (default 2); -f N",
     .integer = &chosen.step_factor, .low = 2, .high = 1 << 20, .letter = 'f'},
    {"large", NULL, "also what takes gigabytes of memory", .flag = &chosen.large},
    {"peer", NULL, "also measure OpenBLAS, or MPI", .flag = &chosen.peer},
    {"time", "SECONDS",
     "how long to measure each result (default 1; of a complete run, and of --tune, 0.2)",
     .real = &chosen.seconds, .low = 0.001, .high = 600},
    {"tune", NULL, "choose the kernels that matrix products take, by measuring", .flag = &tune},
    {"json", NULL, "print JSON with every sample instead of a table", .flag = &chosen.json},
    {"output", "FILE", "write the JSON to a file, beside the table; -o FILE; -: as --json",
     .text = &output, .letter = 'o'},
    {0},
};

static void help(FILE *out)
{
    fputs(
        "Runs a benchmark; without a name all of them, on every device, in about a minute. Every "
        "result is compared\n"
        "with a reference before it is timed, and a wrong one is an error. Figures are medians by "
        "the host's clock,\n"
        "with the 10th and 90th percentile; '30 x 12' are 30 samples, each the mean of 12 "
        "repetitions.\n"
        "\n  tessera bench report FILE.json... -o PAGE.html   a page of what was measured, to "
        "pass on\n"
        "  tessera bench compare OLD.json NEW.json          what became slower\n"
        "  tessera bench --tune                             measures which kernel is best for "
        "which "
        "products,\n"
        "                                                   and stores it for all programs that "
        "use "
        "tessera\n"
        "\n'tessera help bench report' and 'tessera help bench compare' have their options.\n"
        "\nbenchmarks:\n",
        out);
    for (int i = 0; bench_list[i] != NULL; i++)
        fprintf(out, "  %-14s  %s\n", bench_list[i]->name, bench_list[i]->summary);
    for (int i = 0; bench_list[i] != NULL; i++)
        fprintf(out, "\n%s:\n%s", bench_list[i]->name, bench_list[i]->help);
    cli_options_help(out, options);
}

static bool has_sizes(void)
{
    return chosen.min_bytes > 0 || chosen.max_bytes > 0 || chosen.step_factor > 0;
}

/* What was not said of sizes, where something was. */
static int fill_sizes(void)
{
    if (!has_sizes())
        return CLI_DONE;
    if (chosen.min_bytes == 0)
        chosen.min_bytes = 8;
    if (chosen.max_bytes == 0)
        chosen.max_bytes = 64 << 20;
    if (chosen.step_factor == 0)
        chosen.step_factor = 2;
    if (chosen.min_bytes > chosen.max_bytes)
        return cli_usage_error("bench: --minbytes is %lld, more than --maxbytes, %lld",
                               (long long)chosen.min_bytes, (long long)chosen.max_bytes);
    return CLI_DONE;
}

/* Sizes of which no rank has a share would measure nothing. */
static int check_shares(const bench *what)
{
    const int64_t ranks = chosen.ranks > 0 ? chosen.ranks : BENCH_FEWEST_RANKS;
    int64_t largest = chosen.min_bytes;
    if (!(what->takes & BENCH_SHARES) || chosen.max_bytes == 0)
        return CLI_DONE;
    while (largest <= chosen.max_bytes / chosen.step_factor)
        largest *= chosen.step_factor;
    if (largest / (int64_t)sizeof(float) < ranks)
        return cli_usage_error("bench: %s: no size is enough for each of %lld ranks to have an "
                               "element: the largest is %lld bytes",
                               what->name, (long long)ranks, (long long)largest);
    return CLI_DONE;
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
        {chosen.min_bytes > 0, BENCH_BYTES, "minbytes"},
        {chosen.max_bytes > 0, BENCH_BYTES, "maxbytes"},
        {chosen.step_factor > 0, BENCH_BYTES, "stepfactor"},
        {chosen.peer, BENCH_PEER, "peer"},
        {chosen.large, BENCH_LARGE, "large"},
    };
    if (what == NULL && (chosen.shape_count > 0 || chosen.dtype_count > 0 || chosen.size_mib > 0))
        return cli_usage_error("bench: --shape, --dtype and --size need a benchmark's name");
    if (what == NULL && has_sizes())
        return cli_usage_error("bench: --minbytes, --maxbytes and --stepfactor need the name of a "
                               "collective operation");
    if (what == NULL)
        return CLI_DONE;
    if (chosen.device != NULL && what->host_only)
        return cli_usage_error("bench: %s does not take --device", what->name);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given && !(what->takes & all[i].takes))
            return cli_usage_error("bench: %s does not take --%s", what->name, all[i].name);
    if ((what->takes & BENCH_ONE_SHAPE) && chosen.shape_count > 1)
        return cli_usage_error("bench: %s takes one --shape, not %d", what->name,
                               chosen.shape_count);
    int code = fill_sizes();
    return code == CLI_DONE ? check_shares(what) : code;
}

static int cannot_write(void)
{
    return cli_failed("bench: cannot write '%s': %s", output, strerror(errno));
}

/* What --output asks for, if anything; `tuning` is NULL for benchmarks. */
static int write_output(const bench_context *context, const bench *what, const tune_report *tuning)
{
    cli_output to;
    if (output == NULL)
        return CLI_DONE;
    if (!cli_output_begin(output, &to))
        return cannot_write();
    if (tuning != NULL)
        bench_tune_json(context, tuning, to.file);
    else
        bench_report_json(context, what, to.file);
    return cli_output_end(&to) ? CLI_DONE : cannot_write();
}

static int report(bench_context *context, const bench *what)
{
    bench_noise_end(&context->noise);
    /* What took a minute to measure is printed even if its file cannot be written. */
    int code = write_output(context, what, NULL);
    if (chosen.json)
        bench_report_json(context, what, stdout);
    else
        bench_report_text(context, what);
    return context->failures.count == 0
               ? code
               : cli_failed("bench: %d of the benchmarks failed; the report says why",
                            context->failures.count);
}

static int run_one(bench_context *context, const bench *what)
{
    bool done = what->opens_device || what->host_only || bench_open_device(context, chosen.device);
    done = done && what->run(context) && bench_memcpy_again(context);
    bench_progress_end(&context->progress);
    return done ? report(context, what) : cli_failed("%s", context->error);
}

static int run_all(bench_context *context)
{
    chosen.complete = true;
    bool done = bench_complete(context);
    bench_progress_end(&context->progress);
    return done ? report(context, NULL) : cli_failed("%s", context->error);
}

static int check_tuning(const char *name)
{
    if (name != NULL)
        return cli_usage_error("bench: --tune is about matrix products, not '%s'", name);
    if (has_sizes())
        return cli_usage_error("bench: --tune does not take sizes in bytes");
    if (chosen.size_mib > 0 || chosen.ranks > 0 || chosen.peer || chosen.large)
        return cli_usage_error("bench: --tune does not take --%s", chosen.size_mib > 0 ? "size"
                                                                   : chosen.ranks > 0  ? "ranks"
                                                                   : chosen.peer       ? "peer"
                                                                                       : "large");
    return CLI_DONE;
}

/* What was found before something failed is stored, but there is nothing to report. */
static int run_tuning(bench_context *context)
{
    tune_report tuning;
    int code = CLI_DONE;
    bool done = bench_tune(context, &tuning);
    bench_progress_end(&context->progress);
    bench_noise_end(&context->noise);
    if (!done)
        code = cli_failed("%s", context->error);
    else
        code = write_output(context, NULL, &tuning);
    if (done && chosen.json)
        bench_tune_json(context, &tuning, stdout);
    else if (done)
        bench_tune_text(context, &tuning);
    bench_tune_finish(&tuning);
    return code;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0';
}

/* Launchers set both. One alone is left over in a shell, unless TESSERA_BOOT asks for both. */
static void forget_half_a_rank(void)
{
    const char *boot = getenv("TESSERA_BOOT");
    if (is_set("RANK") == is_set("WORLD_SIZE") || (boot != NULL && strcmp(boot, "env") == 0))
        return;
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

static int run(int argc, char **argv)
{
    const char *name = NULL;
    const bench *what = NULL;
    int words;
    int code = cli_options_read("bench", options, argc, argv, 1, &name, &words);
    if (code != CLI_DONE)
        return code;
    if (words == 1 && !tune) {
        what = bench_find(name);
        if (what == NULL)
            return cli_usage_error(
                "bench: there is no benchmark '%s'%s; 'tessera help bench' lists them", name,
                bench_list_lacks);
    }
    code = tune ? check_tuning(words == 1 ? name : NULL) : check_options(what);
    if (code != CLI_DONE)
        return code;
    if (output != NULL && cli_output_is_standard(output)) {
        chosen.json = true;
        output = NULL;
    }
    if (output != NULL && !cli_output_possible(output))
        return cannot_write();
    if (chosen.seconds <= 0)
        chosen.seconds = tune ? BENCH_TUNE_SECONDS : what != NULL ? 1 : BENCH_COMPLETE_SECONDS;

    /* Of several processes one: they would measure one another, and write the same file. */
    int64_t rank, ranks;
    forget_half_a_rank();
    if (tsr_rank_from_environment(&rank, &ranks) != TSR_OK)
        return cli_failed("bench: %s", tsr_last_error());
    if (rank > 0)
        return CLI_DONE;
    bench_context context = {.options = &chosen};
    bench_progress_begin(&context.progress);
    bench_noise_begin(&context.noise);
    code = tune ? run_tuning(&context) : what != NULL ? run_one(&context, what) : run_all(&context);
    bench_finish(&context);
    return code;
}

static const cli_command *const parts[] = {&bench_report_command, &bench_compare_command, NULL};

const cli_command cli_bench = {
    .name = "bench",
    .usage = "[BENCHMARK] [options]",
    .summary = "how fast a device or the host is, each result verified before it is timed",
    .run = run,
    .help = help,
    .parts = parts,
};
