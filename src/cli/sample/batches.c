/* The kinds of samplers that give batches, and the kind that divides indices among ranks. */
#include <stdlib.h>

#include "cli/lib/say.h"
#include "cli/sample/sample.h"

const sample_kind sample_batch = {
    .name = "batch",
    .summary = "indices of another kind in batches",
    .help = "  --sampler is the kind to divide into batches: sequential, random, subset, weighted, "
            "distributed or curriculum. Without it, the kind that the other options belong to; "
            "sequential if only --n is given.\n",
    .takes = SAMPLE_SAMPLER | SAMPLE_BATCH | SAMPLE_DROP_LAST | SAMPLE_READ,
    .needs = SAMPLE_BATCH,
};

static int create_distributed(const sample_options *options, tsr_sampler **sampler)
{
    tsr_sampler *base = *sampler; /* NULL: the sampler divides a dataset of n items */
    bool wraps = base != NULL;
    tsr_torch_options torch = *tsr_torch_options(.version = options->torch.version);
    if (options->order == TSR_ORDER_TORCH)
        torch.seed_high = options->seed_high;
    int code = sample_checked(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = wraps ? 0 : (uint64_t)options->n, .base = base,
                                       .ranks = options->ranks < 0 ? 0 : options->ranks,
                                       .rank = options->rank < 0 ? 0 : options->rank,
                                       .order = wraps ? TSR_ORDER_FEISTEL : options->order,
                                       .tail = options->tail, .split = options->split,
                                       .seed = options->seed, .torch = &torch),
        sampler));
    if (code == CLI_DONE)
        tsr_sampler_destroy(&base);
    return code;
}

const sample_kind sample_distributed = {
    .name = "distributed",
    .summary = "one rank's share of a dataset",
    .help = "  The indices that one rank reads. If the ranks do not divide N, --tail decides: pad "
            "repeats "
            "indices from the beginning; pad-mask does the same and marks them (text: an asterisk "
            "after the index; json: 0 in a list \"mask\"; i64: not at all); uneven gives some "
            "ranks one "
            "index fewer; drop omits the remainder. With --sampler, divides another kind over the "
            "ranks. torch: DistributedSampler.\n",
    .takes = SAMPLE_N | SAMPLE_RANKS | SAMPLE_TAIL | SAMPLE_ORDER | SAMPLE_SAMPLER | SAMPLE_BATCH |
             SAMPLE_DROP_LAST | SAMPLE_TORCH | SAMPLE_READ,
    .needs = SAMPLE_N,
    .create = create_distributed,
};

static int create_length_sorted(const sample_options *options, tsr_sampler **sampler)
{
    int64_t *lengths = NULL;
    uint64_t count = 0;
    int code = sample_read_integers(options->lengths, &lengths, &count);
    if (code != CLI_DONE)
        return code;
    code = sample_of_file_checked(tsr_sampler_create_length_sorted(
        tsr_sampler_length_sorted_params(.lengths = lengths, .count = count,
                                         .batch_size = options->batch, .order = options->order,
                                         .seed = options->seed),
        sampler));
    free(lengths);
    return code;
}

const sample_kind sample_length_sorted = {
    .name = "length-sorted",
    .summary = "batches of items of similar length",
    .help = "  The items sorted by length and cut into batches, which come in random order; with "
            "--order "
            "none, the shortest first.\n",
    .takes = SAMPLE_LENGTHS | SAMPLE_ORDER | SAMPLE_BATCH | SAMPLE_READ,
    .needs = SAMPLE_LENGTHS | SAMPLE_BATCH,
    .create = create_length_sorted,
};

static int create_stratified(const sample_options *options, tsr_sampler **sampler)
{
    int64_t *labels = NULL;
    uint64_t count = 0;
    int code = sample_read_integers(options->labels, &labels, &count);
    if (code != CLI_DONE)
        return code;
    code = sample_of_file_checked(tsr_sampler_create_stratified(
        tsr_sampler_stratified_params(.labels = labels, .count = count,
                                      .batch_size = options->batch, .order = options->order,
                                      .seed = options->seed),
        sampler));
    free(labels);
    return code;
}

const sample_kind sample_stratified = {
    .name = "stratified",
    .summary = "batches that contain all classes in proportion",
    .help =
        "  Each batch has the classes in the proportion of the dataset, as nearly as whole items "
        "allow. Within a class the order is random; with --order none, that of the dataset.\n",
    .takes = SAMPLE_LABELS | SAMPLE_ORDER | SAMPLE_BATCH | SAMPLE_READ,
    .needs = SAMPLE_LABELS | SAMPLE_BATCH,
    .create = create_stratified,
};
