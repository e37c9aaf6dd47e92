/* Rows of tables of options that both commands have. */
#ifndef TSR_CLI_TRAINING_OPTIONS_H
#define TSR_CLI_TRAINING_OPTIONS_H

#include "cli/lib/options.h"
#include "cli/training/training.h"

#define TRAINING_MOST 1e9 /* the largest value of most numbers */

/* clang-format off */
/* How passes are made. */
#define TRAINING_PASS_OPTIONS \
    {"recompute", NULL, \
     "keep only the inputs of layers for the backward pass, and compute the rest again", \
     .flag = &training_chosen.recompute}, \
    {"precision", "P", \
     "on GPUs, multiply as f32 ('highest'), as sums of 16-bit numbers ('high'), or as 16-bit " \
     "numbers ('medium')", \
     .read = cli_read_precision, .user = &training_chosen.precision}

/* How the learning rate changes. */
#define TRAINING_SCHEDULE_OPTIONS \
    {"final-rate", "R", "the learning rate of the last step (default: a tenth of the highest)", \
     .real = &training_chosen.final_rate, .low = 0, .high = TRAINING_MOST}, \
    {"schedule", "NAME", "constant, linear or cosine (default: cosine)", \
     .read = training_read_schedule, .user = &training_chosen.schedule}, \
    {"warmup", "N", "steps before the highest learning rate (default: 3 % of the steps)", \
     .integer = &training_chosen.warmup, .low = 0, .high = TRAINING_MOST}

/* Evaluations, and files beside the output. */
#define TRAINING_REPORT_OPTIONS \
    {"evaluate-every", "N", \
     "compute the loss of held-out data every N steps (default: 50, if there are any)", \
     .integer = &training_chosen.evaluate_every, .low = 1, .high = TRAINING_MOST}, \
    {"early-stop", "N", \
     "end after N evaluations without a lower loss of held-out data (default: never)", \
     .integer = &training_chosen.patience, .low = 1, .high = TRAINING_MOST}, \
    {"sample-every", "PROMPT", "print a continuation of PROMPT at each evaluation", \
     .text = &training_chosen.sample}, \
    {"log", "FILE", "write a line of JSON for each step", .text = &training_chosen.log}, \
    {"curve", "FILE", "draw the losses, as SVG", .text = &training_chosen.curve}, \
    {"checkpoint", "FILE", "keep all that is needed to go on in this file", \
     .text = &training_chosen.checkpoint}, \
    {"checkpoint-every", "N", "steps between checkpoints (default: 100)", \
     .integer = &training_chosen.checkpoint_every, .low = 1, .high = TRAINING_MOST}, \
    {"resume", "FILE", "go on from a checkpoint, with any number of ranks", \
     .text = &training_chosen.resume}, \
    {"parts", NULL, \
     "with --checkpoint and --resume: each rank has a file of its own, so that hosts need no file " \
     "system that all see", \
     .flag = &training_chosen.parts}

/* The ranks and their devices. */
#define TRAINING_RANK_OPTIONS \
    {"data-parallel", "N", \
     "ranks in N groups, each with the whole model and a part of each step's rows (default: 1)", \
     .integer = &training_chosen.data_parallel, .low = 1, .high = TSR_MAX_COMM_SIZE}, \
    {"context-parallel", "C", \
     "divide the tokens of each row over C ranks, or over C groups of ranks that divide the model; " \
     "for rows too long for the memory of one (default: 1)", \
     .integer = &training_chosen.context_parallel, .low = 1, .high = TSR_MAX_COMM_SIZE}, \
    {"elastic", NULL, \
     "go on without ranks that are lost, and with those that 'tessera launch --keep-going' starts " \
     "in their place; all ranks are data-parallel", \
     .flag = &training_chosen.elastic}, \
    {"fsdp", NULL, \
     "data-parallel ranks share the weights and, if these are trained, gradients and the optimizer's " \
     "state", \
     .flag = &training_chosen.fsdp}, \
    {"stages", "S", "divide the layers over S stages, which are groups of ranks (default: 1)", \
     .integer = &training_chosen.stages.count, .low = 1, .high = TSR_MAX_COMM_SIZE}, \
    {"stage-layers", "LIST", \
     "layers of each stage, such as 10,12 (default: all stages need equally long)", \
     .read = cli_read_layers, .user = &training_chosen.stages.layers}, \
    {"rates", "LIST", \
     "divide the work by the ranks' speeds, such as 3,1, or by measured ones: 'measured' (default: " \
     "evenly)", \
     .read = cli_read_rates, .user = &training_chosen.stages.rates}, \
    {"memory", "LIST", \
     "device memory that each rank may use, such as 8G,12G, or one value for all (default: all)", \
     .read = cli_read_memory, .user = &training_chosen.stages.memory}, \
    {"wire", "TYPE", \
     "round what tensor-parallel ranks send each other to f16, bf16 or q8_0 (default: no rounding)", \
     .read = cli_read_matrix_dtype, .user = &training_chosen.wire}, \
    {"device", "DEVICE", \
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the fastest)", \
     .text = &training_chosen.device}, \
    {"timeout", "SECONDS", "longest wait for another rank (default: 600)", \
     .real = &training_chosen.timeout, .low = 0.1, .high = 1e6}
/* clang-format on */

#endif
