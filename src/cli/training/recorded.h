/* Runs that another program has recorded, with which a training is compared: tests/data/training
 * describes the files. Their vocabulary are the characters of a text. */
#ifndef TSR_CLI_TRAINING_RECORDED_H
#define TSR_CLI_TRAINING_RECORDED_H

#include "cli/training/training.h"

struct json_t;

/* A recorded run that is being read. */
typedef struct training_recorded {
    const char *path;
    struct json_t *root;
    tsr_status status; /* of the first error that one of the functions below has found */
} training_recorded;

/* Call training_recorded_close afterwards, also on failure. */
tsr_status training_recorded_open(const char *path, training_recorded *out);
void training_recorded_close(training_recorded *r);
/* Returns whether the file describes a run, and not only a model. */
bool training_recorded_is_run(const training_recorded *r);

/* Returns a member of the object `group`, a number from 0 to `most`; `missing` if there is none. */
double training_recorded_number(training_recorded *r, const char *group, const char *name,
                                double missing, double most);
/* The same for an integer of 1 or more. `missing` 0: there must be one. */
int64_t training_recorded_count(training_recorded *r, const char *group, const char *name,
                                int64_t missing);
/* Returns the text of a member of `group` (NULL: of the file), or NULL. */
const char *training_recorded_text(const training_recorded *r, const char *group, const char *name);

/* Sets options that were not given to those of the recorded run. */
tsr_status training_recorded_settings(training_recorded *r);
/* Gives where the rows of each step start in a text of `tokens` tokens: offsets[count]. Fails
 * unless there are --batch rows in each of --steps steps. The caller frees *offsets. */
tsr_status training_recorded_offsets(training_recorded *r, int64_t tokens, int64_t **offsets,
                                     int64_t *count);

#endif
