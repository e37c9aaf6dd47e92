/* tessera plan FILE: computes which rank keeps which share of a model. This file has the options,
 * and chooses one of three kinds of plans. */
#include "cli/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "cli/lib/model.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"
#include "tessera/model.h"
#include "tessera/shard.h"

static plan_options chosen = {.latency_us = -1};

static bool read_dtype(void *user, const char *value, char *problem, size_t size)
{
    if (tsr_dtype_parse(value, user) == TSR_OK)
        return true;
    snprintf(problem, size, "takes a dtype such as f16 or q8_0, not '%.40s'", value);
    return false;
}

static bool read_list(void *user, const char *text, char *problem, size_t size)
{
    if (plan_list_add(user, text))
        return true;
    snprintf(problem, size, "takes values separated by commas, not '%.80s'", text);
    return false;
}

/* The model of --draft MODEL has a plan of its own. */
static bool read_draft(void *user, const char *text, char *problem, size_t size)
{
    cli_draft *draft = user;
    if (!cli_read_draft(user, text, problem, size))
        return false;
    if (draft->from == TSR_DRAFT_MODEL)
        snprintf(problem, size, "takes ngram or mtp, each perhaps with :N, not '%.40s'", text);
    free(draft->path);
    draft->path = NULL;
    return draft->from != TSR_DRAFT_MODEL;
}

