/* tessera sample raw: prints the output of a generator. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/sample/sample.h"

static void print_words(tsr_rng *rng, int64_t count, sample_output *output)
{
    for (int64_t i = 0; i < count && !ferror(stdout); i++) {
        bool dotnet = rng->kind == TSR_RNG_DOTNET;
        sample_output_value(output, dotnet ? tsr_dotnet_next(&rng->as.dotnet)
                                           : (int64_t)tsr_rng_next_u32(rng));
    }
}

/* MLX's generator gives different words for different counts, so all words are computed in one
 * call. */
static int run_threefry(const sample_options *options, uint64_t count)
{
    uint8_t *bytes = cli_alloc(count, 4);
    tsr_threefry_key key = tsr_threefry_key_from_seed((uint64_t)options->seed);
    if (tsr_threefry_bits(key, 4, count, bytes) != TSR_OK) {
        free(bytes);
        return cli_failed("sample: %s", tsr_last_error());
    }
    sample_output output = sample_output_start(options->format, "raw");
    sample_output_open(&output, "values");
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *word = bytes + 4 * i;
        sample_output_value(&output, (int64_t)(word[0] | (uint32_t)word[1] << 8 |
                                               (uint32_t)word[2] << 16 | (uint32_t)word[3] << 24));
    }
    sample_output_close(&output);
    sample_output_finish(&output);
    free(bytes);
    return CLI_DONE;
}

static int run(const sample_options *options)
{
    tsr_rng_kind kind = TSR_RNG_PHILOX;
    tsr_rng rng;
    int64_t count = options->count < 0 ? 10 : options->count;
    if (options->rng != NULL && tsr_rng_kind_parse(options->rng, &kind) != TSR_OK)
        return cli_usage_error("sample: --rng takes philox, mt19937, dotnet or threefry, not '%s'",
                               options->rng);
    if (kind == TSR_RNG_THREEFRY && count > UINT32_MAX)
        return cli_usage_error("sample: --count: threefry gives at most %lld numbers, not %lld",
                               (long long)UINT32_MAX, (long long)count);
    if (kind == TSR_RNG_THREEFRY)
        return run_threefry(options, (uint64_t)count);
    if (kind == TSR_RNG_DOTNET && sample_check_dotnet_seed(options, "--rng") != CLI_DONE)
        return CLI_USAGE;
    if (tsr_rng_init(kind, (uint64_t)options->seed, 0, &rng) != TSR_OK)
        return cli_failed("sample: %s", tsr_last_error());
    sample_output output = sample_output_start(options->format, "raw");
    sample_output_open(&output, "values");
    print_words(&rng, count, &output);
    sample_output_close(&output);
    sample_output_finish(&output);
    return CLI_DONE;
}

const sample_kind sample_raw = {
    .name = "raw",
    .summary = "numbers of a generator",
    .help =
        "  32-bit words of Philox4x32-10 (key SEED, counter from 0), of MT19937 as PyTorch seeds "
        "it, or "
        "of threefry2x32-20 as MLX's random.bits; for dotnet, what Next() of System.Random(SEED) "
        "returns.\n",
    .takes = SAMPLE_RNG | SAMPLE_COUNT,
    .run = run,
};
