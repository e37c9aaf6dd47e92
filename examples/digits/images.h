/* Batches of images on their way from the file to the device. */
#ifndef DIGITS_IMAGES_H
#define DIGITS_IMAGES_H

#include "data.h"
#include "job.h"

/* Some of the file's images: a fifth, drawn at random, is held out; the others are trained on. */
typedef struct images {
    const digits_data *data;
    int64_t *items; /* [count]: which of the file's */
    int64_t count;
    tsr_loader *loader;
    int batch;                    /* images of all ranks in a step */
    tsr_tensor *raw, *x, *labels; /* one batch of this rank's on the device, x in the dtype */
} images;

/* A batch: views, which images_next() has made. */
typedef struct images_batch {
    tsr_tensor *x, *labels;  /* [rows, 64] and [rows] */
    const int32_t *expected; /* labels, on the host; −1: does not count. Until the next batch */
    int64_t rows;
    int64_t total; /* of all ranks, those that count */
} images_batch;

typedef enum images_part { IMAGES_TRAIN, IMAGES_HELD_OUT } images_part;

/* `data` stays the caller's. images_finish() afterwards in any case. */
tsr_status images_init(images *self, const digits_data *data, images_part part,
                       const digits_job *job, const digits_options *options);
void images_finish(images *self);

/* The next batch of the epoch: *got is false at its end. */
tsr_status images_next(images *self, tsr_stream *stream, images_batch *out, bool *got);
void images_batch_finish(images_batch *batch);

#endif
