/* Classifies handwritten digits with a pair of layers on a GPU, checks every number against the CPU
 * in double precision, and says how fast it was.
 *
 *     hidden = ReLU(images · W1ᵀ + b1)      [1797,64] → [1797,128]
 *     logits = hidden · W2ᵀ + b2            [1797,128] → [1797,10]
 *
 * The weights are random, so what is shown is that the arithmetic is right, not that digits are
 * recognised. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "digits_data.h"
#include "tessera/tessera.h"

#define INPUTS DIGITS_PIXELS
#define HIDDEN 128
#define OUTPUTS DIGITS_LABELS
#define SEED 42
#define RUNS_MAX 100000

typedef struct settings {
    const char *path, *device;
    int runs;
} settings;

/* A layer's parameters on the device and, for the reference, here. */
typedef struct linear {
    int inputs, outputs;
    tsr_tensor *weight, *bias; /* [outputs,inputs], [outputs] */
    float *weight_values, *bias_values;
} linear;

typedef struct network {
    tsr_device *device;
    tsr_stream *stream;
    int64_t images;
    linear layers[2];
    tsr_tensor *x, *hidden, *logits, *probabilities, *classes;
} network;

/* What the device computed. */
typedef struct outcome {
    float *logits, *probabilities;
    int32_t *classes;
} outcome;

/* Leaves the function with the library's error. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        tsr_status status_ = (call);                                                               \
        if (status_ != TSR_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

/* ---- on the device ---- */

static tsr_status layer_create(network *net, linear *layer, int inputs, int outputs,
                               uint64_t subsequence)
{
    float bound = 1.0f / sqrtf((float)inputs);
    const tsr_random_params weights = {.seed = SEED, .subsequence = subsequence};
    const tsr_random_params biases = {.seed = SEED, .subsequence = subsequence + 1};
    size_t weight_bytes = (size_t)(inputs * outputs) * sizeof(float);
    size_t bias_bytes = (size_t)outputs * sizeof(float);

    layer->inputs = inputs;
    layer->outputs = outputs;
    TRY(tsr_tensor_create(net->device, TSR_F32, 2, (int64_t[]){outputs, inputs}, &layer->weight));
    TRY(tsr_tensor_create(net->device, TSR_F32, 1, (int64_t[]){outputs}, &layer->bias));
    TRY(tsr_random_uniform(net->stream, layer->weight, -bound, bound, &weights));
    TRY(tsr_random_uniform(net->stream, layer->bias, -bound, bound, &biases));
    layer->weight_values = malloc(weight_bytes);
    layer->bias_values = malloc(bias_bytes);
    if (!layer->weight_values || !layer->bias_values)
        return TSR_ERR_NO_MEMORY;
    TRY(tsr_tensor_download(net->stream, layer->weight, layer->weight_values, weight_bytes));
    return tsr_tensor_download(net->stream, layer->bias, layer->bias_values, bias_bytes);
}

static tsr_status network_create(network *net, const settings *options, const digits_data *data)
{
    int64_t n = data->count;
    net->images = n;
    TRY(tsr_device_open(tsr_device_params(.device = options->device), &net->device));
    TRY(tsr_stream_create(net->device, &net->stream));
    TRY(layer_create(net, &net->layers[0], INPUTS, HIDDEN, 0));
    TRY(layer_create(net, &net->layers[1], HIDDEN, OUTPUTS, 2));
    TRY(tsr_tensor_create(net->device, TSR_F32, 2, (int64_t[]){n, INPUTS}, &net->x));
    TRY(tsr_tensor_create(net->device, TSR_F32, 2, (int64_t[]){n, HIDDEN}, &net->hidden));
    TRY(tsr_tensor_create(net->device, TSR_F32, 2, (int64_t[]){n, OUTPUTS}, &net->logits));
    TRY(tsr_tensor_create(net->device, TSR_F32, 2, (int64_t[]){n, OUTPUTS}, &net->probabilities));
    TRY(tsr_tensor_create(net->device, TSR_I32, 1, &n, &net->classes));
    return tsr_tensor_upload(net->stream, net->x, data->pixels,
                             (uint64_t)n * INPUTS * sizeof(float));
}

