/* Loads windows of the text to the device: `block` tokens each, and the token that follows each of
 * them. */
#ifndef GPT_WINDOWS_H
#define GPT_WINDOWS_H

#include "common/job.h"
#include "model.h"
#include "text.h"

typedef struct gpt_windows {
    const gpt_text *text;
    const gpt_offsets *offsets; /* where windows start; NULL: at random places */
    bool whole;      /* each rank loads the windows of all, because the rows do not divide evenly */
    int block, rows; /* tokens in a window; this rank's windows in a batch */
    gpt_chunks chunks;    /* this rank's tokens of each window */
    int batch, first_row; /* windows of all ranks in a batch; this rank's first one */
    tsr_loader *loader;
    int64_t epoch_batches; /* batches in an epoch, without those of an incomplete last step */
    int32_t *host;         /* [2][rows][chunks.tokens] */
    gpt_batch *batches;    /* [count] */
    int count;
} gpt_windows;

/* Makes room for `count` batches. `text` and `offsets` must outlive it. Call windows_finish()
 * afterwards, also on failure. */
tsr_status windows_init(gpt_windows *self, const gpt_text *text, const gpt_offsets *offsets,
                        const example_job *job, const gpt_config *config, const gpt_chunks *chunks,
                        const gpt_training *training, int count, int workers);
void windows_finish(gpt_windows *self);

/* Sets the batch with which the next windows_train() begins. A new object begins with batch 0. */
tsr_status windows_seek(gpt_windows *self, int64_t number);

/* Fills batches[0] to batches[count − 1] with this rank's windows of batches first, first + 1, …,
 * which must follow those of the last call. A step consists of `accumulate` batches. Every window
 * of the training part starts at most once in an epoch, in an order that depends on the seed only.
 * The windows of a step depend neither on the number of ranks nor on how many batches they are
 * divided into. */
tsr_status windows_train(gpt_windows *self, tsr_stream *stream, int64_t first, int count);

/* As windows_train(), for batches of the held-out part, whose windows are the same for every
 * seed. */
tsr_status windows_held_out(gpt_windows *self, tsr_stream *stream, int64_t first, int count);

#endif
