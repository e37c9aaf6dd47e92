/* Prints the indices of a sampler, epoch by epoch. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/sample/sample.h"

/* How many indices to read at a time. The first reads are small, so that the first indices appear
 * immediately. */
#define FEW 64
#define MANY 65536

int sample_checked(tsr_status status)
{
    if (status == TSR_OK)
        return CLI_DONE;
    bool is_mistake = status == TSR_ERR_INVALID || status == TSR_ERR_OVERFLOW;
    return is_mistake ? cli_usage_error("sample: %s", tsr_last_error())
                      : cli_failed("sample: %s", tsr_last_error());
}

int sample_of_file_checked(tsr_status status)
{
    return status == TSR_OK ? CLI_DONE : cli_failed("sample: %s", tsr_last_error());
}

typedef struct printer {
    const char *kind;
    const sample_options *options;
    tsr_sampler *sampler;
    sample_output output;
    bool batches, masks;
    bool started; /* the head of the output has been written */
    uint64_t capacity, count;
    int64_t *indices;
    uint8_t *mask;
} printer;

/* Sets the number of epochs to print. Checks that all of these epochs exist. */
static int check_epochs(const printer *print, int64_t *epochs)
{
    const sample_options *options = print->options;
    *epochs = options->epochs < 0 ? 1 : options->epochs;
    if (options->epoch > INT64_MAX - (*epochs - 1))
        return cli_usage_error("sample: --epochs %" PRId64 ": too many epochs from %" PRId64 " on",
                               *epochs, options->epoch);
    return *epochs == 1 ? CLI_DONE
                        : sample_checked(tsr_sampler_set_epoch(print->sampler,
                                                               options->epoch + (*epochs - 1)));
}

uint64_t sample_batch_max(const tsr_sampler *sampler)
{
    tsr_sampler_info info = TSR_INIT(tsr_sampler_info);
    return tsr_sampler_get_info(sampler, &info) == TSR_OK ? info.batch_max : 0;
}

static tsr_status read_items(printer *print, uint64_t limit)
{
    uint8_t *mask = print->masks ? print->mask : NULL;
    if (print->batches)
        return tsr_sampler_next(print->sampler, print->capacity, print->indices, mask,
                                &print->count);
    uint64_t wanted = print->started ? print->capacity : FEW;
    return tsr_sampler_fill(print->sampler, wanted < limit ? wanted : limit, print->indices, mask,
                            &print->count);
}

static void start(printer *print, const char *list)
{
    const sample_options *options = print->options;
    bool is_first = !print->started;
    print->started = true;
    if (is_first) {
        print->output = sample_output_start(options->format, print->kind);
        sample_output_member(&print->output, "epoch", options->epoch);
        sample_output_member(&print->output, "epochs", options->epochs < 0 ? 1 : options->epochs);
        sample_output_member(&print->output, "length", (int64_t)tsr_sampler_length(print->sampler));
    }
    sample_output_open(&print->output, list);
}

static void print_items(printer *print, bool mask_only)
{
    const uint8_t *mask = print->masks ? print->mask : NULL;
    /* For the list of the mask, prints the mask's values in place of the indices. */
    for (uint64_t i = 0; mask_only && i < print->count; i++)
        print->indices[i] = print->mask[i];
    if (print->batches)
        sample_output_batch(&print->output, print->indices, mask_only ? NULL : mask, print->count);
    else
        sample_output_values(&print->output, print->indices, mask_only ? NULL : mask, print->count);
}

/* Prints all epochs as one list. */
static int print_list(printer *print, const char *list, bool mask_only)
{
    const sample_options *options = print->options;
    uint64_t limit = options->limit < 0 ? UINT64_MAX : (uint64_t)options->limit;
    int64_t epochs = options->epochs < 0 ? 1 : options->epochs;
    bool is_open = false;
    for (int64_t i = 0; i < epochs && !ferror(stdout); i++) {
        tsr_status status = tsr_sampler_set_epoch(print->sampler, options->epoch + i);
        if (status == TSR_OK && options->from >= 0)
            status = tsr_sampler_seek(print->sampler, (uint64_t)options->from);
        uint64_t left = limit;
        do {
            print->count = 0;
            if (status == TSR_OK && left > 0)
                status = read_items(print, left);
            if (status != TSR_OK)
                return sample_checked(status);
            if (!is_open)
                start(print, list);
            is_open = true;
            if (print->count > 0)
                print_items(print, mask_only);
            left -= print->batches ? print->count > 0 : print->count;
        } while (print->count > 0 && !ferror(stdout));
    }
    sample_output_close(&print->output);
    return CLI_DONE;
}

int sample_print(const char *kind, const sample_options *options, tsr_sampler *sampler)
{
    const uint64_t most = sample_batch_max(sampler);
    int64_t epochs;
    printer print = {
        .kind = kind,
        .options = options,
        .sampler = sampler,
        .batches = most > 0,
        .masks = options->tail == TSR_TAIL_PAD_MASK && options->format != SAMPLE_I64,
        .capacity = most > 0 ? most : MANY,
    };
    int code = check_epochs(&print, &epochs);
    if (code != CLI_DONE)
        return code;
    print.indices = cli_alloc(print.capacity, sizeof *print.indices);
    if (print.masks)
        print.mask = cli_alloc(print.capacity, 1);
    code = print_list(&print, print.batches ? "batches" : "indices", false);
    if (code == CLI_DONE && print.masks && options->format == SAMPLE_JSON)
        code = print_list(&print, "mask", true);
    if (code == CLI_DONE)
        sample_output_finish(&print.output);
    free(print.indices);
    free(print.mask);
    return code;
}
