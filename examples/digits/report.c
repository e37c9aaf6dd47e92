#include "report.h"

#include <math.h>
#include <stdlib.h>

#include "common/curve.h"

static double percent(const epoch_result *result)
{
    return 100.0 * (double)result->right / (double)result->held_out;
}

void report_setting(const example_job *job, const digits_options *options, int64_t train,
                    int64_t held_out, int64_t parameters)
{
    const tsr_device_info *info = tsr_device_get_info(job->device);
    printf("device    %s; %s%s%s\n", info->name, info->driver_name, info->driver_info[0] ? " " : "",
           info->driver_info);
    printf("ranks     %d: %d data-parallel × %d tensor-parallel, parameters shared: %s\n",
           job->ranks, job->data, job->tensor, options->strategy);
    printf("images    %lld to learn from, %lld held out; %s\n", (long long)train,
           (long long)held_out, options->csv);
    printf("network   64 → %d (GELU) → 10, %s, %lld of %lld parameters on rank 0\n",
           options->hidden, tsr_dtype_name(options->dtype), (long long)parameters,
           (long long)options->hidden * (64 + 1 + 10) + 10);
    printf("learning  AdamW %g, weight decay %g, batch %d, seed %lld\n\n", options->learning_rate,
           options->weight_decay, options->batch, (long long)options->seed);
}

void report_epoch(const epoch_result *result, int epochs)
{
    if (result->images == 0) { /* the evaluation before the first epoch of this run */
        printf("epoch        loss  held out   accuracy   images/s  communication\n");
        printf("%5d           –  %8.5f   %6.2f %%          –              –\n", result->epoch,
               result->held_out_loss, percent(result));
    } else {
        printf("%5d    %8.5f  %8.5f   %6.2f %%  %9.0f         %4.1f %%\n", result->epoch,
               result->loss, result->held_out_loss, percent(result),
               (double)result->images / result->seconds,
               100 * result->communication_seconds / result->seconds);
    }
    if (result->epoch >= epochs)
        printf("\n");
    fflush(stdout);
}

void report_end(const epoch_result *results, int count)
{
    const epoch_result *last = &results[count - 1];
    double seconds = 0, communication = 0, images = 0;
    for (int i = 1; i < count; i++) {
        seconds += results[i].seconds;
        communication += results[i].communication_seconds;
        images += (double)results[i].images;
    }
    printf("%lld of %lld held-out images right (%.2f %%)", (long long)last->right,
           (long long)last->held_out, percent(last));
    if (count > 1)
        printf("; %.0f images/s, learned in %.2f s, of which %.2f s waiting for other ranks",
               images / seconds, seconds, communication);
    printf("\n");
}

void report_json_setting(FILE *file, const example_job *job, const digits_options *options)
{
    fprintf(file,
            "{\"ranks\": %d, \"data\": %d, \"tensor\": %d, \"strategy\": \"%s\", \"dtype\": "
            "\"%s\", \"hidden\": %d, \"epochs\": %d, \"batch\": %d, \"learning_rate\": %.9g, "
            "\"weight_decay\": %.9g, \"seed\": %lld}\n",
            job->ranks, job->data, job->tensor, options->strategy, tsr_dtype_name(options->dtype),
            options->hidden, options->epochs, options->batch, options->learning_rate,
            options->weight_decay, (long long)options->seed);
}

void report_json_epoch(FILE *file, const epoch_result *result)
{
    fprintf(file, "{\"epoch\": %d, ", result->epoch);
    if (result->images > 0)
        fprintf(file,
                "\"loss\": %.9g, \"images\": %lld, \"seconds\": %.6f, "
                "\"communication_seconds\": %.6f, ",
                result->loss, (long long)result->images, result->seconds,
                result->communication_seconds);
    fprintf(file, "\"held_out_loss\": %.9g, \"held_out_right\": %lld, \"held_out\": %lld}\n",
            result->held_out_loss, (long long)result->right, (long long)result->held_out);
    fflush(file);
}

bool report_curve(const char *path, const epoch_result *results, int count)
{
    double *values = malloc((size_t)count * 3 * sizeof *values);
    if (!values) {
        fprintf(stderr, "digits: out of memory\n");
        return false;
    }
    double *x = values, *loss = x + count, *held_out = loss + count;
    for (int i = 0; i < count; i++) {
        x[i] = results[i].epoch;
        loss[i] = results[i].images > 0 ? results[i].loss : NAN;
        held_out[i] = results[i].held_out_loss;
    }
    bool written = curve_write(
        "digits", path,
        &(curve_params){.title = "cross-entropy of handwritten digits (logarithmic)",
                        .unit = "epoch",
                        .is_logarithmic = true,
                        .lines = {{"training", count, x, loss}, {"held out", count, x, held_out}}});
    free(values);
    return written;
}
