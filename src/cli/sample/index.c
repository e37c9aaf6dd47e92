/* The kinds of samplers that give single indices. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/sample/sample.h"

/* Returns the number of indices to draw per epoch. The library reads 0 as the number of items. */
static int64_t samples_of(const sample_options *options)
{
    return options->num_samples < 0 ? 0 : options->num_samples;
}

static int create_sequential(const sample_options *options, tsr_sampler **sampler)
{
    return sample_checked(tsr_sampler_create_sequential((uint64_t)options->n, sampler));
}

const sample_kind sample_sequential = {
    .name = "sequential",
    .summary = "all indices in order",
    .help = "  The indices 0 to N - 1.\n",
    .takes = SAMPLE_N | SAMPLE_BATCH | SAMPLE_DROP_LAST | SAMPLE_READ,
    .needs = SAMPLE_N,
    .create = create_sequential,
};

static int create_random(const sample_options *options, tsr_sampler **sampler)
{
    return sample_checked(tsr_sampler_create_random(
        tsr_sampler_random_params(.n = (uint64_t)options->n, .order = options->order,
                                  .replacement = options->replacement,
                                  .num_samples = samples_of(options), .seed = options->seed,
                                  .torch = &options->torch),
        sampler));
}

const sample_kind sample_random = {
    .name = "random",
    .summary = "all indices shuffled, or drawn with replacement",
    .help =
        "  A permutation of 0 to N - 1; if --num-samples asks for more, further permutations. With "
        "--replacement, each index is drawn from all. --num-samples defaults to N. torch: "
        "RandomSampler.\n",
    .takes = SAMPLE_N | SAMPLE_ORDER | SAMPLE_REPLACEMENT | SAMPLE_NUM_SAMPLES | SAMPLE_BATCH |
             SAMPLE_DROP_LAST | SAMPLE_TORCH | SAMPLE_GLOBAL | SAMPLE_LOADER | SAMPLE_READ,
    .needs = SAMPLE_N,
    .create = create_random,
};

static int create_subset(const sample_options *options, tsr_sampler **sampler)
{
    int64_t *indices = NULL;
    uint64_t count = 0;
    int code = sample_read_integers(options->indices, &indices, &count);
    if (code != CLI_DONE)
        return code;
    code = sample_of_file_checked(tsr_sampler_create_subset(
        tsr_sampler_subset_params(.indices = indices, .count = count, .order = options->order,
                                  .seed = options->seed, .torch = &options->torch),
        sampler));
    free(indices);
    return code;
}

const sample_kind sample_subset = {
    .name = "subset",
    .summary = "given indices, shuffled",
    .help = "  Each index of the file once, shuffled. torch: SubsetRandomSampler.\n",
    .takes = SAMPLE_INDICES | SAMPLE_ORDER | SAMPLE_BATCH | SAMPLE_DROP_LAST | SAMPLE_TORCH |
             SAMPLE_GLOBAL | SAMPLE_LOADER | SAMPLE_READ,
    .needs = SAMPLE_INDICES,
    .create = create_subset,
};

static int create_weighted(const sample_options *options, tsr_sampler **sampler)
{
    double *weights = NULL;
    float *narrow = NULL;
    uint64_t count = 0;
    int code = sample_read_reals(options->weights, &weights, &count);
    if (code != CLI_DONE)
        return code;
    if (options->no_replacement && (uint64_t)options->num_samples > count) {
        free(weights);
        return cli_failed("sample: weighted: %" PRIu64 " weights are too few for %" PRId64
                          " samples with --no-replacement",
                          count, options->num_samples);
    }
    if (options->float32)
        narrow = cli_alloc(count, sizeof *narrow);
    for (uint64_t i = 0; narrow != NULL && i < count; i++)
        narrow[i] = (float)weights[i];
    code = sample_of_file_checked(tsr_sampler_create_weighted(
        tsr_sampler_weighted_params(.weights = narrow != NULL ? NULL : weights,
                                    .weights_f32 = narrow, .count = count,
                                    .num_samples = options->num_samples,
                                    .replacement = !options->no_replacement,
                                    .order = options->order, .seed = options->seed,
                                    .torch = &options->torch),
        sampler));
    free(weights);
    free(narrow);
    return code;
}

const sample_kind sample_weighted = {
    .name = "weighted",
    .summary = "indices drawn in proportion to weights",
    .help =
        "  Indices drawn with replacement, or with --no-replacement each at most once, in "
        "proportion "
        "to their weights. torch: WeightedRandomSampler; with --float32, multinomial on a float32 "
        "tensor.\n",
    .takes = SAMPLE_WEIGHTS | SAMPLE_NUM_SAMPLES | SAMPLE_REPLACEMENT | SAMPLE_NO_REPLACEMENT |
             SAMPLE_ORDER | SAMPLE_BATCH | SAMPLE_DROP_LAST | SAMPLE_TORCH | SAMPLE_LOADER |
             SAMPLE_READ,
    .needs = SAMPLE_WEIGHTS | SAMPLE_NUM_SAMPLES,
    .create = create_weighted,
};

static int create_curriculum(const sample_options *options, tsr_sampler **sampler)
{
    double *difficulties = NULL;
    uint64_t count = 0;
    int code = sample_read_reals(options->difficulties, &difficulties, &count);
    if (code != CLI_DONE)
        return code;
    code = sample_of_file_checked(tsr_sampler_create_curriculum(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = count,
                                      .num_samples = samples_of(options),
                                      .max_epochs = options->max_epochs, .seed = options->seed),
        sampler));
    free(difficulties);
    return code;
}

const sample_kind sample_curriculum = {
    .name = "curriculum",
    .summary = "easy items first, harder ones from epoch to epoch",
    .help =
        "  Epoch e draws from the items of difficulty at most e / (E - 1), where E is "
        "--max-epochs, or "
        "from the easiest items if there are none. It draws --num-samples of them, each at most "
        "once; with replacement if --num-samples is more than there are.\n",
    .takes = SAMPLE_DIFFICULTIES | SAMPLE_MAX_EPOCHS | SAMPLE_NUM_SAMPLES | SAMPLE_BATCH |
             SAMPLE_DROP_LAST | SAMPLE_READ,
    .needs = SAMPLE_DIFFICULTIES | SAMPLE_MAX_EPOCHS,
    .create = create_curriculum,
};
