/* The options of tessera finetune. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/finetune.h"
#include "cli/inference/inference.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/say.h"

finetune_options finetune_chosen = {
    .warmup = FINETUNE_UNSET,
    .learning_rate = FINETUNE_UNSET,
    .final_rate = FINETUNE_UNSET,
    .weight_decay = FINETUNE_UNSET,
    .clip = FINETUNE_UNSET,
    .beta1 = FINETUNE_UNSET,
    .beta2 = FINETUNE_UNSET,
    .schedule = (tsr_schedule_kind)FINETUNE_UNSET,
    .timeout = 600,
};

static bool read_schedule(void *user, const char *value, char *problem, size_t size)
{
    static const char *const names[] = {[TSR_SCHEDULE_CONSTANT] = "constant",
                                        [TSR_SCHEDULE_LINEAR] = "linear",
                                        [TSR_SCHEDULE_COSINE] = "cosine"};
    for (int i = 0; i < 3; i++)
        if (strcmp(value, names[i]) == 0) {
            *(tsr_schedule_kind *)user = (tsr_schedule_kind)i;
            return true;
        }
    snprintf(problem, size, "takes constant, linear or cosine, not '%.40s'", value);
    return false;
}

static bool read_data(void *user, const char *value, char *problem, size_t size)
{
    finetune_files *files = user;
    const char *colon = strrchr(value, ':');
    double weight = 1;
    const bool is_weighted = colon != NULL && cli_read_real(colon + 1, 0, 1e6, &weight);
    const size_t length = is_weighted ? (size_t)(colon - value) : strlen(value);
    if (length == 0 || weight == 0) {
        snprintf(problem, size, "takes a file, and a weight above 0 behind a colon, not '%.80s'",
                 value);
        return false;
    }
    const size_t count = (size_t)files->count + 1;
    files->paths = cli_resize((void *)files->paths, count, sizeof *files->paths);
    files->weights = cli_resize(files->weights, count, sizeof *files->weights);
    char *path = cli_alloc(length + 1, 1);
    memcpy(path, value, length);
    path[length] = '\0';
    files->paths[files->count] = path;
    files->weights[files->count++] = weight;
    return true;
}

static bool read_objective(void *user, const char *value, char *problem, size_t size)
{
    (void)user;
    finetune_chosen.dpo = strcmp(value, "dpo") == 0;
    if (finetune_chosen.dpo || strcmp(value, "sft") == 0)
        return true;
    snprintf(problem, size, "takes sft or dpo, not '%.40s'", value);
    return false;
}

static bool read_held_out(void *user, const char *value, char *problem, size_t size)
{
    finetune_options *o = &finetune_chosen;
    double number;
    (void)user;
    if (cli_read_real(value, -1e300, 1e300, &number) && !(number >= 0 && number <= 0.5)) {
        snprintf(problem, size, "takes a part from 0 to 0.5, or a file, not '%.80s'", value);
        return false;
    }
    o->held_out_file = NULL;
    o->held_out = 0;
    if (!cli_read_real(value, 0, 0.5, &o->held_out))
        o->held_out_file = value;
    return true;
}

#define MOST 1e9

static const cli_option finetune_option_table[] = {
    {"data", "FILE[:W]",
     "texts: .jsonl with messages, prompt and completion, or text; other files are plain text. W: "
     "how often an epoch has each of them (default: 1). May be repeated",
     .read = read_data, .user = &finetune_chosen.data},
    {"held-out", "PART", "part of the data for evaluation, such as 0.05, or a file (default: none)",
     .read = read_held_out},
    {"format", "NAME", inference_format_help, .read = inference_read_format,
     .user = &finetune_chosen.format},
    {"loss-on-all", NULL, "learn prompts and the user's messages, too, not only the replies",
     .flag = &finetune_chosen.loss_on_all},
    {"skip-bad", NULL, "leave out bad lines, and say how many", .flag = &finetune_chosen.skip_bad},
    {"cut", NULL, "cut conversations that are longer than a row; otherwise they are bad lines",
     .flag = &finetune_chosen.cut},
    {"unpacked", NULL, "one document in a row, padded", .flag = &finetune_chosen.unpacked},
    {"unshuffled", NULL, "keep the order of the data", .flag = &finetune_chosen.unshuffled},
    {"output", "PATH", "the trained adapter: a folder, or a file that ends in .gguf",
     .text = &finetune_chosen.output, .letter = 'o'},
    {"lora-rank", "R", "rank of the adapter's matrices (default: 16)",
     .integer = &finetune_chosen.rank, .low = 1, .high = 4096},
    {"lora-alpha", "A", "the adapter counts A / R times (default: 2 · R)",
     .real = &finetune_chosen.alpha, .low = 1e-6, .high = 1e6},
    {"lora-dropout", "P", "while training, drop this part of the adapter's inputs (default: 0)",
     .real = &finetune_chosen.dropout, .low = 0, .high = 0.999},
    {"rslora", NULL, "the adapter counts A / √R times", .flag = &finetune_chosen.rank_stabilised},
    {"dora", NULL, "also train the norm of each row of W (DoRA)", .flag = &finetune_chosen.dora},
    {"targets", "LIST",
     "matrices that have an adapter: q, k, v, o, gate, up, down, experts, head (default: all that "
     "the model has, except experts and the head)",
     .read = cli_read_targets, .user = &finetune_chosen.targets},
    {"layers", "LIST", "layers that have an adapter, such as 0-3,7 (default: all)",
     .text = &finetune_chosen.layers},
    {"objective", "NAME",
     "sft: learn the texts; dpo: prefer one text to another, from pairs of chosen and rejected "
     "(default: sft)",
     .read = read_objective},
    {"beta", "B", "of dpo: how closely to stay to the base (default: 0.1)",
     .real = &finetune_chosen.beta, .low = 1e-6, .high = 1e6},
    {"full", NULL, "train the layers themselves instead of an adapter; PATH is a model's folder",
     .flag = &finetune_chosen.full},
    {"dtype", "TYPE",
     "keep matrices of the model as f32, f16, bf16, or quantised, such as q8_0 (default: as the "
     "file has them; --full: f32 or bf16, default f32)",
     .read = cli_read_matrix_dtype, .user = &finetune_chosen.dtype},
    {"batch", "N", "rows of a step (default: 8)", .integer = &finetune_chosen.batch, .low = 1,
     .high = 1 << 20},
    {"context", "N", "tokens of a row (default: what the model was made for, at most 1024)",
     .integer = &finetune_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
    {"accumulate", "N",
     "divide the rows of a step into N passes, which need less memory and, with stages, overlap "
     "(default: 1)",
     .integer = &finetune_chosen.accumulate, .low = 1, .high = TSR_MAX_PIPELINE_BATCHES},
    {"epochs", "N", "how often to learn from all data (default: 1)",
     .integer = &finetune_chosen.epochs, .low = 1, .high = 10000},
    {"steps", "N", "the number of steps, instead of --epochs", .integer = &finetune_chosen.steps,
     .low = 1, .high = MOST},
    {"learning-rate", "R", "the highest learning rate (default: 2e-4; --full: 2e-5)",
     .real = &finetune_chosen.learning_rate, .low = 0, .high = MOST},
    {"final-rate", "R", "the learning rate of the last step (default: a tenth of the highest)",
     .real = &finetune_chosen.final_rate, .low = 0, .high = MOST},
    {"schedule", "NAME", "constant, linear or cosine (default: cosine)", .read = read_schedule,
     .user = &finetune_chosen.schedule},
    {"warmup", "N", "steps before the highest learning rate (default: 3 % of the steps)",
     .integer = &finetune_chosen.warmup, .low = 0, .high = MOST},
    {"weight-decay", "R", "of AdamW, for matrices (default: 0)",
     .real = &finetune_chosen.weight_decay, .low = 0, .high = 1e6},
    {"beta1", "R", "of AdamW (default: 0.9)", .real = &finetune_chosen.beta1, .low = 0,
     .high = 0.999999},
    {"beta2", "R", "of AdamW (default: 0.999)", .real = &finetune_chosen.beta2, .low = 0,
     .high = 0.999999},
    {"clip", "R", "the largest norm of the gradient; 0: no limit (default: 1)",
     .real = &finetune_chosen.clip, .low = 0, .high = MOST},
    {"seed", "N", "of the order of rows, of new adapters and of dropout (default: 0)",
     .integer = &finetune_chosen.seed, .low = 0, .high = 9e15},
    {"recompute", NULL,
     "keep only the inputs of layers for the backward pass, and compute the rest again",
     .flag = &finetune_chosen.recompute},
    {"precision", "P",
     "on GPUs, multiply as f32 ('highest'), as sums of 16-bit numbers ('high'), or as 16-bit "
     "numbers ('medium')",
     .read = cli_read_precision, .user = &finetune_chosen.precision},
    {"reference", "FILE", "repeat a recorded run, to compare losses with it; needs --text",
     .text = &finetune_chosen.reference},
    {"text", "FILE", "the text of --reference, whose characters are the vocabulary",
     .text = &finetune_chosen.text},
    {"evaluate-every", "N",
     "compute the loss of held-out data every N steps (default: 50, if there are any)",
     .integer = &finetune_chosen.evaluate_every, .low = 1, .high = MOST},
    {"early-stop", "N",
     "end after N evaluations without a lower loss of held-out data (default: never)",
     .integer = &finetune_chosen.patience, .low = 1, .high = MOST},
    {"sample-every", "PROMPT", "print a continuation of PROMPT at each evaluation",
     .text = &finetune_chosen.sample},
    {"log", "FILE", "write a line of JSON for each step", .text = &finetune_chosen.log},
    {"curve", "FILE", "draw the losses, as SVG", .text = &finetune_chosen.curve},
    {"checkpoint", "FILE", "keep all that is needed to go on in this file",
     .text = &finetune_chosen.checkpoint},
    {"checkpoint-every", "N", "steps between checkpoints (default: 100)",
     .integer = &finetune_chosen.checkpoint_every, .low = 1, .high = MOST},
    {"resume", "FILE", "go on from a checkpoint, with any number of ranks",
     .text = &finetune_chosen.resume},
    {"data-parallel", "N",
     "ranks in N groups, each with the whole model and a part of each step's rows (default: 1)",
     .integer = &finetune_chosen.data_parallel, .low = 1, .high = TSR_MAX_COMM_SIZE},
    {"elastic", NULL,
     "go on without ranks that are lost, and with those that 'tessera launch --keep-going' starts "
     "in their place; all ranks are data-parallel",
     .flag = &finetune_chosen.elastic},
    {"fsdp", NULL,
     "data-parallel ranks share the weights, what is trained, and the optimizer's state",
     .flag = &finetune_chosen.fsdp},
    {"stages", "S", "divide the layers over S stages, which are groups of ranks (default: 1)",
     .integer = &finetune_chosen.stages.count, .low = 1, .high = TSR_MAX_COMM_SIZE},
    {"stage-layers", "LIST",
     "layers of each stage, such as 10,12 (default: all stages need equally long)",
     .read = cli_read_layers, .user = &finetune_chosen.stages.layers},
    {"rates", "LIST",
     "divide the work by the ranks' speeds, such as 3,1, or by measured ones: 'measured' (default: "
     "evenly)",
     .read = cli_read_rates, .user = &finetune_chosen.stages.rates},
    {"memory", "LIST",
     "device memory that each rank may use, such as 8G,12G, or one value for all (default: all)",
     .read = cli_read_memory, .user = &finetune_chosen.stages.memory},
    {"wire", "TYPE",
     "round what tensor-parallel ranks send each other to f16, bf16 or q8_0 (default: no rounding)",
     .read = cli_read_matrix_dtype, .user = &finetune_chosen.wire},
    {"device", "DEVICE",
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the fastest)",
     .text = &finetune_chosen.device},
    {"timeout", "SECONDS", "longest wait for another rank (default: 600)",
     .real = &finetune_chosen.timeout, .low = 0.1, .high = 1e6},
    {0},
};

void finetune_options_help(FILE *out)
{
    inference_list_formats();
    cli_options_help(out, finetune_option_table);
}

bool finetune_is_gguf(const char *path)
{
    const size_t length = path != NULL ? strlen(path) : 0;
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

int finetune_options_check(void)
{
    const finetune_options *o = &finetune_chosen;
    if (o->reference == NULL && o->data.count == 0 && o->resume == NULL)
        return cli_usage_error("finetune: missing --data FILE");
    if (o->reference != NULL && o->data.count > 0)
        return cli_usage_error("finetune: --reference has its own rows, so --data cannot be given");
    if ((o->reference != NULL) != (o->text != NULL))
        return cli_usage_error("finetune: --reference FILE and --text FILE need each other");
    if (o->steps > 0 && o->epochs > 0)
        return cli_usage_error("finetune: --steps and --epochs contradict each other");
    if (o->full && o->layers != NULL)
        return cli_usage_error("finetune: --layers chooses those that have an adapter, so --full "
                               "cannot be given");
    if (o->full && o->dora)
        return cli_usage_error("finetune: --dora is for adapters, so --full cannot be given");
    if (o->full && o->dpo)
        return cli_usage_error("finetune: --objective dpo compares an adapter with its base, so "
                               "--full cannot be given");
    if (o->dora && o->dropout > 0)
        return cli_usage_error("finetune: --dora and --lora-dropout contradict each other");
    if (o->dora && (o->targets & TSR_LORA_EXPERTS) != 0)
        return cli_usage_error("finetune: --dora: adapters of experts cannot have magnitudes");
    if (o->dora && finetune_is_gguf(o->output))
        return cli_usage_error("finetune: --dora: a GGUF file cannot have magnitudes, so --output "
                               "must be a folder, not %s",
                               o->output);
    if (o->full && finetune_is_gguf(o->output))
        return cli_usage_error("finetune: --full writes a folder, so --output cannot be %s",
                               o->output);
    if (o->elastic && (o->stages.count > 1 || o->stages.layers.count > 1 || o->data_parallel > 0 ||
                       o->stages.rates.count > 0 || o->stages.rates.measured))
        return cli_usage_error("finetune: with --elastic all ranks are data-parallel, so --stages, "
                               "--rates and --data-parallel cannot be given");
    if (o->elastic && o->fsdp && !o->full)
        return cli_usage_error("finetune: --elastic needs a whole base on each rank, so --fsdp "
                               "needs --full");
    if (o->full && o->dtype != 0 && o->dtype != TSR_F32 && o->dtype != TSR_BF16)
        return cli_usage_error("finetune: --full trains layers in f32 or bf16, not %s",
                               tsr_dtype_name(o->dtype));
    if (o->accumulate > 0 && o->batch > 0 && o->batch % o->accumulate != 0)
        return cli_usage_error("finetune: --accumulate %lld does not divide --batch %lld",
                               (long long)o->accumulate, (long long)o->batch);
    return CLI_DONE;
}

/* Removes the slashes at the end of --output. */
static void strip_slashes(void)
{
    const char *output = finetune_chosen.output;
    size_t length = output != NULL ? strlen(output) : 0;
    if (length < 2 || output[length - 1] != '/')
        return;
    while (length > 1 && output[length - 1] == '/')
        length--;
    char *path = cli_alloc(length + 1, 1); /* as long as the process, like the arguments */
    memcpy(path, output, length);
    path[length] = '\0';
    finetune_chosen.output = path;
}

