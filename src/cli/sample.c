/* tessera sample KIND: what the library's samplers and generators give, for scripts and for
 * comparing with other systems. */
#include "cli/sample.h"

#include <string.h>

#include "cli/command.h"
#include "cli/options.h"

static const sample_kind *const kinds[] = {&sample_sequential,
                                           &sample_random,
                                           &sample_subset,
                                           &sample_weighted,
                                           &sample_batch,
                                           &sample_distributed,
                                           &sample_length_sorted,
                                           &sample_stratified,
                                           &sample_curriculum,
                                           &sample_raw,
                                           NULL};

static void help(FILE *out)
{
    fputs("Prints what a sampler or a generator gives, of the orders torch, dotnet and mlx what "
          "PyTorch, .NET and\n"
          "MLX give. Batches can be had of all kinds of single indices.\n"
          "\nkinds:\n",
          out);
    for (int i = 0; kinds[i] != NULL; i++)
        fprintf(out, "  %-14s %s\n", kinds[i]->name, kinds[i]->summary);
    for (int i = 0; kinds[i] != NULL; i++)
        fprintf(out, "\n%s:\n%s", kinds[i]->name, kinds[i]->help);
    fputs("\norders:\n"
          "  feistel   our own: any index at once and in no memory, for datasets of any size\n"
          "  torch     PyTorch's, after manual_seed(SEED); epochs are successive passes of one "
          "generator, and of\n"
          "            distributed those of SEED + epoch\n"
          "  dotnet    Fisher and Yates' shuffle with System.Random(SEED); the same of epochs\n"
          "  mlx       MLX's, after random.seed(SEED); the same of epochs\n"
          "  none      as they come\n",
          out);
    cli_options_help(out, sample_option_table);
    fputs("\nexamples:\n"
          "  tessera sample distributed --n 10 --ranks 3 --rank 1 --order torch --seed 0 --epoch 0 "
          "--tail pad\n"
          "  tessera sample random --n 1000000000000 --seed 7 --from 100000000000 --limit 5\n"
          "  tessera sample batch --n 10 --batch 4 --drop-last\n"
          "  tessera sample weighted --weights weights.txt --num-samples 20 --order torch\n"
          "  tessera sample stratified --labels labels.txt --batch 4 --epochs 2 --format json\n",
          out);
}

static const sample_kind *find(const char *name)
{
    for (int i = 0; kinds[i] != NULL; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

/* What is cut into batches, where it is not said: what the other options are of. */
static const sample_kind *guess_inner(unsigned given)
{
    if (given & (SAMPLE_RANKS | SAMPLE_TAIL))
        return &sample_distributed;
    if (given & SAMPLE_WEIGHTS)
        return &sample_weighted;
    if (given & SAMPLE_INDICES)
        return &sample_subset;
    if (given & (SAMPLE_DIFFICULTIES | SAMPLE_MAX_EPOCHS))
        return &sample_curriculum;
    if (given & (SAMPLE_ORDER | SAMPLE_REPLACEMENT | SAMPLE_NUM_SAMPLES))
        return &sample_random;
    return &sample_sequential;
}

/* The sampler that another one wraps, NULL where there is none. */
static int find_inner(const sample_kind *kind, const sample_options *options,
                      const sample_kind **inner)
{
    *inner = NULL;
    if (options->sampler == NULL) {
        if (kind == &sample_batch)
            *inner = guess_inner(options->given);
        return CLI_DONE;
    }
    if (!(kind->takes & SAMPLE_SAMPLER))
        return CLI_DONE; /* which is refused like any other option */
    *inner = find(options->sampler);
    if (*inner == NULL)
        return cli_usage_error("sample: there is no kind '%s' for --sampler; 'tessera help sample' "
                               "lists them",
                               options->sampler);
    bool gives_batches = (*inner)->needs & SAMPLE_BATCH;
    if (*inner == kind || *inner == &sample_batch || (*inner)->create == NULL ||
        (kind == &sample_batch && gives_batches))
        return cli_usage_error("sample: %s is not made of %s", kind->name, (*inner)->name);
    return CLI_DONE;
}

static int check(const sample_kind *kind, const sample_kind *inner, const sample_options *options)
{
    char name[64];
    unsigned takes = kind->takes, needs = kind->needs;
    snprintf(name, sizeof name, "%s%s%s", kind->name, inner != NULL ? " of " : "",
             inner != NULL ? inner->name : "");
    if (inner != NULL) {
        /* What is shared out has its own items and order. */
        takes = (takes & ~(unsigned)(SAMPLE_N | SAMPLE_ORDER | SAMPLE_TORCH)) | inner->takes;
        needs = (needs & ~(unsigned)SAMPLE_N) | inner->needs;
    }
    return sample_options_check(name, takes, needs,
                                (inner != NULL ? inner : kind) == &sample_distributed &&
                                    options->sampler == NULL);
}

static int make_batches(const sample_options *options, tsr_sampler **sampler)
{
    /* One batch of all there is is the largest there can be. */
    uint64_t length = tsr_sampler_length(*sampler);
    int64_t size = options->batch;
    if (length < (uint64_t)size)
        size = (int64_t)length + 1;
    return sample_checked(
        tsr_sampler_create_batch(tsr_sampler_batch_params(.base = sampler, .batch_size = size,
                                                          .drop_last = options->drop_last),
                                 sampler));
}

static int run_sampler(const sample_kind *kind, const sample_kind *inner,
                       const sample_options *options)
{
    tsr_sampler *sampler = NULL;
    int code = inner != NULL ? inner->create(options, &sampler) : CLI_DONE;
    if (code == CLI_DONE && kind->create != NULL)
        code = kind->create(options, &sampler);
    if (code == CLI_DONE && options->batch >= 0 && tsr_sampler_batch_max(sampler) == 0)
        code = make_batches(options, &sampler);
    if (code == CLI_DONE)
        code = sample_print(kind->name, options, sampler);
    tsr_sampler_destroy(&sampler);
    return code;
}

static int run(int argc, char **argv)
{
    const char *name = NULL;
    int words;
    int code = cli_options_read("sample", sample_option_table, argc, argv, 1, &name, &words);
    if (code != CLI_DONE)
        return code;
    if (words == 0)
        return cli_usage_error("sample: what kind? 'tessera help sample' lists them");
    const sample_kind *kind = find(name), *inner;
    if (kind == NULL)
        return cli_usage_error("sample: there is no kind '%s'; 'tessera help sample' lists them",
                               name);
    sample_options_note();
    code = find_inner(kind, &sample_chosen, &inner);
    if (code == CLI_DONE)
        code = check(kind, inner, &sample_chosen);
    if (code != CLI_DONE)
        return code;
    return kind->run != NULL ? kind->run(&sample_chosen) : run_sampler(kind, inner, &sample_chosen);
}

const cli_command cli_sample = {
    .name = "sample",
    .usage = "KIND [options]",
    .summary = "the indices of a sampler, the numbers of a generator",
    .run = run,
    .help = help,
};
