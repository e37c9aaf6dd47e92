/* The options of tessera sample. This file also checks that a kind takes all options that were
 * given. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/numbers.h"
#include "cli/lib/say.h"
#include "cli/sample/sample.h"
#include "tool_seam.h"

#define MAX 4611686018427387904.0 /* 2^62, the largest count that samplers support */
#define MAX_NUMBERS 1e18          /* the largest count for `tessera sample raw` */

sample_options sample_chosen = {
    .torch = {.struct_size = sizeof(tsr_torch_options)},
    .count = -1,
    .n = -1,
    .num_samples = -1,
    .batch = -1,
    .max_epochs = -1,
    .ranks = -1,
    .rank = -1,
    .epochs = -1,
    .from = -1,
    .limit = -1,
};

/* Reads a seed. It must be in PyTorch's range or at most 2^63 below that range, because adding the
 * epoch may move the seed into the range. */
static bool read_seed(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    bool negative = text[0] == '-';
    const char *digits = text + negative;
    char *end = NULL;
    errno = 0;
    uint64_t magnitude = digits[0] >= '0' && digits[0] <= '9' ? strtoull(digits, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0) {
        snprintf(problem, size, "takes an integer from %" PRId64 " to %" PRIu64 ", not '%.80s'",
                 INT64_MIN, UINT64_MAX, text);
        return false;
    }
    uint64_t bits = negative ? 0 - magnitude : magnitude;
    sample_chosen.seed = (int64_t)bits;
    sample_chosen.seed_high = 0;
    sample_chosen.seed_text = text;
    if (negative && magnitude > (uint64_t)INT64_MAX + 1)
        sample_chosen.seed_high = -1;
    else if (!negative && magnitude > (uint64_t)INT64_MAX)
        sample_chosen.seed_high = 1;
    return true;
}

static bool read_epoch(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    if (cli_read_integer(text, INT64_MIN, INT64_MAX, &sample_chosen.epoch)) {
        sample_chosen.has_epoch = true;
        return true;
    }
    snprintf(problem, size, "takes an integer from %" PRId64 " to %" PRId64 ", not '%.80s'",
             INT64_MIN, INT64_MAX, text);
    return false;
}

static const char *const format_names[] = {"text", "json", "i64"};
/* Whether --format and --json were given. */
static bool has_format, has_json;

static bool read_format(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    has_format = true;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, format_names[i]) == 0) {
            sample_chosen.format = (sample_format)i;
            return true;
        }
    snprintf(problem, size, "takes text, json or i64, not '%.80s'", text);
    return false;
}

/* Whether these options were given. Their enums have no value for "not given". */
static bool has_order, has_tail, has_split;

static bool read_order(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    has_order = true;
    if (tsr__order_parse(text, &sample_chosen.order) == TSR_OK)
        return true;
    snprintf(problem, size, "takes feistel, torch, dotnet, mlx or none, not '%.80s'", text);
    return false;
}

/* Reads the value of --tail. Also accepts pad_mask, which is the spelling of the C constant. */
static bool read_tail(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    has_tail = true;
    if (tsr__tail_parse(strcmp(text, "pad_mask") == 0 ? "pad-mask" : text, &sample_chosen.tail) ==
        TSR_OK)
        return true;
    snprintf(problem, size, "takes pad, pad-mask, uneven or drop, not '%.80s'", text);
    return false;
}

static bool read_split(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    has_split = true;
    if (tsr__split_parse(text, &sample_chosen.split) == TSR_OK)
        return true;
    snprintf(problem, size, "takes interleaved or contiguous, not '%.80s'", text);
    return false;
}

static bool read_torch_version(void *user, const char *text, char *problem, size_t size)
{
    static const struct {
        const char *name;
        tsr_torch_version version;
    } versions[] = {{"1.13", TSR_TORCH_1_13},
                    {"2.0", TSR_TORCH_2_0},
                    {"2.6", TSR_TORCH_2_6},
                    {"2.7", TSR_TORCH_2_7}};
    (void)user;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (strcmp(text, versions[i].name) == 0) {
            sample_chosen.torch.version = versions[i].version;
            return true;
        }
    snprintf(problem, size, "takes 1.13, 2.0, 2.6 or 2.7, not '%.80s'", text);
    return false;
}

