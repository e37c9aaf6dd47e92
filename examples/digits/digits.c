/* Trains a small network on images of handwritten digits, on one or more GPUs of any vendors.
 *
 *     digits                                   one process
 *     digits --ranks 4 --grid 2x2              four processes; two share the work of each image
 *     srun --mpi=pmix -n 8 digits --grid 2x4   on a cluster
 *
 * The trained model does not depend on the grid: every process draws its part of the initial
 * weights by their position in the full weight, and a step uses the same images for any number of
 * ranks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "model.h"
#include "report.h"

typedef struct training {
    example_job job;
    digits_data data;
    images train, held_out;
    model model;
    FILE *log;
    epoch_result *results; /* [epochs + 1]: before the training, and after each epoch */
    int count;
} training;

static tsr_status communication_seconds(const example_job *job, double *seconds)
{
    tsr_group_stats data = TSR_INIT(tsr_group_stats), tensor = TSR_INIT(tsr_group_stats);
    TRY(tsr_group_get_stats(job->data_group, &data));
    TRY(tsr_group_get_stats(job->tensor_group, &tensor));
    *seconds = (double)(data.transport_ns + tensor.transport_ns) * 1e-9;
    return TSR_OK;
}

static tsr_status learn(training *t, epoch_result *result)
{
    images_batch batch;
    bool got;
    double sum, start = seconds_now(), waited_before, waited;
    TRY(communication_seconds(&t->job, &waited_before));
    TRY(tsr_loader_set_epoch(t->train.loader, result->epoch - 1));
    for (;;) {
        TRY(images_next(&t->train, t->job.stream, &batch, &got));
        if (!got)
            break;
        tsr_status status = model_train(&t->model, &t->job, &batch);
        images_batch_finish(&batch);
        TRY(status);
    }
    TRY(model_take_loss(&t->model, &t->job, &sum));
    result->images = t->train.count;
    result->loss = sum / (double)result->images;
    result->seconds = seconds_now() - start;
    TRY(communication_seconds(&t->job, &waited));
    result->communication_seconds = waited - waited_before;
    return TSR_OK;
}

/* Returns how many images of the batch are classified correctly. Padding does not count. */
static int64_t count_right(const images_batch *batch, const int32_t *classes)
{
    int64_t right = 0;
    for (int64_t i = 0; i < batch->rows; i++)
        right += batch->expected[i] >= 0 && batch->expected[i] == classes[i];
    return right;
}

static tsr_status evaluate(training *t, epoch_result *result)
{
    images_batch batch;
    bool got;
    double sum;
    int64_t right = 0;
    TRY(tsr_loader_set_epoch(t->held_out.loader, 0));
    int32_t *classes = malloc((size_t)t->held_out.batch * sizeof *classes);
    if (!classes)
        return TSR_ERR_NO_MEMORY;
    tsr_status status;
    while ((status = images_next(&t->held_out, t->job.stream, &batch, &got)) == TSR_OK && got) {
        status = model_classify(&t->model, &t->job, &batch, classes);
        if (status == TSR_OK)
            right += count_right(&batch, classes);
        images_batch_finish(&batch);
        if (status != TSR_OK)
            break;
    }
    free(classes);
    TRY(status);
    TRY(tsr_comm_all_reduce(t->job.data_comm, &right, &result->right, 1, TSR_I64, TSR_OP_SUM,
                            NULL));
    TRY(model_take_loss(&t->model, &t->job, &sum));
    result->held_out = t->held_out.count;
    result->held_out_loss = sum / (double)result->held_out;
    return TSR_OK;
}

static void tell(training *t, const digits_options *options, const epoch_result *result)
{
    if (t->job.rank != 0)
        return;
    report_epoch(result, options->epochs);
    if (t->log)
        report_json_epoch(t->log, result);
}

/* Trains for the epochs that are left: all, or those after the last one of a loaded checkpoint. If
 * none is left, the model is only evaluated. */