static void network_destroy(network *net)
{
    for (int i = 0; i < 2; i++) {
        tsr_tensor_destroy(&net->layers[i].weight);
        tsr_tensor_destroy(&net->layers[i].bias);
        free(net->layers[i].weight_values);
        free(net->layers[i].bias_values);
    }
    tsr_tensor_destroy(&net->x);
    tsr_tensor_destroy(&net->hidden);
    tsr_tensor_destroy(&net->logits);
    tsr_tensor_destroy(&net->probabilities);
    tsr_tensor_destroy(&net->classes);
    tsr_stream_destroy(&net->stream);
    tsr_device_close(&net->device);
}

/* Records the whole computation; nothing waits for it yet. */
static tsr_status forward(network *net)
{
    const linear *first = &net->layers[0], *second = &net->layers[1];
    TRY(tsr_matmul(
        net->stream, net->hidden, net->x, first->weight,
        tsr_matmul_params(.transpose_b = true, .bias = first->bias, .activation = TSR_ACT_RELU)));
    TRY(tsr_matmul(net->stream, net->logits, net->hidden, second->weight,
                   tsr_matmul_params(.transpose_b = true, .bias = second->bias)));
    TRY(tsr_softmax(net->stream, net->probabilities, net->logits));
    return tsr_argmax(net->stream, net->classes, net->logits, 1);
}

static tsr_status download(network *net, outcome *out)
{
    size_t count = (size_t)net->images;
    out->logits = malloc(count * OUTPUTS * sizeof *out->logits);
    out->probabilities = malloc(count * OUTPUTS * sizeof *out->probabilities);
    out->classes = malloc(count * sizeof *out->classes);
    if (!out->logits || !out->probabilities || !out->classes)
        return TSR_ERR_NO_MEMORY;
    TRY(tsr_tensor_download(net->stream, net->logits, out->logits,
                            count * OUTPUTS * sizeof *out->logits));
    TRY(tsr_tensor_download(net->stream, net->probabilities, out->probabilities,
                            count * OUTPUTS * sizeof *out->probabilities));
    return tsr_tensor_download(net->stream, net->classes, out->classes,
                               count * sizeof *out->classes);
}

static void results_free(outcome *results)
{
    free(results->logits);
    free(results->probabilities);
    free(results->classes);
}

/* ---- the reference ---- */

/* y = W·x + b in double, and how far from it f32 may end up: each of the n products and n
 * additions, in whatever order, rounds by 2^-24 of its size at most, and x itself may be off by
 * x_bound. */
static void reference_layer(const linear *layer, const double *x, const double *x_bound, double *y,
                            double *y_bound)
{
    for (int o = 0; o < layer->outputs; o++) {
        double sum = (double)layer->bias_values[o], size = fabs(sum), inherited = 0;
        for (int i = 0; i < layer->inputs; i++) {
            double weight = (double)layer->weight_values[o * layer->inputs + i];
            sum += weight * x[i];
            size += fabs(weight * x[i]);
            inherited += fabs(weight) * x_bound[i];
        }
        y[o] = sum;
        y_bound[o] = inherited + (layer->inputs + 2) * 0x1p-24 * (size + inherited);
    }
}

static void reference_logits(const network *net, const float *pixels, double *logits,
                             double *bounds)
{
    double x[INPUTS], exact[INPUTS] = {0}, hidden[HIDDEN], hidden_bound[HIDDEN];
    for (int i = 0; i < INPUTS; i++)
        x[i] = (double)pixels[i];
    reference_layer(&net->layers[0], x, exact, hidden, hidden_bound);
    for (int i = 0; i < HIDDEN; i++)
        hidden[i] = hidden[i] > 0 ? hidden[i] : 0; /* ReLU enlarges no error */
    reference_layer(&net->layers[1], hidden, hidden_bound, logits, bounds);
}

static int largest_of(const double *values)
{
    int best = 0;
    for (int j = 1; j < OUTPUTS; j++)
        best = values[j] > values[best] ? j : best;
    return best;
}

typedef struct comparison {
    double logit_error, logit_bound, probability_error;
    int64_t wrong_logits, same_class, close_calls, right;
} comparison;

