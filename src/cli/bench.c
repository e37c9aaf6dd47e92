/* tessera bench: parses the options, runs one benchmark or all of them, and reports the results.
 * The benchmarks are in bench/, and so are the subcommands report and compare. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/compare/compare.h"
#include "bench/complete.h"
#include "bench/harness/bench.h"
#include "bench/model/model.h"
#include "bench/model/rates.h"
#include "bench/report/destination.h"
#include "bench/report/page.h"
#include "bench/report/report.h"
#include "bench/serve/serve.h"
#include "bench/submit/submit.h"
#include "bench/tune/tune.h"
#include "cli/commands.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/suggest.h"
#include "cli/lib/terminal.h"

#define LARGEST_SIDE ((int64_t)1 << 24)
#define LARGEST_MATRIX ((int64_t)1 << 31)
#define MAX_BYTES ((int64_t)1 << 30)

static bench_options chosen;
static bench_destination destination;
static const char *submit_folder;
static bool tune;

/* Reads a size such as "8", "64K" or "1g", in the notation of nccl-tests. */
static bool read_bytes(void *user, const char *text, char *problem, size_t size)
{
    static const char units[] = "KMG";
    char digits[24];
    const size_t length = strlen(text);
    const char *unit = length > 1 ? strchr(units, toupper((unsigned char)text[length - 1])) : NULL;
    int64_t value;
    snprintf(digits, sizeof digits, "%.*s", (int)(unit != NULL ? length - 1 : length), text);
    bool read = length < sizeof digits && cli_read_integer(digits, 1, MAX_BYTES, &value);
    for (const char *at = units; read && unit != NULL && at <= unit && value <= MAX_BYTES; at++)
        value *= 1024;
    if (!read || value < 4 || value > MAX_BYTES) {
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

/* Reads three sizes such as "512x1024x4096". */
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
    /* Every shape may be given once only, because reports and comparisons identify a result by its
     * shape. */
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
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the fastest; for a complete run "
     "and for --tune: all)",
     .text = &chosen.device},
    {"dtype", "TYPE", "f32, f16 or bf16; may be repeated (default: f32; for --tune: all three)",
     .read = read_dtype},
    {"shape", "MxKxN", "measure this shape instead of the default ones; may be repeated",
     .read = read_shape},
    {"size", "MIB", "how much to copy, in MiB (default: 64)", .integer = &chosen.size_mib, .low = 1,
     .high = 1024},
    {"ranks", "N", "number of processes (default: 2, then 4)", .integer = &chosen.ranks,
     .low = BENCH_MIN_RANKS, .high = 16},
    {"minbytes", "BYTES", "smallest size of a collective operation (default: 8)",
     .read = read_bytes, .user = &chosen.min_bytes, .letter = 'b'},
    {"maxbytes", "BYTES", "largest size (default: 64M)", .read = read_bytes,
     .user = &chosen.max_bytes, .letter = 'e'},
    {"stepfactor", "N", "factor between one size and the next (default: 2)",
     .integer = &chosen.step_factor, .low = 2, .high = 1 << 20, .letter = 'f'},
    {"large", NULL, "also measure cases that take gigabytes of memory", .flag = &chosen.large},
    {"peer", NULL, "also measure OpenBLAS, or MPI, for comparison", .flag = &chosen.peer},
    {"time", "SECONDS",
     "time to spend on each result (default: 1; for a complete run and for --tune: 0.2)",
     .real = &chosen.seconds, .low = 0.001, .high = 600},
    {"tune", NULL, "measure which kernel is fastest for which matrix products, and store it",
     .flag = &tune},
    BENCH_DESTINATION_OPTIONS(destination),
    {"submit", "DIR",
     "of a complete run: write a file for each device into DIR, for docs/results of the sources, "
     "without names of people, machines and folders, if the results pass a self-check",
     .text = &submit_folder},
    {0},
};

static void help(FILE *out)
{
    char line[256];
    cli_wrap(
        out,
        "Runs one benchmark; without a name, all of them on every device. A complete run takes one "
        "to "
        "two minutes per device, more on a busy machine; --time 0.05 is quicker and less exact.\n"
        "\n"
        "Every result is verified before it is timed; a wrong result is an error. Figures are "
        "medians "
        "of the host's clock, with the 10th and 90th percentile. '30 x 12' means 30 samples, each "
        "the "
        "mean of 12 repetitions.\n"
        "\nmore commands:\n"
        "  tessera bench report FILE.json... -o PAGE.html   make a page with charts\n"
        "  tessera bench compare OLD.json NEW.json          list what became slower\n"
        "  tessera bench model [MODEL]                      measure a language model: tokens per "
        "second\n"
        "  tessera bench rates [MODEL]                      measure ranks for tessera plan "
        "--cluster\n"
        "  tessera bench --submit DIR                       write files for docs/results\n"
        "  tessera bench --tune                             tune matrix products, for all programs "
        "that use tessera\n"
        "\nbenchmarks:\n");
    for (int i = 0; bench_list[i] != NULL; i++) {
        snprintf(line, sizeof line, "  %-14s  %s\n", bench_list[i]->name, bench_list[i]->summary);
        cli_wrap(out, line);
    }
    for (int i = 0; bench_list[i] != NULL; i++) {
        fprintf(out, "\n%s:\n", bench_list[i]->name);
        cli_wrap(out, bench_list[i]->help);
    }
    cli_options_help(out, options);
}

