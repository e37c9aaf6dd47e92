/* Reports the training: lines on the terminal, JSON and a plot. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <stdio.h>

#include "common/job.h"
#include "model.h"
#include "options.h"
#include "text.h"

typedef struct gpt_record {
    int64_t step; /* number of finished steps */
    double loss, held_out_loss;
} gpt_record;

/* The evaluations so far, for the plot. `loss` is the mean over the steps since the previous
 * evaluation. */
typedef struct gpt_history {
    gpt_record *records;
    int count, capacity;
} gpt_history;

/* Returns false if there is no memory. */
bool report_add(gpt_history *history, const gpt_record *record);
void report_free(gpt_history *history);

void report_setting(const gpt_model *model, const gpt_options *options, const gpt_text *text);
/* The times of the last steps. */
#define GPT_RECENT_STEPS 50
typedef struct gpt_pace {
    double seconds[GPT_RECENT_STEPS];
    int64_t count; /* the number of steps that were added */
} gpt_pace;
void report_add_time(gpt_pace *pace, double seconds);
/* Returns the mean time of the last steps in seconds, or 0 if there are none. */
double report_mean_time(const gpt_pace *pace);
/* Writes the line of progress, over the previous one. */
void report_progress(int64_t step, int64_t steps, double loss, const gpt_pace *pace);
void report_evaluation(const gpt_record *record);
/* Names the files that the training has written. */
void report_files(const gpt_options *options);

/* Return false, with a message on standard error, if the file cannot be written. */
bool report_curve(const char *path, const gpt_history *history);
/* `model` has the loads of experts; NULL: they are not known. */
void report_json_step(FILE *file, int64_t step, double loss, double grad_norm, int ranks,
                      const gpt_model *model);
/* Says that the job has other ranks now. */
void report_ranks(int64_t step, int ranks, double seconds);
void report_json_evaluation(FILE *file, const gpt_record *record);

#endif
