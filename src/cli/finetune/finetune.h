/* What tessera finetune adds to trainings: its options and its data. */
#ifndef TSR_CLI_FINETUNE_FINETUNE_H
#define TSR_CLI_FINETUNE_FINETUNE_H

#include "cli/training/run.h"

/* options.c */

/* Reads the arguments into training_chosen. Returns an exit code. */
int finetune_options_read(int argc, char **argv);
/* Refuses options that contradict each other. Returns an exit code. */
int finetune_options_check(void);
void finetune_options_help(FILE *out);
extern const training_saved_option finetune_saved_options[]; /* ends with an empty one */

/* source.c: opens --data, and sets the number of steps if that was not given. Fails on all ranks if
 * they have read different data. */
tsr_status finetune_source_open(training_run *run);

/* reference.c: reads the recorded run --reference: its settings into training_chosen, its rows into
 * run->source, and the path of its first adapter into run->adapter. */
tsr_status finetune_reference_read(training_run *run);

#endif