const cli_option sample_option_table[] = {
    {"n", "N", "number of items in the dataset (sequential, random, distributed)",
     .integer = &sample_chosen.n, .low = 0, .high = MAX},
    {"order", "NAME", "feistel, torch, dotnet, mlx or none (default: feistel)", .read = read_order},
    {"seed", "SEED", "seed of the generator (default: 0)", .read = read_seed},
    {"epoch", "E", "first epoch to print (default: 0)", .read = read_epoch},
    {"epochs", "COUNT", "number of epochs to print (default: 1)", .integer = &sample_chosen.epochs,
     .low = 1, .high = 1e9},
    {"from", "ITEM", "skip this many indices, or batches, of each epoch",
     .integer = &sample_chosen.from, .low = 0, .high = MAX},
    {"limit", "COUNT", "print at most this many of each epoch", .integer = &sample_chosen.limit,
     .low = 0, .high = MAX},
    {"format", "FORMAT",
     "text: one index, or batch, per line; json; i64: 8 bytes per index, little-endian",
     .read = read_format},
    {"json", NULL, "the same as --format json", .flag = &has_json},
    {"batch", "SIZE", "group the indices into batches of this size",
     .integer = &sample_chosen.batch, .low = 1, .high = MAX},
    {"drop-last", NULL, "omit the last batch if it is incomplete",
     .flag = &sample_chosen.drop_last},
    {"replacement", NULL, "draw with replacement (random; the default of weighted)",
     .flag = &sample_chosen.replacement},
    {"no-replacement", NULL, "draw each index at most once (weighted)",
     .flag = &sample_chosen.no_replacement},
    {"num-samples", "COUNT", "indices per epoch (random, weighted, curriculum)",
     .integer = &sample_chosen.num_samples, .low = 1, .high = MAX},
    {"ranks", "R", "number of ranks (default: from the environment; distributed)",
     .integer = &sample_chosen.ranks, .low = 1, .high = INT32_MAX},
    {"rank", "R", "rank whose share is printed, from 0 (distributed)",
     .integer = &sample_chosen.rank, .low = 0, .high = INT32_MAX - 1},
    {"tail", "POLICY", "pad, pad-mask, uneven or drop (default: pad; distributed)",
     .read = read_tail},
    {"split", "HOW", "interleaved or contiguous (default: interleaved; distributed)",
     .read = read_split},
    {"sampler", "KIND", "kind to divide into batches or over ranks (batch, distributed)",
     .text = &sample_chosen.sampler},
    {"indices", "FILE", "indices to choose from, one per line; - for standard input (subset)",
     .text = &sample_chosen.indices},
    {"weights", "FILE", "weight of each item, one per line (weighted)",
     .text = &sample_chosen.weights},
    {"float32", NULL, "treat the weights as a float32 tensor (weighted)",
     .flag = &sample_chosen.float32},
    {"lengths", "FILE", "length of each item, one per line (length-sorted)",
     .text = &sample_chosen.lengths},
    {"labels", "FILE", "class of each item, one integer per line (stratified)",
     .text = &sample_chosen.labels},
    {"difficulties", "FILE", "difficulty of each item from 0 to 1, one per line (curriculum)",
     .text = &sample_chosen.difficulties},
    {"max-epochs", "COUNT", "epochs until all items take part (curriculum)",
     .integer = &sample_chosen.max_epochs, .low = 1, .high = MAX},
    {"torch-version", "VERSION",
     "1.13, 2.0, 2.6 or 2.7; each also stands for later versions up to the next (default: 2.6; "
     "order torch)",
     .read = read_torch_version},
    {"global-generator", NULL,
     "sampler without a generator, after torch.manual_seed(SEED) (order torch)",
     .flag = &sample_chosen.torch.global_generator},
    {"data-loader", NULL, "read through a DataLoader, which draws a number first (order torch)",
     .flag = &sample_chosen.torch.data_loader},
    {"rng", "NAME", "philox, mt19937, dotnet or threefry (default: philox; raw)",
     .text = &sample_chosen.rng},
    {"count", "N", "how many numbers to print (default: 10; raw)", .integer = &sample_chosen.count,
     .low = 0, .high = MAX_NUMBERS},
    {0},
};

/* Connects an option with its SAMPLE_… bit, and says whether it was given. */
typedef struct given_option {
    bool given;
    unsigned bit;
    const char *name;
} given_option;

#define MAX_GIVEN 28

