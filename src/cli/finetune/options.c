/* The options of tessera finetune. */
#include <stdio.h>
#include <string.h>

#include "cli/finetune/finetune.h"
#include "cli/inference/inference.h"
#include "cli/lib/options.h"
#include "cli/lib/say.h"
#include "cli/training/options.h"

static bool read_objective(void *user, const char *value, char *problem, size_t size)
{
    (void)user;
    training_chosen.dpo = strcmp(value, "dpo") == 0;
    if (training_chosen.dpo || strcmp(value, "sft") == 0)
        return true;
    snprintf(problem, size, "takes sft or dpo, not '%.40s'", value);
    return false;
}

static const cli_option finetune_option_table[] = {
    {"data", "FILE[:W]",
     "texts: .jsonl with messages, prompt and completion, or text; other files are plain text. W: "
     "how often an epoch has each of them (default: 1). May be repeated",
     .read = training_read_weighted_file, .user = &training_chosen.data},
    {"held-out", "PART", "part of the data for evaluation, such as 0.05, or a file (default: none)",
     .read = training_read_held_out},
    {"format", "NAME", inference_format_help, .read = inference_read_format,
     .user = &training_chosen.format},
    {"loss-on-all", NULL, "learn prompts and the user's messages, too, not only the replies",
     .flag = &training_chosen.loss_on_all},
    {"skip-bad", NULL, "leave out bad lines, and say how many", .flag = &training_chosen.skip_bad},
    {"cut", NULL, "cut conversations that are longer than a row; otherwise they are bad lines",
     .flag = &training_chosen.cut},
    {"unpacked", NULL, "one document in a row, padded", .flag = &training_chosen.unpacked},
    {"unshuffled", NULL, "keep the order of the data", .flag = &training_chosen.unshuffled},
    {"output", "PATH", "the trained adapter: a folder, or a file that ends in .gguf",
     .text = &training_chosen.output, .letter = 'o'},
    {"lora-rank", "R", "rank of the adapter's matrices (default: 16)",
     .integer = &training_chosen.rank, .low = 1, .high = 4096},
    {"lora-alpha", "A", "the adapter counts A / R times (default: 2 · R)",
     .real = &training_chosen.alpha, .low = 1e-6, .high = 1e6},
    {"lora-dropout", "P", "while training, drop this part of the adapter's inputs (default: 0)",
     .real = &training_chosen.dropout, .low = 0, .high = 0.999},
    {"rslora", NULL, "the adapter counts A / √R times", .flag = &training_chosen.rank_stabilised},
    {"dora", NULL, "also train the norm of each row of W (DoRA)", .flag = &training_chosen.dora},
    {"targets", "LIST",
     "matrices that have an adapter: q, k, v, o, gate, up, down, experts, head (default: all that "
     "the model has, except experts and the head)",
     .read = cli_read_targets, .user = &training_chosen.targets},
    {"layers", "LIST",
     "layers that have an adapter, or with --full are trained, such as 0-3,7 (default: all)",
     .text = &training_chosen.layers},
    {"objective", "NAME",
     "sft: learn the texts; dpo: prefer one text to another, from pairs of chosen and rejected "
     "(default: sft)",
     .read = read_objective},
    {"beta", "B", "of dpo: how closely to stay to the base (default: 0.1)",
     .real = &training_chosen.beta, .low = 1e-6, .high = 1e6},
    {"full", NULL,
     "train the model itself, or its --layers, instead of an adapter; PATH is a model's folder",
     .flag = &training_chosen.full},
    {"dtype", "TYPE",
     "keep matrices of the model as f32, f16, bf16, or quantised, such as q8_0 (default: as the "
     "file has them; --full: f32 or bf16, default f32)",
     .read = cli_read_matrix_dtype, .user = &training_chosen.dtype},
    {"batch", "N", "rows of a step (default: 8)", .integer = &training_chosen.batch, .low = 1,
     .high = 1 << 20},
    {"context", "N", "tokens of a row (default: what the model was made for, at most 1024)",
     .integer = &training_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT},
    {"accumulate", "N",
     "divide the rows of a step into N passes, which need less memory and, with stages, overlap "
     "(default: 1)",
     .integer = &training_chosen.accumulate, .low = 1, .high = TSR_MAX_PIPELINE_BATCHES},
    {"epochs", "N", "how often to learn from all data (default: 1)",
     .integer = &training_chosen.epochs, .low = 1, .high = 10000},
    {"steps", "N", "the number of steps, instead of --epochs", .integer = &training_chosen.steps,
     .low = 1, .high = TRAINING_MOST},
    {"learning-rate", "R", "the highest learning rate (default: 2e-4; --full: 2e-5)",
     .real = &training_chosen.learning_rate, .low = 0, .high = TRAINING_MOST},
    TRAINING_SCHEDULE_OPTIONS,
    {"weight-decay", "R", "of AdamW, for matrices (default: 0)",
     .real = &training_chosen.weight_decay, .low = 0, .high = 1e6},
    {"beta1", "R", "of AdamW (default: 0.9)", .real = &training_chosen.beta1, .low = 0,
     .high = 0.999999},
    {"beta2", "R", "of AdamW (default: 0.999)", .real = &training_chosen.beta2, .low = 0,
     .high = 0.999999},
    {"clip", "R", "the largest norm of the gradient; 0: no limit (default: 1)",
     .real = &training_chosen.clip, .low = 0, .high = TRAINING_MOST},
    {"seed", "N", "of the order of rows, of new adapters and of dropout (default: 0)",
     .integer = &training_chosen.seed, .low = 0, .high = 9e15},
    TRAINING_PASS_OPTIONS,
    {"reference", "FILE", "repeat a recorded run, to compare losses with it; needs --text",
     .text = &training_chosen.reference},
    {"text", "FILE", "the text of --reference, whose characters are the vocabulary",
     .text = &training_chosen.text},
    TRAINING_REPORT_OPTIONS,
    TRAINING_RANK_OPTIONS,
    {0},
};