/* How the device's results for one image differ from the reference. */
static void compare_image(comparison *c, const float *logits, const float *probabilities,
                          int32_t class, int32_t label, const double *want, const double *bounds)
{
    int best = largest_of(want);
    double sum = 0;
    for (int j = 0; j < OUTPUTS; j++)
        sum += exp(want[j] - want[best]);
    for (int j = 0; j < OUTPUTS; j++) {
        double error = fabs((double)logits[j] - want[j]);
        c->wrong_logits += !(error <= bounds[j]); /* NaN is wrong too */
        c->logit_error = fmax(c->logit_error, error);
        c->logit_bound = fmax(c->logit_bound, bounds[j]);
        c->probability_error = fmax(
            c->probability_error, fabs((double)probabilities[j] - exp(want[j] - want[best]) / sum));
    }
    c->right += class == label;
    if (class == best)
        c->same_class++;
    else if (class >= 0 && class < OUTPUTS &&
             want[best] - want[class] <= bounds[best] + bounds[class])
        c->close_calls++; /* the two are nearer than rounding can tell apart */
}

static comparison compare(const network *net, const digits_data *data, const outcome *got)
{
    comparison c = {0};
    for (int64_t i = 0; i < data->count; i++) {
        double want[OUTPUTS], bounds[OUTPUTS];
        reference_logits(net, data->pixels + i * INPUTS, want, bounds);
        compare_image(&c, got->logits + i * OUTPUTS, got->probabilities + i * OUTPUTS,
                      got->classes[i], data->labels[i], want, bounds);
    }
    return c;
}

/* ---- the report ---- */

/* "1,797" */
static const char *grouped(int64_t value, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

static void print_setting(const network *net, const settings *options)
{
    const tsr_device_info *info = tsr_device_get_info(net->device);
    char count[32];
    printf("device    %s\n", info->name);
    printf("driver    %s%s%s\n", info->driver_name, info->driver_info[0] ? ", " : "",
           info->driver_info);
    printf("images    %s of 8×8 pixels, from %s\n", grouped(net->images, count), options->path);
    printf("layers    %d → %d (ReLU) → %d, f32, random weights (seed %d)\n\n", INPUTS, HIDDEN,
           OUTPUTS, SEED);
}

/* Probabilities lie in 0 … 1 and change by at most the largest error of a logit; the rest is
 * rounding. */
static bool print_comparison(const comparison *c, int64_t images)
{
    char same[32], all[32], right[32], wrong[32];
    double allowed = c->logit_bound + 1e-6;
    bool logits_good = c->wrong_logits == 0;
    bool softmax_good = c->probability_error <= allowed;
    bool classes_good = c->same_class + c->close_calls == images;
    char line[3][96];
    snprintf(line[0], sizeof line[0], "largest error %.1e; rounding allows up to %.1e",
             c->logit_error, c->logit_bound);
    snprintf(line[1], sizeof line[1], "largest error %.1e; allowed %.1e", c->probability_error,
             allowed);
    snprintf(line[2], sizeof line[2], "%s of %s agree", grouped(c->same_class, same),
             grouped(images, all));
    printf("checked against the CPU in double precision:\n");
    printf("logits    %-54s%s\n", line[0], logits_good ? "ok" : "WRONG");
    if (!logits_good)
        printf("          %s logits are further off than rounding allows\n",
               grouped(c->wrong_logits, wrong));
    printf("softmax   %-54s%s\n", line[1], softmax_good ? "ok" : "WRONG");
    printf("argmax    %-54s%s\n", line[2], classes_good ? "ok" : "WRONG");
    printf("labels    %s of %s right: chance, as the weights are not trained\n\n",
           grouped(c->right, right), all);
    return logits_good && softmax_good && classes_good;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tsr_status print_speed(network *net, int runs)
{
    double *seconds = malloc((size_t)runs * sizeof *seconds);
    if (!seconds)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < runs; i++) {
        double start = seconds_now();
        tsr_status status = forward(net);
        if (status == TSR_OK)
            status = tsr_stream_wait(net->stream);
        if (status != TSR_OK) {
            free(seconds);
            return status;
        }
        seconds[i] = seconds_now() - start;
    }
    qsort(seconds, (size_t)runs, sizeof *seconds, compare_doubles);
    double median = (seconds[(runs - 1) / 2] + seconds[runs / 2]) / 2;
    double flops = 2.0 * (double)net->images * (INPUTS * HIDDEN + HIDDEN * OUTPUTS);
    char rate[32];
    printf("speed     %s images/s, %.1f GFLOP/s\n",
           grouped((int64_t)((double)net->images / median), rate), flops / median * 1e-9);
    printf("          all images in %.2f ms (median of %d runs, %.2f to %.2f ms)\n", median * 1e3,
           runs, seconds[0] * 1e3, seconds[runs - 1] * 1e3);
    free(seconds);
    return TSR_OK;
}

/* ---- the command line ---- */

static void print_help(void)
{
    printf(
        "usage: digits [options] [FILE]\n\n"
        "Runs a 64 → 128 → 10 layer pair over the images of FILE on a GPU, checks every result "
        "against the\n"
        "CPU in double precision, and prints error and speed.\n\n"
        "FILE           lines of 64 pixels (0 to 16) and a label (0 to 9), separated by commas;\n"
        "               default: %s\n"
        "--device NAME  index, UUID or part of the name, as `tessera devices` lists them; default: "
        "the best\n"
        "--runs N       how often to time it, 1 to %d; default: 20\n"
        "--help         this text\n\n"
        "Exit status: 0 all results right, 1 some wrong, 2 it could not run.\n",
        DIGITS_CSV, RUNS_MAX);
}

static bool wrong_usage(const char *what, const char *value)
{
    fprintf(stderr, "digits: %s%s; see digits --help\n", what, value);
    return false;
}

/* The value of the option `name` at *index, given as "--name value" or "--name=value"; NULL when
 * argv[*index] is not that option,
 * "" when the value is missing. */
static const char *option_value(const char *name, int argc, char **argv, int *index)
{
    size_t length = strlen(name);
    const char *argument = argv[*index];
    if (strncmp(argument, name, length) != 0)
        return NULL;
    if (argument[length] == '=')
        return argument + length + 1;
    if (argument[length] != '\0')
        return NULL;
    return *index + 1 < argc ? argv[++*index] : "";
}

static bool parse_runs(const char *text, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 1 || value > RUNS_MAX)
        return wrong_usage("--runs takes a number from 1 to 100000, not ", text);
    *out = (int)value;
    return true;
}

