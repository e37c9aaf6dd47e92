/* tessera sample KIND: prints the output of the library's samplers and generators, for scripts and
 * for comparisons with other systems. */
#include "cli/sample/sample.h"

#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/options.h"
#include "cli/lib/suggest.h"
#include "cli/lib/terminal.h"

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
    char line[256];
    cli_wrap(out,
             "Prints the indices of a sampler, or the numbers of a generator, one per line. The "
             "orders torch, dotnet and mlx give exactly the indices of PyTorch, .NET and MLX. Any "
             "kind that gives single indices can also give batches, with --batch.\n"
             "\nkinds:\n");
    for (int i = 0; kinds[i] != NULL; i++) {
        snprintf(line, sizeof line, "  %-13s  %s\n", kinds[i]->name, kinds[i]->summary);
        cli_wrap(out, line);
    }
    for (int i = 0; kinds[i] != NULL; i++) {
        fprintf(out, "\n%s:\n", kinds[i]->name);
        cli_wrap(out, kinds[i]->help);
    }
    cli_wrap(
        out,
        "\norders:\n"
        "  feistel  tessera's own: random access to any index, without memory, for datasets of "
        "any size\n"
        "  torch    PyTorch's, after manual_seed(SEED). Epochs are successive passes of one "
        "generator; for distributed, epoch e uses SEED + e\n"
        "  dotnet   Fisher-Yates shuffle with System.Random(SEED); epochs are successive passes\n"
        "  mlx      MLX's, after random.seed(SEED); epochs are successive passes\n"
        "  none     the order of the dataset\n");
    cli_options_help(out, sample_option_table);
    cli_wrap(
        out,
        "\nexamples:\n"
        "  tessera sample distributed --n 10 --ranks 3 --rank 1 --order torch --seed 0 --epoch 0 "
        "--tail pad\n"
        "  tessera sample random --n 1000000000000 --seed 7 --from 100000000000 --limit 5\n"
        "  tessera sample batch --n 10 --batch 4 --drop-last\n"
        "  tessera sample weighted --weights weights.txt --num-samples 20 --order torch\n"
        "  tessera sample stratified --labels labels.txt --batch 4 --epochs 2 --format json\n");
}

static const sample_kind *find(const char *name)
{
    for (int i = 0; kinds[i] != NULL; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

static int unknown(const char *option, const char *name)
{
    char text[CLI_SUGGESTION_TEXT];
    cli_suggestion nearest = CLI_SUGGESTION(name);
    for (int i = 0; kinds[i] != NULL; i++)
        cli_suggestion_offer(&nearest, kinds[i]->name);
    return cli_usage_error("sample: %sunknown kind '%s'; %s", option, name,
                           cli_suggestion_text(&nearest, "", "help sample", text));
}

/* Returns the kind of sampler that "batch" wraps if --sampler was not given: the kind to which the
 * other given options belong. */
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

/* Finds the kind that another kind wraps. *inner is NULL if there is none. */
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
        return CLI_DONE; /* sample_options_check reports the error */
    *inner = find(options->sampler);
    if (*inner == NULL)
        return unknown("--sampler: ", options->sampler);
    bool gives_batches = (*inner)->needs & SAMPLE_BATCH;
    if (*inner == kind || *inner == &sample_batch || (*inner)->create == NULL ||
        (kind == &sample_batch && gives_batches))
        return cli_usage_error("sample: %s cannot wrap --sampler %s", kind->name, (*inner)->name);
    return CLI_DONE;
}

static int check(const sample_kind *kind, const sample_kind *inner, const sample_options *options)
{
    char name[64];
    unsigned takes = kind->takes, needs = kind->needs;
    snprintf(name, sizeof name, "%s%s%s", kind->name, inner != NULL ? " of " : "",
             inner != NULL ? inner->name : "");
    if (inner != NULL) {
        /* The number of items and their order belong to the wrapped kind: it takes these
         * options. */
        takes = (takes & ~(unsigned)(SAMPLE_N | SAMPLE_ORDER | SAMPLE_TORCH)) | inner->takes;
        needs = (needs & ~(unsigned)SAMPLE_N) | inner->needs;
    }
    return sample_options_check(name, takes, needs,
                                (inner != NULL ? inner : kind) == &sample_distributed &&
                                    options->sampler == NULL);
}

static int make_batches(const sample_options *options, tsr_sampler **sampler)
{
    /* Limits the batch size to length + 1, because no batch can be larger than the sampler. */
    uint64_t length = tsr_sampler_length(*sampler);
    int64_t size = options->batch;
    if (length < (uint64_t)size)
        size = (int64_t)length + 1;
    tsr_sampler *base = *sampler;
    int code = sample_checked(tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = base, .batch_size = size, .drop_last = options->drop_last),
        sampler));
    if (code == CLI_DONE)
        tsr_sampler_destroy(&base);
    return code;
}

static int run_sampler(const sample_kind *kind, const sample_kind *inner,
                       const sample_options *options)
{
    tsr_sampler *sampler = NULL;
    int code = inner != NULL ? inner->create(options, &sampler) : CLI_DONE;
    if (code == CLI_DONE && kind->create != NULL)
        code = kind->create(options, &sampler);
    if (code == CLI_DONE && options->batch >= 0 && sample_batch_max(sampler) == 0)
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
        return cli_usage_error("sample: missing KIND; see 'tessera help sample'");
    const sample_kind *kind = find(name), *inner;
    if (kind == NULL)
        return unknown("", name);
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
    .summary = "print the indices of a sampler, or the numbers of a generator",
    .run = run,
    .help = help,
};