static tsr_status run_epochs(training *t, const digits_options *options)
{
    int first = 0;
    if (options->load)
        TRY(model_load(&t->model, &t->job, options->load, &first));
    if (options->save_init)
        TRY(model_save(&t->model, &t->job, options->save_init, first));
    int last = first > options->epochs ? first : options->epochs;
    for (int epoch = first; epoch <= last; epoch++) {
        epoch_result *result = &t->results[t->count];
        result->epoch = epoch;
        if (epoch > first)
            TRY(learn(t, result));
        TRY(evaluate(t, result));
        if (epoch > first && options->save)
            TRY(model_save(&t->model, &t->job, options->save, epoch));
        t->count++;
        tell(t, options, result);
    }
    return TSR_OK;
}

static tsr_status prepare(training *t, const digits_options *options)
{
    TRY(images_init(&t->train, &t->data, IMAGES_TRAIN, &t->job, options));
    TRY(images_init(&t->held_out, &t->data, IMAGES_HELD_OUT, &t->job, options));
    tsr_loader_info epoch = TSR_INIT(tsr_loader_info);
    TRY(tsr_loader_get_info(t->train.loader, &epoch));
    TRY(model_init(&t->model, &t->job, options, (int64_t)epoch.length));
    t->results = calloc((size_t)options->epochs + 1, sizeof *t->results);
    return t->results ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static int failed(const training *t, tsr_status status, const char *error)
{
    const char *text = *error ? error : tsr_last_error();
    if (!*text)
        text = status == TSR_ERR_NO_MEMORY ? "out of memory" : tsr_status_name(status);
    fprintf(stderr, "digits: rank %d: %s\n", t->job.rank, text);
    return 1;
}

static bool open_log(training *t, const digits_options *options)
{
    if (!options->log || t->job.rank != 0)
        return true;
    t->log = fopen(options->log, "w");
    if (!t->log) {
        fprintf(stderr, "digits: %s: %s\n", options->log, strerror(errno));
        return false;
    }
    report_json_setting(t->log, &t->job, options);
    return true;
}

/* Returns the number of parameters that this rank keeps. */
static int64_t kept_parameters(const model *m, tsr_dtype dtype)
{
    tsr_fsdp_memory memory = TSR_INIT(tsr_fsdp_memory);
    if (tsr_fsdp_get_memory(m->sharded, &memory) != TSR_OK)
        return 0;
    return (int64_t)(memory.parameter_bytes / tsr_dtype_size(dtype));
}

static example_job_params job_params(const digits_options *options)
{
    return (example_job_params){.program = "digits",
                                .ranks = options->ranks,
                                .data = options->data,
                                .tensor = options->tensor,
                                .batch = options->batch,
                                .device = options->device,
                                .timeout_seconds = options->timeout_seconds};
}

static int train(training *t, const digits_options *options)
{
    char error[256];
    const example_job_params params = job_params(options);
    tsr_status status = job_init(&t->job, &params, error);
    if (status == TSR_OK)
        status = prepare(t, options);
    if (status != TSR_OK)
        return failed(t, status, error);
    if (!open_log(t, options))
        return 1;
    if (t->job.rank == 0)
        report_setting(&t->job, options, t->train.count, t->held_out.count,
                       kept_parameters(&t->model, options->dtype));
    status = run_epochs(t, options);
    if (status != TSR_OK)
        return failed(t, status, error);
    if (t->job.rank != 0)
        return 0;
    report_end(t->results, t->count);
    return !options->curve || report_curve(options->curve, t->results, t->count) ? 0 : 1;
}

static int finish(training *t, int code)
{
    model_finish(&t->model);
    images_finish(&t->train);
    images_finish(&t->held_out);
    job_finish(&t->job);
    digits_free(&t->data);
    free(t->results);
    if (t->log && (ferror(t->log) | fclose(t->log)) != 0) {
        fprintf(stderr, "digits: the log could not be written\n");
        code = 1;
    }
    return checked_output("digits", code);
}

int main(int argc, char **argv)
{
    digits_options options;
    training t = {0};
    char error[512];
    if (!digits_options_parse(argc, argv, &options))
        return 2;
    if (options.help) {
        digits_options_help();
        return checked_output("digits", 0);
    }
    if (!digits_read(options.csv, &t.data, error, sizeof error)) {
        fprintf(stderr, "digits: %s\n", error);
        return 2;
    }
    const example_job_params params = job_params(&options);
    if (!job_launch(&params, argv)) {
        digits_free(&t.data);
        return 1;
    }
    return finish(&t, train(&t, &options));
}
