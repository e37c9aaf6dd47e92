/* Reports the training: lines on the terminal, JSON and a plot. */
#ifndef DIGITS_REPORT_H
#define DIGITS_REPORT_H

#include <stdio.h>

#include "common/job.h"
#include "options.h"

typedef struct epoch_result {
    int epoch;                    /* number of finished epochs */
    double loss, held_out_loss;   /* means over the images of the training, and of those held out */
    int64_t right, held_out;      /* held-out images: those classified correctly, and all */
    double seconds;               /* the time of the training, without evaluation */
    double communication_seconds; /* time for which this rank waited for others */
    int64_t images; /* images trained on; 0 in the results from before the first epoch */
} epoch_result;

/* Plots `count` results. The first result is the evaluation before the training. Returns false,
 * with a message on standard error, if the file cannot be written. */
bool report_curve(const char *path, const epoch_result *results, int count);

void report_setting(const example_job *job, const digits_options *options, int64_t train,
                    int64_t held_out, int64_t parameters);
void report_epoch(const epoch_result *result, int epochs);
void report_end(const epoch_result *results, int count);

/* Each of the following functions writes one line of JSON. */
void report_json_setting(FILE *file, const example_job *job, const digits_options *options);
void report_json_epoch(FILE *file, const epoch_result *result);

#endif