static const cli_option options[] = {
    {"strategy", "NAME",
     "full, layerwise, hybrid, weighted or inference (default: full, and inference for a "
     "folder)",
     .text = &chosen.strategy},
    {"ranks", "N",
     "number of ranks; may be omitted if --rates or --memory lists one value per rank",
     .integer = &chosen.ranks, .low = 1, .high = TSR_SHARD_MAX_RANKS},
    {"rates", "R,R,...", "speed of each rank, in any unit (layerwise, hybrid, weighted, inference)",
     .read = read_list, .user = &chosen.rates},
    {"memory", "M,M,...",
     "memory of each rank, such as 8G or 8GiB; one value applies to all ranks; 0: unlimited",
     .read = read_list, .user = &chosen.memory},
    {"gather", "PATTERN,...", "parameters to keep on every rank; !PATTERN excludes some again",
     .read = read_list, .user = &chosen.gather},
    {"partition", "KIND", "even, strict or uneven (default: even; full and hybrid)",
     .text = &chosen.partition},
    {"align", "N", "start shards at multiples of N elements (full, hybrid, weighted)",
     .integer = &chosen.align, .low = 1, .high = 1099511627776.0},
    {"full-layers", "PATTERN,...", "layers to divide over all ranks (hybrid)", .read = read_list,
     .user = &chosen.full},
    {"layerwise-layers", "PATTERN,...", "layers to keep on one rank each (hybrid)",
     .read = read_list, .user = &chosen.layerwise},
    {"dtype", "DTYPE", "how matrices are kept (default: as in the files; inference)",
     .read = read_dtype, .user = &chosen.dtype},
    {"context", "N", "tokens of a sequence in the cache (default: the model's; inference)",
     .integer = &chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
    {"sequences", "N", "sequences in the cache (default: 1; inference)",
     .integer = &chosen.sequences, .low = 1, .high = 1000000},
    {"cache-dtype", "DTYPE", "f32, f16, bf16, q8_0 or q4_0 (default: f32; inference)",
     .read = cli_read_cache_dtype, .user = &chosen.cache_dtype},
    {"stages", "S",
     "divide the layers over S stages, the first of which is the first ranks (default: 1; "
     "inference)",
     .integer = &chosen.stages, .low = 1, .high = TSR_SHARD_MAX_RANKS},
    {"stage-layers", "LIST",
     "layers of each stage, such as 10,12 (default: all stages need equally long for a token, "
     "within their memory; inference)",
     .read = cli_read_layers, .user = &chosen.layers},
    {"experts", "HOW",
     "ranks have a part of each expert (inside) or some experts (whole), or hosts some and their "
     "ranks parts of these (mixed); auto (default): inside, unless its quantisation blocks make "
     "the parts too unequal: then whole, or mixed if that is faster; auto:HOSTS or mixed:HOSTS "
     "says how many hosts there are; host, or host:LAYERS for the first layers, keeps experts in "
     "the host's memory, also as whole,host (inference, cluster)",
     .read = cli_read_experts, .user = &chosen.experts},
    {"draft", "HOW",
     "drafts of generate, for which memory is needed: states of delta nets for ngram:N, and the "
     "layer that predicts further tokens for mtp (inference)",
     .read = read_draft, .user = &chosen.draft},
    {"bandwidth", "B,B,...",
     "bytes per second that each rank reads from its memory, such as 50G; predicts the generation "
     "of tokens (inference)",
     .read = read_list, .user = &chosen.bandwidth},
    {"host-bandwidth", "B,B,...",
     "bytes per second that each rank reads from the host's memory, for --bandwidth with "
     "--experts host",
     .read = read_list, .user = &chosen.host_bandwidth},
    {"gflops", "R,R,...",
     "10^9 operations per second of each rank; predicts the reading of prompts (inference)",
     .read = read_list, .user = &chosen.gflops},
    {"latency", "US", "microseconds of an all-reduce (default: 20; inference)",
     .real = &chosen.latency_us, .low = 0, .high = 1e9},
    {"cluster", "FILE", "find the best grid of the ranks of a cluster that this file describes",
     .text = &chosen.hosts},
    {"links", "FILE",
     "the output of bench link --json, whose links count instead of those of the description "
     "(cluster)",
     .text = &chosen.links},
    {"rank-rates", "FILE",
     "the output of bench rates --json, whose rates count instead of those of the description "
     "(cluster)",
     .text = &chosen.rank_rates},
    {"goal", "GOAL",
     "generation, prompt or training (default: generation; cluster), or finetune: the memory that "
     "tessera finetune needs, on --ranks N",
     .text = &chosen.goal},
    {"batch", "N",
     "training: sequences of a micro-batch, of all ranks together (default: 1); finetune: rows of "
     "a step (default: 8)",
     .integer = &chosen.batch, .low = 1, .high = 1000000},
    {"accumulate", "N", "micro-batches of a step (default: 1; training, finetune)",
     .integer = &chosen.accumulate, .low = 1, .high = 1000000},
    {"context-parallel", "N",
     "ranks, or groups of tensor-parallel ranks, that divide the tokens of each sequence (default: "
     "1; inference, finetune, and training with --cluster)",
     .integer = &chosen.context_ranks, .low = 1, .high = 256},
    {"lora-rank", "R", "rank of the adapter's matrices (default: 16; finetune)",
     .integer = &chosen.lora_rank, .low = 1, .high = 4096},
    {"targets", "LIST",
     "matrices that have an adapter, as q,v (default: all except experts and the head; finetune)",
     .read = cli_read_targets, .user = &chosen.targets},
    {"full", NULL, "train the layers instead of an adapter (finetune)", .flag = &chosen.trains_all},
    {"fsdp", NULL, "data-parallel ranks share the weights (finetune)",
     .flag = &chosen.shares_weights},
    {"wire", "DTYPE",
     "how tensor-parallel ranks send activations: f32 (default), f16, bf16 or q8_0 (cluster)",
     .read = read_dtype, .user = &chosen.wire},
    {"format", "FORMAT", "table or json (default: table)", .text = &chosen.format},
    {"json", NULL, "the same as --format json", .flag = &chosen.json},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Computes which rank keeps which part of a model's parameters, and how many bytes each "
        "rank "
        "needs. FILE is a safetensors file, a GGUF file, a model.safetensors.index.json, the "
        "folder of "
        "a model, or a JSON list of parameters. Only its header is read, not the weights. Tensors "
        "of an optimizer's "
        "state "
        "in a checkpoint, which are named optimizer.*, are left out.\n"
        "\n"
        "strategies:\n"
        "  full       Divide each parameter over all ranks.\n"
        "  layerwise  Give each layer to one rank, and balance the bytes.\n"
        "  hybrid     Keep the layers of --layerwise-layers on one rank each, except those of "
        "--full-layers; divide all others.\n"
        "  weighted   Divide each parameter in proportion to the ranks' rates, within their "
        "memory.\n"
        "  inference  Divide a language model as generate does: by "
        "whole heads, hidden features and tokens, equally or by --rates; with the cache of keys "
        "and "
        "values. With --context-parallel, each group of ranks that divide the model has all of it, "
        "and "
        "an equal part of the cache. Activations, a few MiB, are not counted. With --memory, says "
        "whether it fits, and "
        "what would. With --stages, layers move from stages that have too little memory to "
        "others.\n"
        "\n"
        "Predictions of inference: a step of generating takes, on the slowest rank, the bytes of "
        "its "
        "weights and of half of its cache (sequences are half full on average) divided by "
        "--bandwidth, in addition those that it reads of experts on the host divided by "
        "--host-bandwidth, and with several ranks 2 all-reduces per layer and 2 more of --latency "
        "each; "
        "it gives a token per sequence. A token of a prompt takes 2 operations per element of the "
        "matrices of the slowest rank, divided by --gflops. Both are upper limits.\n"
        "\n"
        "With --cluster, which hosts, ranks and links there are comes from a JSON file "
        "(docs/models.md, "
        "\"Which grid\"). All grids of data-parallel, tensor-parallel and pipeline ranks are "
        "compared, "
        "on all hosts, on some of them and on single ranks. Prints the fastest grid that fits into "
        "memory, and why the next two are not the best.\n"
        "\n"
        "With --goal finetune, prints for each grid of the ranks what tessera finetune needs: the "
        "weights, "
        "the adapter with its gradients and the optimizer's state, and what the backward pass "
        "needs "
        "of the forward pass, also with --recompute. With --gflops, predicts tokens per second: 4 "
        "operations per element of the matrices and token, 2 more with --recompute, and 2 more "
        "with --full.\n"
        "\n"
        "A PATTERN may use *, ? and [a-z]. A pattern without a dot, such as 'embed*', matches one "
        "component of a name; a pattern with a dot matches the whole name. If several patterns "
        "match, "
        "the last one applies.\n");
    cli_options_help(out, options);
}