static int list_given(given_option list[MAX_GIVEN])
{
    const sample_options *all = &sample_chosen;
    const given_option every[] = {
        {all->n >= 0, SAMPLE_N, "n"},
        {has_order, SAMPLE_ORDER, "order"},
        {all->has_epoch, SAMPLE_READ, "epoch"},
        {all->epochs >= 0, SAMPLE_READ, "epochs"},
        {all->from >= 0, SAMPLE_READ, "from"},
        {all->limit >= 0, SAMPLE_READ, "limit"},
        {all->batch >= 0, SAMPLE_BATCH, "batch"},
        {all->drop_last, SAMPLE_DROP_LAST, "drop-last"},
        {all->replacement, SAMPLE_REPLACEMENT, "replacement"},
        {all->no_replacement, SAMPLE_NO_REPLACEMENT, "no-replacement"},
        {all->num_samples >= 0, SAMPLE_NUM_SAMPLES, "num-samples"},
        {all->ranks >= 0, SAMPLE_RANKS, "ranks"},
        {all->rank >= 0, SAMPLE_RANKS, "rank"},
        {has_tail, SAMPLE_TAIL, "tail"},
        {has_split, SAMPLE_TAIL, "split"},
        {all->sampler != NULL, SAMPLE_SAMPLER, "sampler"},
        {all->indices != NULL, SAMPLE_INDICES, "indices"},
        {all->weights != NULL, SAMPLE_WEIGHTS, "weights"},
        {all->float32, SAMPLE_WEIGHTS, "float32"},
        {all->lengths != NULL, SAMPLE_LENGTHS, "lengths"},
        {all->labels != NULL, SAMPLE_LABELS, "labels"},
        {all->difficulties != NULL, SAMPLE_DIFFICULTIES, "difficulties"},
        {all->max_epochs >= 0, SAMPLE_MAX_EPOCHS, "max-epochs"},
        {all->torch.version != TSR_TORCH_DEFAULT, SAMPLE_TORCH, "torch-version"},
        {all->torch.global_generator, SAMPLE_GLOBAL, "global-generator"},
        {all->torch.data_loader, SAMPLE_LOADER, "data-loader"},
        {all->rng != NULL, SAMPLE_RNG, "rng"},
        {all->count >= 0, SAMPLE_COUNT, "count"},
    };
    memcpy(list, every, sizeof every);
    return (int)(sizeof every / sizeof *every);
}

void sample_options_note(void)
{
    given_option list[MAX_GIVEN];
    if (has_json && !has_format)
        sample_chosen.format = SAMPLE_JSON;
    sample_chosen.given = 0;
    for (int i = 0, count = list_given(list); i < count; i++)
        sample_chosen.given |= list[i].given ? list[i].bit : 0;
}

static int check_together(unsigned takes, bool adds_epoch)
{
    const sample_options *all = &sample_chosen;
    bool is_torch = all->order == TSR_ORDER_TORCH;
    if (has_json && all->format != SAMPLE_JSON)
        return cli_usage_error("sample: --json and --format %s are two formats",
                               format_names[all->format]);
    if (all->drop_last && all->batch < 0)
        return cli_usage_error(
            "sample: --drop-last needs --batch%s",
            takes & SAMPLE_TAIL ? "; to drop the remainder of a share, use --tail drop" : "");
    if ((all->ranks < 0) != (all->rank < 0))
        return cli_usage_error("sample: --%s needs --%s", all->ranks < 0 ? "rank" : "ranks",
                               all->ranks < 0 ? "ranks" : "rank");
    if (all->replacement && all->no_replacement)
        return cli_usage_error("sample: --replacement and --no-replacement exclude each other");
    if (all->float32 && all->weights == NULL)
        return cli_usage_error("sample: --float32 needs --weights");
    if (!is_torch && all->torch.version != TSR_TORCH_DEFAULT)
        return cli_usage_error("sample: --torch-version needs --order torch");
    if (!is_torch && all->torch.global_generator)
        return cli_usage_error("sample: --global-generator needs --order torch");
    if (!is_torch && all->torch.data_loader)
        return cli_usage_error("sample: --data-loader needs --order torch");
    if (all->order == TSR_ORDER_DOTNET && sample_check_dotnet_seed(all, "--order") != CLI_DONE)
        return CLI_USAGE;
    if (all->order == TSR_ORDER_MLX && (all->seed_high != 0 || all->seed < 0))
        return cli_usage_error("sample: --order mlx takes a seed from 0 to %" PRId64
                               ", not '%.80s'",
                               INT64_MAX, all->seed_text);
    if (all->seed_high < 0 && !(is_torch && adds_epoch))
        return cli_usage_error("sample: --seed takes an integer from %" PRId64 " to %" PRIu64
                               ", not '%.80s'",
                               INT64_MIN, UINT64_MAX, all->seed_text);
    return CLI_DONE;
}

int sample_check_dotnet_seed(const sample_options *options, const char *option)
{
    if (options->seed_high == 0 && options->seed >= INT32_MIN && options->seed <= INT32_MAX)
        return CLI_DONE;
    return cli_usage_error("sample: %s dotnet takes a seed from %d to %d, not '%.80s'", option,
                           INT32_MIN, INT32_MAX, options->seed_text);
}

static const char *argument_of(const char *name)
{
    const cli_option *option = sample_option_table;
    while (strcmp(option->name, name) != 0)
        option++;
    return option->argument;
}

int sample_options_check(const char *name, unsigned takes, unsigned needs, bool adds_epoch)
{
    given_option list[MAX_GIVEN];
    int count = list_given(list);
    unsigned missing = needs & ~sample_chosen.given;
    /* Fails if an option was given that would have no effect. */
    for (int i = 0; i < count; i++)
        if (list[i].given && !(takes & list[i].bit))
            return cli_usage_error("sample: %s does not take --%s", name, list[i].name);
    for (int i = 0; i < count; i++)
        if (missing & list[i].bit)
            return cli_usage_error("sample: %s: missing --%s %s", name, list[i].name,
                                   argument_of(list[i].name));
    return check_together(takes, adds_epoch);
}