void finetune_options_help(FILE *out)
{
    inference_list_formats();
    cli_options_help(out, finetune_option_table);
}

/* Returns an option of adapters that was given, or NULL. */
static const char *adapter_option(void)
{
    const training_options *o = &training_chosen;
    return o->rank > 0          ? "lora-rank"
           : o->alpha > 0       ? "lora-alpha"
           : o->dropout > 0     ? "lora-dropout"
           : o->rank_stabilised ? "rslora"
           : o->dora            ? "dora"
           : o->targets > 0     ? "targets"
                                : NULL;
}

int finetune_options_check(void)
{
    const training_options *o = &training_chosen;
    if (o->reference == NULL && o->data.count == 0 && o->resume == NULL)
        return cli_usage_error("finetune: missing --data FILE");
    if (o->reference != NULL && o->data.count > 0)
        return cli_usage_error("finetune: --reference has its own rows, so --data cannot be given");
    if ((o->reference != NULL) != (o->text != NULL))
        return cli_usage_error("finetune: --reference FILE and --text FILE need each other");
    if (o->full && o->elastic && o->layers != NULL)
        return cli_usage_error("finetune: --elastic with --full trains all layers, so --layers "
                               "cannot be given");
    if (o->full && o->resume == NULL && adapter_option() != NULL) /* checkpoints have all options */
        return cli_usage_error("finetune: --%s is for adapters, so --full cannot be given",
                               adapter_option());
    if (o->full && o->dpo)
        return cli_usage_error("finetune: --objective dpo compares an adapter with its base, so "
                               "--full cannot be given");
    if (o->dora && o->dropout > 0)
        return cli_usage_error("finetune: --dora and --lora-dropout contradict each other");
    if (o->dora && (o->targets & TSR_LORA_EXPERTS) != 0)
        return cli_usage_error("finetune: --dora: adapters of experts cannot have magnitudes");
    if (o->dora && training_is_gguf(o->output))
        return cli_usage_error("finetune: --dora: a GGUF file cannot have magnitudes, so --output "
                               "must be a folder, not %s",
                               o->output);
    if (o->full && training_is_gguf(o->output))
        return cli_usage_error("finetune: --full writes a folder, so --output cannot be %s",
                               o->output);
    if (o->elastic && o->fsdp && !o->full)
        return cli_usage_error("finetune: --elastic needs a whole base on each rank, so --fsdp "
                               "needs --full");
    if (o->full && o->dtype != 0 && o->dtype != TSR_F32 && o->dtype != TSR_BF16)
        return cli_usage_error("finetune: --full trains layers in f32 or bf16, not %s",
                               tsr_dtype_name(o->dtype));
    return training_options_check();
}

int finetune_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    int code = cli_options_read("finetune", finetune_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count > 0 && words[0][0] != '\0')
        training_chosen.model = words[0];
    if (training_chosen.model == NULL && training_chosen.resume == NULL)
        return cli_usage_error("finetune: missing MODEL, a folder or a file");
    training_strip_slashes();
    return finetune_options_check();
}

const training_saved_option finetune_saved_options[] = {
    {"held_out_file", TRAINING_TEXT, &training_chosen.held_out_file, 0, NULL, false},
    {"held_out", TRAINING_REAL, &training_chosen.held_out, 0, NULL, false},
    {"format", TRAINING_INT, &training_chosen.format, 0, NULL, false},
    {"loss_on_all", TRAINING_FLAG, &training_chosen.loss_on_all, 0, NULL, false},
    {"skip_bad", TRAINING_FLAG, &training_chosen.skip_bad, 0, NULL, false},
    {"cut", TRAINING_FLAG, &training_chosen.cut, 0, NULL, false},
    {"unpacked", TRAINING_FLAG, &training_chosen.unpacked, 0, NULL, false},
    {"unshuffled", TRAINING_FLAG, &training_chosen.unshuffled, 0, NULL, false},
    {"reference", TRAINING_TEXT, &training_chosen.reference, 0, NULL, false},
    {"text", TRAINING_TEXT, &training_chosen.text, 0, NULL, false},
    {"dpo", TRAINING_FLAG, &training_chosen.dpo, 0, NULL, false},
    {"beta", TRAINING_REAL, &training_chosen.beta, 0, NULL, false},
    {"full", TRAINING_FLAG, &training_chosen.full, 0, "full", false},
    {"rank", TRAINING_INTEGER, &training_chosen.rank, 0, "lora-rank", false},
    {"alpha", TRAINING_REAL, &training_chosen.alpha, 0, "lora-alpha", false},
    {"dropout", TRAINING_REAL, &training_chosen.dropout, TRAINING_UNSET, NULL, false},
    {"rank_stabilised", TRAINING_FLAG, &training_chosen.rank_stabilised, 0, "rslora", false},
    {"passes", TRAINING_INTEGER, &training_chosen.passes, 0, NULL, true},
    {"dora", TRAINING_FLAG, &training_chosen.dora, 0, "dora", true},
    {"targets", TRAINING_INT, &training_chosen.targets, 0, "targets", false},
    {"layers", TRAINING_TEXT, &training_chosen.layers, 0, "layers", true},
    {0},
};