/* Options that exclude each other -------------------------------------------------------------- */

static int check_format(void)
{
    const bool json = chosen.format != NULL && strcmp(chosen.format, "json") == 0;
    if (chosen.format != NULL && !json && strcmp(chosen.format, "table") != 0)
        return cli_usage_error("plan: --format takes table or json, not '%s'", chosen.format);
    if (chosen.json && chosen.format != NULL && !json)
        return cli_usage_error("plan: --json and --format %s are two formats", chosen.format);
    chosen.json |= json;
    return CLI_DONE;
}

static bool is_finetune(void)
{
    return chosen.goal != NULL && strcmp(chosen.goal, PLAN_FINETUNE) == 0;
}

/* Refuses options that only finetune takes. */
static int check_finetune_options(void)
{
    const plan_options *o = &chosen;
    return o->lora_rank > 0 || o->targets != 0 || o->trains_all || o->shares_weights
               ? cli_usage_error("plan: --lora-rank, --targets, --full and --fsdp need --goal "
                                 "finetune")
               : CLI_DONE;
}

static int check_cluster_options(void)
{
    const plan_options *o = &chosen;
    return o->links || o->rank_rates || o->goal || o->batch > 0 || o->accumulate > 0 || o->wire
               ? cli_usage_error("plan: --links, --rank-rates, --goal, --batch, --accumulate "
                                 "and --wire need --cluster FILE")
               : CLI_DONE;
}

/* The command ---------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Makes the kind of plan that the options ask for. */
static int make_plan(const char *path)
{
    const char *strategy = chosen.strategy;
    if (check_format() != CLI_DONE)
        return CLI_USAGE;
    if (is_finetune())
        return chosen.hosts ? cli_usage_error("plan: --goal finetune takes --ranks N, not "
                                              "--cluster")
                            : plan_finetune(path, &chosen);
    if (check_finetune_options() != CLI_DONE)
        return CLI_USAGE;
    if (chosen.hosts)
        return plan_on_cluster(path, &chosen);
    if (check_cluster_options() != CLI_DONE)
        return CLI_USAGE;
    return (strategy ? strcmp(strategy, PLAN_INFERENCE) == 0 : is_folder(path))
               ? plan_inference(path, &chosen)
               : plan_sharding(path, &chosen);
}

static int run(int argc, char **argv)
{
    const char *path = NULL;
    int words;
    int code = cli_options_read("plan", options, argc, argv, 1, &path, &words);
    if (code == CLI_DONE)
        code = words == 1 ? make_plan(path) : cli_usage_error("plan: missing FILE");
    plan_list_free(&chosen.rates);
    plan_list_free(&chosen.memory);
    plan_list_free(&chosen.gather);
    plan_list_free(&chosen.full);
    plan_list_free(&chosen.layerwise);
    plan_list_free(&chosen.bandwidth);
    plan_list_free(&chosen.host_bandwidth);
    plan_list_free(&chosen.gflops);
    free(chosen.layers.values);
    return code;
}

const cli_command cli_plan = {
    .name = "plan",
    .usage = "FILE --ranks N|--cluster FILE [options]",
    .summary = "compute which rank keeps which part of a model's parameters",
    .run = run,
    .help = help,
};
