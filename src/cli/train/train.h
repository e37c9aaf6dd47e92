/* What tessera train adds to trainings: its options, the sizes of new models, and texts as tokens.
 */
#ifndef TSR_CLI_TRAIN_TRAIN_H
#define TSR_CLI_TRAIN_TRAIN_H

#include "cli/training/run.h"

/* options.c */

/* Reads the arguments into training_chosen. Returns an exit code. */
int train_options_read(int argc, char **argv);
/* Refuses options that contradict each other. Returns an exit code. */
int train_options_check(void);
/* Replaces numbers that were not given by the defaults of this command. */
void train_options_complete(void);
void train_options_help(FILE *out);
extern const training_saved_option train_saved_options[]; /* ends with an empty one */

/* shape.c: opens the model's configuration: that of MODEL, of --config, or one of the sizes that
 * the options give. `vocabulary` is that of the data. */
tsr_status train_shape_open(training_run *run, int64_t vocabulary);

/* text.c: reads the files as tokens, opens the tokenizer, and gives the number of different tokens
 * that the model must have. */
tsr_status train_text_open(training_run *run, int64_t *vocabulary);
/* Makes the rows of a training, and sets the number of steps if that was not given. Fails on all
 * ranks if they have read different files. */
tsr_status train_text_use(training_run *run);

#endif