static bool parse_options(int argc, char **argv, settings *out)
{
    *out = (settings){.runs = 20};
    for (int i = 1; i < argc; i++) {
        const char *value;
        if ((value = option_value("--device", argc, argv, &i)) != NULL) {
            if (*value == '\0')
                return wrong_usage("--device takes a name", "");
            out->device = value;
        } else if ((value = option_value("--runs", argc, argv, &i)) != NULL) {
            if (!parse_runs(value, &out->runs))
                return false;
        } else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            return wrong_usage("unknown option ", argv[i]);
        } else if (out->path) {
            return wrong_usage("one file only, not also ", argv[i]);
        } else {
            out->path = argv[i];
        }
    }
    if (!out->path)
        out->path = DIGITS_CSV;
    return true;
}

static int failed(tsr_status status)
{
    fprintf(stderr, "digits: %s\n",
            status == TSR_ERR_NO_MEMORY && !*tsr_last_error() ? "out of memory" : tsr_last_error());
    return 2;
}

static int run(network *net, const settings *options, const digits_data *data, outcome *got)
{
    tsr_status status = network_create(net, options, data);
    if (status != TSR_OK)
        return failed(status);
    print_setting(net, options);
    status = forward(net);
    if (status == TSR_OK)
        status = download(net, got);
    if (status != TSR_OK)
        return failed(status);
    comparison c = compare(net, data, got);
    if (!print_comparison(&c, data->count))
        return 1;
    status = print_speed(net, options->runs);
    return status == TSR_OK ? 0 : failed(status);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return 0;
        }
    }
    settings options;
    if (!parse_options(argc, argv, &options))
        return 2;
    digits_data data;
    char error[512];
    if (!digits_read(options.path, &data, error, sizeof error)) {
        fprintf(stderr, "digits: %s\n", error);
        return 2;
    }
    network net = {0};
    outcome got = {0};
    int status = run(&net, &options, &data, &got);
    results_free(&got);
    network_destroy(&net);
    digits_free(&data);
    return status;
}