static bool has_sizes(void)
{
    return chosen.min_bytes > 0 || chosen.max_bytes > 0 || chosen.step_factor > 0;
}

/* Gives the sizes that the user did not give their defaults. Changes nothing if the user gave none
 * of the sizes. */
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

/* Fails if the sizes are so small that some ranks would have no elements. */
static int check_shares(const bench *what)
{
    const int64_t ranks = chosen.ranks > 0 ? chosen.ranks : BENCH_MIN_RANKS;
    int64_t largest = chosen.min_bytes;
    if (!(what->takes & BENCH_SHARES) || chosen.max_bytes == 0)
        return CLI_DONE;
    while (largest <= chosen.max_bytes / chosen.step_factor)
        largest *= chosen.step_factor;
    if (largest / (int64_t)sizeof(float) < ranks)
        return cli_usage_error(
            "bench: %s: --maxbytes is too small: the largest size is %lld bytes, "
            "less than one element for each of %lld ranks",
            what->name, (long long)largest, (long long)ranks);
    return CLI_DONE;
}

/* Fails if an option was given that would have no effect. */
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
        return cli_usage_error("bench: --shape, --dtype and --size need a BENCHMARK");
    if (what == NULL && has_sizes())
        return cli_usage_error("bench: --minbytes, --maxbytes and --stepfactor need a BENCHMARK, a "
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

/* Describes a measurement for the functions that write its results. */
typedef struct measured {
    const bench_context *context;
    const bench *what;         /* NULL for a complete run */
    const tune_report *tuning; /* NULL for benchmarks */
} measured;

static void write_results(void *user, bench_format format, FILE *out)
{
    const measured *from = user;
    if (from->tuning != NULL)
        bench_tune_write(from->context, from->tuning, format, out);
    else
        bench_report_write(from->context, from->what, format, out);
}

/* Writes the files of --submit, if the option was given. */
static int submit(const bench_context *context)
{
    if (submit_folder == NULL)
        return CLI_DONE;
    json_t *run = bench_report_document(context, NULL);
    const int code = bench_submit(run, submit_folder);
    json_decref(run);
    return code;
}

static int report(bench_context *context, const bench *what)
{
    bench_noise_end(&context->noise);
    int code = bench_destination_write("bench", &destination, write_results,
                                       &(measured){.context = context, .what = what});
    if (submit(context) != CLI_DONE)
        code = CLI_FAILED;
    return context->failures.count == 0
               ? code
               : cli_failed("bench: %d of the benchmarks failed; see the report",
                            context->failures.count);
}

/* Joins the job in which a launcher has started this process, if the benchmark measures jobs. */
static int join_job(bench_context *context, const bench *what, int64_t ranks)
{
    if (ranks <= 1 || what == NULL || !(what->takes & BENCH_RANKS))
        return CLI_DONE;
    if (chosen.ranks > 0)
        return cli_usage_error("bench: --ranks %lld: the launcher has started %lld ranks, which "
                               "are measured",
                               (long long)chosen.ranks, (long long)ranks);
    if (chosen.peer)
        return cli_usage_error("bench: --peer: MPI cannot be measured in a launcher's job");
    if (tsr_comm_create(NULL, &context->job) != TSR_OK)
        return cli_failed("bench: %s", tsr_last_error());
    return CLI_DONE;
}

static int run_one(bench_context *context, const bench *what)
{
    bool done = what->opens_device || what->host_only || bench_open_device(context, chosen.device);
    done = done && what->run(context) && bench_ceilings_again(context, 0);
    bench_progress_end(&context->progress);
    if (!done)
        return cli_failed_in("bench", context->error);
    return bench_reports(context) ? report(context, what) : CLI_DONE;
}

static int run_all(bench_context *context)
{
    chosen.complete = true;
    bool done = bench_complete(context);
    bench_progress_end(&context->progress);
    return done ? report(context, NULL) : cli_failed_in("bench", context->error);
}

/* Fails, before the measurement, if --submit cannot store its results: it needs a complete run of
 * sufficient length, and a folder that can be written. */
static int check_submission(const bench *what)
{
    if (submit_folder == NULL)
        return CLI_DONE;
    if (tune || what != NULL)
        return cli_usage_error("bench: --submit takes a complete run; remove '%s'",
                               tune ? "--tune" : what->name);
    if (chosen.seconds > 0 && chosen.seconds < BENCH_SUBMIT_SECONDS)
        return cli_usage_error("bench: --submit takes a --time of at least %g, not %g",
                               BENCH_SUBMIT_SECONDS, chosen.seconds);
    return bench_submit_possible(submit_folder)
               ? CLI_DONE
               : cli_failed("bench: --submit: cannot write into '%s': %s", submit_folder,
                            strerror(errno));
}

static int check_tuning(const char *name)
{
    if (name != NULL)
        return cli_usage_error("bench: --tune tunes matrix products; remove '%s'", name);
    if (has_sizes())
        return cli_usage_error("bench: --tune does not take sizes in bytes");
    if (chosen.size_mib > 0 || chosen.ranks > 0 || chosen.peer || chosen.large)
        return cli_usage_error("bench: --tune does not take --%s", chosen.size_mib > 0 ? "size"
                                                                   : chosen.ranks > 0  ? "ranks"
                                                                   : chosen.peer       ? "peer"
                                                                                       : "large");
    return CLI_DONE;
}

/* Measures which kernels are fastest for matrix products and stores the choice for this device.
 * After a failure, the choices that were made before it are stored, but not printed. */
static int run_tuning(bench_context *context)
{
    tune_report tuning;
    int code = CLI_DONE;
    bool done = bench_tune(context, &tuning);
    bench_progress_end(&context->progress);
    bench_noise_end(&context->noise);
    if (!done)
        code = cli_failed_in("bench", context->error);
    else
        code = bench_destination_write("bench", &destination, write_results,
                                       &(measured){.context = context, .tuning = &tuning});
    bench_tune_finish(&tuning);
    return code;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0';
}

/* Removes RANK or WORLD_SIZE from the environment if only one of them is set. Launchers set both,
 * so a single variable is left over in the shell. Removes nothing if TESSERA_BOOT is "env", which
 * requires both variables. */
static void forget_half_a_rank(void)
{
    const char *boot = getenv("TESSERA_BOOT");
    if (is_set("RANK") == is_set("WORLD_SIZE") || (boot != NULL && strcmp(boot, "env") == 0))
        return;
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

static const cli_command *const subcommands[] = {&bench_model_command,   &bench_rates_command,
                                                 &bench_serve_command,   &bench_report_command,
                                                 &bench_compare_command, NULL};

static int unknown_benchmark(const char *name)
{
    char text[CLI_SUGGESTION_TEXT];
    cli_suggestion nearest = CLI_SUGGESTION(name);
    for (int i = 0; bench_list[i] != NULL; i++)
        cli_suggestion_offer(&nearest, bench_list[i]->name);
    for (int i = 0; subcommands[i] != NULL; i++) /* "bench model" is model here */
        cli_suggestion_offer(&nearest, strchr(subcommands[i]->name, ' ') + 1);
    return cli_usage_error("bench: unknown benchmark '%s'%s; %s", name, bench_list_lacks,
                           cli_suggestion_text(&nearest, "", "help bench", text));
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
            return unknown_benchmark(name);
    }
    code = tune ? check_tuning(words == 1 ? name : NULL) : check_options(what);
    if (code != CLI_DONE)
        return code;
    code = check_submission(what);
    if (code == CLI_DONE)
        code = bench_destination_check("bench", &destination);
    if (code != CLI_DONE)
        return code;
    if (chosen.seconds <= 0)
        chosen.seconds = tune ? BENCH_TUNE_SECONDS : what != NULL ? 1 : BENCH_COMPLETE_SECONDS;

    /* Benchmarks of ranks measure the job that a launcher has started. For all others, only the
     * first process measures; the other processes would disturb the measurement and write to the
     * same file. */
    int64_t rank, ranks;
    forget_half_a_rank();
    if (tsr_rank_from_environment(&rank, &ranks) != TSR_OK)
        return cli_failed("bench: %s", tsr_last_error());
    if (rank > 0 && (what == NULL || !(what->takes & BENCH_RANKS)))
        return CLI_DONE;
    bench_context context = {.options = &chosen};
    code = join_job(&context, what, ranks);
    if (code != CLI_DONE)
        return code;
    if (bench_reports(&context))
        bench_progress_begin(&context.progress, stderr, isatty(STDERR_FILENO));
    bench_noise_begin(&context.noise);
    code = tune ? run_tuning(&context) : what != NULL ? run_one(&context, what) : run_all(&context);
    bench_finish(&context);
    return code;
}

const cli_command cli_bench = {
    .name = "bench",
    .usage = "[BENCHMARK] [options]",
    .summary = "measure how fast devices and the host are",
    .run = run,
    .help = help,
    .subcommands = subcommands,
};
