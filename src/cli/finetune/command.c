/* tessera finetune. */
#include "cli/commands.h"
#include "cli/finetune/data.h"
#include "cli/finetune/finetune.h"
#include "cli/lib/terminal.h"

#define USUAL_BATCH 8 /* rows of a step */

static tsr_status open_files(training_run *r)
{
    training_options *o = &training_chosen;
    TRY(tsr_model_file_open(o->model, &r->file));
    const tsr_model_config *config = tsr_model_file_config(r->file);
    if (o->reference != NULL)
        return finetune_reference_read(r);
    if (o->batch == 0)
        o->batch = USUAL_BATCH;
    if (o->context == 0)
        o->context = data_usual_context(config);
    TRY(tsr_model_file_open_tokenizer(r->file, &r->tokenizer));
    return finetune_source_open(r);
}

static int run(int argc, char **argv)
{
    static const training_kind kind = {
        .name = "finetune",
        .options_key = "tessera.finetune",
        .saved = finetune_saved_options,
        .read = finetune_options_read,
        .check = finetune_options_check,
        .open = open_files,
    };
    return training_main(&kind, argc, argv);
}

static void help(FILE *out)
{
    cli_wrap(out,
             "Trains an adapter (LoRA) of a language model, or with --full its layers, on texts. "
             "MODEL is a Hugging Face folder or a GGUF file, whose weights may be quantised; they "
             "stay as they are. Under 'tessera launch -n N' or a cluster's launcher, the ranks "
             "divide the model and the rows. Ctrl-C ends the training after the present step, and "
             "saves what was learnt.\n");
    finetune_options_help(out);
}

const cli_command cli_finetune = {
    .name = "finetune",
    .usage = "MODEL --data FILE [options]",
    .summary = "train a language model on texts of one's own",
    .run = run,
    .help = help,
};
