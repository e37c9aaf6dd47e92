/* tessera sample KIND: what the library's samplers and generators give, for scripts and for
 * comparing with other systems. */
#include "cli/sample.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/options.h"

#define MOST 1e18 /* of any count: exact as a double */

static const sample_kind *const kinds[] = {&sample_raw, NULL};

static sample_options chosen = {.count = -1};

/* PyTorch's range of seeds. */
static bool read_seed(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    bool negative = text[0] == '-';
    const char *digits = text + negative;
    char *end = NULL;
    errno = 0;
    uint64_t magnitude = digits[0] >= '0' && digits[0] <= '9' ? strtoull(digits, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 ||
        (negative && magnitude > (uint64_t)INT64_MAX + 1)) {
        snprintf(problem, size, "takes an integer from %" PRId64 " to %" PRIu64 ", not '%.80s'",
                 INT64_MIN, UINT64_MAX, text);
        return false;
    }
    chosen.seed = negative ? 0 - magnitude : magnitude;
    return true;
}

static bool read_format(void *user, const char *text, char *problem, size_t size)
{
    static const char *const names[] = {"text", "json", "i64"};
    (void)user;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            chosen.format = (sample_format)i;
            return true;
        }
    snprintf(problem, size, "takes text, json or i64, not '%.80s'", text);
    return false;
}

static const cli_option options[] = {
    {"seed", "SEED", "where the generator starts (default 0)", .read = read_seed},
    {"format", "FORMAT", "text: one number a line; json; i64: 8 bytes each, little-endian",
     .read = read_format},
    {"rng", "NAME", "philox, mt19937, dotnet or threefry (default philox)", .text = &chosen.rng},
    {"count", "N", "how many numbers (default 10)", .integer = &chosen.count, .low = 0,
     .high = MOST},
    {0},
};

static void help(FILE *out)
{
    fputs("Prints what a sampler or a generator gives.\n\nkinds:\n", out);
    for (int i = 0; kinds[i] != NULL; i++)
        fprintf(out, "  %-14s %s\n", kinds[i]->name, kinds[i]->summary);
    for (int i = 0; kinds[i] != NULL; i++)
        fprintf(out, "\n%s:\n%s", kinds[i]->name, kinds[i]->help);
    cli_options_help(out, options);
}

/* An option that would do nothing is a mistake. */
static int check_options(const sample_kind *kind)
{
    const struct {
        bool given;
        unsigned takes;
        const char *name;
    } all[] = {
        {chosen.rng != NULL, SAMPLE_RNG, "rng"},
        {chosen.count >= 0, SAMPLE_COUNT, "count"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given && !(kind->takes & all[i].takes))
            return cli_usage_error("sample: %s does not take --%s", kind->name, all[i].name);
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    const char *name = NULL;
    int words;
    int code = cli_options_read("sample", options, argc, argv, 1, &name, &words);
    if (code != CLI_DONE)
        return code;
    if (words == 0)
        return cli_usage_error("sample: what kind? 'tessera help sample' lists them");
    for (int i = 0; kinds[i] != NULL; i++)
        if (strcmp(kinds[i]->name, name) == 0) {
            code = check_options(kinds[i]);
            return code == CLI_DONE ? kinds[i]->run(&chosen) : code;
        }
    return cli_usage_error("sample: there is no kind '%s'; 'tessera help sample' lists them", name);
}

const cli_command cli_sample = {
    .name = "sample",
    .usage = "KIND [options]",
    .summary = "the numbers of a generator, the indices of a sampler",
    .run = run,
    .help = help,
};
