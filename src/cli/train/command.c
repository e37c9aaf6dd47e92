/* tessera train. */
#include "cli/commands.h"
#include "cli/lib/terminal.h"
#include "cli/train/train.h"

static tsr_status open_files(training_run *r)
{
    int64_t vocabulary = 0;
    TRY(train_text_open(r, &vocabulary));
    TRY(train_shape_open(r, vocabulary));
    train_options_complete();
    return train_text_use(r);
}

static int run(int argc, char **argv)
{
    static const training_kind kind = {
        .name = "train",
        .options_key = "tessera.train",
        .saved = train_saved_options,
        .read = train_options_read,
        .check = train_options_check,
        .open = open_files,
    };
    return training_main(&kind, argc, argv);
}

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Trains a new language model, or goes on with all layers of MODEL, on texts or tokens. "
        "A new model has the sizes that the options or --config give. Without --tokenizer, "
        "the characters of the texts are its vocabulary. Under 'tessera launch -n N' or a "
        "cluster's launcher, the ranks divide the model and the rows. Ctrl-C ends the "
        "training after the present step, and saves what was learnt.\n");
    train_options_help(out);
}

const cli_command cli_train = {
    .name = "train",
    .usage = "[MODEL] --data FILE [options]",
    .summary = "train a new language model",
    .run = run,
    .help = help,
};