int finetune_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    int code = cli_options_read("finetune", finetune_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count > 0 && words[0][0] != '\0')
        finetune_chosen.model = words[0];
    if (finetune_chosen.model == NULL && finetune_chosen.resume == NULL)
        return cli_usage_error("finetune: missing MODEL, a folder or a file");
    strip_slashes();
    return finetune_options_check();
}

void finetune_options_complete(void)
{
    finetune_options *o = &finetune_chosen;
    if (o->batch == 0)
        o->batch = FINETUNE_BATCH;
    if (o->accumulate == 0)
        o->accumulate = 1;
    if (o->rank == 0)
        o->rank = 16;
    if (o->beta == 0)
        o->beta = 0.1;
    if ((int)o->schedule == FINETUNE_UNSET)
        o->schedule = TSR_SCHEDULE_COSINE;
    if (o->learning_rate < 0)
        o->learning_rate = o->full ? 2e-5 : 2e-4;
    if (o->final_rate < 0)
        o->final_rate = o->learning_rate / 10;
    if (o->warmup < 0)
        o->warmup = o->steps > 1 ? (o->steps * 3 + 99) / 100 : 0;
    if (o->decay_steps == 0) /* the first step is step 0 */
        o->decay_steps = o->reference == NULL && o->steps - 1 > o->warmup ? o->steps - 1 : o->steps;
    if (o->weight_decay < 0)
        o->weight_decay = 0;
    if (o->clip < 0)
        o->clip = 1;
    if (o->beta1 < 0)
        o->beta1 = 0.9;
    if (o->beta2 < 0)
        o->beta2 = 0.999;
    if (o->epsilon == 0)
        o->epsilon = 1e-8;
    if (o->evaluate_every == 0)
        o->evaluate_every = 50;
    if (o->checkpoint_every == 0)
        o->checkpoint_every = 100;
}

/* Errors --------------------------------------------------------------------------------------- */

static char problem[1024];
static bool reported;

tsr_status finetune_reported(void)
{
    reported = true;
    return TSR_ERR_INVALID;
}

bool finetune_is_reported(void)
{
    return reported;
}

tsr_status finetune_fail(const char *format, ...)
{
    char text[sizeof problem]; /* an argument may be `problem` */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(problem, text, sizeof problem);
    return TSR_ERR_INVALID;
}

const char *finetune_problem(void)
{
    return problem[0] != '\0' ? problem : tsr_last_error();
}
