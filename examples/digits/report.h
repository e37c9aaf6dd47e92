/* What there is to tell of the training: lines on the terminal, JSON, a picture. */
#ifndef DIGITS_REPORT_H
#define DIGITS_REPORT_H

#include <stdio.h>

#include "job.h"

typedef struct epoch_result {
    int epoch;                    /* how many there have been */
    double loss, held_out_loss;   /* means over images */
    int64_t right, held_out;      /* of the images held out */
    double seconds;               /* of learning, without what is held out */
    double communication_seconds; /* in which this rank waited for others */
    int64_t images;               /* learned from; 0: before the first epoch of this run */
} epoch_result;

/* `epochs` results, the first of them before learning. False, with a sentence on stderr, when the
 * file cannot be written. */
bool report_curve(const char *path, const epoch_result *results, int count);

void report_setting(const digits_job *job, const digits_options *options, int64_t train,
                    int64_t held_out, int64_t parameters);
void report_epoch(const epoch_result *result, int epochs);
void report_end(const epoch_result *results, int count);

/* One line each. */
void report_json_setting(FILE *file, const digits_job *job, const digits_options *options);
void report_json_epoch(FILE *file, const epoch_result *result);

#endif
