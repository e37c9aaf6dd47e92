/* The options of tessera sample: which there are, and which a kind takes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/sample.h"

#define MOST 4611686018427387904.0 /* 2^62, of any count: what samplers can hold */
#define MOST_NUMBERS 1e18          /* of raw */

sample_options sample_chosen = {
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

/* PyTorch's range of seeds, and what lies below it by up to 2^63: seed + epoch may be in it. */
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

static bool read_format(void *user, const char *text, char *problem, size_t size)
{
    static const char *const names[] = {"text", "json", "i64"};
    (void)user;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            sample_chosen.format = (sample_format)i;
            return true;
        }
    snprintf(problem, size, "takes text, json or i64, not '%.80s'", text);
    return false;
}

/* Which of the options that are read by name were given: an enum does not tell. */
static bool has_order, has_tail, has_split;

static bool read_order(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    has_order = true;
    if (tsr_order_parse(text, &sample_chosen.order) == TSR_OK)
        return true;
    snprintf(problem, size, "takes feistel, torch, dotnet, mlx or none, not '%.80s'", text);
    return false;
}

/* As in C, pad_mask is fine too. */
static bool read_tail(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    has_tail = true;
    if (tsr_tail_parse(strcmp(text, "pad_mask") == 0 ? "pad-mask" : text, &sample_chosen.tail) ==
        TSR_OK)
        return true;
    snprintf(problem, size, "takes pad, pad-mask, uneven or drop, not '%.80s'", text);
    return false;
}

static bool read_split(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    has_split = true;
    if (tsr_split_parse(text, &sample_chosen.split) == TSR_OK)
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
    {"n", "N", "how many items the dataset has (sequential, random, distributed)",
     .integer = &sample_chosen.n, .low = 0, .high = MOST},
    {"order", "NAME", "feistel, torch, dotnet, mlx or none (default feistel)", .read = read_order},
    {"seed", "SEED", "where the generator starts (default 0)", .read = read_seed},
    {"epoch", "E", "the first epoch to print (default 0)", .read = read_epoch},
    {"epochs", "COUNT", "how many epochs, one after the other (default 1)",
     .integer = &sample_chosen.epochs, .low = 1, .high = 1e9},
    {"from", "ITEM", "leave out so many indices, or batches, of each epoch",
     .integer = &sample_chosen.from, .low = 0, .high = MOST},
    {"limit", "COUNT", "then print no more than so many of each epoch",
     .integer = &sample_chosen.limit, .low = 0, .high = MOST},
    {"format", "FORMAT",
     "text: one index, or batch, a line; json; i64: 8 bytes each, little-endian",
     .read = read_format},
    {"batch", "SIZE", "make batches of so many indices", .integer = &sample_chosen.batch, .low = 1,
     .high = MOST},
    {"drop-last", NULL, "leave out a last batch that is short", .flag = &sample_chosen.drop_last},
    {"replacement", NULL, "draw each index from all, not each once (random)",
     .flag = &sample_chosen.replacement},
    {"no-replacement", NULL, "draw each index at most once (weighted)",
     .flag = &sample_chosen.no_replacement},
    {"num-samples", "COUNT", "indices in an epoch (random, weighted, curriculum)",
     .integer = &sample_chosen.num_samples, .low = 1, .high = MOST},
    {"ranks", "R", "how many ranks there are (default: as the environment says; distributed)",
     .integer = &sample_chosen.ranks, .low = 1, .high = INT32_MAX},
    {"rank", "R", "which of them this is, from 0 (distributed)", .integer = &sample_chosen.rank,
     .low = 0, .high = INT32_MAX - 1},
    {"tail", "POLICY", "pad, pad-mask, uneven or drop (default pad; distributed)",
     .read = read_tail},
    {"split", "HOW", "interleaved or contiguous (default interleaved; distributed)",
     .read = read_split},
    {"sampler", "KIND", "what is cut into batches or shared out (batch, distributed)",
     .text = &sample_chosen.sampler},
    {"indices", "FILE", "the indices to choose from, one a line, - for standard input (subset)",
     .text = &sample_chosen.indices},
    {"weights", "FILE", "each item's weight, one a line (weighted)",
     .text = &sample_chosen.weights},
    {"float32", NULL, "weights are a float32 tensor's (weighted)", .flag = &sample_chosen.float32},
    {"lengths", "FILE", "each item's length, one a line (length-sorted)",
     .text = &sample_chosen.lengths},
    {"labels", "FILE", "each item's class, an integer a line (stratified)",
     .text = &sample_chosen.labels},
    {"difficulties", "FILE", "each item's difficulty from 0 to 1, one a line (curriculum)",
     .text = &sample_chosen.difficulties},
    {"max-epochs", "COUNT", "epochs until all items take part (curriculum)",
     .integer = &sample_chosen.max_epochs, .low = 1, .high = MOST},
    {"torch-version", "VERSION", "1.13, 2.0, 2.6 or 2.7, and later ones (default 2.6; order torch)",
     .read = read_torch_version},
    {"global-generator", NULL, "no generator given, but torch.manual_seed(SEED) (order torch)",
     .flag = &sample_chosen.torch.global_generator},
    {"data-loader", NULL, "as a DataLoader reads it, which draws first (order torch)",
     .flag = &sample_chosen.torch.data_loader},
    {"rng", "NAME", "philox, mt19937, dotnet or threefry (default philox; raw)",
     .text = &sample_chosen.rng},
    {"count", "N", "how many numbers (default 10; raw)", .integer = &sample_chosen.count, .low = 0,
     .high = MOST_NUMBERS},
    {0},
};

/* What was given, and what it belongs to. */
typedef struct given_option {
    bool given;
    unsigned bit;
    const char *name;
} given_option;

#define MOST_GIVEN 28

static int list_given(given_option list[MOST_GIVEN])
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
    given_option list[MOST_GIVEN];
    sample_chosen.given = 0;
    for (int i = 0, count = list_given(list); i < count; i++)
        sample_chosen.given |= list[i].given ? list[i].bit : 0;
}

static int check_together(unsigned takes, bool adds_epoch)
{
    const sample_options *all = &sample_chosen;
    bool is_torch = all->order == TSR_ORDER_TORCH;
    if (all->drop_last && all->batch < 0)
        return cli_usage_error("sample: --drop-last needs --batch%s",
                               takes & SAMPLE_TAIL ? "; --tail drop is for what is left of a share"
                                                   : "");
    if ((all->ranks < 0) != (all->rank < 0))
        return cli_usage_error("sample: --%s needs --%s", all->ranks < 0 ? "rank" : "ranks",
                               all->ranks < 0 ? "ranks" : "rank");
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

int sample_options_check(const char *name, unsigned takes, unsigned needs, bool adds_epoch)
{
    given_option list[MOST_GIVEN];
    int count = list_given(list);
    unsigned missing = needs & ~sample_chosen.given;
    /* An option that would do nothing is a mistake. */
    for (int i = 0; i < count; i++)
        if (list[i].given && !(takes & list[i].bit))
            return cli_usage_error("sample: %s does not take --%s", name, list[i].name);
    for (int i = 0; i < count; i++)
        if (missing & list[i].bit)
            return cli_usage_error("sample: %s needs --%s", name, list[i].name);
    return check_together(takes, adds_epoch);
}
