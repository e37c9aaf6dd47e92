/* Windows of the text on their way to the device: `block` tokens each, and the tokens that follow
 * them. */
#ifndef GPT_WINDOWS_H
#define GPT_WINDOWS_H

#include "common/job.h"
#include "model.h"
#include "text.h"

typedef struct gpt_windows {
    const gpt_text *text;
    const gpt_offsets *offsets; /* where windows start instead of by chance; NULL: none */
    bool whole;      /* the loader loads the windows of all ranks, whose numbers of rows differ */
    int block, rows; /* tokens of a window; this rank's windows in a batch */
    int batch, first_row; /* all ranks' windows in a batch; the first one of this rank */
    tsr_loader *loader;
    int64_t epoch_batches; /* of complete steps */
    int32_t *host;         /* [2][rows][block] */
    gpt_batch *batches;    /* [count] */
    int count;
} gpt_windows;

/* Makes room for `count` batches. `text` and `offsets` must outlive it. Call windows_finish()
 * afterwards, also on failure. */
tsr_status windows_init(gpt_windows *self, const gpt_text *text, const gpt_offsets *offsets,
                        const example_job *job, const gpt_config *config,
                        const gpt_training *training, int count, int workers);
void windows_finish(gpt_windows *self);

/* The next windows_train() is that of batch `number`. A new object begins at batch 0. */
tsr_status windows_seek(gpt_windows *self, int64_t number);

/* Fills batches[0] to batches[count − 1] with this rank's windows of batches first, first + 1, ….
 * Batches follow one another, and a step has `accumulate` of them. Every window of the training
 * part starts at most once in an epoch, in an order that depends on the seed only. Which windows a
 * step has depends neither on the number of ranks nor on how many batches they are divided into. */
tsr_status windows_train(gpt_windows *self, tsr_stream *stream, int64_t first, int count);

/* The same for batches of the held-out part, which is the same for every seed. */
tsr_status windows_held_out(gpt_windows *self, tsr_stream *stream, int64_t first, int count);

#endif
